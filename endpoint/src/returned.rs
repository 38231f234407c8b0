//! For the attributes of `sansmcp`, and no part of the public API: an attribute sees the name of a type, which may be an alias of a
//! `Result`, and leaves it to the compiler to tell if it is one.

use crate::tool_error::Result;

/// What a function has returned, whose `returned_result` is its own if it is a `Result`, and else that of [`Plain`]: the method of a type
/// comes before that of a trait.
#[derive(Debug)]
pub struct Returned<T>(pub T);

impl<T, E> Returned<core::result::Result<T, E>> {
    /// The `Result`. Its error need not convert into a [`ToolError`](crate::ToolError): the compiler says so at the `?` behind it.
    pub fn returned_result(self) -> core::result::Result<T, E> {
        self.0
    }
}

/// What is not a `Result`.
pub trait Plain {
    /// The type of the value.
    type Value;

    /// The value, which is no failure.
    fn returned_result(self) -> Result<Self::Value>;
}

impl<T> Plain for Returned<T> {
    type Value = T;

    fn returned_result(self) -> Result<T> {
        Ok(self.0)
    }
}
