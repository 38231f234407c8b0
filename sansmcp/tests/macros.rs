//! The attributes make what a person would write without them.

use std::time::Duration;

use sansmcp::prelude::*;
use sansmcp::testing::Harness;
use sansmcp::{Op, serde_json};
use serde_json::{Value, json};

struct Db(&'static str);

#[args]
struct Resize {
    /// The files to resize.
    files: Vec<String>,
}

/// Resizes images.
///
/// All at once.
#[tool(title = "Resize", destructive = false, open_world = false, deadline = Duration::from_secs(60))]
async fn resize(State(db): State<Db>, job: Resize, context: Context) -> Result<usize> {
    context.step(1, 2);
    Ok(db.0.len() + job.files.len())
}

/// Adds.
#[tool(read_only, idempotent, inline, name = "sum")]
async fn arguments(
    context: Context,
    /// The first number.
    a: u8,
    /// The second number.
    #[serde(default)]
    b: Option<u8>,
    State(db): State<Db>,
) -> Result<String, std::num::ParseIntError> {
    drop(context);
    let sum = u32::from(a) + u32::from(b.unwrap_or_default()) + "100".parse::<u32>()?;
    Ok(format!("{sum} in {}", db.0))
}

/// A type that a program may well have.
#[args]
struct Arguments {
    words: Vec<String>,
}

/// Counts.
#[tool]
async fn count(
    /// What to count.
    first: Arguments,
    /// How often.
    times: usize,
) -> usize {
    let Arguments { words } = first;
    words.len() * times
}

/// A tool whose doc comment comes from a macro.
macro_rules! described {
    ($name:ident, $text:expr) => {
        #[doc = $text]
        #[tool]
        async fn $name() {}
    };
}

described!(by_macro, "By a macro.");

#[doc = concat!("For", " people.")]
#[tool(description = concat!("For", " models."))]
async fn by_option() {}

/// Types of a program whose names are also ours.
mod theirs {
    use sansmcp::prelude::*;

    #[args]
    pub(super) struct State {
        pub(super) zip: String,
    }

    #[args]
    pub(super) struct Context<T> {
        pub(super) words: T,
    }
}

#[tool]
async fn together(state: theirs::State, _: Context) -> String {
    state.zip
}

#[tool]
async fn apart(
    /// Where.
    state: theirs::State,
    /// What.
    context: theirs::Context<String>,
) -> String {
    state.zip + &context.words
}

macro_rules! takes {
    ($name:ident, $context:ty, $state:ty) => {
        #[tool]
        async fn $name(_: $context, State(db): $state) -> String {
            db.0.into()
        }
    };
}

takes!(taken, Context, State<Db>);

/// A `Result` by another name.
type Outcome = std::result::Result<u32, String>;

#[tool]
async fn fails() -> Outcome {
    Err("no luck".into())
}

#[tool]
fn fails_blocking() -> Outcome {
    Err("no luck".into())
}

macro_rules! returns {
    ($name:ident, $output:ty, $value:expr) => {
        #[tool]
        async fn $name() -> $output {
            $value
        }
    };
}

returns!(fails_by_macro, Result<u32, String>, Err("no luck".into()));
returns!(content_by_macro, Result<ToolOutput>, Ok(ToolOutput::text("as it is")));

/// A type that is no `Result`, whatever its name is.
mod own {
    #[derive(sansmcp::serde::Serialize, sansmcp::schemars::JsonSchema)]
    #[serde(crate = "sansmcp::serde")]
    #[schemars(crate = "sansmcp::schemars")]
    pub(super) struct Result {
        pub(super) sum: u32,
    }
}

#[tool]
async fn own_result() -> own::Result {
    own::Result { sum: 3 }
}

/// A `Result` without a generic argument.
mod fixed {
    pub(super) type Result = std::result::Result<String, String>;
}

#[prompt]
async fn unlucky() -> fixed::Result {
    Err("no luck".into())
}

#[resource("fails://{place}")]
async fn unlucky_resource() -> fixed::Result {
    Err("no luck".into())
}

#[tool]
async fn lints(#[expect(unused_variables)] context: Context, #[expect(unused_variables)] job: Resize) {}

#[tool]
fn blocking() -> Result<&'static str, &'static str> {
    Err("no luck")
}

#[tool]
async fn content() -> ToolOutput {
    ToolOutput::text("as it is")
}

#[tool]
async fn nothing() {}

async fn numbers(State(db): State<Db>, asked: CompletionRequest) -> Result<Completion> {
    Ok(Completion::all([format!("{}{} in {}", asked.argument, asked.value, db.0)]))
}

/// Asks for a shorter answer.
#[prompt(title = "Shorten")]
fn shorten(
    /// The most words that are wanted.
    #[complete(numbers)]
    most: u32,
) -> String {
    format!("At most {most} words.")
}

#[prompt]
async fn review(_: Context) -> Result<[PromptMessage; 2], std::fmt::Error> {
    Ok([PromptMessage::user("Review"), PromptMessage::assistant("Yes")])
}

/// How to use it.
#[resource("words://manual", mime_type = "text/plain", subscribable)]
fn manual() -> &'static str {
    "Read it."
}

#[resource("words://{book}/{page}")]
async fn page(
    State(db): State<Db>,
    uri: ResourceUri,
    /// The number of the page.
    #[complete(numbers)]
    page: u8,
) -> Result<Vec<u8>> {
    Ok(format!("{page} {} {}", uri.uri, db.0).into())
}

#[resource("types://{type}")]
async fn of(
    /// The type of the words.
    r#type: String,
) -> String {
    r#type
}

fn service() -> Service {
    Service::new("words", "1.0")
        .state(Db("db"))
        .tool(resize())
        .tool(arguments())
        .tool(count())
        .tool(by_macro())
        .tool(by_option())
        .tool(together())
        .tool(apart())
        .tool(taken())
        .tool(fails())
        .tool(fails_blocking())
        .tool(fails_by_macro())
        .tool(content_by_macro())
        .tool(own_result())
        .prompt(unlucky())
        .resource_template(unlucky_resource())
        .tool(lints())
        .tool(blocking())
        .tool(content())
        .tool(nothing())
        .prompt(shorten())
        .prompt(review())
        .resource(manual())
        .resource_template(page())
        .resource_template(of())
}

fn request(op: Op, params: &Value) -> Result<Value, sansmcp::RpcError> {
    let run = Harness::new(service()).request(op, params.clone().into());
    run.error().map_or_else(|| Ok(run.result().decode().unwrap()), |error| Err(error.clone()))
}

fn call(name: &str, arguments: &Value) -> String {
    Harness::new(service()).call_tool(name, arguments.clone().into()).text()
}

#[test]
fn a_tool_takes_its_arguments_together_or_one_by_one_and_returns_anything() {
    assert_eq!(call("resize", &json!({"files": ["a", "b"]})), r#"{"result":4}"#);
    assert_eq!(call("sum", &json!({"a": 1, "b": 2})), "103 in db");
    assert_eq!(call("sum", &json!({"a": 1})), "101 in db");
    assert!(call("sum", &json!({"b": 1})).starts_with("invalid arguments: "));
    assert_eq!(call("count", &json!({"first": {"words": ["a", "b"]}, "times": 2})), r#"{"result":4}"#);
    assert_eq!(call("together", &json!({"zip": "7"})), "7");
    assert_eq!(call("apart", &json!({"state": {"zip": "7"}, "context": {"words": "a"}})), "7a");
    assert_eq!(call("taken", &json!({})), "db");
    assert_eq!(call("lints", &json!({"files": []})), "");
    assert_eq!(call("blocking", &json!({})), "no luck");
    assert_eq!(call("content", &json!({})), "as it is");
    assert_eq!(call("nothing", &json!({})), "");
}

#[test]
fn a_result_is_known_by_its_type_and_not_by_its_name() {
    for name in ["fails", "fails_blocking", "fails_by_macro"] {
        let result = request(Op::CallTool, &json!({"name": name})).unwrap();
        assert_eq!(result, json!({"content": [{"type": "text", "text": "no luck"}], "isError": true}), "{name}");
    }
    assert_eq!(call("content_by_macro", &json!({})), "as it is");
    assert_eq!(call("own_result", &json!({})), r#"{"sum":3}"#);
    assert_eq!(request(Op::GetPrompt, &json!({"name": "unlucky"})).unwrap_err().message, "no luck");
    assert_eq!(request(Op::ReadResource, &json!({"uri": "fails://here"})).unwrap_err().message, "no luck");
}

#[test]
fn name_description_and_options_are_listed() {
    let listed = request(Op::ListTools, &json!({})).unwrap();
    let tools = listed["tools"].as_array().unwrap();
    let tool = |name: &str| tools.iter().find(|tool| tool["name"] == name).unwrap();
    let resize = tool("resize");
    assert_eq!((&resize["title"], &resize["description"]), (&json!("Resize"), &json!("Resizes images.\n\nAll at once.")));
    assert_eq!(resize["annotations"], json!({"destructiveHint": false, "openWorldHint": false}));
    assert_eq!(tool("by_macro")["description"], "By a macro.");
    assert_eq!(tool("by_option")["description"], "For models.");
    let sum = tool("sum");
    assert_eq!(sum["annotations"], json!({"readOnlyHint": true, "idempotentHint": true}));
    assert_eq!(sum["inputSchema"]["properties"]["a"]["description"], "The first number.");
    assert_eq!(sum["inputSchema"]["required"], json!(["a"]));
    let prompts = request(Op::ListPrompts, &json!({})).unwrap();
    let arguments = json!([{"name": "most", "description": "The most words that are wanted.", "required": true}]);
    let shorten =
        json!({"name": "shorten", "title": "Shorten", "description": "Asks for a shorter answer.", "arguments": arguments});
    assert_eq!(prompts["prompts"][1], shorten);
    let manual = json!({"uri": "words://manual", "name": "manual", "description": "How to use it.", "mimeType": "text/plain"});
    assert_eq!(request(Op::ListResources, &json!({})).unwrap()["resources"], json!([manual]));
}

#[test]
fn an_argument_and_a_variable_name_the_function_that_completes_them() {
    for (reference, argument) in [
        (json!({"type": "ref/prompt", "name": "shorten"}), "most"),
        (json!({"type": "ref/resource", "uri": "words://{book}/{page}"}), "page"),
    ] {
        let completed = request(Op::Complete, &json!({"ref": reference, "argument": {"name": argument, "value": "1"}})).unwrap();
        assert_eq!(completed["completion"]["values"], json!([format!("{argument}1 in db")]));
    }
}

#[test]
fn a_prompt_and_a_resource_return_what_converts_and_take_variables_by_name() {
    let shorten = request(Op::GetPrompt, &json!({"name": "shorten", "arguments": {"most": "7"}})).unwrap();
    assert_eq!(shorten["messages"], json!([{"role": "user", "content": {"type": "text", "text": "At most 7 words."}}]));
    assert_eq!(request(Op::GetPrompt, &json!({"name": "review"})).unwrap()["messages"][1]["role"], "assistant");
    let read = |uri: &str| request(Op::ReadResource, &json!({"uri": uri}));
    assert_eq!(read("words://manual").unwrap()["contents"][0]["text"], "Read it.");
    assert_eq!(read("words://a/7").unwrap()["contents"][0]["blob"], "NyB3b3JkczovL2EvNyBkYg==");
    assert_eq!(read("types://verbs").unwrap()["contents"][0]["text"], "verbs");
    assert_eq!(read("words://a/x").unwrap_err().code, -32002, "it is no page");
}
