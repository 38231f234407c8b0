//! The error of parsing, writing or reading JSON as a type.

use alloc::string::{String, ToString as _};

/// The error of parsing, serializing or deserializing JSON.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JsonError {
    /// The text is not exactly one JSON value, or is nested more than 120 deep.
    #[error("not a JSON value nested at most 120 deep")]
    Syntax,
    /// The JSON cannot be deserialized as the expected type.
    #[error("unexpected JSON: {0}")]
    Decode(String),
    /// The value cannot be serialized.
    #[error("cannot be written as JSON: {0}")]
    Encode(String),
}

impl JsonError {
    /// Wraps an error of serde_json that occurred while it read a value.
    pub(crate) fn from_decoding(error: &serde_json::Error) -> Self {
        Self::Decode(error.to_string())
    }

    /// Wraps an error of serde_json that occurred while it wrote a value.
    pub(crate) fn from_encoding(error: &serde_json::Error) -> Self {
        Self::Encode(error.to_string())
    }
}
