//! Writing messages as frames of MCP.

use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use super::meta::{Added, copy_without_meta};
use super::peer::{declare, write_introduction};
use super::projection::{push_block, push_entry};
use super::rounds::{RetryMembers, has_rounds, round_size, write_round};
use super::{Mcp, Revision, Side, meta, method_of, stateless};
use crate::dialect::checkpoint::{with_partial, with_status};
use crate::dialect::depth_data;
use crate::dialect::form::confirmation;
use crate::dialect::{
    Completion, Content, CutShort, EarlyMessage, ElicitResult, InputRequest, InputResponse, LocalEnd, LogRecord, NotFound,
    Notification, Op, Outgoing, Parts, Progress, Reply, Sample, SampleResult, Stamp, ToolOutput, list_of, write_meta,
};
use crate::error::RpcError;
use crate::json::read::{Kind, for_each_key};
use crate::json::write::{Object, push_json, text_size, write_string, write_text};
use crate::json::{Json, Text};
use crate::wire::{FrameBuffer, WireId, WrittenFrame};

/// Writes parameters from their parts.
fn write_parts(object: &mut Object<'_>, parts: &Parts) {
    match parts {
        Parts::Named { name, arguments } => {
            object.text("name", name);
            object.json("arguments", arguments);
        }
        Parts::Resource { uri, .. } => object.text("uri", uri),
        Parts::Page(Some(cursor)) => object.text("cursor", cursor),
        Parts::Level(level) => object.word("level", level.as_str()),
        Parts::Completion(completion) => completion.write(object),
        Parts::Page(None) | Parts::Nothing | Parts::Exact(_) | Parts::Custom { .. } => {}
    }
}

impl Mcp {
    pub(crate) fn write_handshake_request(self, frames: &mut FrameBuffer, id: u64, local: &LocalEnd<'_>) -> WrittenFrame {
        frames.request(id, "initialize", 256, |out| {
            Object::write(out, |object| {
                object.string("protocolVersion", local.newest().as_str());
                object.object("capabilities", |object| declare(object, Side::Client, local.newest(), local));
                object.object("clientInfo", |object| write_introduction(object, local.newest(), local.identity));
            });
        })
    }

    pub(crate) fn write_handshake_confirmation(self, frames: &mut FrameBuffer) -> Option<WrittenFrame> {
        let client = self.side == Side::Client;
        client.then(|| frames.notification("notifications/initialized", 0, None::<fn(&mut Vec<u8>)>))
    }

    pub(crate) fn write_call(
        self,
        frames: &mut FrameBuffer,
        id: u64,
        call: &Outgoing,
        observed: bool,
        depth: u8,
        stamp: Stamp<'_>,
    ) -> WrittenFrame {
        let added = Added { token: observed.then_some(id), depth, parent: None, stamp };
        let meta = call.meta.as_deref();
        let method = call.custom_method().unwrap_or_else(|| method_of(call.op));
        frames.request(id, method, call.hint().saturating_add(stamp.size()), |out| match &call.parts {
            Parts::Exact(params) | Parts::Custom { params, .. } => match meta {
                None => added.merge(params, out),
                Some(meta) => Object::write(out, |object| {
                    copy_without_meta(object, params);
                    added.write_meta(object, Some(meta));
                }),
            },
            parts => Object::write(out, |object| {
                write_parts(object, parts);
                added.write_meta(object, meta);
            }),
        })
    }

    /// The method and the parameters of a request, without the members that a session adds.
    pub(crate) fn request_parts(self, call: &Outgoing) -> (&'static str, Json) {
        let mut out = Vec::with_capacity(call.hint());
        Object::write(&mut out, |object| {
            match (&call.parts, &call.meta) {
                (Parts::Exact(params), Some(_)) => copy_without_meta(object, params),
                (Parts::Exact(params), None) => for_each_key(params.as_bytes(), |key, value| object.copy(key, value)),
                (parts, _) => write_parts(object, parts),
            }
            if let Some(meta) = &call.meta {
                object.json("_meta", meta);
            }
        });
        (method_of(call.op), Json::written(out))
    }

