//! The JSON Schemas of Rust types. They are sent to the peer, and values from the peer are checked against them.

use core::any::{Any, TypeId, type_name};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Serialize;
use serde::de::value::StrDeserializer;
use serde::de::{DeserializeOwned, IntoDeserializer as _};
use serde_json::{Map, Value, json};

use crate::aliases;
#[cfg(feature = "validate")]
use crate::check_full;
use crate::check_own::{self, whole_numbers};
use protocol_core::dialect::{Content, ToolOutput, ToolResult};
use protocol_core::json::write::Object;
use protocol_core::json::{Json, JsonError, Text};
use protocol_core::mcp::tool_schema_fault;

/// Values that are made from the schemas of Rust types. The value of a type never changes, and is kept until the process ends.
struct PerType<V>(RwLock<BTreeMap<TypeId, Arc<V>>>);

impl<V> PerType<V> {
    const fn new() -> Self {
        Self(RwLock::new(BTreeMap::new()))
    }

    /// The value of the type `T`, which `make` makes at the first call. If several threads make it at the same time, one of the values is
    /// kept.
    fn get<T: 'static>(&self, make: fn() -> V) -> Arc<V> {
        let id = TypeId::of::<T>();
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner).get(&id).cloned();
        known.unwrap_or_else(|| {
            let made = Arc::new(make());
            Arc::clone(self.0.write().unwrap_or_else(PoisonError::into_inner).entry(id).or_insert(made))
        })
    }
}

/// A schema with its checker.
pub(crate) struct Shape {
    /// The schema as it is sent to the peer.
    schema: Json,
    checker: Checker,
    reading: Reading,
    /// The reason for which no arguments have this shape.
    fault: Option<String>,
}

/// How a value is read from JSON. `null` stands for arguments that are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    /// As it is.
    Verbatim,
    /// From an object, which is empty if it is missing.
    Object,
    /// From an object, which may be missing: the value is then `None`. So it is if the object is empty although members are required, since
    /// many clients always send an object.
    Optional,
    /// From an empty object. The type is `()`.
    Unit,
}

/// The types of JSON that a schema allows, a bit for each: null, an object, any other type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kinds(u8);

impl Kinds {
    const NONE: Self = Self(0);
    const NULL: Self = Self(1);
    const OBJECT: Self = Self(2);
    const OTHER: Self = Self(4);

    /// The types that a schema allows; `None` if it restricts none. `root` is the schema that its references are resolved in.
    fn of(schema: &Value, root: &Value) -> Option<Self> {
        /// The maximum number of schemas in each other. A deeper one, or a definition by itself alone, counts as not restricted.
        const MAX_DEPTH: u8 = 32;
        Self::within(schema, root, MAX_DEPTH)
    }

    fn within(schema: &Value, root: &Value, depth: u8) -> Option<Self> {
        let Value::Object(rules) = schema else { return (*schema == false).then_some(Self::NONE) };
        let depth = depth.checked_sub(1)?;
        let listed = |list: &[Value], kind: fn(&Value) -> Self| list.iter().map(kind).fold(Self::NONE, Self::or);
        let named = |name: &Value| match name.as_str() {
            Some("null") => Self::NULL,
            Some("object") => Self::OBJECT,
            _ => Self::OTHER,
        };
        let mut kinds = None;
        for (keyword, rule) in rules {
            let allowed = match (keyword.as_str(), rule) {
                ("type", Value::Array(names)) => Some(listed(names, named)),
                ("type", name) => Some(named(name)),
                ("enum", Value::Array(values)) => Some(listed(values, Self::of_value)),
                ("const", value) => Some(Self::of_value(value)),
                ("$ref", _) => check_own::target(root, rule).and_then(|target| Self::within(target, root, depth)),
                ("anyOf" | "oneOf", Value::Array(parts)) => {
                    let mut parts = parts.iter().map(|part| Self::within(part, root, depth));
                    parts.try_fold(Self::NONE, |all, part| Some(all.or(part?)))
                }
                ("allOf", Value::Array(parts)) => parts.iter().filter_map(|part| Self::within(part, root, depth)).reduce(Self::and),
                _ => None,
            };
            kinds = match (kinds, allowed) {
                (Some(one), Some(other)) => Some(Self::and(one, other)),
                (one, other) => one.or(other),
            };
        }
        kinds
    }

    const fn of_value(value: &Value) -> Self {
        match value {
            Value::Null => Self::NULL,
            Value::Object(_) => Self::OBJECT,
            _ => Self::OTHER,
        }
    }

