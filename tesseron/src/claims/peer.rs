//! The user and the process at the other end of a connection.

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

/// The program at the other end of a connection, as far as the system reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Peer {
    user: PeerUser,
    process: Option<u32>,
}

impl Peer {
    /// A program of `user`, with the id of its process if that is known.
    #[must_use]
    pub const fn new(user: PeerUser, process: Option<u32>) -> Self {
        Self { user, process }
    }

    /// The user who runs it.
    #[must_use]
    pub const fn user(self) -> PeerUser {
        self.user
    }

    /// The id of its process; `None` if it is not known.
    #[must_use]
    pub const fn process(self) -> Option<u32> {
        self.process
    }
}

impl From<PeerUser> for Peer {
    /// A peer whose process is not known.
    fn from(user: PeerUser) -> Self {
        Self::new(user, None)
    }
}
