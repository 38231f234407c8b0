//! Reading the parameters of requests, and the errors for requests that are refused.

use alloc::string::String;

use crate::dialect::request::{Member, RawParams, read_completion};
use crate::dialect::{Message, Op, Refusal, excerpt};
use crate::error::{RpcError, Violation};
use crate::json::cursor::IndexedObject;
use crate::json::{Frame, Text};
use crate::wire::WireId;

/// Reads the parameters of a request, and checks the types of the members that the accessors of [`Request`](crate::Request) return.
pub(super) fn read_request(op: Op, params: Option<&IndexedObject<'_>>, frame: Frame<'_>) -> Result<RawParams, Text> {
    const NAMED: [Member; 2] = [Member::text("name"), Member::any("arguments")];
    const RESOURCE: [Member; 2] = [Member::text("uri"), Member::none()];
    const LIST: [Member; 2] = [Member::optional("cursor"), Member::none()];
    const OTHER: [Member; 2] = [Member::none(); 2];
    let members: &[Member; 2] = match op {
        Op::CallTool | Op::GetPrompt => &NAMED,
        Op::ReadResource | Op::Subscribe | Op::Unsubscribe => &RESOURCE,
        Op::ListTools | Op::ListPrompts | Op::ListResources | Op::ListResourceTemplates => &LIST,
        _ => &OTHER,
    };
    let request = RawParams::read(op, |indexed| frame.payload(indexed.text()), params, members)?;
    match op {
        Op::Complete => Ok(request.with_completion(read_completion(params.map_or(b"{}", IndexedObject::text))?)),
        _ => Ok(request),
    }
}

pub(super) fn not_found(violation: Option<Violation>, id: WireId, method: &[u8]) -> Message {
    Message::Reject { violation, answer: Some((Some(id), unknown_method(method))) }
}

pub(super) fn unknown_method(method: &[u8]) -> RpcError {
    let method = String::from_utf8_lossy(method);
    RpcError::new(RpcError::METHOD_NOT_FOUND, alloc::format!("method not found: {}", excerpt(&method)))
}

pub(super) fn wrong_params(why: impl Into<Text>) -> Refusal {
    Refusal { violation: Some(Violation::InvalidParams), error: RpcError::new(RpcError::INVALID_PARAMS, why) }
}