    const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

/// Checks values against a schema.
enum Checker {
    /// The checker of this crate. Its time is linear in the size of the value.
    Own(check_own::Checker),
    /// The checker of `jsonschema`, for schemas with keywords that this crate does not check. Its time is polynomial in the depth of nested
    /// alternatives.
    #[cfg(feature = "validate")]
    Full(check_full::Checker),
    /// No checker: the reason for which the schema is refused.
    #[cfg(not(feature = "validate"))]
    None(String),
}

impl Checker {
    fn new(schema: Value) -> Self {
        match check_own::Checker::new(&schema) {
            Ok(checker) => Self::Own(checker),
            #[cfg(feature = "validate")]
            Err(_) => Self::Full(check_full::Checker::new(schema)),
            #[cfg(not(feature = "validate"))]
            Err(unchecked) => Self::None(unchecked.to_string()),
        }
    }

    /// The reason for which the schema is refused: it has a keyword that is not checked.
    fn refusal(&self) -> Option<String> {
        match self {
            Self::Own(_) => None,
            #[cfg(feature = "validate")]
            Self::Full(_) => None,
            #[cfg(not(feature = "validate"))]
            Self::None(reason) => Some(reason.clone()),
        }
    }

    /// Fails if the schema itself is known not to be valid.
    fn check_schema(&self) -> Result<(), String> {
        match self {
            #[cfg(feature = "validate")]
            Self::Full(checker) => checker.check_schema().map_err(|error| format!("is not valid: {error}")),
            _ => Ok(()),
        }
    }

    /// Returns `true` if the value in `json` is certainly valid, which most values of callers are.
    fn fits(&self, json: &Json) -> bool {
        matches!(self, Self::Own(checker) if checker.fits(json))
    }

    /// Checks `value`. Its JSON as it was received is `size` bytes long. Fails with the text of its validation errors.
    #[cfg_attr(not(feature = "validate"), expect(unused_variables, reason = "only the other checker needs the size"))]
    fn check(&self, value: &Value, size: usize) -> Result<(), String> {
        match self {
            Self::Own(checker) => checker.check(value),
            #[cfg(feature = "validate")]
            Self::Full(checker) => checker.check(value, size),
            #[cfg(not(feature = "validate"))]
            Self::None(reason) => Err(reason.clone()),
        }
    }
}

impl Shape {
    /// The shape of the JSON that a `T` is deserialized from.
    pub(crate) fn of<T: JsonSchema>() -> Self {
        Self::new(schema_of::<T>(SchemaSettings::draft2020_12().for_deserialize()), Reading::Verbatim)
    }

    /// The shape of the arguments of a tool, made once for each type.
    pub(crate) fn arguments<T: JsonSchema + 'static>() -> Arc<Self> {
        static ALL: PerType<Shape> = PerType::new();
        ALL.get::<T>(Self::make_arguments::<T>)
    }

    /// The shape of the arguments of a tool, which are an object. If the schema lists its properties, other members are not allowed, unless
    /// it has `additionalProperties` or a keyword that may allow them, such as a reference, an alternative or a condition.
    ///
    /// The schema has `"type": "object"` at its root, since clients refuse a whole list with a tool whose schema has another type or none.
    /// So a type that is also read from other JSON is a fault: not all of its values could be sent.
    fn make_arguments<T: JsonSchema>() -> Self {
        let mut schema = schema_of::<T>(SchemaSettings::draft2020_12().for_deserialize());
        let reading = match Kinds::of(&schema, &schema) {
            None | Some(Kinds::OBJECT) => Reading::Object,
            Some(Kinds::NULL) => Reading::Unit,
            Some(kinds) if kinds == Kinds::OBJECT.or(Kinds::NULL) => Reading::Optional,
            Some(_) => {
                let name = type_name::<T>();
                let fault = format!(
                    "arguments are an object, but `{name}` is also or only read from other JSON: make it a field of a struct, such as \
                     `struct Arguments {{ value: {name} }}`"
                );
                return Self { fault: Some(fault), ..Self::new(schema, Reading::Object) };
            }
        };
        match reading {
            Reading::Unit => schema = json!({"properties": {}, "additionalProperties": false}),
            Reading::Optional => drop_null(&mut schema),
            // The schema `true` allows any value.
            _ if !schema.is_object() => schema = json!({}),
            _ => {}
        }
        if let Some(members) = schema.as_object_mut() {
            members.insert(String::from("type"), json!("object"));
            if members.get("additionalProperties") == Some(&Value::Bool(false)) {
                // Without `properties`, the error message of the check would not name the argument.
                members.entry("properties").or_insert_with(|| json!({}));
            }
            const OPEN: [&str; 8] = ["$ref", "allOf", "anyOf", "oneOf", "if", "not", "patternProperties", "unevaluatedProperties"];
            if members.contains_key("properties") && !OPEN.iter().any(|key| members.contains_key(*key)) {
                members.entry("additionalProperties").or_insert(Value::Bool(false));
            }
        }
        let mut sent = schema.clone();
        if let (Reading::Optional, Some(members)) = (reading, sent.as_object_mut()) {
            // All of them may be left out.
            members.remove("required");
        }
        let sent = encode(&sent);
        // A schema that is written by hand may have one.
        let fault = tool_schema_fault(sent.as_bytes()).map(|fault| format!("the schema {fault}"));
        Self { fault, schema: sent, ..Self::new(schema, reading) }
    }

