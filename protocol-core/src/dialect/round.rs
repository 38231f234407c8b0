//! Input rounds: input requests as the result of a request, and their answers in its retry (MCP 2026-07-28, Multi Round-Trip Requests).

use alloc::vec::Vec;

use super::mcp::Mcp;
use super::{Answer, Ask, Capabilities};
use crate::json::{Json, Text};

/// The input requests that end one exchange of a call. The caller answers them by a retry of its request
/// ([`Session::finish_round`](crate::Session::finish_round)).
///
/// At least one input request, or a state, must be present.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InputRound {
    pub(crate) inputs: Vec<RoundInput>,
    pub(crate) state: Option<Text>,
}

/// One input request of a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RoundInput {
    /// The name of the answer in the retry.
    pub(crate) name: Text,
    pub(crate) ask: Ask,
    /// The sampling depth, which is sent as advice to the caller.
    pub(crate) depth: u8,
}

impl InputRound {
    /// A round without an input request.
    #[must_use]
    pub const fn new() -> Self {
        Self { inputs: Vec::new(), state: None }
    }

    /// Adds an input request. Its answer will have the name `name`, which no other input request of the round may have.
    #[must_use]
    pub fn ask(mut self, name: impl Into<Text>, ask: impl Into<Ask>) -> Self {
        self.inputs.push(RoundInput { name: name.into(), ask: ask.into(), depth: 0 });
        self
    }

    /// Sets the state, which the caller returns unchanged with the answers. The caller can read the state, return it again at any time, and
    /// give it to others: seal what must not be read, changed or used twice.
    #[must_use]
    pub fn with_state(mut self, state: impl Into<Text>) -> Self {
        self.state = Some(state.into());
        self
    }

    /// Returns `true` if two input requests have the same name.
    pub(crate) fn repeats_a_name(&self) -> bool {
        let mut names: Vec<&str> = self.inputs.iter().map(|input| &*input.name).collect();
        names.sort_unstable();
        names.windows(2).any(|pair| matches!(pair, [one, other] if one == other))
    }
}

/// The answers to an earlier round, in a request that is the retry of another ([`Request::retry`](crate::Request::retry)).
///
/// A request that claims to be a retry need not be one: the peer may send any state and any answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retry {
    pub(crate) state: Option<Text>,
    /// An object.
    pub(crate) answers: Option<Json>,
}

impl Retry {
    /// The state, as the peer returned it ([`InputRound::with_state`]); `None` if it sent none.
    #[must_use]
    pub fn state(&self) -> Option<&Text> {
        self.state.as_ref()
    }

    /// The answer with that name as JSON; `None` if it is missing.
    #[must_use]
    pub fn answer(&self, name: &str) -> Option<Json> {
        self.answers.as_ref()?.member(name)
    }
}

impl Ask {
    /// Reads an answer to this input request from its JSON in a [`Retry`] (MCP 2026-07-28, schema `InputResponse`).
    ///
    /// # Errors
    /// A description of the first fault of the answer.
    pub fn read_answer(&self, answer: &Json) -> Result<Answer, Text> {
        if !answer.is_object() {
            return Err(Text::from_static("it is no object"));
        }
        Mcp::STATELESS_SERVER.read_answer(self, answer)
    }

    /// The method and the parameters of this input request (MCP 2026-07-28, schema `InputRequest`). Equal input requests have equal
    /// parameters, byte for byte.
    #[must_use]
    pub fn method_and_params(&self) -> (&'static str, Json) {
        Mcp::STATELESS_SERVER.ask_request(self)
    }

    /// The capabilities that a caller must declare to receive this input request.
    #[must_use]
    pub fn required_capabilities(&self) -> Capabilities {
        let mut required = Capabilities::default();
        match self {
            Self::Sample(sample) => {
                required.sampling = true;
                required.sampling_tools = sample.params.as_ref().is_some_and(|params| params.member("tools").is_some());
            }
            Self::Elicit(_) | Self::Confirm { .. } => required.elicitation = true,
            Self::OpenUrl(_) => required.elicitation_url = true,
            Self::Roots => required.roots = true,
        }
        required
    }

    /// Returns `true` if a user gives the answer, who can decline or make no decision.
    pub(crate) fn can_be_declined(&self) -> bool {
        matches!(self, Self::Elicit(_) | Self::OpenUrl(_) | Self::Confirm { .. })
    }
}
