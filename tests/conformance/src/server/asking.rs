//! Tools that send input requests to their caller. The same handlers serve both eras.

use endpoint::{Context, Tool, ToolError};
use futures_lite::future::zip;
use protocol_core::{Capabilities, Elicit, Json, Sample};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize, JsonSchema)]
struct Sampling {
    /// the prompt for the model
    prompt: String,
}

#[derive(Deserialize, JsonSchema)]
struct Eliciting {
    /// the message for the user
    message: String,
}

pub(super) fn tools() -> Vec<Tool> {
    let mut sampling = Capabilities::default();
    sampling.sampling = true;
    vec![
        Tool::new("test_sampling", async |context: Context, Sampling { prompt }: Sampling| {
            let sampled = context.sample(short(prompt)).await?;
            Ok(format!("LLM response: {}", sampled.text))
        })
        .description("Asks the model."),
        Tool::new("test_elicitation", async |context: Context, Eliciting { message }: Eliciting| {
            let fields = json!({"username": {"type": "string"}, "email": {"type": "string"}});
            answered(context.elicit(form(&message, fields, &["username", "email"])).await?)
        })
        .description("Asks the user."),
        Tool::new("test_elicitation_sep1034_defaults", async |context: Context, ()| {
            answered(context.elicit(form("Please review the defaults", with_defaults(), &[])).await?)
        })
        .description("Asks the user, and proposes all answers."),
        Tool::new("test_elicitation_sep1330_enums", async |context: Context, ()| {
            answered(context.elicit(form("Please choose", choices(), &[])).await?)
        })
        .description("Asks the user to choose."),
        Tool::new("test_streaming_elicitation", async |context: Context, ()| {
            answered(context.elicit(form("Please confirm", json!({"ok": {"type": "boolean"}}), &[])).await?)
        })
        .description("Asks the user, within the stream of its response or by a result."),
        Tool::new("test_missing_capability", async |context: Context, ()| Ok(context.sample(short("Hello")).await?.text))
            .description("Cannot be called by a client without a model.")
            .needs(sampling),
        Tool::new("test_input_required_result_elicitation", async |context: Context, ()| {
            let name = text_of(&context, "user_name", "What is your name?", "name").await?;
            Ok(format!("Hello, {name}!"))
        })
        .description("Asks for a name."),
        Tool::new("test_input_required_result_sampling", async |context: Context, ()| {
            let capital = context.sample(short("What is the capital of France?")).key("capital_question").await?;
            Ok(capital.text)
        })
        .description("Asks the model for a capital."),
        Tool::new("test_input_required_result_list_roots", async |context: Context, ()| {
            let roots = context.roots().key("client_roots").await?;
            Ok(format!("Roots: {roots}"))
        })
        .description("Asks for the roots."),
        Tool::new("test_input_required_result_request_state", async |context: Context, ()| {
            let confirm = form("Go on?", json!({"ok": {"type": "boolean"}}), &["ok"]);
            let confirmed = context.elicit(confirm).key("confirm").await?;
            Ok(if confirmed.is_some() { "state-ok" } else { "declined" })
        })
        .description("Asks for a confirmation, and knows its own state again."),
        Tool::new("test_input_required_result_multiple_inputs", async |context: Context, ()| {
            let name = text_of(&context, "user_name", "What is your name?", "name");
            let greeting = context.sample(short("Write a greeting")).key("greeting");
            let roots = context.roots().key("client_roots");
            let (name, (greeting, roots)) = zip(name, zip(greeting, roots)).await;
            Ok(format!("{} ({}, roots {})", greeting?.text, name?, roots?))
        })
        .description("Asks three questions at once."),
        Tool::new("test_input_required_result_multi_round", async |context: Context, ()| {
            let name = text_of(&context, "step1", "What is your name?", "name").await?;
            let color = text_of(&context, "step2", "What is your favourite color?", "color").await?;
            Ok(format!("{name} likes {color}."))
        })
        .description("Asks two questions, one after the other."),
        Tool::new("test_input_required_result_tampered_state", async |context: Context, ()| {
            let name = text_of(&context, "user_name", "What is your name?", "name").await?;
            Ok(format!("Hello, {name}!"))
        })
        .description("Refuses a state that is not its own."),
        Tool::new("test_input_required_result_capabilities", async |context: Context, ()| {
            if context.capabilities().elicitation {
                let name = text_of(&context, "user_name", "What is your name?", "name").await?;
                return Ok(format!("Hello, {name}!"));
            }
            Ok(context.sample(short("Write a greeting")).key("greeting").await?.text)
        })
        .description("Asks only for what its caller can be asked for."),
    ]
}

/// A sampling request for a short answer.
fn short(prompt: impl Into<String>) -> Sample {
    let mut sample = Sample::new(prompt);
    sample.max_tokens = Some(100);
    sample
}

fn form(message: &str, fields: Value, required: &[&str]) -> Elicit {
    Elicit::new(message, json!({"type": "object", "properties": fields, "required": required}).into())
}

/// The answer to a form, as text.
fn answered(content: Option<Json>) -> Result<String, ToolError> {
    Ok(content.map_or_else(|| "User response: declined".to_owned(), |content| format!("User response: accepted, {content}")))
}

/// Asks for one text.
async fn text_of(context: &Context, key: &str, message: &str, field: &str) -> Result<String, ToolError> {
    let asked = context.elicit(form(message, json!({field: {"type": "string"}}), &[field])).key(key.to_owned());
    let content = asked.await?.ok_or_else(|| ToolError::failed("The user declined."))?;
    let text = content.member(field).and_then(|text| text.as_text()).unwrap_or_default();
    Ok(text.as_str().to_owned())
}

fn with_defaults() -> Value {
    json!({
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": true},
    })
}

/// Properties with each of the five kinds of schemas for a choice among values.
fn choices() -> Value {
    let titled = json!([
        {"const": "value1", "title": "First Option"},
        {"const": "value2", "title": "Second Option"},
        {"const": "value3", "title": "Third Option"},
    ]);
    let plain = json!(["option1", "option2", "option3"]);
    json!({
        "untitledSingle": {"type": "string", "enum": plain},
        "titledSingle": {"type": "string", "oneOf": titled},
        "legacyEnum": {"type": "string", "enum": plain, "enumNames": ["Option One", "Option Two", "Option Three"]},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": plain}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled}},
    })
}