    /// The shape of the arguments of a tool whose schema is known only at run time. The error is the predicate of a sentence whose subject
    /// is the schema, such as "is not valid".
    pub(crate) fn raw(schema: Json) -> Result<Self, String> {
        if let Some(fault) = tool_schema_fault(schema.as_bytes()) {
            return Err(fault);
        }
        let value: Value = schema.decode().map_err(|error| format!("cannot be read: {error}"))?;
        let checker = Checker::new(value);
        checker.check_schema()?;
        Ok(Self { schema, checker, reading: Reading::Object, fault: None })
    }

    fn new(schema: Value, reading: Reading) -> Self {
        Self { schema: encode(&schema), checker: Checker::new(schema), reading, fault: None }
    }

    /// Checks `json` against the schema and returns a clone of `json`.
    pub(crate) fn check(&self, json: &Json) -> Result<Json, String> {
        let json = self.given(json);
        if !self.checker.fits(&json) {
            let value: Value = json.decode().map_err(message_of)?;
            self.checker.check(&value, json.as_bytes().len())?;
        }
        Ok(json.into_owned())
    }

    /// The reason for which a tool or prompt with these arguments cannot be registered, or an answer cannot be requested: it is the fault
    /// of the type, or names the first keyword that cannot be checked.
    pub(crate) fn refusal(&self) -> Option<String> {
        self.fault.clone().or_else(|| self.checker.refusal())
    }

    /// Returns the shape, unless there is a reason to refuse it.
    pub(crate) fn checked(self) -> Result<Self, String> {
        self.refusal().map_or(Ok(self), Err)
    }

    pub(crate) fn schema(&self) -> &Json {
        &self.schema
    }

    /// The JSON to read a value from: `{}` for missing arguments.
    fn given<'a>(&self, json: &'a Json) -> Cow<'a, Json> {
        match self.reading {
            Reading::Verbatim => Cow::Borrowed(json),
            _ if is_missing(json) => Cow::Owned(Json::empty_object()),
            _ => Cow::Borrowed(json),
        }
    }

    /// Checks `json` against the schema and decodes it. The error consists of the validation errors, each with the JSON pointer of the
    /// value that is not valid.
    pub(crate) fn read<T: DeserializeOwned>(&self, json: &Json) -> Result<T, String> {
        let given = self.given(json);
        let read = || self.read_given(&given);
        if self.reading != Reading::Optional {
            return read();
        }
        let none = || serde_json::from_value(Value::Null).map_err(|error| error.to_string());
        match is_missing(json) {
            true => none(),
            false => read().or_else(|errors| if given.as_bytes() == b"{}" { none() } else { Err(errors) }),
        }
    }

    /// Decodes `json` without a [`Value`] in between, if it certainly fits.
    fn read_given<T: DeserializeOwned>(&self, json: &Json) -> Result<T, String> {
        let fits = self.checker.fits(json);
        let read = || match self.reading {
            Reading::Unit => serde_json::from_value(Value::Null).ok(),
            _ => json.decode().ok(),
        };
        fits.then(read).flatten().map_or_else(|| self.validate(json, fits), Ok)
    }

    /// Decodes `json`, which certainly fits if `fits` is set.
    fn validate<T: DeserializeOwned>(&self, json: &Json, fits: bool) -> Result<T, String> {
        let mut value: Value = json.decode().map_err(message_of)?;
        let size = json.as_bytes().len();
        if !fits && let Err(errors) = self.checker.check(&value, size) {
            if !aliases::rename::<T>(&mut value, size) {
                return Err(errors);
            }
            self.checker.check(&value, size)?;
        }
        if self.reading == Reading::Unit {
            return serde_json::from_value(Value::Null).map_err(|error| error.to_string());
        }
        // The second and third attempt are for types that deserialize only from text, and for `3.0`, which is an integer for a schema but
        // not for serde.
        T::deserialize(&value)
            .or_else(|_| json.decode())
            .or_else(|_| serde_json::from_value(whole_numbers(value)).map_err(|error| error.to_string()))
    }
}

/// Returns `true` for `null`, which stands for arguments that are missing.
fn is_missing(json: &Json) -> bool {
    json.as_bytes() == b"null"
}

/// Changes the references to the root of a schema, which becomes the member `result` of another one.
fn move_references(schema: &mut Value) {
    match schema {
        Value::Object(rules) => {
            for (key, rule) in rules {
                match rule {
                    Value::String(pointer) if key == "$ref" && pointer == "#" => *pointer = String::from("#/properties/result"),
                    rule => move_references(rule),
                }
            }
        }
        Value::Array(parts) => parts.iter_mut().for_each(move_references),
        _ => {}
    }
}

