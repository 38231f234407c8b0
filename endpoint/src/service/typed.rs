//! What types of arguments and results have to implement, in words for those whose types do not.

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A type of arguments: every type with `Deserialize` and `JsonSchema` that borrows nothing and can be sent to another thread. It is
/// implemented for all of these, and not to be implemented by hand.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the arguments of a tool or a prompt",
    label = "cannot be read from JSON, or has no schema",
    note = "arguments are a struct with `#[args]`, or with `#[derive(serde::Deserialize, schemars::JsonSchema)]`, that owns its fields; `()` if there are none",
    note = "the arguments are the last parameter of a handler: `Context` and `State<T>` come before them"
)]
pub trait Arguments: DeserializeOwned + JsonSchema + Send + 'static {}

#[diagnostic::do_not_recommend]
impl<T: DeserializeOwned + JsonSchema + Send + 'static> Arguments for T {}

/// A type of results of tools: every type with `Serialize` and `JsonSchema` that borrows nothing and can be sent to another thread. It is
/// implemented for all of these, and not to be implemented by hand.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the result of a tool",
    label = "cannot be written as JSON, or has no schema",
    note = "a result is a string, a number, `()`, or a type with `#[derive(serde::Serialize, schemars::JsonSchema)]`",
    note = "a handler that builds a `ToolOutput` is for `Tool::with_content`"
)]
pub trait Returns: Serialize + JsonSchema + Send + 'static {}

#[diagnostic::do_not_recommend]
impl<T: Serialize + JsonSchema + Send + 'static> Returns for T {}
