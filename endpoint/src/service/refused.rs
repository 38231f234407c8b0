//! The error of a registration.

/// A tool, prompt, resource or other handler was refused when it was registered or when its service was first shared: the schema of its
/// arguments is not that of an object, no client could use it, or it has a keyword that cannot be checked; or it takes a
/// [`State`](crate::State) that the service does not have; or there is another of its name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} `{name}`: {reason}")]
#[non_exhaustive]
pub struct Refused {
    /// What was refused, such as `tool`.
    pub kind: &'static str,
    /// Its name; the URI of a resource.
    pub name: String,
    /// The reason, and what to do about it. The position of a keyword in a schema is given as a JSON pointer.
    pub reason: String,
}

impl Refused {
    /// There is something of this name already.
    pub(super) fn duplicate(kind: &'static str, name: String) -> Self {
        Self { kind, name, reason: format!("the service has a {kind} of this name already") }
    }
}
