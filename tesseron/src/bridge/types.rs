//! The types of a bridge that its files share.

use alloc::string::String;

use crate::claims::{ChannelId, ClaimCode};

/// The tools that are listed to the agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Surface {
    /// A tool for each action, and the tool that claims an app.
    Dynamic,
    /// Only the bridge's own tools, which are enough for clients that ignore changes of the list of tools.
    Meta,
    /// The tools of both other variants.
    #[default]
    Both,
}

/// An app that waits for a gateway, as its manifest file announces it.
#[derive(Clone, Debug)]
pub struct Advertised {
    /// The code that claims the app.
    pub code: ClaimCode,
    /// The id of the app, if it is known.
    pub app_id: Option<String>,
    /// The name of the app, for people.
    pub app_name: String,
    /// The id of the instance of the app, after which its manifest file is named.
    pub instance_id: String,
    /// The time when the code was made, in milliseconds since 1970.
    pub minted_at: u64,
    /// The time when the code expires, in milliseconds since 1970; `None` if it never expires.
    pub expires_at: Option<u64>,
}

/// A claim that waits for an app.
#[derive(Debug)]
pub(super) struct Claiming {
    pub(super) code: ClaimCode,
    /// The channel on which the hello of the app is expected; `None` until the owner has opened it.
    pub(super) channel: Option<ChannelId>,
}
