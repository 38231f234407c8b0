//! The result of a prompt.

use serde::{Serialize, Serializer};

use protocol_core::dialect::Content;
use protocol_core::json::{Json, Text};

/// The result of a prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PromptOutput {
    /// The description of this result, which may name the arguments.
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

impl From<PromptMessage> for PromptOutput {
    fn from(message: PromptMessage) -> Self {
        Self::new([message])
    }
}

impl<const N: usize> From<[PromptMessage; N]> for PromptOutput {
    fn from(messages: [PromptMessage; N]) -> Self {
        Self::new(messages)
    }
}

impl From<Vec<PromptMessage>> for PromptOutput {
    fn from(messages: Vec<PromptMessage>) -> Self {
        Self::new(messages)
    }
}

/// One message of the user.
impl From<String> for PromptOutput {
    fn from(text: String) -> Self {
        Self::new([PromptMessage::user(text)])
    }
}

/// One message of the user.
impl From<&'static str> for PromptOutput {
    fn from(text: &'static str) -> Self {
        Self::new([PromptMessage::user(Text::from_static(text))])
    }
}

/// One message of a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptMessage {
    role: &'static str,
    content: Json,
}

impl PromptMessage {
    /// A text message in the role of the user.
    #[must_use]
    pub fn user(text: impl Into<Text>) -> Self {
        Self::user_content(Content::Text(text.into()))
    }

    /// A text message in the role of the model.
    #[must_use]
    pub fn assistant(text: impl Into<Text>) -> Self {
        Self::assistant_content(Content::Text(text.into()))
    }

    /// A message in the role of the user with any content, such as an image or a resource.
    #[must_use]
    pub fn user_content(content: Content) -> Self {
        Self { role: "user", content: content.into() }
    }

    /// A message in the role of the model with any content.
    #[must_use]
    pub fn assistant_content(content: Content) -> Self {
        Self { role: "assistant", content: content.into() }
    }
}

impl Serialize for PromptMessage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::{Error, SerializeStruct};

        let content: &serde_json::value::RawValue = self.content.decode().map_err(S::Error::custom)?;
        let mut message = serializer.serialize_struct("PromptMessage", 2)?;
        message.serialize_field("role", self.role)?;
        message.serialize_field("content", content)?;
        message.end()
    }
}
