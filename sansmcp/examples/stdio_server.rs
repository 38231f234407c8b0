//! A server on standard input and output, for the configuration of an agent: a tool that reports progress, a resource, and a prompt.

use std::time::Duration;

use sansmcp::prelude::*;

#[derive(serde::Serialize, schemars::JsonSchema)]
struct Words {
    words: usize,
}

/// Counts the words of a text
#[tool(read_only)]
async fn count_words(
    context: Context,
    /// The text whose words are counted.
    text: String,
) -> Result<Words> {
    let (mut words, total) = (0, text.lines().count() as u64);
    for (done, line) in (1..).zip(text.lines()) {
        context.sleep(Duration::from_millis(10)).await?; // the work; ends early if the call is cancelled
        words += line.split_whitespace().count();
        context.step(done, total);
    }
    Ok(Words { words })
}

#[resource("words://manual", mime_type = "text/plain")]
fn manual() -> &'static str {
    "Words are separated by white space."
}

/// Asks for a shorter answer
#[prompt]
fn shorten(
    /// The most words that are wanted.
    most: String,
) -> String {
    format!("Shorten your last answer to {most} words.")
}

#[tokio::main]
async fn main() -> Result<()> {
    let service = Service::new("words", "1.0").tool(count_words()).resource(manual()).prompt(shorten());
    sansmcp::tokio::serve(service, sansmcp::tokio::stdio()).await
}
