//! The attributes [`macro@tool`], [`macro@prompt`], [`macro@resource`] and [`macro@args`] of `sansmcp`, which re-exports them. Use them from
//! there: what they expand to names `::sansmcp`.
//!
//! They expand to what a person would write, and do nothing that cannot be done without them.

mod args;
mod function;
mod options;
mod parameter;
mod prompt;
mod resource;
mod tool;

use proc_macro::TokenStream;
use syn::parse_macro_input;

/// Makes a function a tool: `#[tool] async fn resize(..)` becomes a function `resize()` that returns a `Tool`.
///
/// The name of the tool is that of the function, its description the doc comment. The parameters, in any order:
///
/// * any number of `Context` and `State<T>`;
/// * the arguments: one struct (see [`macro@args`]), or each on its own with a doc comment, which is its description. An argument that may
///   be left out is an `Option`. `#[serde(..)]` and `#[schemars(..)]` on an argument work as on a field.
///
/// The result is any that a tool can have: a type of serde, `ToolOutput`, or a `Result` of either with any error that converts into a
/// `ToolError`. A function that is not `async` may block (`Tool::blocking`).
///
/// Options: `name`, `title` and `description`, which are strings; `read_only`, `idempotent` and `inline`; `destructive` and `open_world`,
/// alone or with `= false`; `deadline = Duration::from_secs(60)`.
#[proc_macro_attribute]
pub fn tool(options: TokenStream, item: TokenStream) -> TokenStream {
    let options = parse_macro_input!(options as options::Options);
    tool::expand(&options, item.into()).unwrap_or_else(|error| error.to_compile_error()).into()
}

/// Makes a function a prompt: `#[prompt] async fn review(..)` becomes a function `review()` that returns a `Prompt`.
///
/// Name, description and parameters are as for [`macro@tool`]. The result is a `PromptOutput` or what converts into one: a
/// `PromptMessage`, several of them, or a string, which is one message of the user; or a `Result` of these. The function must not block,
/// not even if it is not `async`: it runs in a task.
///
/// `#[complete(function)]` on an argument on its own names the handler that completes it: `async fn(CompletionRequest) -> Result<Completion>`,
/// with any number of `Context` and `State<T>` before the request.
///
/// Options: `name`, `title` and `description`, which are strings; `deadline = Duration::from_secs(60)`.
#[proc_macro_attribute]
pub fn prompt(options: TokenStream, item: TokenStream) -> TokenStream {
    let options = parse_macro_input!(options as options::Options);
    prompt::expand(&options, item.into()).unwrap_or_else(|error| error.to_compile_error()).into()
}

/// Makes a function a resource, or a family of resources: `#[resource("file:///{name}")] async fn file(..)` becomes a function `file()` that
/// returns a `ResourceTemplate`, and without a variable in the URI a `Resource`.
///
/// The name of the resource is that of the function, its description the doc comment. The parameters, in any order: any number of `Context`
/// and `State<T>`; for a template also a `ResourceUri`, and variables of the template by name, of any type that implements `FromStr`. A URI
/// whose variable is not of its type is answered as a resource that does not exist.
///
/// The result is a `ResourceContents` or what converts into one: a string, or bytes; or a `Result` of these. The function must not block, not
/// even if it is not `async`: it runs in a task.
///
/// `#[complete(function)]` on a variable works as for [`macro@prompt`].
///
/// Options: `name`, `title`, `description` and `mime_type`, which are strings; `subscribable`, which a template cannot be.
#[proc_macro_attribute]
pub fn resource(options: TokenStream, item: TokenStream) -> TokenStream {
    let options = parse_macro_input!(options as options::Options);
    resource::expand(&options, item.into()).unwrap_or_else(|error| error.to_compile_error()).into()
}

/// Makes a struct or an enum the arguments of a tool or a prompt, or the answer to a form: derives `Deserialize` and `JsonSchema`, with the
/// crates that `sansmcp` re-exports, so that a program need not depend on them. Doc comments become descriptions. All attributes of serde
/// and schemars work.
#[proc_macro_attribute]
pub fn args(options: TokenStream, item: TokenStream) -> TokenStream {
    args::expand(options.into(), item.into()).unwrap_or_else(|error| error.to_compile_error()).into()
}