    /// Writes the retry of a request, with the answers to a round of input requests.
    #[allow(clippy::too_many_arguments, reason = "those of a request, and the members of the retry")]
    pub(crate) fn write_retry(
        self,
        frames: &mut FrameBuffer,
        id: u64,
        call: &Outgoing,
        observed: bool,
        depth: u8,
        stamp: Stamp<'_>,
        retry: RetryMembers<'_>,
    ) -> WrittenFrame {
        let added = Added { token: observed.then_some(id), depth, parent: None, stamp };
        frames.request(id, method_of(call.op), call.hint().saturating_add(stamp.size()), |out| {
            Object::write(out, |object| {
                let mut given = None;
                match &call.parts {
                    Parts::Exact(params) => for_each_key(params.as_bytes(), |key, value| match &*key.name() {
                        "_meta" => given = Some(params.part(value)),
                        name if RetryMembers::owns(name) => {}
                        _ => object.copy(key, value),
                    }),
                    parts => write_parts(object, parts),
                }
                retry.write(object);
                added.write_meta(object, call.meta.as_deref().or(given.as_ref()));
            });
        })
    }

    pub(crate) fn write_ask(
        self,
        frames: &mut FrameBuffer,
        id: u64,
        ask: &InputRequest,
        parent: &WireId,
        depth: u8,
    ) -> WrittenFrame {
        let added = Added { token: None, depth, parent: Some(parent), stamp: Stamp::EMPTY };
        let (method, params) = self.ask_request(ask);
        frames.request(id, method, params.as_bytes().len(), |out| added.merge(&params, out))
    }

    /// The method and the parameters of an input request.
    pub(in crate::dialect) fn ask_request(self, ask: &InputRequest) -> (&'static str, Json) {
        match ask {
            InputRequest::Sample(sample) => ("sampling/createMessage", sampling_params(sample)),
            InputRequest::Elicit(form) => ("elicitation/create", form_params(&form.message, &form.schema)),
            // Without a handshake, a URL has no id (2026-07-28, "Elicitation", section "URL Mode").
            InputRequest::OpenUrl(open) => ("elicitation/create", open.params(!self.is_stateless())),
            InputRequest::Confirm { message } => ("elicitation/create", form_params(message, &confirmation())),
            InputRequest::Roots => ("roots/list", Json::empty_object()),
        }
    }

    pub(crate) fn write_cancel(self, frames: &mut FrameBuffer, id: u64, reason: Option<&str>) -> WrittenFrame {
        frames.notify("notifications/cancelled", |object| {
            object.integer("requestId", id);
            if let Some(reason) = reason {
                object.string("reason", reason);
            }
        })
    }

    pub(crate) fn write_progress(
        self,
        frames: &mut FrameBuffer,
        token: &WireId,
        progress: &Progress,
        partial: Option<&Json>,
    ) -> WrittenFrame {
        frames.notify("notifications/progress", |object| {
            token.write(object.member("progressToken"));
            object.number("progress", progress.value.unwrap_or_default());
            if let Some(total) = progress.total {
                object.number("total", total);
            }
            if let (Some(message), true) = (&progress.message, self.revision() >= Revision::R2025_03_26) {
                object.text("message", message);
            }
            if progress.data.is_some() || partial.is_some() {
                object.object("_meta", |object| {
                    if let Some(data) = &progress.data {
                        object.json(meta::DATA, data);
                    }
                    if let Some(partial) = partial {
                        object.json(meta::PARTIAL, partial);
                    }
                });
            }
        })
    }

