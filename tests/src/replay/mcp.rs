//! The methods that make a session send the frames of a recorded end of MCP.

use protocol_core::mcp::Era;
use protocol_core::{
    CallTimeouts, Config, Elicit, ElicitResult, Identity, InputRequest, InputResponse, Invoke, Level, LogRecord, Notification, Op,
    Progress, RateWindow, Reply, RpcError, Sample, SampleResult,
};
use serde_json::Value;

use super::player::{Player, json};
use super::recording::{Channel, TurnKind};

/// The configuration of a session that declares the same capabilities as the recorded end: a client if `calls` is `true`, otherwise a
/// server.
pub(super) fn config(calls: bool, channel: &Channel) -> Config {
    let frames = channel.turns.iter().filter_map(|turn| if let TurnKind::Sent(frame) = &turn.what { Some(frame) } else { None });
    let mut config = if calls {
        let initialize =
            frames.clone().find(|frame| frame["method"] == "initialize").map_or(&Value::Null, |frame| &frame["params"]);
        let mut config = Config::mcp_client(identity(&initialize["clientInfo"]));
        let declares = &initialize["capabilities"];
        config.capabilities.sampling = declares.get("sampling").is_some();
        let elicitation = declares.get("elicitation");
        let names = |mode: &str| elicitation.is_some_and(|elicitation| elicitation.get(mode).is_some());
        // A declaration that names no mode is one of forms.
        config.capabilities.elicitation = elicitation.is_some() && (names("form") || !names("url"));
        config.capabilities.elicitation_url = names("url");
        config.capabilities.roots = declares.get("roots").is_some();
        config
    } else {
        let result = frames
            .clone()
            .find(|frame| frame.pointer("/result/serverInfo").is_some())
            .map_or(&Value::Null, |frame| &frame["result"]);
        let mut config = Config::mcp_server(identity(&result["serverInfo"]));
        config.era = Era::Auto;
        let declares = &result["capabilities"];
        let has = |name: &str| declares.get(name).is_some();
        let changes = |name: &str| declares[name]["listChanged"] == true;
        // A server without a recorded declaration has tools, since they are called.
        config.capabilities.tools = has("tools") || result.is_null();
        config.capabilities.tools_list_changed = changes("tools");
        config.capabilities.prompts = has("prompts");
        config.capabilities.prompts_list_changed = changes("prompts");
        config.capabilities.resources = has("resources");
        config.capabilities.resources_list_changed = changes("resources");
        config.capabilities.resources_subscribe = declares["resources"]["subscribe"] == true;
        config.capabilities.completions = has("completions");
        config.capabilities.logging = has("logging");
        config.instructions = result["instructions"].as_str().map(str::to_owned);
        config
    };
    config.log_level = Level::Debug;
    config.progress.window = RateWindow::UNLIMITED;
    config.timeouts.call = CallTimeouts::NONE;
    config.timeouts.handshake = None;
    config
}

fn identity(info: &Value) -> Identity {
    let text = |name: &str| info[name].as_str().unwrap_or_default();
    let mut identity = Identity::new(text("name"), text("version"));
    identity.title = info["title"].as_str().map(str::to_owned);
    identity
}

/// Calls the method that makes the session send the counterpart of a recorded frame.
pub(super) fn make(player: &mut Player, frame: &Value) -> Result<(), String> {
    match (frame["method"].as_str(), frame.get("id").is_some()) {
        (None, _) if player.is_caller => answer(player, frame),
        (None, _) => respond(player, frame),
        (Some("notifications/cancelled"), _) if player.is_caller => {
            let call = player.outbound.get(&frame["params"]["requestId"].to_string()).copied().ok_or("there is no such call")?;
            let (reason, now) = (frame["params"]["reason"].as_str(), player.now);
            player.live()?.cancel(call, reason, now).map_err(|error| error.to_string())
        }
        (Some("notifications/progress"), _) => progress(player, &frame["params"]),
        (Some(method), true) if player.is_caller => call(player, frame, method),
        (Some(method), true) => ask(player, method, &frame["params"]),
        (Some(method), false) => notify(player, method, frame.get("params")),
    }
}

fn call(player: &mut Player, frame: &Value, method: &str) -> Result<(), String> {
    let op = match method {
        "tools/call" => Op::CallTool,
        "tools/list" => Op::ListTools,
        "resources/list" => Op::ListResources,
        "resources/templates/list" => Op::ListResourceTemplates,
        "resources/read" => Op::ReadResource,
        "resources/subscribe" => Op::Subscribe,
        "resources/unsubscribe" => Op::Unsubscribe,
        "prompts/list" => Op::ListPrompts,
        "prompts/get" => Op::GetPrompt,
        "logging/setLevel" => Op::SetLogLevel,
        "ping" => Op::Ping,
        _ => Op::Custom,
    };
    let mut params = frame.get("params").cloned().unwrap_or_else(|| Value::Object(Default::default()));
    let mut has_token = false;
    if let Some(meta) = params.get_mut("_meta").and_then(Value::as_object_mut) {
        has_token = meta.remove("progressToken").is_some();
        if meta.is_empty() {
            params.as_object_mut().expect("it has a member").remove("_meta");
        }
    }
    let call = match op {
        Op::Custom => Invoke::custom(method, json(&params)),
        op => Invoke::new(op, json(&params)),
    };
    player.invoke(frame, if has_token { call } else { call.without_progress() })
}

