//! Rounds: input requests as the result of a request, and the answers in the retry of that request (MCP 2026-07-28, Multi Round-Trip
//! Requests).

use alloc::vec::Vec;

use super::InputRequest;
use crate::json::{Json, Text};

/// The input requests that end an exchange of a call ([`Session::finish_round`](crate::Session::finish_round)). The caller sends its
/// answers in a retry of the request.
///
/// A round must have at least one input request, or a state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InputRound {
    pub(crate) inputs: Vec<RoundInput>,
    pub(crate) state: Option<Text>,
}

/// One input request of a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RoundInput {
    /// The name of the input request. Its answer in the retry has the same name.
    pub(crate) name: Text,
    pub(crate) ask: InputRequest,
    /// The sampling depth that the frame states.
    pub(crate) depth: u8,
}

impl InputRound {
    /// A round without input requests and without a state.
    #[must_use]
    pub const fn new() -> Self {
        Self { inputs: Vec::new(), state: None }
    }

    /// Adds an input request. The answer to it is found by `name` ([`Retry::answer`]), which no other input request of the round may have.
    #[must_use]
    pub fn ask(mut self, name: impl Into<Text>, ask: impl Into<InputRequest>) -> Self {
        self.inputs.push(RoundInput { name: name.into(), ask: ask.into(), depth: 0 });
        self
    }

    /// Sets the state, which the caller returns with the answers. A caller may also read the state, change it, return it more than once, or
    /// give it to others: seal everything that must be protected from that.
    #[must_use]
    pub fn with_state(mut self, state: impl Into<Text>) -> Self {
        self.state = Some(state.into());
        self
    }

    /// The state; see [`with_state`](Self::with_state).
    #[must_use]
    pub fn state(&self) -> Option<&Text> {
        self.state.as_ref()
    }

    /// Returns `true` if two input requests have the same name.
    pub(crate) fn repeats_a_name(&self) -> bool {
        let mut names: Vec<&str> = self.inputs.iter().map(|input| &*input.name).collect();
        names.sort_unstable();
        names.windows(2).any(|pair| matches!(pair, [one, other] if one == other))
    }
}

/// The answers to an earlier round, and its state, as a retry has them ([`Request::retry`](crate::Request::retry)).
///
/// Both may be forged: the peer may send any state and any answers, even if there was no earlier round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retry {
    pub(crate) state: Option<Text>,
    /// The answers by name, a JSON object.
    pub(crate) answers: Option<Json>,
}

impl Retry {
    /// The state, as the peer returned it ([`InputRound::with_state`]); `None` if the peer sent none.
    #[must_use]
    pub fn state(&self) -> Option<&Text> {
        self.state.as_ref()
    }

    /// The JSON of the answer with this name; `None` if it is missing.
    #[must_use]
    pub fn answer(&self, name: &str) -> Option<Json> {
        self.answers.as_ref()?.member(name)
    }
}