/// Removes null from what the root of a schema allows. An alternative that is then the only one takes the place of the root.
fn drop_null(schema: &mut Value) {
    let root = schema.clone();
    let Some(members) = schema.as_object_mut() else { return };
    for key in ["anyOf", "oneOf"] {
        let Some(Value::Array(parts)) = members.get_mut(key) else { continue };
        parts.retain(|part| Kinds::of(part, &root) != Some(Kinds::NULL));
        if let [Value::Object(only)] = &**parts {
            let only = only.clone();
            let is_text = |name: &String| matches!(&**name, "title" | "description");
            if only.keys().all(|name| is_text(name) || name == key || !members.contains_key(name)) {
                members.remove(key);
                for (name, rule) in only {
                    members.entry(name).or_insert(rule);
                }
            }
        }
    }
}

fn message_of(error: JsonError) -> String {
    match error {
        JsonError::Decode(message) => message,
        other => other.to_string(),
    }
}

/// The form in which the typed result of a tool is sent. It follows from the schema of the type.
pub(crate) enum Output {
    /// The result is an object, and is the structured content.
    Object(Json),
    /// The result is not an object, but structured content must be one: it becomes the member `result` of an object.
    Wrapped(Json),
    /// The type is `()`: there is no content.
    Unit,
    /// The type allows any string. The result is sent as text only, without structured content.
    Text,
    /// The schema allows any value: an object becomes structured content, anything else text.
    Any,
}

impl Output {
    /// The form of the results of a type, made once for each type.
    pub(crate) fn of<T: JsonSchema + 'static>() -> Arc<Self> {
        static ALL: PerType<Output> = PerType::new();
        ALL.get::<T>(Self::make::<T>)
    }

    fn make<T: JsonSchema>() -> Self {
        let mut schema = schema_of::<T>(SchemaSettings::draft2020_12().for_serialize());
        if schema.get("type").is_some_and(|kind| kind == "null") {
            return Self::Unit;
        }
        if is_string(&schema) {
            return Self::Text;
        }
        if schema.as_bool() == Some(true) || schema.as_object().is_some_and(Map::is_empty) {
            return Self::Any;
        }
        if Kinds::of(&schema, &schema) == Some(Kinds::OBJECT) {
            if let Some(members) = schema.as_object_mut() {
                members.insert(String::from("type"), json!("object"));
                if members.get("additionalProperties") == Some(&Value::Bool(false)) {
                    // Without `properties`, error messages would not name the member.
                    members.entry("properties").or_insert_with(|| json!({}));
                }
            }
            let object = encode(&schema);
            // A schema that is written by hand may have one.
            if tool_schema_fault(object.as_bytes()).is_none() {
                return Self::Object(object);
            }
        }
        move_references(&mut schema);
        // References to definitions start at the root, so the definitions stay there.
        let definitions = schema.as_object_mut().and_then(|members| members.remove("$defs"));
        let mut wrapped = json!({"type": "object", "properties": {"result": schema}, "required": ["result"]});
        if let (Some(members), Some(definitions)) = (wrapped.as_object_mut(), definitions) {
            members.insert(String::from("$defs"), definitions);
        }
        Self::Wrapped(encode(&wrapped))
    }

    /// The output schema that is sent to the peer.
    pub(crate) fn schema(&self) -> Option<&Json> {
        match self {
            Self::Object(schema) | Self::Wrapped(schema) => Some(schema),
            Self::Unit | Self::Text | Self::Any => None,
        }
    }

    /// Decodes a result of this form. Without structured content the result is decoded from the text: as a string for [`Self::Text`],
    /// otherwise as JSON, or as a string if that fails. `()` is decoded without reading the result.
    pub(crate) fn read<T: DeserializeOwned>(&self, result: &ToolResult) -> Result<T, JsonError> {
        match (self, &result.structured) {
            (_, Some(structured)) => self.read_structured(structured),
            (Self::Unit, None) => Json::null().decode(),
            (Self::Text, None) => {
                let text = result.text();
                let string: StrDeserializer<'_, serde::de::value::Error> = text.as_str().into_deserializer();
                // A struct around a string is decoded only from JSON.
                T::deserialize(string).or_else(|_| Json::string(&text).decode())
            }
            (_, None) => {
                let text = result.text();
                Json::parse(String::from(&*text)).and_then(|json| json.decode()).or_else(|_| Json::string(&text).decode())
            }
        }
    }

    /// Decodes structured content of this form.
    pub(crate) fn read_structured<T: DeserializeOwned>(&self, structured: &Json) -> Result<T, JsonError> {
        match self {
            Self::Unit => Json::null().decode(),
            Self::Wrapped(_) => structured.member("result").unwrap_or_default().decode(),
            // Some other servers also wrap a string in `result`. The output of a Tesseron action is the string itself.
            Self::Text => structured.member("result").as_ref().unwrap_or(structured).decode(),
            Self::Object(_) | Self::Any => structured.decode(),
        }
    }

    /// Converts a result into structured content and a block of text with the same bytes. If a wrapped result is a string, the block is
    /// that string. A result without structured content becomes text only, and `()` becomes nothing.
    pub(crate) fn to_tool_output<T: Serialize + 'static>(&self, mut value: T) -> Result<ToolOutput, JsonError> {
        Ok(match self {
            Self::Object(_) => ToolOutput::structured(Json::encode(&value)?),
            Self::Wrapped(_) => {
                let mut written = Ok(());
                let structured = Object::value(|wrapped| written = wrapped.encode("result", &value));
                written?;
                let text = structured.member("result").and_then(|result| result.as_text());
                let mut output = ToolOutput::structured(structured);
                if let Some(text) = text {
                    output.content = Content::Text(text).into();
                }
                output
            }
            Self::Unit => ToolOutput::default(),
            Self::Text => match take_string(&mut value) {
                Some(text) => ToolOutput::text(text),
                None => ToolOutput::text(shown(Json::encode(&value)?)),
            },
            Self::Any => {
                let json = Json::encode(&value)?;
                if json.is_object() { ToolOutput::structured(json) } else { ToolOutput::text(shown(json)) }
            }
        })
    }
}

