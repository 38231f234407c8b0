//! Serializing values as compact JSON.
//!
//! The text is the same as that of `serde_json`. In strings, `serde_json` searches for characters to escape byte by byte, and this module
//! many bytes at a time: a long text takes 3 instructions a byte instead of 10. The nesting is checked while the value is written, so that
//! the text needs no second pass.

use alloc::string::ToString as _;
use alloc::vec::Vec;
use core::fmt::Display;

use serde::ser::{self, Serialize};

use super::JsonError;
use super::cursor::Cursor;
use super::scan::DEPTH;
use super::write::{text_size, write_integer, write_string};

/// The beginning of the names of two structs. `serde_json` serializes a `RawValue` as one of them, and a number of arbitrary precision as
/// the other. The only field of each is JSON text.
const VERBATIM: &str = "$serde_json::private::";

/// Serializes `value` and appends it.
///
/// # Errors
/// Those of [`Json::encode`](crate::json::Json::encode). The bytes that were already appended must then be discarded.
pub fn write_value<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) -> Result<(), JsonError> {
    value.serialize(&mut Serializer { out, depth: DEPTH })
}

/// Appends `value` as serde_json writes it.
#[cfg(feature = "std")]
fn append<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) -> serde_json::Result<()> {
    serde_json::to_writer(out, value)
}

/// Appends `value` as serde_json writes it. Uses a second buffer, since without `std` serde_json cannot write into an existing one.
#[cfg(not(feature = "std"))]
fn append<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) -> serde_json::Result<()> {
    out.append(&mut serde_json::to_vec(value)?);
    Ok(())
}

impl ser::Error for JsonError {
    fn custom<T: Display>(message: T) -> Self {
        Self::Encode(message.to_string())
    }
}

struct Serializer<'a> {
    out: &'a mut Vec<u8>,
    /// The number of levels of nesting that are left.
    depth: u8,
}

impl<'a> Serializer<'a> {
    /// Opens a container, which counts as `levels` of nesting, and is closed by `close`.
    fn open(&mut self, open: &[u8], levels: u8, close: &'static [u8]) -> Result<Container<'_, 'a>, JsonError> {
        self.depth = self.depth.checked_sub(levels).ok_or(JsonError::Syntax)?;
        self.out.extend_from_slice(open);
        Ok(Container { serializer: self, is_empty: true, is_verbatim: false, levels, close })
    }

    /// Opens an object with one member, named `variant`, and the container that is the value of this member.
    fn open_variant(
        &mut self,
        variant: &str,
        open: &[u8],
        levels: u8,
        close: &'static [u8],
    ) -> Result<Container<'_, 'a>, JsonError> {
        self.out.push(b'{');
        write_string(self.out, variant);
        self.out.push(b':');
        self.open(open, levels, close)
    }

    /// Appends a value as serde_json writes it.
    fn scalar<T: Serialize>(&mut self, value: T) -> Result<(), JsonError> {
        append(self.out, &value).map_err(|error| JsonError::from_encoding(&error))
    }
}

/// An open array or object.
struct Container<'s, 'a> {
    serializer: &'s mut Serializer<'a>,
    is_empty: bool,
    /// `true` if the only field is JSON text that is written as it is.
    is_verbatim: bool,
    levels: u8,
    close: &'static [u8],
}

impl Container<'_, '_> {
    fn separate(&mut self) {
        if !core::mem::replace(&mut self.is_empty, false) {
            self.serializer.out.push(b',');
        }
    }

    fn element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), JsonError> {
        self.separate();
        value.serialize(&mut *self.serializer)
    }

    fn field<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) -> Result<(), JsonError> {
        if self.is_verbatim {
            return self.verbatim(value);
        }
        self.separate();
        write_string(self.serializer.out, name);
        self.serializer.out.push(b':');
        value.serialize(&mut *self.serializer)
    }

    /// Appends JSON text, which is the string that `value` serializes to.
    fn verbatim<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), JsonError> {
        let text = serde_json::to_value(value).map_err(|error| JsonError::from_encoding(&error))?;
        let text = text.as_str().unwrap_or_default();
        Cursor::new(text.as_bytes(), self.serializer.depth).whole().map_err(|_| JsonError::Syntax)?;
        self.serializer.out.extend_from_slice(text.as_bytes());
        Ok(())
    }

    fn close(self) -> Result<(), JsonError> {
        self.serializer.out.extend_from_slice(self.close);
        self.serializer.depth = self.serializer.depth.saturating_add(self.levels);
        Ok(())
    }
}

macro_rules! integers {
    ($($method:ident $type:ty)*) => {$(
        fn $method(self, value: $type) -> Result<(), JsonError> {
            write_integer(self.out, value.into());
            Ok(())
        }
    )*};
}

macro_rules! scalars {
    ($($method:ident $type:ty)*) => {$(
        fn $method(self, value: $type) -> Result<(), JsonError> {
            self.scalar(value)
        }
    )*};
}

