//! The contents of a resource, as a handler makes and a caller reads them.

use serde::{Deserialize, Serialize};

use protocol_core::json::write::base64;

/// The contents of a resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceContents {
    pub(crate) uri: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mime_type: Option<String>,
    #[serde(flatten)]
    body: Body,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Body {
    Text(String),
    Blob(String),
}

impl ResourceContents {
    /// Contents that are text.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self { uri: String::new(), mime_type: None, body: Body::Text(text.into()) }
    }

    /// Contents that are bytes. They are sent in base64.
    #[must_use]
    pub fn blob(bytes: &[u8]) -> Self {
        Self { uri: String::new(), mime_type: None, body: Body::Blob(base64(bytes)) }
    }

    /// The URI; empty if it was not set.
    #[must_use]
    pub fn uri(&self) -> &str {
        &self.uri
    }

    /// The MIME type, if there is one.
    #[must_use]
    pub fn mime_type(&self) -> Option<&str> {
        self.mime_type.as_deref()
    }

    /// The text; `None` if the contents are bytes.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match &self.body {
            Body::Text(text) => Some(text),
            Body::Blob(_) => None,
        }
    }

    /// The bytes in base64, as they are sent; `None` if the contents are text.
    #[must_use]
    pub fn as_base64(&self) -> Option<&str> {
        match &self.body {
            Body::Text(_) => None,
            Body::Blob(base64) => Some(base64),
        }
    }

    /// Sets the MIME type. Default: that of the resource.
    #[must_use]
    pub fn with_mime_type(mut self, mime_type: impl Into<String>) -> Self {
        self.mime_type = Some(mime_type.into());
        self
    }

    /// Sets the URI. Default: the one that was requested.
    #[must_use]
    pub fn with_uri(mut self, uri: impl Into<String>) -> Self {
        self.uri = uri.into();
        self
    }
}

impl From<String> for ResourceContents {
    fn from(text: String) -> Self {
        Self::text(text)
    }
}

impl From<&str> for ResourceContents {
    fn from(text: &str) -> Self {
        Self::text(text)
    }
}

impl From<Vec<u8>> for ResourceContents {
    fn from(bytes: Vec<u8>) -> Self {
        Self::blob(&bytes)
    }
}