    pub(crate) fn write_reply(
        self,
        frames: &mut FrameBuffer,
        id: &WireId,
        op: Op,
        reply: &Reply,
        partial: Option<&Json>,
        local: &LocalEnd<'_>,
    ) -> WrittenFrame {
        let failed_partial = partial.map(|partial| with_status(partial, "failed"));
        let internal = |what| RpcError::fixed(RpcError::INTERNAL, what);
        match reply {
            Reply::Raw(result) if result.is_object() => {
                frames.response(id, result.as_bytes().len(), |out| match self.is_stateless() {
                    true => stateless::write_given(out, result, is_cacheable(op), local),
                    false => push_json(out, result.as_bytes()),
                })
            }
            Reply::Done if op == Op::CallTool => self.write_reply(frames, id, op, &Reply::Tool(ToolOutput::default()), None, local),
            Reply::Done => self.write_result(frames, id, op, 2, local, |_| {}),
            Reply::Input(round) if self.is_stateless() && has_rounds(op) => {
                frames.response(id, round_size(round), |out| Object::write(out, |object| write_round(object, round, local)))
            }
            Reply::Input(_) => frames.error(Some(id), &internal("this request cannot be answered with input requests")),
            Reply::Raw(_) => frames.error(Some(id), &internal("the handler's result is not an object")),
            Reply::Tool(output) if op == Op::CallTool => {
                let failed_partial = failed_partial.filter(|_| output.is_error);
                let structured = self.structured(output, failed_partial.as_ref()).map_or(0, |value| value.as_bytes().len());
                let size = output.content.iter().map(Content::size).fold(structured, usize::saturating_add);
                // Structured content is repeated as text for clients that read only text ("Tools", "Structured Content"). A short
                // note replaces the text if the text would make the result too long for a frame.
                let is_cut = size > local.limits.frame_bytes && structured > 0 && output.repeats_structured();
                let size = if is_cut { structured } else { size };
                self.write_result_with(frames, id, op, size, local, &output.meta, |object| {
                    self.write_output(object, output, failed_partial.as_ref(), is_cut)
                })
            }
            Reply::Tool(_) => frames.error(Some(id), &internal("a tool's output answers only a call of a tool")),
            Reply::Contents(contents) if op == Op::ReadResource => {
                self.write_result(frames, id, op, contents.as_bytes().len(), local, |object| object.json("contents", contents))
            }
            Reply::Contents(_) => frames.error(Some(id), &internal("the contents of a resource answer only the reading of one")),
            Reply::Page(page) => match list_of(op) {
                Some(name) => {
                    let items = page.items.iter().map(|item| item.as_bytes().len().saturating_add(1));
                    self.write_result(frames, id, op, items.fold(64, usize::saturating_add), local, |object| {
                        object.array(name, &page.items, |out, item| push_entry(out, item.as_bytes(), op, self.revision()));
                        if let Some(next) = &page.next {
                            object.text("nextCursor", next);
                        }
                    })
                }
                None => frames.error(Some(id), &internal("a page answers only the request for a list")),
            },
            Reply::Completion(completion) if op == Op::Complete => {
                self.write_result(frames, id, op, 256, local, |object| write_completion(object, completion))
            }
            Reply::Completion(_) => frames.error(Some(id), &internal("a completion answers only the request for one")),
            Reply::NotFound(what) => frames.error(Some(id), &self.missing(what)),
            Reply::Error(error) => {
                let error = self.sendable(error);
                match failed_partial {
                    Some(failed_partial) => frames.error(Some(id), &with_partial(&error, &failed_partial)),
                    None => frames.error(Some(id), &error),
                }
            }
        }
    }

