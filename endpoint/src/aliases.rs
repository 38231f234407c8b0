//! The names that `#[serde(alias = "..")]` adds to the fields of a type. The schema of the type does not list them, so a member with such a
//! name is renamed before it is checked.
//!
//! Nothing but the type's own `Deserialize` knows these names. It is asked with a member that occurs twice: the error about it has the name
//! that the field has in the schema.

use core::cell::RefCell;
use core::fmt::{self, Display};

use serde::de::value::StrDeserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Error, IntoDeserializer as _, MapAccess, SeqAccess, VariantAccess,
    Visitor,
};
use serde::forward_to_deserialize_any;
use serde_json::{Map, Value, json};

/// The maximum size, in bytes, of the JSON of a value whose members are renamed. Each name is asked for a few times, each time with the value
/// of its member.
const MAX_BYTES: usize = 16 << 10;

/// The maximum number of objects that are looked at, and of names that are asked for, so that the time does not grow with the square of the
/// size.
const MAX_NAMES: usize = 256;

/// Renames the members of `value` that a `T` takes under another name to the names in the schema of `T`. `size` is the length of the JSON of
/// `value`. Returns `false` if there are none.
///
/// The members of an enum that is tagged internally or not at all, and of a flattened struct, keep their names: serde reads them into a
/// buffer first. So may those of later values.
pub(crate) fn rename<T: DeserializeOwned>(value: &mut Value, size: usize) -> bool {
    if size > MAX_BYTES {
        return false;
    }
    let found = RefCell::default();
    // This fails if the value is not valid. Then the objects up to that place are known.
    let _ = T::deserialize(Probe { value, place: Place::Anywhere { path: Vec::new(), found: &found } });
    let mut found = found.into_inner();
    // The members of a member first, since its path has the name that is not changed yet.
    found.reverse();
    let mut any = false;
    let all = found.iter().flat_map(|Object { path, names }| names.iter().map(move |name| (path, name)));
    for (path, name) in all.take(MAX_NAMES) {
        let canonical = canonical::<T>(value, path, name).filter(|canonical| canonical != name);
        let object = canonical.and_then(|canonical| Some((canonical, at(value, path)?.as_object_mut()?)));
        if let Some((canonical, object)) = object
            && !object.contains_key(canonical)
            && let Some(member) = object.remove(name)
        {
            object.insert(String::from(canonical), member);
            any = true;
        }
    }
    any
}

/// The name in the schema of the field that is read from the member `name` of the object at `path`, if there is one.
fn canonical<T: DeserializeOwned>(value: &Value, path: &[Step], name: &str) -> Option<&'static str> {
    let own = path.iter().try_fold(value, |value, step| step.of(value))?.get(name)?.clone();
    // The name is found with any value that the field can have, so also if its own is not valid.
    [Value::Null, json!(0), json!(""), json!(false), json!([]), json!({}), own].iter().find_map(|sample| {
        match T::deserialize(Probe { value, place: Place::On { path, name, sample } }) {
            Err(Fault::Duplicate(canonical)) => Some(canonical),
            _ => None,
        }
    })
}

/// The value at `path`.
fn at<'a>(value: &'a mut Value, path: &[Step]) -> Option<&'a mut Value> {
    path.iter().try_fold(value, |value, step| match step {
        Step::Member(name) => value.get_mut(name),
        Step::Element(index) => value.get_mut(index),
    })
}

/// A step from a value to a value in it.
#[derive(Clone)]
enum Step {
    Member(String),
    Element(usize),
}

impl Step {
    fn of<'a>(&self, value: &'a Value) -> Option<&'a Value> {
        match self {
            Self::Member(name) => value.get(name),
            Self::Element(index) => value.get(index),
        }
    }
}

/// An object that is read as a struct or a map.
struct Object {
    path: Vec<Step>,
    /// The names of its members that may be fields.
    names: Vec<String>,
}

/// A value to deserialize from.
struct Probe<'a> {
    value: &'a Value,
    place: Place<'a>,
}

