//! What describes an entry of a list beside its name.

use std::collections::BTreeMap;
use std::string::String;
use std::vec::Vec;

use protocol_core::dialect::{Icon, write_meta};
use protocol_core::json::Json;
use protocol_core::json::write::Object;

/// The description of a tool, a prompt, a resource or a template.
#[derive(Clone, Debug, Default)]
pub(super) struct About {
    pub(super) title: Option<String>,
    pub(super) description: Option<String>,
    pub(super) icons: Vec<Icon>,
    /// The members of `_meta`, by their keys.
    pub(super) meta: BTreeMap<String, Json>,
}

impl About {
    /// Writes title and description, which readers of the list look for first.
    pub(super) fn write_words(&self, object: &mut Object<'_>) {
        write_words(object, self.title.as_deref(), self.description.as_deref());
    }

    /// Writes the rest.
    pub(super) fn write_rest(&self, object: &mut Object<'_>) {
        Icon::write_all(&self.icons, object);
        write_meta(object, &self.meta);
    }
}

/// Writes a title and a description, each if it is there.
pub(super) fn write_words(object: &mut Object<'_>, title: Option<&str>, description: Option<&str>) {
    for (name, text) in [("title", title), ("description", description)] {
        if let Some(text) = text {
            object.string(name, text);
        }
    }
}

/// The methods that set what [`About`] has.
macro_rules! about_builders {
    ($($about:ident).+) => {
        /// Sets the name that is shown to people (MCP `title`).
        #[must_use]
        pub fn title(mut self, title: impl Into<String>) -> Self {
            self.$($about).+.title = Some(title.into());
            self
        }

        /// Sets the description, which the model reads.
        #[must_use]
        pub fn description(mut self, description: impl Into<String>) -> Self {
            self.$($about).+.description = Some(description.into());
            self
        }

        /// Adds an icon. Several are the same icon in other forms (MCP 2025-11-25 and later).
        #[must_use]
        pub fn icon(mut self, icon: protocol_core::dialect::Icon) -> Self {
            self.$($about).+.icons.push(icon);
            self
        }

        /// Adds a member of `_meta`, for programs that know its `key`, such as `com.example/owner` (MCP 2025-06-18 and later). A key that is
        /// there is replaced.
        #[must_use]
        pub fn meta(mut self, key: impl Into<String>, value: impl Into<protocol_core::json::Json>) -> Self {
            self.$($about).+.meta.insert(key.into(), value.into());
            self
        }
    };
}

pub(super) use about_builders;
