//! The user at the other end of a connection.

/// The user at the other end of a connection, as far as the system tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Peer {
    /// The user who runs this program.
    ThisUser,
    /// Another user of this machine, by its number.
    OtherUser(u32),
    /// Unknown: the system does not tell.
    Unknown,
}

impl Peer {
    /// Returns `true` if it is known to be the user who runs this program.
    #[must_use]
    pub const fn is_this_user(self) -> bool {
        matches!(self, Self::ThisUser)
    }
}