/// The string that `value` is, without a copy. `None` for a type that has to be serialized.
fn take_string(value: &mut dyn Any) -> Option<Text> {
    if let Some(text) = value.downcast_mut::<String>() {
        return Some(core::mem::take(text).into());
    }
    if let Some(text) = value.downcast_mut::<Cow<'static, str>>() {
        return Some(core::mem::take(text).into_owned().into());
    }
    value.downcast_ref::<&str>().map(|text| Text::from_static(text))
}

/// The value of a JSON string, or the JSON text of any other value.
fn shown(json: Json) -> Text {
    json.as_text().unwrap_or_else(|| json.into_text())
}

/// Returns `true` for the schema of any string.
fn is_string(schema: &Value) -> bool {
    let allows_any = |key: &String| matches!(&**key, "type" | "title" | "description");
    schema.get("type").is_some_and(|kind| kind == "string") && schema.as_object().is_some_and(|all| all.keys().all(allows_any))
}

/// The schema of `T` as MCP allows it for elicitation: a flat object of primitive types and choices. Fails if a field has another type; the
/// error names the first such field.
pub(crate) fn flat<T: JsonSchema>() -> Result<Shape, String> {
    let schema = schema_of::<T>(SchemaSettings::draft2020_12().for_deserialize());
    if schema.get("type").is_none_or(|kind| kind != "object") {
        return Err(String::from("a form is made from a struct with named fields"));
    }
    let none = Map::new();
    let mut properties = Map::new();
    for (name, field) in schema.get("properties").and_then(Value::as_object).unwrap_or(&none) {
        let field = primitive(field).map_err(|what| format!("field `{name}` is {what}, which has no place in a form"))?;
        properties.insert(name.clone(), field);
    }
    let mut form = json!({"type": "object", "properties": properties});
    if let (Some(members), Some(required)) = (form.as_object_mut(), schema.get("required")) {
        members.insert(String::from("required"), required.clone());
    }
    Ok(Shape::new(form, Reading::Verbatim))
}