impl<'s, 'a> ser::Serializer for &'s mut Serializer<'a> {
    type Ok = ();
    type Error = JsonError;
    type SerializeSeq = Container<'s, 'a>;
    type SerializeTuple = Container<'s, 'a>;
    type SerializeTupleStruct = Container<'s, 'a>;
    type SerializeTupleVariant = Container<'s, 'a>;
    type SerializeMap = Container<'s, 'a>;
    type SerializeStruct = Container<'s, 'a>;
    type SerializeStructVariant = Container<'s, 'a>;

    integers! {
        serialize_i8 i8 serialize_i16 i16 serialize_i32 i32 serialize_i64 i64
        serialize_u8 u8 serialize_u16 u16 serialize_u32 u32
    }

    scalars! {
        serialize_u64 u64 serialize_i128 i128 serialize_u128 u128 serialize_f32 f32 serialize_f64 f64 serialize_char char
    }

    fn serialize_bool(self, value: bool) -> Result<(), JsonError> {
        self.out.extend_from_slice(if value { b"true" } else { b"false" });
        Ok(())
    }

    fn serialize_str(self, text: &str) -> Result<(), JsonError> {
        /// The length in bytes from which room is reserved for text.
        const LONG: usize = 1024;
        /// Room for the JSON after the text, in bytes. Without it, a few bytes after one long text would double the buffer.
        const REST: usize = 128;
        if text.len() >= LONG {
            self.out.reserve(text_size(text.as_bytes()).saturating_add(REST));
        }
        write_string(self.out, text);
        Ok(())
    }

    fn serialize_bytes(self, bytes: &[u8]) -> Result<(), JsonError> {
        self.collect_seq(bytes)
    }

