//! The methods that make a session send the frames of a recorded end of Tesseron.

use protocol_core::tesseron::AppId;
use protocol_core::tesseron::{App, ClaimState, GatewayConfig, ResumeCredentials, Welcome, pending_agent};
use protocol_core::{
    Capabilities, Config, Elicit, ElicitResult, Identity, InputRequest, InputResponse, Invoke, Level, LogRecord, Notification,
    Progress, RateWindow, Reply, ToolOutput,
};
use serde_json::{Value, json as value};

use super::mcp::{rpc_error, sample, sampled};
use super::player::{Player, json};
use super::recording::{Channel, TurnKind};

/// The configuration of a session that declares the same capabilities as the recorded end: a gateway if `calls` is `true`, otherwise an
/// app.
pub(super) fn config(calls: bool, channel: &Channel) -> Config {
    let frames = channel.turns.iter().filter_map(|turn| if let TurnKind::Sent(frame) = &turn.what { Some(frame) } else { None });
    let mut config = if calls {
        let welcome = frames.clone().find_map(|frame| frame.pointer("/result/agent").map(|_| &frame["result"]));
        let mut config = Config::tesseron_gateway(GatewayConfig::default());
        if let Some(welcome) = welcome {
            config.identity = identity(&welcome["agent"]);
            config.capabilities = capabilities(&welcome["capabilities"]);
        } else {
            config.identity = pending_agent();
        }
        config
    } else {
        let nothing = value!({"app": {"id": "app"}, "actions": [], "resources": [], "capabilities": {}});
        let greets = |frame: &&Value| matches!(frame["method"].as_str(), Some("tesseron/hello" | "tesseron/resume"));
        let greeting = frames.clone().find(greets).map_or(&nothing, |frame| &frame["params"]);
        let app = &greeting["app"];
        let text = |name: &str| app[name].as_str().map(str::to_owned);
        let mut own = App::default();
        own.origin = text("origin").unwrap_or_default();
        own.icon_url = text("iconUrl");
        own.actions = json(greeting.get("actions").filter(|list| list.is_array()).unwrap_or_else(|| &nothing["actions"]));
        own.resources = json(greeting.get("resources").filter(|list| list.is_array()).unwrap_or_else(|| &nothing["resources"]));
        own.resume = greeting["sessionId"].as_str().zip(greeting["resumeToken"].as_str()).map(|(session_id, resume_token)| {
            ResumeCredentials { session_id: session_id.into(), resume_token: resume_token.into() }
        });
        let id = AppId::parse(&text("id").unwrap_or_default()).unwrap_or_else(|_| AppId::parse("app").expect("a valid id"));
        let mut config = Config::tesseron_app(&id, text("name").unwrap_or_default(), own);
        config.identity.version = text("version").unwrap_or_default();
        config.instructions = text("description");
        let declares = capabilities(&greeting["capabilities"]);
        (config.capabilities.sampling, config.capabilities.elicitation) = (declares.sampling, declares.elicitation);
        config.capabilities.resources_subscribe = greeting["capabilities"]["subscriptions"] == true;
        config
    };
    config.progress.window = RateWindow::UNLIMITED;
    config.timeouts.handshake = None;
    config
}

/// The time in milliseconds that each action of the recorded app may take, if the app declares one.
pub(super) fn deadlines(channel: &Channel) -> impl Iterator<Item = (String, u64)> {
    let frames = channel.turns.iter().filter_map(|turn| if let TurnKind::Sent(frame) = &turn.what { Some(frame) } else { None });
    let actions = frames.filter_map(|frame| frame.pointer("/params/actions").and_then(Value::as_array)).flatten();
    actions.filter_map(|action| Some((action["name"].as_str()?.to_owned(), action["timeoutMs"].as_u64()?)))
}

fn identity(agent: &Value) -> Identity {
    let mut identity = Identity::new(agent["id"].as_str().unwrap_or_default(), "");
    identity.title = agent["name"].as_str().map(str::to_owned);
    identity
}

fn capabilities(declared: &Value) -> Capabilities {
    let mut capabilities = Capabilities::default();
    (capabilities.sampling, capabilities.elicitation) = (declared["sampling"] == true, declared["elicitation"] == true);
    capabilities
}

