//! A server on standard input and output, for the configuration of an agent: a tool that reports progress, a resource, and a prompt.

use std::time::Duration;

use sansmcp::prelude::*;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Text {
    /// The text whose words are counted.
    text: String,
}

#[derive(serde::Serialize, schemars::JsonSchema)]
struct Words {
    words: usize,
}

async fn count_words(context: Context, Text { text }: Text) -> Result<Words, ToolError> {
    let (mut words, total) = (0, text.lines().count() as u64);
    for (done, line) in (1..).zip(text.lines()) {
        context.sleep(Duration::from_millis(10)).await?; // the work; ends early if the call is cancelled
        words += line.split_whitespace().count();
        context.step(done, total);
    }
    Ok(Words { words })
}

async fn manual(_: Context) -> Result<ResourceContents, ToolError> {
    Ok(ResourceContents::text("Words are separated by white space."))
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Shorten {
    /// The most words that are wanted.
    most: String,
}

async fn shorten(_: Context, Shorten { most }: Shorten) -> Result<PromptOutput, ToolError> {
    Ok(PromptOutput::new([PromptMessage::user(format!("Shorten your last answer to {most} words."))]))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let service = Service::new(Identity::new("words", "1.0"))
        .tool(Tool::new("count_words", count_words).description("Counts the words of a text").read_only())
        .resource(Resource::new("words://manual", "manual", manual).mime_type("text/plain"))
        .prompt(Prompt::typed("shorten", shorten).description("Asks for a shorter answer"));
    sansmcp::tokio::serve(service.into(), sansmcp::tokio::stdio()).await?;
    Ok(())
}