/// Reduces the schema of a field to the keywords that a form may have. Fails with a description of a field that forms cannot have.
fn primitive(field: &Value) -> Result<Value, &'static str> {
    let Some(field) = field.as_object() else { return Err("of any type") };
    if let Some(choices) = field.get("anyOf").and_then(Value::as_array) {
        // An `Option` whose schema is `anyOf` the type and null.
        let mut non_null = choices.iter().filter(|choice| choice.get("type").is_none_or(|kind| kind != "null"));
        return match (non_null.next(), non_null.next()) {
            (Some(one), None) => primitive(one).map(|inner| with_texts(inner, field)),
            _ => Err("an alternative of several types"),
        };
    }
    if let Some(variants) = field.get("oneOf").and_then(Value::as_array) {
        // An enum without data whose variants have doc comments: its schema is a `oneOf`.
        let mut names = Vec::new();
        for variant in variants {
            match (variant.get("const"), variant.get("enum").and_then(Value::as_array)) {
                (Some(name @ Value::String(_)), _) => names.push(name.clone()),
                (None, Some(more)) if more.iter().all(Value::is_string) => names.extend(more.iter().cloned()),
                _ => return Err("an enum with content"),
            }
        }
        return Ok(with_texts(json!({"type": "string", "enum": names}), field));
    }
    let kind = match field.get("type") {
        Some(Value::String(kind)) => kind.as_str(),
        // An `Option` whose schema is a list of the type and null.
        Some(Value::Array(kinds)) => {
            let mut non_null = kinds.iter().filter_map(Value::as_str).filter(|kind| *kind != "null");
            match (non_null.next(), non_null.next()) {
                (Some(kind), None) => kind,
                _ => return Err("an alternative of several types"),
            }
        }
        _ => return Err("of any type"),
    };
    let kept: &[&str] = match kind {
        "string" => &["enum", "minLength", "maxLength", "format", "pattern", "default"],
        "number" | "integer" => &["minimum", "maximum", "default"],
        "boolean" => &["default"],
        "array" => return choices(field),
        _ => return Err("an object"),
    };
    let mut out = Map::new();
    out.insert(String::from("type"), json!(kind));
    for (key, value) in kept.iter().filter_map(|key| field.get_key_value(*key)).filter(|(_, value)| !value.is_null()) {
        // An `Option` of an enum lists null among the names.
        let value = match value.as_array() {
            Some(names) if key == "enum" => names.iter().filter(|name| !name.is_null()).cloned().collect(),
            _ => value.clone(),
        };
        out.insert(key.clone(), value);
    }
    Ok(with_texts(Value::Object(out), field))
}

/// The schema of a choice of several names, which is the only kind of list in a form (since revision 2025-11-25).
fn choices(field: &Map<String, Value>) -> Result<Value, &'static str> {
    let items = field.get("items").map(primitive).ok_or("a list")?.map_err(|_| "a list of something else than names")?;
    let names = items.get("enum").ok_or("a list of something else than names")?;
    let mut out = json!({"type": "array", "items": {"type": "string", "enum": names}});
    if let Some(members) = out.as_object_mut() {
        for key in ["minItems", "maxItems", "default"] {
            if let Some(value) = field.get(key) {
                members.insert(String::from(key), value.clone());
            }
        }
    }
    Ok(with_texts(out, field))
}

/// Adds the title and the description of `field` to `schema`.
fn with_texts(mut schema: Value, field: &Map<String, Value>) -> Value {
    if let Some(members) = schema.as_object_mut() {
        for key in ["title", "description"] {
            if let Some(text) = field.get(key) {
                members.insert(String::from(key), text.clone());
            }
        }
    }
    schema
}

pub(crate) fn encode(schema: &Value) -> Json {
    // Encoding cannot fail: all keys are strings, and all numbers are finite.
    Json::encode(schema).unwrap_or_default()
}

/// The schema of `T`, with references only where `T` contains itself, and without the number formats of Rust.
fn schema_of<T: JsonSchema>(settings: SchemaSettings) -> Value {
    let settings = settings.with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    if let Some(members) = schema.as_object_mut()
        && members.get("title").and_then(Value::as_str) == Some(&*T::schema_name())
    {
        members.remove("title");
    }
    tidy(&mut schema);
    schema
}

