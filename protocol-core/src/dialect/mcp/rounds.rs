//! The messages of rounds (2026-07-28, Multi Round-Trip Requests), at both ends.

use alloc::boxed::Box;

use super::meta::{Added, write_server};
use super::peer::write_capabilities;
use super::{Mcp, Revision, Side};
use crate::dialect::outgoing::{Outgoing, Parts};
use crate::dialect::round::RoundInput;
use crate::dialect::{Capabilities, InputRequest, InputResponse, InputRound, LocalEnd, Op, Retry, Stamp};
use crate::error::{RpcError, Violation};
use crate::json::cursor::IndexedObject;
use crate::json::read::{Kind, for_each_member, given, integer, member, string};
use crate::json::write::{Object, push_json, text_size};
use crate::json::{Frame, Json, Text};

impl Mcp {
    /// A server in the revision without a handshake.
    pub(in crate::dialect) const STATELESS_SERVER: Self = Self { side: Side::Server, agreed: Some(Revision::R2026_07_28) };
}

/// Returns `true` for a request whose result can be a round of input requests.
pub(super) const fn has_rounds(op: Op) -> bool {
    matches!(op, Op::CallTool | Op::GetPrompt | Op::ReadResource)
}

// ---- The server's end ----

/// Reads the members of a retry; `None` if there are none. The error names the member with the wrong type.
pub(super) fn read_retry(params: &IndexedObject<'_>, frame: Frame<'_>) -> Result<Option<Box<Retry>>, Text> {
    let state = match params.given("requestState") {
        None => None,
        Some(state) => Some(frame.text(state).ok_or_else(|| Text::from_static("`requestState` must be a string"))?),
    };
    let answers = match params.given("inputResponses") {
        None => None,
        Some(answers) if Kind::of(answers) == Kind::Object => Some(frame.json(answers)),
        Some(_) => return Err(Text::from_static("`inputResponses` must be an object")),
    };
    Ok((state.is_some() || answers.is_some()).then(|| Box::new(Retry { state, answers })))
}

/// Writes the members of a result that is a round.
pub(super) fn write_round(object: &mut Object<'_>, round: &InputRound, local: &LocalEnd<'_>) {
    object.word("resultType", "input_required");
    if !round.inputs.is_empty() {
        object.object("inputRequests", |object| {
            for RoundInput { name, ask, depth } in &round.inputs {
                let (method, params) = Mcp::STATELESS_SERVER.ask_request(ask);
                Object::write(object.named(name), |object| {
                    object.word("method", method);
                    let added = Added { token: None, depth: *depth, parent: None, stamp: Stamp::EMPTY };
                    added.merge(&params, object.member("params"));
                });
            }
        });
    }
    if let Some(state) = &round.state {
        object.text("requestState", state);
    }
    object.object("_meta", |object| write_server(object, local.identity));
}

/// An upper bound on the length of a result that is a round, in bytes, without the members that every result has.
pub(crate) fn round_size(round: &InputRound) -> usize {
    /// More than the bytes of one input request apart from its name and parameters, and more than the bytes around all input requests.
    const AROUND: usize = 160;
    let state = round.state.as_ref().map_or(0, |state| text_size(state.as_bytes()));
    round.inputs.iter().fold(state.saturating_add(AROUND), |sum, input| {
        let (_, params) = Mcp::STATELESS_SERVER.ask_request(&input.ask);
        sum.saturating_add(text_size(input.name.as_bytes())).saturating_add(params.as_bytes().len()).saturating_add(AROUND)
    })
}