/// Calls the method that makes the session send the counterpart of a recorded frame.
pub(super) fn make(player: &mut Player, frame: &Value) -> Result<(), String> {
    let (params, now) = (&frame["params"], player.now);
    let text = |name: &str| params[name].as_str().unwrap_or_default();
    let served = |player: &Player| player.named.get(&params["invocationId"].to_string()).copied().ok_or("there is no such request");
    match frame["method"].as_str() {
        None if player.is_caller => answer(player, frame),
        None => respond(player, frame),
        Some("tesseron/bind") if player.is_caller && player.session.is_none() => player.dial(text("code")),
        Some("tesseron/claimed") if player.is_caller => {
            let (agent, capabilities) = (identity(&params["agent"]), capabilities(&params["agentCapabilities"]));
            let at = params["claimedAt"].as_u64().unwrap_or_default();
            player.live()?.claim(agent, capabilities, at, now).map_err(|error| error.to_string())
        }
        Some("actions/invoke") => player.invoke(frame, Invoke::call_tool(text("name"), json(&params["input"]))),
        Some("actions/cancel") if player.is_caller => {
            let call = player.outbound.get(&params["invocationId"].to_string()).copied().ok_or("there is no such call")?;
            player.live()?.cancel(call, None, now).map_err(|error| error.to_string())
        }
        Some("resources/read") => player.invoke(frame, Invoke::read_resource(text("name"))),
        Some("resources/subscribe") => {
            player.invoke(frame, Invoke::subscribe(text("name")).with_subscription(text("subscriptionId")))
        }
        Some("resources/unsubscribe") => player.invoke(frame, Invoke::unsubscribe("").with_subscription(text("subscriptionId"))),
        Some("actions/progress") => {
            let id = served(player)?;
            let mut update = params["percent"].as_f64().map_or_else(Progress::default, Progress::value);
            update.message = params["message"].as_str().map(Into::into);
            update.data = params.get("data").map(json);
            player.live()?.progress(id, update, now).map(drop).map_err(|error| error.to_string())
        }
        Some("log") => {
            let id = params.get("invocationId").map(|_| served(player)).transpose()?;
            let level = match text("level") {
                "warn" => Level::Warning,
                name => Level::from_name(name).unwrap_or(Level::Info),
            };
            let mut data = params.get("meta").cloned().unwrap_or_else(|| value!({}));
            data["message"] = params["message"].clone();
            player.live()?.log(id, LogRecord::new(level, json(&data)), now).map(drop).map_err(|error| error.to_string())
        }
        Some("sampling/request") => {
            let id = served(player)?;
            player.live()?.request_input(id, sample(params), now).map(drop).map_err(|error| error.to_string())
        }
        Some("elicitation/request") => {
            let (message, id) = (text("question"), served(player)?);
            let is_confirmation = params["schema"] == value!({"type": "object", "properties": {}, "required": []});
            let ask = if is_confirmation {
                InputRequest::Confirm { message: message.to_owned() }
            } else {
                InputRequest::Elicit(Elicit::new(message, json(&params["schema"])))
            };
            player.live()?.request_input(id, ask, now).map(drop).map_err(|error| error.to_string())
        }
        Some("actions/list_changed") => notify(player, Notification::Actions(json(&params["actions"]))),
        Some("resources/list_changed") => notify(player, Notification::Resources(json(&params["resources"]))),
        Some("resources/updated") => {
            let (subscription, value) = (text("subscriptionId").into(), json(&params["value"]));
            notify(player, Notification::ResourceValue { subscription, uri: "".into(), value })
        }
        Some(method) if frame.get("id").is_some() => player.invoke(frame, Invoke::custom(method, json(params))),
        Some(method) => notify(player, Notification::Custom { method: method.into(), params: frame.get("params").map(json) }),
    }
}

fn notify(player: &mut Player, notification: Notification) -> Result<(), String> {
    let now = player.now;
    player.live()?.notify(notification, now).map_err(|error| error.to_string())
}

/// Answers a handshake or an input request, as the gateway.
fn answer(player: &mut Player, frame: &Value) -> Result<(), String> {
    let (result, now) = (&frame["result"], player.now);
    if let Some((key, method)) = player.asked.remove(&frame["id"].to_string()) {
        let answer = match (frame.get("error"), &*method) {
            (Some(error), _) => InputResponse::Refused(rpc_error(error)),
            (None, "sampling/request") => sampled(result),
            (None, _) if result["action"] == "accept" && result.get("value").is_none() => InputResponse::Confirm(true),
            (None, _) => InputResponse::Elicit(match result["action"].as_str() {
                Some("accept") => ElicitResult::Accept(json(&result["value"])),
                Some("decline") => ElicitResult::Decline,
                _ => ElicitResult::Cancel,
            }),
        };
        return player.live()?.provide_input(key, answer, now).map_err(|error| error.to_string());
    }
    let resume = player.greeting.take().ok_or("there is no such input request")?;
    let text = |name: &str| result[name].as_str().map(Into::into);
    let claim_state = match (text("claimCode"), resume) {
        (Some(claim_code), _) => ClaimState::Unclaimed { claim_code },
        (None, Some(_)) => ClaimState::Resumed,
        (None, None) => ClaimState::Bound,
    };
    let welcome = match frame.get("error") {
        Some(error) => Err(rpc_error(error)),
        None => Ok(Welcome { session_id: text("sessionId").unwrap_or_default(), resume_token: text("resumeToken"), claim_state }),
    };
    player.live()?.welcome(welcome, now).map_err(|error| error.to_string())
}

/// Answers a call, as the app.
fn respond(player: &mut Player, frame: &Value) -> Result<(), String> {
    let id = player.inbound.get(&frame["id"].to_string()).copied().ok_or("there is no such request")?;
    let (result, now) = (&frame["result"], player.now);
    let reply = match (frame.get("error"), result.get("output")) {
        (Some(error), _) if player.invokes_action(&frame["id"]) => Reply::Tool(ToolOutput::rpc_error(rpc_error(error))),
        (Some(error), _) => Reply::Error(rpc_error(error)),
        (None, Some(output)) => Reply::Tool(ToolOutput::structured(json(output))),
        (None, None) if result.get("invocationId").is_some() => Reply::Tool(ToolOutput::default()),
        (None, None) if result.is_null() => Reply::Done,
        (None, None) => Reply::Raw(json(result)),
    };
    player.live()?.respond(id, reply, now).map_err(|error| error.to_string())
}
