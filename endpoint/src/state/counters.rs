//! The counters of an endpoint.

/// The counters of an endpoint since it was made, in addition to [`protocol_core::Stats`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Progress updates of handlers that were dropped because they were not valid: not finite, negative, or above their total.
    pub progress_refused: u64,
    /// Log records and checkpoints of handlers that were dropped because they cannot be serialized, or, for checkpoints, are not an object
    /// or are too large.
    pub values_refused: u64,
    /// Progress updates of the peer that were merged into a newer one because too many were unread.
    pub progress_merged: u64,
    /// Entries of lists of the peer that were left out, since they have no name or URI.
    pub entries_dropped: u64,
    /// Panics of handlers, also of those of notifications ([`crate::Service::notification`]), and of the methods of a [`crate::Client`].
    pub panics: u64,
    /// Handlers that were abandoned because they were still running after their grace, or when the endpoint was dropped.
    pub abandoned: u64,
}
