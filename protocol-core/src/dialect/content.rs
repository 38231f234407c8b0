//! A block of content, as in results and in messages for a model.

use alloc::vec::Vec;

use super::Annotations;
use crate::json::read::for_each_key;
use crate::json::write::{Object, base64};
use crate::json::{Json, Text};

/// One block of content.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Content {
    /// Text.
    Text(Text),
    /// A block of any kind, exactly as it is written in a frame.
    Raw(Json),
}

impl Content {
    /// A block of text.
    #[must_use]
    pub fn text(text: impl Into<Text>) -> Self {
        Self::Text(text.into())
    }

    /// An image of the MIME type `mime_type`, such as `image/png`. The bytes are encoded in base64 (MCP, "Tools", section "Image Content").
    #[must_use]
    pub fn image(bytes: &[u8], mime_type: &str) -> Self {
        Self::media("image", bytes, mime_type)
    }

    /// A sound of the MIME type `mime_type`, such as `audio/wav`. The bytes are encoded in base64 (MCP 2025-03-26 and later, "Tools",
    /// section "Audio Content").
    #[must_use]
    pub fn audio(bytes: &[u8], mime_type: &str) -> Self {
        Self::media("audio", bytes, mime_type)
    }

    /// A link to a resource, which the client may read. The resource need not be in the list of resources (MCP 2025-06-18 and later,
    /// "Tools", section "Resource Links").
    #[must_use]
    pub fn link(uri: &str, name: &str) -> Self {
        Self::Raw(Object::value(|block| {
            block.word("type", "resource_link");
            block.string("uri", uri);
            block.string("name", name);
        }))
    }

    /// A resource of text, embedded in the result (MCP, "Tools", section "Embedded Resources").
    #[must_use]
    pub fn embedded(uri: &str, mime_type: &str, text: &str) -> Self {
        Self::resource(uri, mime_type, "text", text)
    }

    /// A resource of bytes, embedded in the result in base64 (MCP, "Tools", section "Embedded Resources").
    #[must_use]
    pub fn embedded_bytes(uri: &str, mime_type: &str, bytes: &[u8]) -> Self {
        Self::resource(uri, mime_type, "blob", &base64(bytes))
    }

    /// The block with hints for whom it is and how important it is. Hints that it has already are replaced.
    #[must_use]
    pub fn annotated(self, hints: &Annotations) -> Self {
        let block = Json::from(self);
        Self::Raw(Object::value(|object| {
            for_each_key(block.as_bytes(), |key, value| {
                if !key.is("annotations") {
                    object.copy(key, value);
                }
            });
            hints.write(object);
        }))
    }

    /// The text of a block of text, with U+FFFD for each unpaired surrogate; `None` for any other block. A JSON string, which some peers send
    /// as a block, is read as text, too.
    #[must_use]
    pub fn as_text(&self) -> Option<Text> {
        match self {
            Self::Text(text) => Some(text.clone()),
            Self::Raw(block) => block.as_text_lossy().or_else(|| {
                let is_text = block.member("type")?.as_text()? == "text";
                is_text.then(|| block.member("text")?.as_text_lossy())?
            }),
        }
    }

    fn media(kind: &'static str, bytes: &[u8], mime_type: &str) -> Self {
        Self::Raw(Object::value(|block| {
            block.word("type", kind);
            block.string("data", &base64(bytes));
            block.string("mimeType", mime_type);
        }))
    }

    fn resource(uri: &str, mime_type: &str, member: &'static str, data: &str) -> Self {
        Self::Raw(Object::value(|block| {
            block.word("type", "resource");
            block.object("resource", |resource| {
                resource.string("uri", uri);
                resource.string("mimeType", mime_type);
                resource.string(member, data);
            });
        }))
    }
}

/// Converts a block into the JSON that is sent on MCP.
impl From<Content> for Json {
    fn from(block: Content) -> Self {
        if let Content::Raw(json) = block {
            return json;
        }
        let mut text = Vec::new();
        block.write(&mut text);
        Self::written(text)
    }
}

#[cfg(test)]
mod tests {
    use super::{Annotations, Content};

    fn json(block: &Content) -> &str {
        match block {
            Content::Raw(json) => json.as_str(),
            Content::Text(_) => "text",
        }
    }

    #[test]
    fn each_kind_of_block_has_the_members_that_the_specification_gives_it() {
        assert_eq!(json(&Content::image(b"foo", "image/png")), r#"{"type":"image","data":"Zm9v","mimeType":"image/png"}"#);
        assert_eq!(json(&Content::audio(b"f", "audio/wav")), r#"{"type":"audio","data":"Zg==","mimeType":"audio/wav"}"#);
        assert_eq!(json(&Content::link("file:///a", "a\"b")), r#"{"type":"resource_link","uri":"file:///a","name":"a\"b"}"#);
        let text = r#"{"type":"resource","resource":{"uri":"a:b","mimeType":"text/plain","text":"c"}}"#;
        assert_eq!(json(&Content::embedded("a:b", "text/plain", "c")), text);
        let bytes = r#"{"type":"resource","resource":{"uri":"a:b","mimeType":"a/b","blob":"Zm8="}}"#;
        assert_eq!(json(&Content::embedded_bytes("a:b", "a/b", b"fo")), bytes);
        assert_eq!(Content::text("a"), Content::Text("a".into()));
        let hints = Annotations::default().for_user().priority(0.5);
        let hinted = r#"{"type":"text","text":"a","annotations":{"audience":["user"],"priority":0.5}}"#;
        assert_eq!(json(&Content::text("a").annotated(&Annotations::default()).annotated(&hints)), hinted);
    }
}