    /// Writes a result, whose members `members` writes. `size` is the expected length of the members in bytes.
    #[inline]
    fn write_result(
        self,
        frames: &mut FrameBuffer,
        id: &WireId,
        op: Op,
        size: usize,
        local: &LocalEnd<'_>,
        members: impl FnOnce(&mut Object<'_>),
    ) -> WrittenFrame {
        static NO_META: BTreeMap<String, Json> = BTreeMap::new();
        self.write_result_with(frames, id, op, size, local, &NO_META, members)
    }

    /// As [`Self::write_result`], with the members `meta` of `_meta`.
    #[inline]
    #[allow(clippy::too_many_arguments, reason = "what a result consists of")]
    fn write_result_with(
        self,
        frames: &mut FrameBuffer,
        id: &WireId,
        op: Op,
        size: usize,
        local: &LocalEnd<'_>,
        meta: &BTreeMap<String, Json>,
        members: impl FnOnce(&mut Object<'_>),
    ) -> WrittenFrame {
        frames.response(id, size, |out| {
            Object::write(out, |object| match self.is_stateless() {
                true => stateless::write_result_members(
                    object,
                    is_cacheable(op),
                    Some(id).filter(|_| op.is_subscription()),
                    local,
                    meta,
                    members,
                ),
                false => {
                    members(object);
                    write_meta(object, meta);
                }
            });
        })
    }

    /// Replaces the code of a handler's error if this revision reserves the code for errors of the protocol, or no longer has it
    /// (2026-07-28, Basic, "Error Codes"). A handler may use [`RpcError::MISSING_CAPABILITY`], although it is reserved.
    fn sendable(self, error: &RpcError) -> Cow<'_, RpcError> {
        let code = match error.code {
            _ if !self.is_stateless() => return Cow::Borrowed(error),
            RpcError::RESOURCE_NOT_FOUND => RpcError::INVALID_PARAMS,
            RpcError::MISSING_CAPABILITY => return Cow::Borrowed(error),
            -32099..=-32020 => RpcError::INTERNAL,
            _ => return Cow::Borrowed(error),
        };
        Cow::Owned(RpcError { code, ..error.clone() })
    }

    /// The structured content of `output`, or if `output` has none `failed_partial`, the checkpoint of a handler that has failed. `None` if
    /// this revision has no structured content.
    fn structured<'a>(self, output: &'a ToolOutput, failed_partial: Option<&'a Json>) -> Option<&'a Json> {
        output.structured.as_ref().or(failed_partial).filter(|_| self.revision() >= Revision::R2025_06_18)
    }

    /// Writes the members of a tool's result. If `is_cut` is `true`, the structured content is not repeated as text: the content is a note
    /// that says so.
    fn write_output(self, object: &mut Object<'_>, output: &ToolOutput, failed_partial: Option<&Json>, is_cut: bool) {
        const CUT: Content =
            Content::Text(Text::from_static("The result is in the structured content, and too long to be repeated as text."));
        let content = if is_cut { &[CUT] } else { &*output.content };
        object.array("content", content, |out, block| match block {
            Content::Raw(block) => push_block(out, block.as_bytes(), self.revision()),
            Content::Text(_) => block.write(out),
        });
        if let Some(structured) = self.structured(output, failed_partial) {
            object.json("structuredContent", structured);
        }
        if output.is_error {
            object.boolean("isError", true);
        }
    }

    /// The error for a tool or a resource that does not exist ("Tools" and "Resources", section "Error Handling").
    fn missing(self, what: &NotFound) -> RpcError {
        match what {
            NotFound::Tool(name) => RpcError::invalid_params(alloc::format!("unknown tool {:?}", name.as_str())),
            NotFound::Resource(uri) => {
                let code = if self.is_stateless() { RpcError::INVALID_PARAMS } else { RpcError::RESOURCE_NOT_FOUND };
                RpcError::fixed(code, "resource not found").with_data(Object::value(|object| object.string("uri", uri)))
            }
        }
    }

    /// The reply to a request whose handler is cut short, with the partial result if there is one.
    pub(crate) fn cut_short(self, op: Op, why: CutShort, partial: Option<&Json>) -> Reply {
        let (status, reason, text) = match why {
            CutShort::Cancelled => ("cancelled", "cancelled", "the call was cancelled"),
            CutShort::Deadline => ("timeout", "timeout", "the time for this call has run out"),
            CutShort::Closing => ("cancelled", "closing", "the server is closing"),
        };
        if op.is_subscription() {
            return Reply::Done;
        }
        let partial = partial.map(|partial| with_status(partial, status));
        if op == Op::CallTool {
            // An error that the model should read is a result ("Tools", section "Error Handling").
            let Some(partial) = partial else { return Reply::Tool(ToolOutput::error(text)) };
            // A partial result is usable if at least one item was processed. Otherwise the call has failed.
            let is_useful = partial.member("processed").is_some_and(|done| done.as_str().parse().is_ok_and(|done: u64| done > 0));
            let mut output = ToolOutput::structured(partial);
            output.is_error = !is_useful;
            return Reply::Tool(output);
        }
        let mut data = Vec::new();
        Object::write(&mut data, |object| object.string("reason", reason));
        let error = RpcError::fixed(RpcError::INTERNAL, text).with_data(Json::written(data));
        Reply::Error(partial.map_or_else(|| error.clone(), |partial| with_partial(&error, &partial)))
    }

    pub(crate) fn write_answer(self, frames: &mut FrameBuffer, id: &WireId, answer: &InputResponse) -> WrittenFrame {
        let size = match answer {
            InputResponse::Sample(SampleResult { result: Some(raw), .. }) => raw.as_bytes().len(),
            _ => 64,
        };
        match answer_error(answer) {
            None => frames.response(id, size, |out| push_answer(out, answer)),
            Some(error) => frames.error(Some(id), &error),
        }
    }

    /// The answer to an input request of a round, as it is sent in a retry. `can_decline` is `true` if a user gives the answer, and may
    /// decline. Returns an error if a retry cannot contain the answer.
    pub(crate) fn round_answer(self, answer: &InputResponse, can_decline: bool) -> Result<Json, RpcError> {
        let dismissed = InputResponse::Elicit(ElicitResult::Cancel);
        // An error is not a decision of the user, so it is sent as if the user had made no decision.
        let answer = if can_decline && matches!(answer, InputResponse::Refused(_)) { &dismissed } else { answer };
        if let Some(error) = answer_error(answer) {
            return Err(error);
        }
        let mut out = Vec::new();
        push_answer(&mut out, answer);
        Ok(Json::written(out))
    }

    pub(crate) fn write_log(self, frames: &mut FrameBuffer, record: &LogRecord) -> WrittenFrame {
        frames.notify("notifications/message", |object| {
            object.string("level", record.level.as_str());
            if let Some(logger) = &record.logger {
                object.string("logger", logger);
            }
            object.json("data", &record.data);
        })
    }

    pub(crate) fn write_notification(self, frames: &mut FrameBuffer, notification: &Notification) -> WrittenFrame {
        let method = match notification {
            Notification::ToolsChanged => "notifications/tools/list_changed",
            Notification::PromptsChanged => "notifications/prompts/list_changed",
            Notification::ResourcesChanged => "notifications/resources/list_changed",
            Notification::RootsChanged => "notifications/roots/list_changed",
            // `check_notification` refuses these.
            Notification::Actions(_) | Notification::Resources(_) | Notification::SubscriptionEnded => "",
            Notification::ResourceUpdated { uri } | Notification::ResourceValue { uri, .. } => {
                return frames.notify("notifications/resources/updated", |object| object.string("uri", uri));
            }
            Notification::ElicitationComplete { id } => {
                return frames.notify("notifications/elicitation/complete", |object| object.text("elicitationId", id));
            }
            Notification::Custom { method, params } => {
                return frames.notify_verbatim(method, params.as_ref());
            }
        };
        frames.notification(method, 0, None::<fn(&mut Vec<u8>)>)
    }

    pub(crate) fn too_deep(self, depth: u8, max: u8) -> RpcError {
        RpcError::fixed(RpcError::TOO_DEEP, "sampling is nested too deep").with_data(depth_data(depth, max))
    }

    pub(crate) fn busy(self, why: Text) -> RpcError {
        RpcError::new(RpcError::BUSY, why)
    }

    pub(crate) fn no_such_call(self) -> RpcError {
        RpcError::fixed(RpcError::INVALID_PARAMS, "the input request belongs to no call")
    }

    pub(crate) fn too_early(self, what: EarlyMessage) -> RpcError {
        let why = match what {
            EarlyMessage::Request => "the first request must be the handshake",
            EarlyMessage::InputRequest => "the handshake is not done",
        };
        RpcError::fixed(RpcError::INVALID_REQUEST, why)
    }

    pub(crate) fn call_is_over(self) -> RpcError {
        RpcError::fixed(RpcError::CANCELLED, "the call that this belongs to is over")
    }
}

/// The error that is sent instead of an answer, if the caller refuses to answer, or if the answer has the wrong shape.
fn answer_error(answer: &InputResponse) -> Option<RpcError> {
    let has_shape = match answer {
        InputResponse::Refused(error) => return Some(error.clone()),
        InputResponse::Sample(SampleResult { result: Some(raw), .. }) => raw.is_object(),
        InputResponse::Elicit(ElicitResult::Accept(content)) => content.is_object(),
        InputResponse::Roots(roots) => Kind::of(roots.as_bytes()) == Kind::Array,
        _ => true,
    };
    (!has_shape).then(|| RpcError::fixed(RpcError::INTERNAL, "the answer has the wrong shape"))
}

/// Writes the answer to an input request. [`answer_error`] must be `None` for this answer.
fn push_answer(out: &mut Vec<u8>, answer: &InputResponse) {
    if let InputResponse::Sample(SampleResult { result: Some(raw), .. }) = answer {
        return push_json(out, raw.as_bytes());
    }
    Object::write(out, |object| match answer {
        InputResponse::Sample(sampled) => {
            object.string("role", "assistant");
            object.object("content", |object| {
                object.string("type", "text");
                object.string("text", &sampled.text);
            });
            object.string("model", &sampled.model);
            object.string("stopReason", "endTurn");
        }
        InputResponse::Elicit(ElicitResult::Accept(content)) => {
            object.string("action", "accept");
            object.json("content", content);
        }
        InputResponse::Confirm(true) => {
            object.string("action", "accept");
            object.json("content", &Json::empty_object());
        }
        InputResponse::Elicit(ElicitResult::Decline) | InputResponse::Confirm(false) => object.string("action", "decline"),
        InputResponse::Elicit(ElicitResult::Cancel) => object.string("action", "cancel"),
        InputResponse::OpenUrl(consent) => object.word("action", consent.as_str()),
        InputResponse::Roots(roots) => object.json("roots", roots),
        InputResponse::Refused(_) => {}
    });
}

/// The answer of a server to a handshake request.
pub(super) fn handshake_answer(revision: Revision, local: &LocalEnd<'_>) -> Json {
    let mut out = Vec::new();
    Object::write(&mut out, |object| {
        object.string("protocolVersion", revision.as_str());
        object.object("capabilities", |object| declare(object, Side::Server, revision, local));
        object.object("serverInfo", |object| write_introduction(object, revision, local.identity));
        if let Some(instructions) = local.instructions {
            object.string("instructions", instructions);
        }
        write_meta(object, local.meta);
    });
    Json::written(out)
}

/// Writes at most 100 values ("Completion", section "Data Types").
fn write_completion(object: &mut Object<'_>, Completion { values, total, has_more }: &Completion) {
    const MAX_VALUES: usize = 100;
    let is_cut = values.len() > MAX_VALUES;
    // If the owner passed all values, and too many to send, the total is known.
    let total = total.or_else(|| (is_cut && !has_more).then_some(values.len() as u64));
    object.object("completion", |object| {
        object.array("values", values.iter().take(MAX_VALUES), |out, value| write_string(out, value));
        if let Some(total) = total {
            object.integer("total", total);
        }
        object.boolean("hasMore", *has_more || is_cut);
    });
}

/// Returns `true` for a request whose result the caller may cache (2026-07-28, Caching).
const fn is_cacheable(op: Op) -> bool {
    matches!(op, Op::ListTools | Op::ListPrompts | Op::ListResources | Op::ListResourceTemplates | Op::ReadResource)
}

impl Content {
    /// Writes a block in the form of MCP.
    pub(in crate::dialect) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Text(text) => {
                out.extend_from_slice(br#"{"type":"text","text":"#);
                write_text(out, text.as_bytes());
                out.push(b'}');
            }
            Self::Raw(block) => push_json(out, block.as_bytes()),
        }
    }

