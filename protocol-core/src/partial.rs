//! The complete or partial result of a tool that works through a list.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::dialect::{Content, ToolOutput};
use crate::json::{Json, JsonError, Text};

/// The state of a job that works through a list: the numbers of items, the results, and the errors.
///
/// A handler stores the state with [`crate::Session::checkpoint`] as the job proceeds, and returns it at the end. As a tool result it
/// becomes one block of pretty-printed text, and structured content with the same members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartialResult {
    /// The way in which the job ended. `None` while the job runs, so every checkpoint has `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    /// The number of items.
    pub total: u64,
    /// The number of items that succeeded.
    pub processed: u64,
    /// The number of items that failed.
    pub failed: u64,
    /// The number of items that are not done: `total - processed - failed`. An interrupted item counts as not done.
    pub remaining: u64,
    /// One entry for each item that succeeded, in the order in which the items succeeded.
    pub results: Vec<ItemResult>,
    /// One entry for each item that failed, in the order in which the items failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<ItemError>,
}

/// The way in which a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Status {
    /// Every item was tried.
    Complete,
    /// The job was cancelled.
    Cancelled,
    /// The job ran out of time.
    Timeout,
    /// The call failed for another reason. A session adds this status to the last checkpoint of a call whose result is an error.
    Failed,
}

/// An item that succeeded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ItemResult {
    /// The item's id.
    pub id: String,
    /// Always `ok`.
    pub status: String,
}

/// An item that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ItemError {
    /// The item's id.
    pub id: String,
    /// The reason, for people.
    pub error: String,
}

impl PartialResult {
    /// The state of a job of `total` items, none of them done.
    #[must_use]
    pub const fn new(total: u64) -> Self {
        Self { status: None, total, processed: 0, failed: 0, remaining: total, results: Vec::new(), errors: Vec::new() }
    }

    /// Records that an item succeeded.
    pub fn succeed(&mut self, id: impl Into<String>) {
        self.processed = self.processed.saturating_add(1);
        self.remaining = self.remaining.saturating_sub(1);
        self.results.push(ItemResult { id: id.into(), status: String::from("ok") });
    }

    /// Records that an item failed; the job continues.
    pub fn fail(&mut self, id: impl Into<String>, error: impl Into<String>) {
        self.failed = self.failed.saturating_add(1);
        self.remaining = self.remaining.saturating_sub(1);
        self.errors.push(ItemError { id: id.into(), error: error.into() });
    }

    /// The number of items that have succeeded or failed so far.
    #[must_use]
    pub const fn done(&self) -> u64 {
        self.processed.saturating_add(self.failed)
    }

    /// Returns the state as a checkpoint.
    ///
    /// # Errors
    /// There are none in practice, since every member can be serialized.
    pub fn checkpoint(&self) -> Result<Json, JsonError> {
        Json::encode(self)
    }

    /// Returns the state as the result of a tool that ended with `status`. [`ToolOutput::is_error`] is `true` if the job was cut short
    /// before any item succeeded.
    #[must_use]
    pub fn into_output(mut self, status: Status) -> ToolOutput {
        self.status = Some(status);
        let is_error = status != Status::Complete && self.processed == 0;
        let pretty = serde_json::to_string_pretty(&self).unwrap_or_default();
        ToolOutput {
            content: Content::Text(Text::from(pretty)).into(),
            structured: Json::encode(&self).ok(),
            is_error,
            ..ToolOutput::default()
        }
    }
}
