//! The error of the registration of a tool or prompt.

/// A tool or prompt was refused for the schema of its arguments: they are not an object, no client could use the schema, or it has a
/// keyword that cannot be checked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("arguments of `{name}`: {reason}")]
#[non_exhaustive]
pub struct SchemaRefused {
    /// The name of the tool or prompt.
    pub name: String,
    /// The reason, and what to do about it. The position of a keyword in the schema is given as a JSON pointer.
    pub reason: String,
}