/// Removes the number formats of Rust, such as `uint8`, from a schema and its subschemas, and writes the schemas of members as objects, which
/// clients expect.
fn tidy(schema: &mut Value) {
    const RUST: [&str; 14] = [
        "int", "int8", "int16", "int32", "int64", "int128", "uint", "uint8", "uint16", "uint32", "uint64", "uint128", "float",
        "double",
    ];
    let Some(members) = schema.as_object_mut() else { return };
    if members.get("format").and_then(Value::as_str).is_some_and(|format| RUST.contains(&format)) {
        members.remove("format");
    }
    for (key, value) in members {
        match (key.as_str(), value) {
            ("properties" | "patternProperties" | "dependentSchemas" | "$defs", Value::Object(named)) => {
                for schema in named.values_mut() {
                    match schema {
                        Value::Bool(true) => *schema = json!({}),
                        Value::Bool(false) => *schema = json!({"allOf": [false]}),
                        _ => tidy(schema),
                    }
                }
            }
            ("allOf" | "anyOf" | "oneOf" | "prefixItems", Value::Array(list)) => list.iter_mut().for_each(tidy),
            (
                "items"
                | "contains"
                | "additionalProperties"
                | "unevaluatedProperties"
                | "unevaluatedItems"
                | "propertyNames"
                | "not"
                | "if"
                | "then"
                | "else",
                value,
            ) => tidy(value),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shape_and_the_output_form_of_a_type_are_made_once() {
        let [one, other] = [Shape::arguments::<()>(), Shape::arguments::<()>()];
        assert!(Arc::ptr_eq(&one, &other));
        assert!(Arc::ptr_eq(&Output::of::<String>(), &Output::of::<String>()));
        assert!(matches!(*Output::of::<u8>(), Output::Wrapped(_)), "each type has its own");
    }

    #[test]
    fn a_string_is_sent_as_text_whatever_type_it_has() {
        #[derive(JsonSchema, Serialize)]
        struct Name(String);
        let text = |output: ToolOutput| match &output.content[..] {
            [Content::Text(text)] => text.to_string(),
            other => panic!("{other:?}"),
        };
        let line = "a \"line\"\n";
        let expected = String::from(line);
        assert_eq!(text(Output::of::<String>().to_tool_output(String::from(line)).unwrap()), expected);
        assert_eq!(text(Output::of::<&str>().to_tool_output(line).unwrap()), expected);
        assert_eq!(text(Output::of::<Name>().to_tool_output(Name(line.into())).unwrap()), expected);
        assert_eq!(text(Output::of::<Cow<'static, str>>().to_tool_output(Cow::Borrowed(line)).unwrap()), expected);
        assert_eq!(text(Output::of::<char>().to_tool_output('x').unwrap()), "x");
    }

    #[test]
    fn a_struct_around_a_string_is_read_from_text() {
        #[derive(Debug, serde::Deserialize, JsonSchema, PartialEq)]
        struct Name(String);
        let result = Json::parse(r#"{"content":[{"type":"text","text":"a \"line\""}]}"#).unwrap();
        let result = ToolResult::read(&result).unwrap();
        assert_eq!(Output::of::<Name>().read::<Name>(&result), Ok(Name("a \"line\"".into())));
    }

    /// Pseudorandom numbers from a seed.
    struct Dice(u64);

    impl Dice {
        fn roll(&mut self, sides: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) as usize % sides
        }

        fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
            of[self.roll(of.len())]
        }

        /// The schema of a field: mostly one that the checker of this crate supports.
        fn field(&mut self) -> Value {
            let mut field = match self.roll(14) {
                0..=1 => json!({"type": "string"}),
                2 => json!({"type": ["integer", "null"]}),
                3 => json!({"type": "number"}),
                4 => json!({"type": "integer", "minimum": 0, "maximum": 255}),
                5 => json!({"type": "boolean", "default": null}),
                6 => json!({"type": ["string", "null"], "enum": ["fast", "slow"]}),
                7 => json!({"type": ["array", "null"], "items": self.field()}),
                8 => json!({"type": "number", "minimum": -1, "maximum": 3}),
                9 => json!({"type": "string", "format": "date-time", "title": "When"}),
                10 => json!({"type": "array"}),
                11..=12 => self.schema(),
                _ => json!({"type": "object"}),
            };
            let more = match self.roll(60) {
                0 => ("maxLength", json!(2)),
                1 => ("multipleOf", json!(5)),
                2 => ("minimum", json!(0.5)),
                3 => ("const", json!(7)),
                4 => ("type", json!(["string", "string"])),
                5 => ("title", json!(1)),
                6 => ("uniqueItems", json!(true)),
                7 => ("anyOf", json!([{"type": "null"}, {"type": "integer"}])),
                _ => return field,
            };
            field[more.0] = more.1;
            field
        }

        fn schema(&mut self) -> Value {
            let mut schema = json!({"type": "object", "additionalProperties": false, "properties": {}});
            for name in ["a", "b", "c"] {
                schema["properties"][name] = self.field();
            }
            match self.roll(8) {
                0 => schema["required"] = json!(["a", "b", "c"]),
                1..=3 => schema["required"] = json!(["b"]),
                4 => schema["required"] = json!(["d"]),
                5 => schema["additionalProperties"] = json!(true),
                6 => drop(schema.as_object_mut().unwrap().remove("additionalProperties")),
                _ => {}
            }
            schema
        }

        fn value(&mut self) -> String {
            const VALUES: [&str; 40] = [
                "1",
                "0",
                "7",
                "255",
                "256",
                "-1",
                "-0",
                "3",
                "4",
                "1.0",
                "1.5",
                "-2.5",
                "1e2",
                "1E400",
                "0.1e1",
                "9007199254740993",
                "123456789012345678",
                "9223372036854775807",
                "18446744073709551615",
                "340282366920938463463374607431768211455",
                "true",
                "false",
                "null",
                r#""""#,
                r#""fast""#,
                r#""\u0066ast""#,
                r#""slow""#,
                r#""a\nb""#,
                r#""\ud800""#,
                r#""\\udbad""#,
                r#""ä""#,
                "[]",
                "{}",
                "[1,2]",
                r#"[ "a" , "b" ]"#,
                "[null]",
                "[[1],[]]",
                r#"{"a":1}"#,
                "[1,\"x\"]",
                "[true ,false]",
            ];
            String::from(self.pick(&VALUES))
        }

        /// A value that is mostly valid for `schema`.
        fn value_of(&mut self, schema: &Value) -> String {
            let kind = schema["type"].as_str().or_else(|| schema["type"][0].as_str()).unwrap_or_default();
            match kind {
                _ if self.roll(8) == 0 => self.value(),
                "string" => String::from(self.pick(&[r#""fast""#, r#""slow""#, r#""\u0066ast""#, r#""a\nb""#, r#""ä""#])),
                "integer" => String::from(self.pick(&["1", "0", "7", "255"])),
                "number" => String::from(self.pick(&["1", "0", "3", "-1", "2.50"])),
                "boolean" => String::from(self.pick(&["true", "false"])),
                "array" if self.roll(3) > 0 => {
                    format!("[{} , {}]", self.value_of(&schema["items"]), self.value_of(&schema["items"]))
                }
                "object" if schema.get("properties").is_some() => self.arguments(schema),
                _ => String::from("[]"),
            }
        }

        fn arguments(&mut self, schema: &Value) -> String {
            let mut members = Vec::new();
            for name in ["a", "b", "c"] {
                let field = &schema["properties"][name];
                match self.roll(24) {
                    0 => {}
                    1 => members.push(format!("\"{name}\":{},\"{name}\":{}", self.value_of(field), self.value_of(field))),
                    2 => members.push(format!("\"\\u006{}\" : {}", name.as_bytes()[0] & 0xf, self.value_of(field))),
                    3 => members.push(format!("\"d\":{}", self.value())),
                    _ => members.push(format!("\"{name}\": {}", self.value_of(field))),
                }
            }
            if self.roll(40) == 0 { self.value() } else { format!("{{{}}}", members.join(" ,")) }
        }
    }

    #[test]
    fn a_value_for_a_random_schema_is_read_alike_from_its_text_and_from_a_tree() {
        let mut dice = Dice(20);
        let (mut quick, mut invalid) = (0, 0);
        for _ in 0..400 {
            let schema = dice.schema();
            let shape = Shape::new(schema.clone(), Reading::Verbatim);
            for _ in 0..100 {
                let text = dice.arguments(&schema);
                let json = Json::parse(text.clone()).unwrap();
                let thorough = shape.validate::<Value>(&json, false);
                if shape.checker.fits(&json)
                    && let Ok(value) = json.decode::<Value>()
                {
                    assert_eq!(thorough.as_ref(), Ok(&value), "{text} of {}", shape.schema);
                    quick += 1;
                }
                invalid += usize::from(thorough.is_err());
                assert_eq!(shape.read::<Value>(&json), thorough);
            }
        }
        assert!(quick > 1_000 && invalid > 5_000, "{quick} {invalid}");
    }

    #[derive(Debug, PartialEq, serde::Deserialize, JsonSchema)]
    struct Given {
        #[serde(default)]
        small: u8,
        big: Option<i64>,
        wide: Option<u128>,
        ratio: Option<f32>,
        text: Option<String>,
        level: Option<Level>,
        many: Option<Vec<Option<u32>>>,
    }

    #[derive(Debug, PartialEq, serde::Deserialize, JsonSchema)]
    #[serde(rename_all = "lowercase")]
    enum Level {
        Fast,
        Slow,
    }

    #[test]
    fn a_type_is_read_alike_from_its_text_and_from_a_tree() {
        let shape = Shape::arguments::<Given>();
        let mut dice = Dice(21);
        let mut quick = 0;
        for _ in 0..20_000 {
            let mut members = vec![format!("\"small\":{}", dice.pick(&["1", "1", "255", "256", "1.0", "-1", "null"]))];
            for name in ["big", "wide", "ratio", "text", "level", "many"] {
                if dice.roll(3) == 0 {
                    members.push(format!("\"{name}\":{}", dice.value()));
                }
            }
            let json = Json::parse(format!("{{{}}}", members.join(","))).unwrap();
            let thorough = shape.validate::<Given>(&json, false);
            quick += usize::from(shape.checker.fits(&json));
            assert_eq!(shape.read::<Given>(&json), thorough, "{json}");
        }
        assert!(quick > 1_000, "{quick}");
    }

    #[derive(serde::Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "only its schema is looked at")]
    struct Formats {
        member: u8,
        option: Option<u16>,
        list: Vec<i32>,
        pair: (f32, f64),
        table: std::collections::BTreeMap<String, i64>,
        choice: Choice,
        below: Option<Box<Self>>,
    }

    #[derive(serde::Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "only its schema is looked at")]
    enum Choice {
        One(u32),
        Two { size: usize },
    }

    #[test]
    fn no_schema_has_a_number_format_of_rust() {
        let schema = Shape::arguments::<Formats>().schema.clone();
        let has = |keyword: &str| schema.as_str().contains(&format!("\"{keyword}\":"));
        assert!(["properties", "items", "additionalProperties", "oneOf", "prefixItems"].into_iter().all(has), "{schema}");
        assert!(!has("format"), "{schema}");
    }
}
