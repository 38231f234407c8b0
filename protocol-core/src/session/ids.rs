//! The ids in methods and events of a session.

use core::fmt;

use crate::table::Id;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident, $prefix:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub(crate) u64);

        impl $name {
            /// Makes the id with this number, for tests and for owners that store ids as numbers. If the session has not returned this id,
            /// its methods treat the id as one that has ended.
            #[must_use]
            pub const fn from_number(number: u64) -> Self {
                Self(number)
            }

            /// The number of the id, which [`Self::from_number`] makes into the id again.
            #[must_use]
            pub const fn number(self) -> u64 {
                self.0
            }
        }

        impl Id for $name {
            fn number(self) -> u64 {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    )*};
}

ids! {
    /// The id of an outbound call, the same for all exchanges of the call. Never reused.
    OutboundId, "out-";
    /// The id of an inbound call. Never reused, although the peer may reuse the JSON-RPC id of the request.
    InboundId, "in-";
    /// The number of an exchange of ours, which is the JSON-RPC id of its request. A call has one or more exchanges, one after the other.
    /// Never reused.
    ExchangeId, "exchange-";
    /// The key of an input request, ours or the peer's. Unique in the session, and never reused.
    InputKey, "input-";
    /// The id of an alarm. Never reused.
    AlarmId, "alarm-";
}
