//! A quick check for the arguments that most tools take: an object of scalars, values of an `enum`, and lists and objects of these. It
//! works on the text, without parsing it into a tree.
//!
//! The check can only establish that arguments are valid. All other arguments are checked by [`schema`](crate::schema), which also produces
//! the error messages.

use serde_json::{Map, Value};

use protocol_core::json::Json;
use protocol_core::json::read::{Kind, Walk};

/// The schema of an object that has only keywords which this check supports.
#[derive(Default)]
pub(crate) struct Plain {
    members: Vec<(String, Field)>,
    /// One bit for each of `members`, set if the member is required.
    required: u64,
}

/// The maximum number of members, since each needs a bit in [`Plain::required`].
const MAX_MEMBERS: usize = u64::BITS as usize;

/// The values that a member of an object, or an element of a list, may have.
#[derive(Default)]
struct Field {
    null: bool,
    boolean: bool,
    integer: bool,
    number: bool,
    string: bool,
    list: bool,
    object: bool,
    min: Option<i64>,
    max: Option<i64>,
    /// The JSON of the values of `enum`, if there are any.
    choices: Vec<String>,
    /// The values that each element of a list may have.
    items: Option<Box<Self>>,
    /// The members that an object may have. An object with other members is left to [`schema`](crate::schema).
    members: Option<Box<Plain>>,
}

impl Plain {
    /// Returns `None` if this check does not support the schema: it has another keyword, allows other members, has too many members, or is
    /// not the schema of an object.
    pub(crate) fn of(schema: &Value) -> Option<Self> {
        let schema = schema.as_object()?;
        let is_object = schema.get("type")? == "object" && schema.get("additionalProperties")? == false;
        Field::of(schema).filter(|_| is_object)?.members.map(|members| *members)
    }

    /// Reads `properties` and `required` of the schema of an object.
    fn members(schema: &Map<String, Value>) -> Option<Self> {
        let mut plain = Self::default();
        for (name, field) in schema.get("properties")?.as_object().filter(|all| all.len() <= MAX_MEMBERS)? {
            plain.members.push((name.clone(), Field::of(field.as_object()?)?));
        }
        if let Some(required) = schema.get("required") {
            for name in required.as_array()? {
                // A name that is unknown or listed twice is left to [`schema`](crate::schema).
                let bit = plain.member(name.as_str()?.as_bytes())?.1;
                plain.required = Some(plain.required | bit).filter(|all| *all != plain.required)?;
            }
        }
        Some(plain)
    }

    /// Returns `true` if `arguments` are certainly valid, and decoding their text gives the same value as decoding a parsed [`Value`].
    pub(crate) fn fits(&self, arguments: &Json) -> bool {
        let mut walk = Walk::new(arguments.as_bytes());
        walk.kind() == Kind::Object && self.takes_object(&mut walk)
    }

    /// Walks over an object. Returns `false` as soon as the object may be invalid; `walk` is then somewhere within it.
    fn takes_object(&self, walk: &mut Walk<'_>) -> bool {
        let mut given = 0;
        walk.enter();
        while let Some(key) = walk.next_key() {
            let Some((field, bit)) = key.plain().and_then(|name| self.member(name)) else { return false };
            if given & bit != 0 || !field.takes(walk) {
                return false;
            }
            given |= bit;
        }
        given & self.required == self.required
    }

    /// The values of the member with this name, and its bit in `required`.
    fn member(&self, name: &[u8]) -> Option<(&Field, u64)> {
        let index = self.members.iter().position(|(known, _)| known.as_bytes() == name)?;
        Some((&self.members.get(index)?.1, 1_u64.checked_shl(index as u32)?))
    }
}

/// Returns `true` for a keyword that is only an annotation, as `format` is in draft 2020-12.
fn is_annotation(key: &str, value: &Value) -> bool {
    key == "default" || (matches!(key, "title" | "description" | "format") && value.is_string())
}

