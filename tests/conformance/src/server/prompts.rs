//! The prompts of the conformance server, with the names and texts that the suite expects.

use std::collections::BTreeMap;

use endpoint::{Context, Prompt, PromptMessage, PromptOutput, ToolError};
use protocol_core::{Content, Elicit};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::content::PIXEL;

#[derive(Deserialize, JsonSchema)]
struct Two {
    /// the first argument
    arg1: String,
    /// the second argument
    arg2: String,
}

#[derive(Deserialize, JsonSchema)]
struct Embedding {
    /// the resource to embed
    #[serde(rename = "resourceUri")]
    resource_uri: String,
}

pub(super) fn prompts() -> Vec<Prompt> {
    vec![
        Prompt::new("test_simple_prompt", async |_: Context, _: BTreeMap<String, String>| {
            output([PromptMessage::user("This is a simple prompt for testing.")])
        })
        .description("Says one thing."),
        Prompt::typed("test_prompt_with_arguments", async |_: Context, Two { arg1, arg2 }: Two| {
            output([PromptMessage::user(format!("Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"))])
        })
        .description("Repeats its arguments."),
        Prompt::typed("test_prompt_with_embedded_resource", async |_: Context, Embedding { resource_uri }: Embedding| {
            let resource = Content::embedded(&resource_uri, "text/plain", "Embedded resource content for testing.");
            output([PromptMessage::user_content(resource), PromptMessage::user("Please process the embedded resource above.")])
        })
        .description("Embeds a resource."),
        Prompt::new("test_prompt_with_image", async |_: Context, _: BTreeMap<String, String>| {
            let image = Content::image(PIXEL, "image/png");
            output([PromptMessage::user_content(image), PromptMessage::user("Please analyze the image above.")])
        })
        .description("Shows an image."),
        Prompt::new("test_input_required_result_prompt", async |context: Context, _: BTreeMap<String, String>| {
            let schema = json!({"type": "object", "properties": {"context": {"type": "string"}}, "required": ["context"]});
            let form = Elicit::new("What is it about?", schema.into());
            let given = context.elicit(form).key("user_context").await?;
            let about = given.and_then(|given| given.member("context")).and_then(|about| about.as_text()).unwrap_or_default();
            output([PromptMessage::user(format!("Tell me about {}", about.as_str()))])
        })
        .description("Asks the user what it is about."),
    ]
}

fn output<const N: usize>(messages: [PromptMessage; N]) -> Result<PromptOutput, ToolError> {
    Ok(PromptOutput::new(messages))
}