fn answer(player: &mut Player, frame: &Value) -> Result<(), String> {
    let (key, method) = player.asked.remove(&frame["id"].to_string()).ok_or("there is no such input request")?;
    let result = &frame["result"];
    let answer = match (frame.get("error"), &*method) {
        (Some(error), _) => InputResponse::Refused(rpc_error(error)),
        (None, "sampling/createMessage") => sampled(result),
        (None, "roots/list") => InputResponse::Roots(json(&result["roots"])),
        (None, _) if result["action"] == "accept" && result.get("content").is_none() => InputResponse::Confirm(true),
        (None, _) => InputResponse::Elicit(match result["action"].as_str() {
            Some("accept") => ElicitResult::Accept(json(&result["content"])),
            Some("decline") => ElicitResult::Decline,
            _ => ElicitResult::Cancel,
        }),
    };
    let now = player.now;
    player.live()?.provide_input(key, answer, now).map_err(|error| error.to_string())
}

fn respond(player: &mut Player, frame: &Value) -> Result<(), String> {
    let id = player.inbound.get(&frame["id"].to_string()).copied().ok_or("there is no such request")?;
    let reply = match frame.get("error") {
        Some(error) => Reply::Error(rpc_error(error)),
        None => Reply::Raw(json(&frame["result"])),
    };
    let now = player.now;
    player.live()?.respond(id, reply, now).map_err(|error| error.to_string())
}

fn progress(player: &mut Player, params: &Value) -> Result<(), String> {
    let id = player.named.get(&params["progressToken"].to_string()).copied().ok_or("no request has this token")?;
    let mut update = Progress::default();
    (update.value, update.total) = (params["progress"].as_f64(), params["total"].as_f64());
    update.message = params["message"].as_str().map(Into::into);
    let now = player.now;
    player.live()?.progress(id, update, now).map(drop).map_err(|error| error.to_string())
}

fn ask(player: &mut Player, method: &str, params: &Value) -> Result<(), String> {
    let ask = match method {
        "sampling/createMessage" => sample(params),
        "elicitation/create" => {
            InputRequest::Elicit(Elicit::new(params["message"].as_str().unwrap_or_default(), json(&params["requestedSchema"])))
        }
        "roots/list" => InputRequest::Roots,
        other => return Err(format!("a server cannot request {other}")),
    };
    let (parent, now) = (*player.unanswered.last().ok_or("no call is running")?, player.now);
    player.live()?.request_input(parent, ask, now).map(drop).map_err(|error| error.to_string())
}

fn notify(player: &mut Player, method: &str, params: Option<&Value>) -> Result<(), String> {
    let now = player.now;
    let notification = match method {
        "notifications/message" => {
            let record = params.unwrap_or(&Value::Null);
            let level = record["level"].as_str().and_then(Level::from_name).unwrap_or(Level::Info);
            let mut log_record = LogRecord::new(level, json(&record["data"]));
            log_record.logger = record["logger"].as_str().map(Into::into);
            return player.live()?.log(None, log_record, now).map(drop).map_err(|error| error.to_string());
        }
        "notifications/tools/list_changed" => Notification::ToolsChanged,
        "notifications/prompts/list_changed" => Notification::PromptsChanged,
        "notifications/resources/list_changed" => Notification::ResourcesChanged,
        "notifications/resources/updated" => {
            Notification::ResourceUpdated { uri: params.and_then(|params| params["uri"].as_str()).unwrap_or_default().into() }
        }
        "notifications/roots/list_changed" => Notification::RootsChanged,
        other => Notification::Custom { method: other.into(), params: params.map(json) },
    };
    player.live()?.notify(notification, now).map_err(|error| error.to_string())
}

pub(super) fn rpc_error(error: &Value) -> RpcError {
    let plain = RpcError::new(error["code"].as_i64().unwrap_or_default(), error["message"].as_str().unwrap_or_default());
    match error.get("data") {
        Some(data) => plain.with_data(json(data)),
        None => plain,
    }
}

/// The answer to a sampling request, with the recorded members.
pub(super) fn sampled(result: &Value) -> InputResponse {
    let mut sampled = SampleResult::default();
    sampled.result = Some(json(result));
    InputResponse::Sample(sampled)
}

/// A sampling request, with the recorded members.
pub(super) fn sample(params: &Value) -> InputRequest {
    let mut sample = Sample::default();
    sample.params = Some(json(params));
    sample.into()
}