impl Field {
    fn of(schema: &Map<String, Value>) -> Option<Self> {
        let mut field = Self::default();
        if schema.contains_key("properties") {
            field.members = Some(Box::new(Plain::members(schema)?));
        }
        for (key, value) in schema {
            match (key.as_str(), value) {
                ("properties" | "required", _) | ("additionalProperties", Value::Bool(false)) if field.members.is_some() => {}
                ("type", Value::String(kind)) => field.allow(kind)?,
                ("type", Value::Array(kinds)) => kinds.iter().try_for_each(|kind| field.allow(kind.as_str()?))?,
                ("minimum", limit) => field.min = Some(limit.as_i64()?),
                ("maximum", limit) => field.max = Some(limit.as_i64()?),
                ("enum", Value::Array(choices)) if !choices.is_empty() => {
                    field.choices = choices.iter().map(ToString::to_string).collect();
                }
                ("items", Value::Object(items)) => field.items = Some(Box::new(Self::of(items)?)),
                _ => is_annotation(key, value).then_some(())?,
            }
        }
        // A field without `type` may have any value, which this check does not support.
        schema.contains_key("type").then_some(field)
    }

    /// Allows a type. Returns `None` for a type that is unknown, or is allowed already.
    fn allow(&mut self, kind: &str) -> Option<()> {
        let allowed = match kind {
            "null" => &mut self.null,
            "boolean" => &mut self.boolean,
            "integer" => &mut self.integer,
            "number" => &mut self.number,
            "string" => &mut self.string,
            "array" => &mut self.list,
            "object" => &mut self.object,
            _ => return None,
        };
        (!core::mem::replace(allowed, true)).then_some(())
    }

    /// Walks over a value. Returns `false` as soon as the value may be invalid; `walk` is then somewhere within it.
    fn takes(&self, walk: &mut Walk<'_>) -> bool {
        if !self.choices.is_empty() {
            // A copy of the walk reads the value, so that `walk` does not move.
            let value = { *walk }.value().unwrap_or_default();
            if !self.choices.iter().any(|choice| choice.as_bytes() == value) {
                return false;
            }
        }
        match walk.kind() {
            // A string with half of a surrogate pair is not taken: parsing it into a `Value` fails, but decoding the text would succeed for
            // types that ignore the string.
            Kind::String => self.string && walk.skip_unicode_string(),
            Kind::Object => self.object && self.members.as_ref().is_some_and(|members| members.takes_object(walk)),
            Kind::Array => self.list && self.items.as_ref().is_some_and(|item| item.takes_each(walk)),
            Kind::Number => walk.value().is_some_and(|number| self.fits_number(number)),
            Kind::Bool => self.boolean && walk.value().is_some(),
            Kind::Null => self.null && walk.value().is_some(),
        }
    }

    /// Walks over a list. Returns `false` as soon as an element may be invalid as a value of this field.
    fn takes_each(&self, walk: &mut Walk<'_>) -> bool {
        walk.enter();
        while walk.next_element() {
            if !self.takes(walk) {
                return false;
            }
        }
        true
    }

    /// Checks a number. It counts as an integer only if it has at most 18 digits, no fraction and no exponent, and is not `-0`.
    fn fits_number(&self, text: &[u8]) -> bool {
        /// Integers with this many digits fit into an `i64`.
        const MAX_EXACT_DIGITS: usize = 18;
        /// Numbers of this length without an exponent are finite as `f64`.
        const MAX_LENGTH: usize = 64;
        let digits = text.strip_prefix(b"-").unwrap_or(text);
        if digits.len() <= MAX_EXACT_DIGITS && digits.iter().all(u8::is_ascii_digit) && text != b"-0" {
            let size = digits.iter().fold(0_i64, |size, digit| size.wrapping_mul(10).wrapping_add(i64::from(digit & 0xf)));
            let number = if digits.len() < text.len() { size.wrapping_neg() } else { size };
            let within = self.min.is_none_or(|min| min <= number) && self.max.is_none_or(|max| number <= max);
            return within && (self.integer || self.number);
        }
        let is_limited = self.min.is_some() || self.max.is_some();
        let has_exponent = text.iter().any(|byte| matches!(byte, b'e' | b'E'));
        self.number && !is_limited && !has_exponent && text.len() <= MAX_LENGTH && digits.contains(&b'.')
    }
}
