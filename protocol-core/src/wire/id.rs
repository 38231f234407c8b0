//! Request ids and progress tokens as the peer writes them.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::json::read::{Kind, integer, string};
use crate::json::write::{write_integer, write_string};

/// An id or a progress token: text or an integer, and `1` is not `"1"`. Some protocols allow a request to have the id `null`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WireId {
    /// `null`.
    Null,
    /// A whole number.
    Int(i64),
    /// Text.
    Str(Box<str>),
}

impl WireId {
    /// Reads an id. `None` if `value` is neither text nor an integer that can be echoed as it was written (`1.0`, `-0` and numbers beyond
    /// 64 bits cannot), or if it is longer than `max` bytes. Text is copied, so that a stored id does not keep its frame alive.
    pub(crate) fn read(value: &[u8], max: usize) -> Option<Self> {
        match Kind::of(value) {
            _ if value.len() > max => None,
            Kind::String => string(value).map(|text| Self::Str(text.into())),
            Kind::Number if value != b"-0" => integer(value).map(Self::Int),
            _ => None,
        }
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Null => out.extend_from_slice(b"null"),
            Self::Int(number) => write_integer(out, *number),
            Self::Str(text) => write_string(out, text),
        }
    }

    /// The number, if this can be an id of ours: an integer that is not negative.
    pub(crate) fn as_ours(&self) -> Option<u64> {
        match self {
            Self::Int(number) => u64::try_from(*number).ok(),
            Self::Null | Self::Str(_) => None,
        }
    }
}
