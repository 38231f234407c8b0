//! Ids, notifications and input requests in the words in which the judge and the operations of a world name them.

use protocol_core::{InputRequest, Notification};

/// The kind of a notification that is sent to subscriptions, and its method. Both are empty for any other notification.
#[must_use]
pub(crate) fn published(notification: &Notification) -> (String, &'static str) {
    match notification {
        Notification::ToolsChanged => ("tools".to_owned(), "notifications/tools/list_changed"),
        Notification::PromptsChanged => ("prompts".to_owned(), "notifications/prompts/list_changed"),
        Notification::ResourcesChanged => ("resources".to_owned(), "notifications/resources/list_changed"),
        Notification::ResourceUpdated { uri } => (uri.to_string(), "notifications/resources/updated"),
        _ => (String::new(), ""),
    }
}

/// The number at the end of the text of an id, such as 7 in `out-7`.
#[must_use]
pub(crate) fn number(id: impl std::fmt::Display) -> u64 {
    let words = id.to_string();
    words.rsplit('-').next().and_then(|digits| digits.parse().ok()).expect("the words of an id end in its number")
}

/// The kind of an input request. A confirmation is a form on the wire.
#[must_use]
pub(crate) fn ask(ask: &InputRequest) -> &'static str {
    match ask {
        InputRequest::Sample(_) => "sample",
        InputRequest::Elicit(_) | InputRequest::Confirm { .. } => "elicit",
        InputRequest::OpenUrl(_) => "open",
        _ => "roots",
    }
}