impl InputRequest {
    /// Reads an answer to this input request from its JSON in a [`Retry`] (MCP 2026-07-28, schema `InputResponse`).
    ///
    /// # Errors
    /// A description of the first fault of the answer.
    pub fn read_answer(&self, answer: &Json) -> Result<InputResponse, Text> {
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
}

impl RpcError {
    /// The error for a request that cannot be served unless its caller declares these capabilities ([`RpcError::MISSING_CAPABILITY`]).
    #[must_use]
    pub fn missing_capability(required: &Capabilities) -> Self {
        let data = Object::value(|object| {
            object.object("requiredCapabilities", |object| {
                write_capabilities(object, Side::Client, Revision::R2026_07_28, required);
            });
        });
        Self::fixed(Self::MISSING_CAPABILITY, "the request needs a capability that its client did not declare").with_data(data)
    }
}

// ---- The client's end ----

impl Mcp {
    /// Returns `true` for a request whose result can be a round of input requests in this revision.
    pub(crate) const fn has_rounds(self, op: Op) -> bool {
        self.is_stateless() && has_rounds(op)
    }

    /// Returns the request with this method and these parameters, if its result can be a round of input requests.
    pub(crate) fn request_with_rounds(method: &str, params: Json) -> Option<Outgoing> {
        let op = super::op_of(method.as_bytes()).filter(|op| has_rounds(*op))?;
        Some(Outgoing::new(op, Parts::Exact(params)))
    }

    /// Reads a result that is a round. Returns a violation if the round is malformed or empty, if it repeats a name, or if this end did not
    /// declare the capability for one of the input requests.
    pub(crate) fn read_round(self, result: &Json, own: &Capabilities) -> Result<InputRound, Violation> {
        let mut round = InputRound::new();
        if let Some(state) = result.given("requestState") {
            round.state = Some(state.as_text().ok_or(Violation::InvalidResponse)?);
        }
        if let Some(inputs) = result.given("inputRequests") {
            if !inputs.is_object() {
                return Err(Violation::InvalidResponse);
            }
            let mut fault = None;
            for_each_member(inputs.as_bytes(), |name, input| match self.read_round_input(name, input, &inputs, own) {
                Ok(input) => round.inputs.push(input),
                Err(violation) => fault = fault.or(Some(violation)),
            });
            if let Some(fault) = fault {
                return Err(fault);
            }
        }
        let is_empty = round.inputs.is_empty() && round.state.is_none();
        if is_empty || round.repeats_a_name() { Err(Violation::InvalidResponse) } else { Ok(round) }
    }

    fn read_round_input(self, name: &str, input: &[u8], inputs: &Json, own: &Capabilities) -> Result<RoundInput, Violation> {
        let method = member(input, "method").and_then(string).ok_or(Violation::InvalidResponse)?;
        let params = match given(input, "params") {
            None => Json::empty_object(),
            Some(params) if Kind::of(params) == Kind::Object => inputs.part(params),
            Some(_) => return Err(Violation::InvalidResponse),
        };
        let depth = params.member("_meta").and_then(|meta| meta.given(super::meta::DEPTH));
        // A value that is not a depth counts as the maximum, as in `Meta::read`.
        let depth = depth.map_or(0, |depth| integer(depth.as_bytes()).unwrap_or(u8::MAX));
        let ask = self.read_ask(&method, params, own);
        let ask = ask.map_err(|refusal| refusal.violation.unwrap_or(Violation::InvalidResponse))?;
        Ok(RoundInput { name: Text::from(name), ask, depth })
    }
}

/// The answers and the state that a retry adds to the parameters of its request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RetryMembers<'a> {
    pub(crate) answers: &'a [(Text, Json)],
    pub(crate) state: Option<&'a Text>,
}

impl RetryMembers<'_> {
    /// Returns `true` for the name of a member that only retries have.
    pub(super) fn owns(name: &str) -> bool {
        matches!(name, "inputResponses" | "requestState")
    }

    pub(super) fn write(&self, object: &mut Object<'_>) {
        if !self.answers.is_empty() {
            object.object("inputResponses", |object| {
                for (name, answer) in self.answers {
                    push_json(object.named(name), answer.as_bytes());
                }
            });
        }
        if let Some(state) = self.state {
            object.text("requestState", state);
        }
    }
}