enum Place<'a> {
    /// At `path`, in a search for objects.
    Anywhere { path: Vec<Step>, found: &'a RefCell<Vec<Object>> },
    /// On the way to the object at the rest of the path, whose member `name` occurs twice, with the value `sample`. All that is not on the
    /// way is left out.
    On { path: &'a [Step], name: &'a str, sample: &'a Value },
    /// Beside the way.
    Beside,
}

impl<'a> Probe<'a> {
    /// The value in this value that `step` leads to.
    fn child(&self, step: &Step, value: &'a Value) -> Self {
        let place = match &self.place {
            Place::Anywhere { path, found } if found.borrow().len() < MAX_NAMES => {
                Place::Anywhere { path: path.iter().cloned().chain([step.clone()]).collect(), found }
            }
            Place::On { path: [_, rest @ ..], name, sample } => Place::On { path: rest, name, sample },
            Place::Anywhere { .. } | Place::On { .. } | Place::Beside => Place::Beside,
        };
        Self { value, place }
    }

    /// The members of an object. `fields` are the names that it may have, `None` if it may have any.
    fn members(&self, object: &'a Map<String, Value>, fields: Option<&[&str]>) -> Members<'a> {
        let child = |(name, value): (&'a String, &'a Value)| (name.as_str(), self.child(&Step::Member(name.clone()), value));
        let mut members: Vec<_> = match &self.place {
            Place::On { path: [], name, sample } => {
                let twice = || (*name, Self { value: sample, place: Place::Beside });
                vec![twice(), twice()]
            }
            Place::On { path: [Step::Member(next), ..], .. } => object.get_key_value(next).map(child).into_iter().collect(),
            Place::On { .. } | Place::Beside => object.iter().map(child).collect(),
            Place::Anywhere { path, found } => {
                let is_field = |name: &&String| fields.is_none_or(|fields| fields.contains(&name.as_str()));
                found.borrow_mut().push(Object { path: path.clone(), names: object.keys().filter(is_field).cloned().collect() });
                object.iter().map(child).collect()
            }
        };
        members.reverse();
        Members { members, value: None }
    }

    /// The elements of an array. In a list the elements before the one on the way are left out; in a tuple they have to be there.
    fn elements(&self, array: &'a [Value], is_list: bool) -> Elements<'a> {
        let child = |(index, value)| self.child(&Step::Element(index), value);
        let mut elements: Vec<_> = match &self.place {
            Place::On { path: [Step::Element(next), ..], .. } => {
                let before = if is_list { &[] } else { array.get(..*next).unwrap_or_default() };
                let before = before.iter().map(|value| Self { value, place: Place::Beside });
                before.chain(array.get(*next).map(|value| child((*next, value)))).collect()
            }
            _ => array.iter().enumerate().map(child).collect(),
        };
        elements.reverse();
        Elements(elements)
    }
}

impl<'a> Deserializer<'a> for Probe<'a> {
    type Error = Fault;

    /// Gives objects and arrays without their content: the time to find the variant of an enum without a tag can double with each level, and
    /// the value has not been checked.
    fn deserialize_any<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.value {
            Value::Array(_) => visitor.visit_seq(Elements(Vec::new())),
            Value::Object(_) => visitor.visit_map(Members { members: Vec::new(), value: None }),
            scalar => Ok(scalar.deserialize_any(visitor)?),
        }
    }

    fn deserialize_option<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Fault> {
        if self.value.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'a>>(self, _: &'static str, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.value {
            Value::Array(array) => visitor.visit_seq(self.elements(array, true)),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_tuple<V: Visitor<'a>>(self, _: usize, visitor: V) -> Result<V::Value, Fault> {
        match self.value {
            Value::Array(array) => visitor.visit_seq(self.elements(array, false)),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_tuple_struct<V: Visitor<'a>>(self, _: &'static str, length: usize, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_tuple(length, visitor)
    }

    fn deserialize_map<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.value {
            Value::Object(object) => visitor.visit_map(self.members(object, None)),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_struct<V: Visitor<'a>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        match self.value {
            Value::Object(object) => visitor.visit_map(self.members(object, Some(fields))),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_enum<V: Visitor<'a>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        match self.value.as_object().and_then(|object| object.iter().next()) {
            Some((variant, value)) => {
                let content = self.child(&Step::Member(variant.clone()), value);
                visitor.visit_enum(Variant { name: variant, content })
            }
            None => Ok(self.value.deserialize_enum(name, variants, visitor)?),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        <V: Visitor<'a>>
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct identifier
    }
}

/// The members of an object that are still to be read, in reverse order, and the value of the one whose name was read.
struct Members<'a> {
    members: Vec<(&'a str, Probe<'a>)>,
    value: Option<Probe<'a>>,
}

impl<'a> MapAccess<'a> for Members<'a> {
    type Error = Fault;

    fn next_key_seed<K: DeserializeSeed<'a>>(&mut self, seed: K) -> Result<Option<K::Value>, Fault> {
        let Some((name, value)) = self.members.pop() else { return Ok(None) };
        self.value = Some(value);
        seed.deserialize(name.into_deserializer()).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'a>>(&mut self, seed: V) -> Result<V::Value, Fault> {
        seed.deserialize(self.value.take().ok_or(Fault::Other)?)
    }
}

/// The elements of an array that are still to be read, in reverse order.
struct Elements<'a>(Vec<Probe<'a>>);

impl<'a> SeqAccess<'a> for Elements<'a> {
    type Error = Fault;

    fn next_element_seed<T: DeserializeSeed<'a>>(&mut self, seed: T) -> Result<Option<T::Value>, Fault> {
        self.0.pop().map(|element| seed.deserialize(element)).transpose()
    }
}

/// A variant of an enum, written as an object with one member.
struct Variant<'a> {
    name: &'a str,
    content: Probe<'a>,
}

impl<'a> EnumAccess<'a> for Variant<'a> {
    type Error = Fault;
    type Variant = Probe<'a>;

    fn variant_seed<V: DeserializeSeed<'a>>(self, seed: V) -> Result<(V::Value, Probe<'a>), Fault> {
        let name: StrDeserializer<'a, Fault> = self.name.into_deserializer();
        Ok((seed.deserialize(name)?, self.content))
    }
}

impl<'a> VariantAccess<'a> for Probe<'a> {
    type Error = Fault;

    fn unit_variant(self) -> Result<(), Fault> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'a>>(self, seed: T) -> Result<T::Value, Fault> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'a>>(self, length: usize, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_tuple(length, visitor)
    }

    fn struct_variant<V: Visitor<'a>>(self, fields: &'static [&'static str], visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_struct("", fields, visitor)
    }
}

/// Why a value was not deserialized.
#[derive(Debug)]
enum Fault {
    /// A member of the field with this name occurs twice.
    Duplicate(&'static str),
    Other,
}

impl Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the value does not have the type")
    }
}

impl std::error::Error for Fault {}

impl From<serde_json::Error> for Fault {
    fn from(_: serde_json::Error) -> Self {
        Self::Other
    }
}

impl Error for Fault {
    fn custom<T: Display>(_: T) -> Self {
        Self::Other
    }

    fn duplicate_field(field: &'static str) -> Self {
        Self::Duplicate(field)
    }
}
