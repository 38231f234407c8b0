//! Every bound of a session, each with its number.

/// The bounds of a session. None is exceeded, whatever the peer or the owner does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// The longest frame, in bytes, in and out. A longer one that arrives closes the session; a longer response of ours becomes
    /// an internal error. 16 MiB.
    pub frame_bytes: usize,
    /// The deepest nesting of a frame that arrives. At most 128, which is the default.
    pub json_depth: u8,
    /// The longest id and the longest progress token of the peer, in bytes as they are written: they are remembered. 1024.
    pub id_bytes: usize,
    /// Calls at once, in each direction, and as many input requests. An inbound call that was cancelled counts until its handler has
    /// ended. 1024.
    pub in_flight: usize,
    /// Requests of the peer in a second, calls and input requests together, counted evenly: as many may come at once, and then one for
    /// each share of the second that has passed. One more is answered busy. `None`: no bound. Pings are not counted. Off by default.
    pub requests_per_second: Option<u32>,
    /// Messages in one batch (2025-03-26 only). 64.
    pub batch: usize,
    /// Events that wait to be polled before [`crate::Session::wants_input`] turns false. Events that end a call or an input request come
    /// on top. 1024.
    pub events: usize,
    /// Bytes of output of one lane that wait to be polled before calls and input requests on it are refused, progress merges and log
    /// records drop. 1 MiB.
    pub output_bytes: usize,
    /// Bytes of output of all lanes that wait to be polled, of any kind, before the lane with the most is given up; the session closes
    /// with an overload if that is the channel. 64 MiB.
    pub output_bytes_hard: usize,
    /// Waiting replies on one lane that belong to no call (pongs, refusals) before [`crate::Session::wants_input`] turns false. If the
    /// peer reads none of them for [`crate::Timeouts::close_grace`], the lane is given up; the session closes with an overload if that is
    /// the channel. 256.
    pub unsolicited_replies: usize,
    /// Lanes that are open at once beside the channel. 1024.
    pub lanes: usize,
    /// Alarms at once. 4096.
    pub alarms: usize,
    /// Ids of the peer that are remembered after their call has ended. 256.
    pub tombstones: usize,
    /// Bytes of one checkpoint. 1 MiB.
    pub checkpoint_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            frame_bytes: 16 << 20,
            json_depth: 128,
            id_bytes: 1024,
            in_flight: 1024,
            requests_per_second: None,
            batch: 64,
            events: 1024,
            output_bytes: 1 << 20,
            output_bytes_hard: 64 << 20,
            unsolicited_replies: 256,
            lanes: 1024,
            alarms: 4096,
            tombstones: 256,
            checkpoint_bytes: 1 << 20,
        }
    }
}
