//! The states of a login, and every change of one to another.
//!
//! | State | What it waits for |
//! |---|---|
//! | `Empty` | the first request |
//! | `Loading` | the store |
//! | `Bare` | nothing: there are no tokens, and requests go without |
//! | `Ready` | nothing: requests go with a token |
//! | `Locking` | the lock of the tokens, before a refresh |
//! | `Refreshing` | the token endpoint, under the lock |
//! | `Resource` | the metadata of the MCP server |
//! | `Server` | the metadata of its authorization server |
//! | `Client` | the store, for a client that was registered before |
//! | `Listening` | an address for callbacks |
//! | `Registering` | the registration endpoint |
//! | `User` | a person, who answers by a callback |
//! | `Exchanging` | the token endpoint, for a code |
//! | `Subject` | a token that proves who we are |
//! | `Asking` | the token endpoint, without a person |
//! | `Securing` | the lock of the tokens, before new ones are saved |
//! | `Saving` | the store, under the lock |
//! | `Stopped` | a rest of 30 s, or an order to begin anew |

/// A state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    Empty,
    Loading,
    Bare,
    Ready,
    Locking,
    Refreshing,
    Resource,
    Server,
    Client,
    Listening,
    Registering,
    User,
    Exchanging,
    Subject,
    Asking,
    Securing,
    Saving,
    Stopped,
}

/// What happened, as far as it decides about the next state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Step {
    /// A request came.
    Begin,
    /// There are tokens to use.
    Have,
    /// There are none.
    Lack,
    /// A refresh is due.
    Stale,
    /// A login is due.
    Login,
    /// A login for more scopes is due.
    Widen,
    /// The lock is ours, and the tokens are as they were.
    Locked,
    /// The refresh token is dead.
    Dead,
    /// There is no answer now, and the tokens stay as they are.
    Later,
    /// The next thing is known: the resource, the server, the client, the callback address, the registration, the code, the token of who we
    /// are.
    Known,
    /// A client has to be registered.
    Register,
    /// The grant needs no person: first a token of who we are.
    Prove,
    /// The grant needs no person.
    Ask,
    /// New tokens came.
    Tokens,
    /// The login for more scopes failed, and the tokens stay as they are.
    Keep,
    /// The login failed.
    Fail,
}

/// The next state; `None` if the step does not belong to the state.
pub(crate) const fn next(phase: Phase, step: Step) -> Option<Phase> {
    use Phase as P;
    use Step as S;
    Some(match (phase, step) {
        (P::Empty | P::Stopped, S::Begin) => P::Loading,
        (P::Loading, S::Have) => P::Ready,
        (P::Loading, S::Lack) => P::Bare,
        (P::Bare | P::Ready, S::Login) => P::Resource,
        (P::Ready, S::Stale) => P::Locking,
        (P::Ready, S::Widen) => P::Server,
        (P::Locking, S::Locked) => P::Refreshing,
        (P::Locking, S::Have | S::Later) => P::Ready,
        (P::Locking, S::Lack) => P::Resource,
        (P::Refreshing, S::Tokens) => P::Saving,
        (P::Refreshing, S::Later) => P::Ready,
        (P::Refreshing, S::Dead) => P::Resource,
        (P::Resource, S::Known) => P::Server,
        (P::Server, S::Known) => P::Client,
        (P::Server, S::Prove) => P::Subject,
        (P::Server, S::Ask) => P::Asking,
        (P::Client, S::Known) => P::Listening,
        (P::Listening | P::User, S::Register) => P::Registering,
        (P::Listening | P::Registering, S::Known) => P::User,
        (P::User, S::Known) => P::Exchanging,
        (P::Subject, S::Known) => P::Asking,
        (P::Asking, S::Prove) => P::Subject,
        (P::Exchanging | P::Asking, S::Tokens) => P::Securing,
        (P::Securing, S::Locked) => P::Saving,
        (P::Securing, S::Later) => P::Ready,
        (P::Saving, S::Have) => P::Ready,
        (P::Server | P::Client | P::Listening | P::Registering | P::User | P::Exchanging | P::Subject | P::Asking, S::Keep) => {
            P::Ready
        }
        (
            P::Locking
            | P::Refreshing
            | P::Resource
            | P::Server
            | P::Client
            | P::Listening
            | P::Registering
            | P::User
            | P::Exchanging
            | P::Subject
            | P::Asking,
            S::Fail,
        ) => P::Stopped,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    extern crate std;

    use alloc::format;
    use alloc::string::String;

    use super::*;

    #[test]
    fn the_states_change_as_the_table_says() {
        use Phase as P;
        use Step as S;
        let phases = [
            P::Empty,
            P::Loading,
            P::Bare,
            P::Ready,
            P::Locking,
            P::Refreshing,
            P::Resource,
            P::Server,
            P::Client,
            P::Listening,
            P::Registering,
            P::User,
            P::Exchanging,
            P::Subject,
            P::Asking,
            P::Securing,
            P::Saving,
            P::Stopped,
        ];
        let steps = [
            S::Begin,
            S::Have,
            S::Lack,
            S::Stale,
            S::Login,
            S::Widen,
            S::Locked,
            S::Dead,
            S::Later,
            S::Known,
            S::Register,
            S::Prove,
            S::Ask,
            S::Tokens,
            S::Keep,
            S::Fail,
        ];
        let mut text = String::from("A login: each step that changes its state.\n\nstate        step      next\n");
        for phase in phases {
            for step in steps {
                if let Some(next) = next(phase, step) {
                    text += &format!("{:<13}{:<10}{next:?}\n", format!("{phase:?}"), format!("{step:?}"));
                }
            }
        }
        let path = format!("{}/../docs/transitions/login.txt", env!("CARGO_MANIFEST_DIR"));
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let golden = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(golden == text, "the states are not those in docs/transitions/login.txt; UPDATE_GOLDEN=1 writes what they are now");
    }
}
