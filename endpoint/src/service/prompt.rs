//! A prompt: a name, named texts, messages.

use core::fmt;
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Serialize, Serializer};

use super::ToolError;
use crate::context::Context;
use engine::BoxFuture;
use protocol_core::config::RateWindow;
use protocol_core::dialect::Reply;
use protocol_core::error::RpcError;
use protocol_core::json::Json;
use protocol_core::session::ServeOptions;

type Run = dyn Fn(Context, BTreeMap<String, String>) -> BoxFuture<'static, Result<PromptOutput, ToolError>> + Send + Sync;

/// A prompt to be registered with [`Service::prompt`](crate::Service::prompt). It may take its time: its
/// [`Context`] reports progress and is cancelled like a tool's.
#[derive(Clone)]
pub struct Prompt {
    pub(crate) name: String,
    title: Option<String>,
    description: Option<String>,
    arguments: Vec<PromptArgument>,
    pub(crate) options: ServeOptions,
    handler: Arc<Run>,
}

#[derive(Clone, Debug, Serialize)]
struct PromptArgument {
    name: String,
    description: String,
    required: bool,
}

impl Prompt {
    /// A prompt without arguments, for now.
    pub fn new<F, Fut>(name: impl Into<String>, handler: F) -> Self
    where
        F: Fn(Context, BTreeMap<String, String>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<PromptOutput, ToolError>> + Send + 'static,
    {
        let handler = Arc::new(handler);
        Self {
            name: name.into(),
            title: None,
            description: None,
            arguments: Vec::new(),
            options: ServeOptions::default(),
            handler: Arc::new(move |context, arguments| {
                let handler = Arc::clone(&handler);
                Box::pin(async move { handler(context, arguments).await })
            }),
        }
    }

    /// The name that people see.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = Some(title.into());
        self
    }

    /// Sets the purpose of the prompt.
    #[must_use]
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into());
        self
    }

    /// Adds an argument. A call without a required one is refused before the handler runs.
    #[must_use]
    pub fn argument(mut self, name: impl Into<String>, description: impl Into<String>, required: bool) -> Self {
        self.arguments.push(PromptArgument { name: name.into(), description: description.into(), required });
        self
    }

    /// Sets the time limit of a call, from its receipt, in place of the session's.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.options = self.options.with_deadline(deadline);
        self
    }

    /// Sets how often a call may report progress, whatever the session says.
    #[must_use]
    pub fn rate_window(mut self, window: RateWindow) -> Self {
        self.options = self.options.with_window(window);
        self
    }

    pub(crate) fn describe(&self) -> Json {
        #[derive(Serialize)]
        struct Description<'a> {
            name: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            title: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            description: Option<&'a str>,
            #[serde(skip_serializing_if = "<[_]>::is_empty")]
            arguments: &'a [PromptArgument],
        }
        let description = Description {
            name: &self.name,
            title: self.title.as_deref(),
            description: self.description.as_deref(),
            arguments: &self.arguments,
        };
        Json::encode(&description).unwrap_or_default()
    }

    /// The handler's future, or why it does not run.
    pub(crate) fn start(&self, context: Context, arguments: Option<Json>) -> Result<impl Future<Output = Reply> + use<>, RpcError> {
        let arguments: BTreeMap<String, String> = match arguments {
            None => BTreeMap::new(),
            Some(given) => given
                .decode::<Option<BTreeMap<String, String>>>()
                .map_err(|_| RpcError::invalid_params("the arguments of a prompt are an object of strings"))?
                .unwrap_or_default(),
        };
        if let Some(missing) = self.arguments.iter().find(|argument| argument.required && !arguments.contains_key(&argument.name)) {
            let message = format!("missing argument {:?} of prompt {:?}", missing.name, self.name);
            return Err(RpcError::invalid_params(message));
        }
        let handler = Arc::clone(&self.handler);
        Ok(async move {
            let output = handler(context, arguments).await;
            let encoded = output.and_then(|output| Ok(Json::encode(&output)?));
            encoded.map_or_else(|error| error.into_reply(), Reply::Raw)
        })
    }
}

impl fmt::Debug for Prompt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prompt").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The content of a prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PromptOutput {
    /// The description, filled in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The messages for the model, in order.
    pub messages: Vec<PromptMessage>,
}

impl PromptOutput {
    /// Messages without a description.
    #[must_use]
    pub fn new(messages: impl IntoIterator<Item = PromptMessage>) -> Self {
        Self { description: None, messages: messages.into_iter().collect() }
    }

    /// Adds a description.
    #[must_use]
    pub fn with_description(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into());
        self
    }
}

/// One message of a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptMessage {
    role: &'static str,
    content: Content,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Content {
    Text(String),
    Block(Json),
}

impl PromptMessage {
    /// The user says `text`.
    #[must_use]
    pub fn user(text: impl Into<String>) -> Self {
        Self { role: "user", content: Content::Text(text.into()) }
    }

    /// The model says `text`.
    #[must_use]
    pub fn assistant(text: impl Into<String>) -> Self {
        Self { role: "assistant", content: Content::Text(text.into()) }
    }

    /// The user shows a block of another kind, exactly as it goes on the wire: an image, a resource.
    #[must_use]
    pub fn user_block(block: Json) -> Self {
        Self { role: "user", content: Content::Block(block) }
    }
}

impl Serialize for PromptMessage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::{Error, SerializeStruct};

        #[derive(Serialize)]
        struct Text<'a> {
            r#type: &'static str,
            text: &'a str,
        }
        let mut message = serializer.serialize_struct("PromptMessage", 2)?;
        message.serialize_field("role", self.role)?;
        match &self.content {
            Content::Text(text) => message.serialize_field("content", &Text { r#type: "text", text })?,
            Content::Block(block) => {
                let block: &serde_json::value::RawValue = block.decode().map_err(S::Error::custom)?;
                message.serialize_field("content", block)?;
            }
        }
        message.end()
    }
}