    /// An estimate of the length of the block in bytes. It is an upper bound if the block is long text.
    fn size(&self) -> usize {
        /// The length in bytes from which the escapes of text are counted. For shorter text, counting would take longer than a second
        /// allocation of the buffer.
        const LONG: usize = 1024;
        match self {
            Self::Text(text) if text.as_bytes().len() >= LONG => text_size(text.as_bytes()).saturating_add(32),
            Self::Text(text) => text.as_bytes().len().saturating_add(32),
            Self::Raw(block) => block.as_bytes().len(),
        }
    }
}

/// The parameters of a sampling request. MCP has no field for a schema, so the schema becomes part of the prompt.
fn sampling_params(sample: &Sample) -> Json {
    /// The maximum number of tokens if the owner sets none, since MCP demands a number.
    const TOKENS: u64 = 1024;
    if let Some(params) = &sample.params {
        return params.clone();
    }
    let mut prompt = String::from(&*sample.prompt);
    if let Some(schema) = &sample.schema {
        prompt.push_str("\n\nAnswer with JSON that fits this JSON Schema, and with nothing else:\n");
        prompt.push_str(schema.as_str());
    }
    let mut out = Vec::new();
    Object::write(&mut out, |object| {
        object.array("messages", [&prompt], |out, prompt| {
            Object::write(out, |object| {
                object.string("role", "user");
                object.object("content", |object| {
                    object.string("type", "text");
                    object.string("text", prompt);
                });
            });
        });
        object.integer("maxTokens", sample.max_tokens.unwrap_or(TOKENS));
    });
    Json::written(out)
}

fn form_params(message: &str, schema: &Json) -> Json {
    let mut out = Vec::new();
    Object::write(&mut out, |object| {
        write_string(object.member("message"), message);
        object.json("requestedSchema", schema);
    });
    Json::written(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_more_than_a_hundred_values_a_hundred_are_written_and_has_more_is_set() {
        let written = |completion: &Completion| Object::value(|object| write_completion(object, completion));
        let many = written(&Completion::all((0..150).map(|number| alloc::format!("v{number}"))));
        let many = many.member("completion").unwrap();
        assert_eq!(many.member("values").unwrap().elements().count(), 100);
        assert_eq!((many.member("total").unwrap().as_str(), many.member("hasMore").unwrap().as_str()), ("150", "true"));
        let few = written(&Completion::all(["a"]));
        assert_eq!(few.as_str(), r#"{"completion":{"values":["a"],"hasMore":false}}"#);
    }
}