    fn serialize_none(self) -> Result<(), JsonError> {
        self.serialize_unit()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), JsonError> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), JsonError> {
        self.out.extend_from_slice(b"null");
        Ok(())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), JsonError> {
        self.serialize_unit()
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Result<(), JsonError> {
        self.serialize_str(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Result<(), JsonError> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<(), JsonError> {
        let mut object = self.open(b"{", 1, b"}")?;
        object.field(variant, value)?;
        object.close()
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Container<'s, 'a>, JsonError> {
        self.open(b"[", 1, b"]")
    }

    fn serialize_tuple(self, _: usize) -> Result<Container<'s, 'a>, JsonError> {
        self.open(b"[", 1, b"]")
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Container<'s, 'a>, JsonError> {
        self.open(b"[", 1, b"]")
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Container<'s, 'a>, JsonError> {
        self.open_variant(variant, b"[", 2, b"]}")
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Container<'s, 'a>, JsonError> {
        self.open(b"{", 1, b"}")
    }

    fn serialize_struct(self, name: &'static str, _: usize) -> Result<Container<'s, 'a>, JsonError> {
        if name.starts_with(VERBATIM) {
            return Ok(Container { serializer: self, is_empty: true, is_verbatim: true, levels: 0, close: b"" });
        }
        self.open(b"{", 1, b"}")
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Container<'s, 'a>, JsonError> {
        self.open_variant(variant, b"{", 2, b"}}")
    }
}

macro_rules! arrays {
    ($($trait:ident $method:ident)*) => {$(
        impl ser::$trait for Container<'_, '_> {
            type Ok = ();
            type Error = JsonError;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), JsonError> {
                self.element(value)
            }

            fn end(self) -> Result<(), JsonError> {
                self.close()
            }
        }
    )*};
}

arrays! {
    SerializeSeq serialize_element
    SerializeTuple serialize_element
    SerializeTupleStruct serialize_field
    SerializeTupleVariant serialize_field
}

macro_rules! objects {
    ($($trait:ident)*) => {$(
        impl ser::$trait for Container<'_, '_> {
            type Ok = ();
            type Error = JsonError;

            fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), JsonError> {
                self.field(name, value)
            }

            fn end(self) -> Result<(), JsonError> {
                self.close()
            }
        }
    )*};
}

objects! { SerializeStruct SerializeStructVariant }

impl ser::SerializeMap for Container<'_, '_> {
    type Ok = ();
    type Error = JsonError;

    /// Appends a key. A number or a boolean is put in quotes.
    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), JsonError> {
        self.separate();
        let start = self.serializer.out.len();
        key.serialize(&mut *self.serializer)?;
        match self.serializer.out.get(start) {
            Some(b'"') => {}
            // An object, an array or `null`.
            Some(b'{' | b'[' | b'n') | None => return Err(ser::Error::custom("key must be a string")),
            Some(_) => {
                self.serializer.out.insert(start, b'"');
                self.serializer.out.push(b'"');
            }
        }
        self.serializer.out.push(b':');
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), JsonError> {
        value.serialize(&mut *self.serializer)
    }

    fn end(self) -> Result<(), JsonError> {
        self.close()
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;
    use alloc::string::String;
    use alloc::vec;

    use serde::Serialize;
    use serde_json::value::RawValue;

    use super::*;
    use crate::json::Json;

    fn written<T: Serialize + ?Sized>(value: &T) -> Result<String, JsonError> {
        let mut out = Vec::new();
        write_value(&mut out, value).map(|()| String::from_utf8(out).unwrap())
    }

    #[derive(Serialize)]
    struct Unit;
    #[derive(Serialize)]
    struct Newtype(i8);
    #[derive(Serialize)]
    struct Pair(u8, &'static str);
    #[derive(Clone, Serialize, PartialEq, Eq, PartialOrd, Ord)]
    enum Any {
        Unit,
        Newtype(i64),
        Tuple(u16, bool),
        Struct { a: Option<char>, b: () },
    }

    #[test]
    fn every_shape_of_a_value_is_written_as_serde_json_writes_it() {
        fn same<T: Serialize + ?Sized>(value: &T) {
            assert_eq!(written(value), Ok(serde_json::to_string(value).unwrap()));
        }
        same(&(Unit, Newtype(-7), Pair(255, "\u{8}\u{c}\n\r\t\"\\\u{1f}\u{7f}é"), [0_u8; 0], ((), true, false)));
        same(&[Any::Unit, Any::Newtype(i64::MIN), Any::Tuple(u16::MAX, true), Any::Struct { a: Some('"'), b: () }]);
        same(&(u64::MAX, i128::MIN, u128::MAX, 1.0_f64, -0.0_f64, 0.1_f32, 1e300, 5e-324, f64::NAN, f32::INFINITY, i64::MAX));
        same(&BTreeMap::from([("a", Some(1)), ("b\"", None)]));
        same(&BTreeMap::from([(-1, vec![1]), (300_000_000, vec![])]));
        same(&BTreeMap::from([(true, BTreeMap::from([('x', 1)])), (false, BTreeMap::new())]));
        same(&BTreeMap::from([(Any::Unit, 1)]));
        same(&serde_json::json!({"a": [1, -2.5, null, {"b": "c", "d": {}}], "e": [], "f": [[]]}));
        same(&["x".repeat(5000), "\n".repeat(5000), String::new()]);
        same(&RawValue::from_string(String::from("[ 1e999, \"\\ud800\" ]")).unwrap());
        assert_eq!(written(&(1, Json::parse("{ \"a\" : 1 }").unwrap())).unwrap(), "[1,{ \"a\" : 1 }]");
    }

    #[test]
    fn a_value_is_appended_unless_it_cannot_be_serialized_or_is_nested_too_deep() {
        let mut out = Vec::from(*b"[0,");
        assert_eq!(write_value(&mut out, &serde_json::json!({ "a": ["b", 1.5] })), Ok(()));
        assert_eq!(out, br#"[0,{"a":["b",1.5]}"#);
        let nested = |depth| (0..depth).fold(serde_json::json!(0), |inner, _| serde_json::json!([inner]));
        assert_eq!(write_value(&mut Vec::new(), &nested(120)), Ok(()));
        assert_eq!(write_value(&mut Vec::new(), &nested(121)), Err(JsonError::Syntax));
        let invalid_key = BTreeMap::from([([1], 2)]);
        assert!(matches!(write_value(&mut Vec::new(), &invalid_key), Err(JsonError::Encode(_))));
    }

    #[test]
    fn a_key_that_is_not_text_a_number_or_a_boolean_is_an_error() {
        let kinds = [
            written(&BTreeMap::from([([1], 2)])),
            written(&BTreeMap::from([((), 2)])),
            written(&BTreeMap::from([(None::<u8>, 2)])),
        ];
        let newtype = written(&BTreeMap::from([(Any::Newtype(1), 2)]));
        for kind in kinds.into_iter().chain([newtype]) {
            assert_eq!(kind, Err(JsonError::Encode(String::from("key must be a string"))));
        }
    }

    #[test]
    fn nesting_is_bounded_in_every_container_and_in_verbatim_json() {
        #[derive(Serialize)]
        #[serde(untagged)]
        enum Nest {
            List(Vec<Self>),
            Map(BTreeMap<u8, Self>),
            Raw(alloc::boxed::Box<RawValue>),
            End(()),
        }
        let raw = |depth: usize| Nest::Raw(RawValue::from_string("[".repeat(depth) + &"]".repeat(depth)).unwrap());
        let inner: [(usize, fn() -> Nest); 2] = [(0, || Nest::End(())), (1, || Nest::List(Vec::new()))];
        for (levels, inner) in inner {
            for step in [|inside| Nest::List(vec![inside]), |inside| Nest::Map(BTreeMap::from([(1, inside)]))] {
                let nest = |depth: usize| (0..depth - levels).fold(inner(), |inside, _| step(inside));
                assert_eq!((written(&nest(120)).is_ok(), written(&nest(121))), (true, Err(JsonError::Syntax)));
            }
        }
        let raws = [written(&raw(120)), written(&raw(121)), written(&[raw(120)])].map(|raw| raw.is_ok());
        assert_eq!(raws, [true, false, false]);
        // A closed container no longer counts.
        assert!(written(&vec![vec![Any::Tuple(1, true)]; 200]).is_ok());
    }
}
