//! The user at the other end of a connection.

/// The user at the other end of a connection, if the system reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PeerUser {
    /// The user who runs this program.
    ThisUser,
    /// Another user of this machine, with the user id.
    OtherUser(u32),
    /// Unknown, since the system does not report the user.
    Unknown,
}

impl PeerUser {
    /// Returns `true` for the user who runs this program.
    #[must_use]
    pub const fn is_this_user(self) -> bool {
        matches!(self, Self::ThisUser)
    }
}
