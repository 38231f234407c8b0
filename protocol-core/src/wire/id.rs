//! Request ids and progress tokens as the peer writes them.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::json::read::{Kind, integer, string};
use crate::json::write::{write_integer, write_string};

/// An id or a progress token: text or an integer. The integer `1` and the text `"1"` are different ids. Tesseron allows a request to have
/// the id `null`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WireId {
    /// `null`.
    Null,
    /// A whole number.
    Int(i64),
    /// A whole number above the greatest `i64`.
    Large(u64),
    /// Text.
    Str(Box<str>),
}

impl WireId {
    /// Reads an id. `None` if `value` is longer than `max` bytes, or is neither text nor an integer. Whether `null` is an id is decided in
    /// `wire/read.rs`. Text with an unpaired surrogate is not read, either. `1.0`, `-0` and numbers beyond 64 bits, with or without a sign,
    /// are not read as integers, since a response could not repeat them as they were written. Text is copied, so that a stored id does not
    /// keep its frame alive.
    pub(crate) fn read(value: &[u8], max: usize) -> Option<Self> {
        match Kind::of(value) {
            _ if value.len() > max => None,
            Kind::String => string(value).map(|text| Self::Str(text.into())),
            Kind::Number if value != b"-0" => integer(value).map(Self::Int).or_else(|| integer(value).map(Self::Large)),
            _ => None,
        }
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Null => out.extend_from_slice(b"null"),
            Self::Int(number) => write_integer(out, *number),
            // The greatest numbers are rare.
            Self::Large(number) => out.extend_from_slice(alloc::format!("{number}").as_bytes()),
            Self::Str(text) => write_string(out, text),
        }
    }

    /// The number, if this is an integer that is not negative, as the ids of our requests are.
    pub(crate) fn as_ours(&self) -> Option<u64> {
        match self {
            Self::Int(number) => u64::try_from(*number).ok(),
            Self::Large(number) => Some(*number),
            Self::Null | Self::Str(_) => None,
        }
    }
}
