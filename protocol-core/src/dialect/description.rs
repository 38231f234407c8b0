//! What describes an end, an entry of a list or a block of content for people: icons, and hints for whom it is.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use crate::json::Json;
use crate::json::read::{elements, member, string_lossy};
use crate::json::write::{Object, push_json, write_string};

/// An icon that a client may show (MCP 2025-11-25 and later; left out in older revisions).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Icon {
    /// The URI of the image: `https:`, or `data:` with the image itself.
    pub src: String,
    /// The MIME type of the image, such as `image/png` or `image/svg+xml`.
    pub mime_type: Option<String>,
    /// The sizes in which it can be shown, each as `48x48`, or `any` for an image that scales. Empty: any size.
    pub sizes: Vec<String>,
    /// The background that it is made for; `None` for any.
    pub theme: Option<IconTheme>,
}

/// The background that an [`Icon`] is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IconTheme {
    /// A light background.
    Light,
    /// A dark background.
    Dark,
}

impl Icon {
    /// An icon with the URI of its image.
    pub fn new(src: impl Into<String>) -> Self {
        Self { src: src.into(), mime_type: None, sizes: Vec::new(), theme: None }
    }

    /// Sets the MIME type of the image.
    #[must_use]
    pub fn with_mime_type(mut self, mime_type: impl Into<String>) -> Self {
        self.mime_type = Some(mime_type.into());
        self
    }

    /// Adds a size in which it can be shown, such as `48x48`, or `any`.
    #[must_use]
    pub fn with_size(mut self, size: impl Into<String>) -> Self {
        self.sizes.push(size.into());
        self
    }

    /// Sets the background that it is made for.
    #[must_use]
    pub const fn with_theme(mut self, theme: IconTheme) -> Self {
        self.theme = Some(theme);
        self
    }

    /// Reads the icons of `object`, which has them as its member `icons`. An icon without a URI is left out.
    pub(crate) fn read_all(object: &[u8]) -> Vec<Self> {
        let text = |icon: &[u8], name: &str| member(icon, name).and_then(string_lossy).map(alloc::borrow::Cow::into_owned);
        let read = |icon: &[u8]| {
            let sizes = elements(member(icon, "sizes").unwrap_or_default());
            Some(Self {
                src: text(icon, "src")?,
                mime_type: text(icon, "mimeType"),
                sizes: sizes.into_iter().filter_map(string_lossy).map(alloc::borrow::Cow::into_owned).collect(),
                theme: match text(icon, "theme").as_deref() {
                    Some("light") => Some(IconTheme::Light),
                    Some("dark") => Some(IconTheme::Dark),
                    _ => None,
                },
            })
        };
        elements(member(object, "icons").unwrap_or_default()).into_iter().filter_map(read).collect()
    }

    /// Adds `icons` to an object in the form of MCP, unless there are none.
    pub fn write_all(icons: &[Self], object: &mut Object<'_>) {
        if icons.is_empty() {
            return;
        }
        object.array("icons", icons, |out, icon| {
            Object::write(out, |object| {
                object.string("src", &icon.src);
                if let Some(mime_type) = &icon.mime_type {
                    object.string("mimeType", mime_type);
                }
                if !icon.sizes.is_empty() {
                    object.array("sizes", &icon.sizes, |out, size| write_string(out, size));
                }
                match icon.theme {
                    Some(IconTheme::Light) => object.word("theme", "light"),
                    Some(IconTheme::Dark) => object.word("theme", "dark"),
                    None => {}
                }
            });
        });
    }
}

/// Hints about a block of content or a resource: for whom it is, and how important it is. A client may show or leave out by them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Annotations {
    audience: Vec<&'static str>,
    priority: Option<f64>,
    last_modified: Option<String>,
}

impl Annotations {
    /// Marks it as meant for the user. It may be meant for the model, too.
    #[must_use]
    pub fn for_user(mut self) -> Self {
        self.audience.push("user");
        self
    }

    /// Marks it as meant for the model (MCP `assistant`).
    #[must_use]
    pub fn for_model(mut self) -> Self {
        self.audience.push("assistant");
        self
    }

    /// Sets the importance, from 0 for what may be left out to 1 for what is required. A number outside of this range counts as the
    /// nearest end of it; what is no number is ignored.
    #[must_use]
    pub fn priority(mut self, priority: f64) -> Self {
        self.priority = (!priority.is_nan()).then(|| priority.clamp(0.0, 1.0));
        self
    }

    /// Sets the time of the last change in the form of ISO 8601, such as `2025-01-12T15:00:58Z` (MCP 2025-06-18 and later; left out in older
    /// revisions).
    #[must_use]
    pub fn last_modified(mut self, at: impl Into<String>) -> Self {
        self.last_modified = Some(at.into());
        self
    }

    /// Adds the member `annotations` to an object in the form of MCP.
    pub fn write(&self, object: &mut Object<'_>) {
        object.object("annotations", |object| {
            if !self.audience.is_empty() {
                object.array("audience", &self.audience, |out, audience| write_string(out, audience));
            }
            if let Some(priority) = self.priority {
                object.number("priority", priority);
            }
            if let Some(at) = &self.last_modified {
                object.string("lastModified", at);
            }
        });
    }
}

/// Adds `_meta` with the members `meta` to an object, unless there are none.
pub fn write_meta(object: &mut Object<'_>, meta: &BTreeMap<String, Json>) {
    if !meta.is_empty() {
        object.object("_meta", |object| write_meta_members(object, meta));
    }
}

/// Members of `_meta` by their keys.
pub(crate) fn write_meta_members(object: &mut Object<'_>, meta: &BTreeMap<String, Json>) {
    for (key, value) in meta {
        push_json(object.named(key), value.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn icons_are_read_as_they_are_written() {
        let icons = [
            Icon::new("https://example.com/a.png").with_mime_type("image/png").with_size("48x48").with_size("any"),
            Icon::new("data:,").with_theme(IconTheme::Dark),
        ];
        let written = Object::value(|object| Icon::write_all(&icons, object));
        let expected = r#"{"icons":[{"src":"https://example.com/a.png","mimeType":"image/png","sizes":["48x48","any"]},{"src":"data:,","theme":"dark"}]}"#;
        assert_eq!(written.as_str(), expected);
        assert_eq!(Icon::read_all(written.as_bytes()), icons);
        assert_eq!(Icon::read_all(br#"{"icons":[{"sizes":7},1,{"src":"a","theme":"blue"}]}"#), [Icon::new("a")]);
    }

    #[test]
    fn annotations_have_the_members_that_are_set_with_a_priority_from_zero_to_one() {
        let written = |hints: Annotations| Object::value(|object| hints.write(object));
        let all = Annotations::default().for_user().for_model().priority(7.0).last_modified("2025-01-12T15:00:58Z");
        let expected = r#"{"annotations":{"audience":["user","assistant"],"priority":1,"lastModified":"2025-01-12T15:00:58Z"}}"#;
        assert_eq!(written(all).as_str(), expected);
        assert_eq!(written(Annotations::default().priority(f64::NAN)).as_str(), r#"{"annotations":{}}"#);
    }
}
