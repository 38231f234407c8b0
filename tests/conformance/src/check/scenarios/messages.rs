//! Requests, responses and notifications, valid and invalid.

use std::fmt::Write;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Level, Over, Revision, Scenario};
use crate::check::session::{Frame, Session};
use crate::check::{Fault, Stop, not_run, wrong};

const JSON_RPC: &str = "JSON-RPC 2.0, 5.1 Error object";

pub(super) fn scenarios() -> Vec<Scenario> {
    use Level::{Must, Should};
    vec![
        Scenario::new(
            "ids-are-echoed",
            Must,
            "basic, Responses",
            "An id comes back as it was sent: a string, 0, a negative number, 2^53-1.",
            |s| Box::pin(ids_are_echoed(s)),
        ),
        Scenario::new(
            "ids-beyond-doubles",
            Should,
            "basic, Responses",
            "An id that a double cannot hold comes back as it was sent, and 1.0 as 1.0 or 1; or the request is refused.",
            |s| Box::pin(ids_beyond_doubles(s)),
        ),
        Scenario::new(
            "unknown-method",
            Must,
            JSON_RPC,
            "A request with an unknown method is answered with the error -32601 (in 2025-11-25 with any error, and it should be -32601).",
            |s| Box::pin(unknown_method(s)),
        ),
        Scenario::new(
            "unknown-tool",
            Should,
            "server/tools, Error Handling",
            "A call of an unknown tool is answered with the error -32602.",
            |s| Box::pin(unknown_tool(s)),
        ),
        Scenario::new(
            "malformed-params",
            Must,
            JSON_RPC,
            "A request whose parameters are of the wrong type is answered with an error, and the server goes on.",
            |s| Box::pin(malformed_params(s)),
        ),
        Scenario::new(
            "not-json",
            Must,
            JSON_RPC,
            "After a line that is not JSON the server goes on; it should answer with the error -32700.",
            |s| Box::pin(not_json(s)),
        ),
        Scenario::new(
            "not-json-rpc",
            Must,
            JSON_RPC,
            "After JSON that is no message the server goes on; it should answer with the error -32600.",
            |s| Box::pin(not_json_rpc(s)),
        ),
        Scenario::new("not-utf8", Must, "basic/transports", "After bytes that are not UTF-8 the server goes on.", |s| {
            Box::pin(not_utf8(s))
        }),
        Scenario::new(
            "empty-lines",
            Should,
            "basic/transports, stdio",
            "Empty lines are ignored, and a line may end with CR LF.",
            |s| Box::pin(empty_lines(s)),
        )
        .over(Over::Stdio),
        Scenario::new(
            "frames-in-pieces",
            Must,
            "basic/transports, stdio",
            "A line may arrive in pieces, and several lines at once.",
            |s| Box::pin(frames_in_pieces(s)),
        )
        .over(Over::Stdio),
        Scenario::new(
            "batch-goes-unharmed",
            Must,
            "2025-06-18 changelog, 1",
            "After a batch, which the revision does not have, the server goes on.",
            |s| Box::pin(batch_goes_unharmed(s)),
        ),
        Scenario::new(
            "batch-is-answered",
            Must,
            "2025-03-26 basic, Batching",
            "In 2025-03-26, if the server speaks it, each request of a batch is answered.",
            |s| Box::pin(batch_is_answered(s)),
        )
        .only(Revision::Handshake),
        Scenario::new(
            "large-argument",
            Must,
            "basic, Responses",
            "A call with an argument of 1 MiB is answered, or refused over HTTP.",
            |s| Box::pin(large_argument(s)),
        ),
        Scenario::new(
            "deep-nesting",
            Must,
            JSON_RPC,
            "After an argument that is nested 10 000 deep the server goes on; it should answer.",
            |s| Box::pin(deep_nesting(s)),
        ),
        Scenario::new(
            "odd-strings",
            Must,
            JSON_RPC,
            "After strings with NUL and with half a surrogate pair the server goes on.",
            |s| Box::pin(odd_strings(s)),
        ),
        Scenario::new(
            "response-to-nothing",
            Must,
            "basic, Responses",
            "Responses to requests that the server never sent are ignored.",
            |s| Box::pin(response_to_nothing(s)),
        )
        .only(Revision::Handshake),
        Scenario::new(
            "notifications-unanswered",
            Must,
            "basic, Notifications",
            "Notifications get no response: unknown ones, those out of place, and those without their parameters.",
            |s| Box::pin(notifications_unanswered(s)),
        ),
        Scenario::new(
            "notification-first",
            Must,
            "basic, Notifications",
            "A notification may be the first message, and is ignored.",
            |s| Box::pin(notification_first(s)),
        )
        .only(Revision::Stateless),
        Scenario::new(
            "output-is-frames",
            Must,
            "basic/transports, stdio",
            "Standard output contains only messages, one in each line.",
            |s| Box::pin(output_is_frames(s)),
        )
        .over(Over::Stdio),
    ]
}

async fn ids_are_echoed(s: &mut Session<'_>) -> Result<(), Stop> {
    s.open().await?;
    for id in [r#""a string""#, "0", "-7", "9007199254740991", r#""1000""#, "1000"] {
        let frame = s.frame(Some(id), s.simple_method(), json!({}), None);
        s.send(&frame).await?;
        s.answer(id).await?;
    }
    Ok(())
}

async fn ids_beyond_doubles(s: &mut Session<'_>) -> Result<(), Stop> {
    s.open().await?;
    for (id, equal_id) in [("9007199254740993", None), ("9223372036854775807", None), ("1.0", Some("1"))] {
        let before = s.seen().len();
        let frame = s.frame(Some(id), s.simple_method(), json!({}), None);
        s.send(&frame).await?;
        let later = s.request(s.simple_method(), json!({})).await?;
        s.result(&later).await?;
        s.quiet().await?;
        let answers_it = |frame: &&Frame| frame.is_response() && frame.id() != Some(&*later);
        let answers = s.seen()[before..].iter().filter(answers_it).collect::<Vec<_>>();
        let is_fine = answers.iter().any(|frame| match frame.id() {
            Some(received) => received == id || Some(received) == equal_id,
            None => frame.is_error_without_id(),
        });
        if !is_fine {
            let first = answers.first().map(|frame| format!("answered with {}", frame.short()));
            s.warn(format!("the request with the id {id} was {}", first.as_deref().unwrap_or("not answered")));
        }
    }
    Ok(())
}

async fn unknown_method(s: &mut Session<'_>) -> Result<(), Stop> {
    s.open().await?;
    let id = s.request("no/such/method", json!({})).await?;
    let response = s.answer(&id).await?;
    match response.code() {
        Some(-32601) => {}
        Some(_) if !s.is_stateless() => s.warn(format!("the answer is {}", response.short())),
        _ => return wrong(format!("the answer is {}", response.short())),
    }
    s.expect_answer().await
}

async fn unknown_tool(s: &mut Session<'_>) -> Result<(), Stop> {
    s.open().await?;
    let id = s.request("tools/call", json!({"name": "no-such-tool", "arguments": {}})).await?;
    let response = s.answer(&id).await?;
    if response.code() == Some(-32602) { Ok(()) } else { wrong(format!("the answer is {}", response.short())) }
}

async fn malformed_params(s: &mut Session<'_>) -> Result<(), Stop> {
    s.open().await?;
    let frames = [
        ("tools/call without a name", json!({"arguments": {}})),
        ("tools/call with a number as its name", json!({"name": 5})),
        ("tools/call with arguments that are a list", json!({"name": "no-such-tool", "arguments": [1]})),
    ];
    for (what, params) in frames {
        let id = s.request("tools/call", params).await?;
        expect_error(s, &id, what).await?;
    }
    let id = s.new_id();
    s.send(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list","params":"text"}}"#)).await?;
    match expect_error(s, &id, "tools/list with parameters that are a string").await {
        // A server may ignore the parameters of `tools/list`, so a result is only a warning.
        Err(Stop::Fault(Fault::Wrong(why))) => s.warn(why),
        other => other?,
    }
    s.expect_answer().await
}

/// Expects the error -32602 or -32600 with the id `id`. Another error, an error without an id, and the result of a tool that failed are
/// only warnings.
async fn expect_error(s: &mut Session<'_>, id: &str, what: &str) -> Result<(), Stop> {
    let until = s.deadline();
    let is_refused = |s: &Session<'_>| s.seen().iter().any(|frame| frame.is_error_without_id());
    while s.response(id).is_none() && !is_refused(s) && s.pump(until).await? {}
    match s.response(id).map(|response| (response.code(), response.value()["result"]["isError"] == true, response)) {
        Some((Some(-32602 | -32600), _, _)) => {}
        // The header with the name of the tool is missing, since the request has no name.
        Some((Some(-32020), _, _)) if s.is_http() && s.is_stateless() => {}
        Some((Some(code), _, _)) => s.warn(format!("{what} was answered with the error {code}")),
        Some((None, true, _)) => s.warn(format!("{what} was answered with a result that is an error")),
        Some((None, false, response)) => return wrong(format!("{what} was answered with {}", response.short())),
        None if is_refused(s) => s.warn(format!("{what} was answered with an error without its id")),
        None => return Err(Fault::Silent(format!("{what} was not answered")).into()),
    }
    Ok(())
}

/// Sends lines that are not messages. The server must answer a request after each line, and should answer the line itself with the error
/// `code`.
async fn nonsense(s: &mut Session<'_>, lines: &[&str], code: i64) -> Result<(), Stop> {
    s.open().await?;
    for line in lines {
        let before = s.seen().len();
        s.send(line).await?;
        s.expect_answer().await?;
        let until = s.deadline().min(tokio::time::Instant::now() + Duration::from_secs(1));
        let received = s.until(until, |seen| seen[before..].iter().find_map(|frame| frame.code())).await?;
        match received {
            Some(received) if received == code => {}
            Some(received) => s.warn(format!("{line} was answered with the error {received}")),
            None => s.warn(format!("{line} was not answered")),
        }
    }
    Ok(())
}

async fn not_json(s: &mut Session<'_>) -> Result<(), Stop> {
    nonsense(s, &["hello", r#"{"jsonrpc":"2.0","id":1,"method":"#], -32700).await
}

async fn not_json_rpc(s: &mut Session<'_>) -> Result<(), Stop> {
    nonsense(
        s,
        &["{}", "5", r#""text""#, "null", "[]", r#"{"jsonrpc":"1.0"}"#, r#"{"jsonrpc":"2.0","id":"odd","method":5}"#],
        -32600,
    )
    .await
}

async fn not_utf8(s: &mut Session<'_>) -> Result<(), Stop> {
    s.open().await?;
    s.send_bytes(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/\xff\xfe\"}").await?;
    s.expect_answer().await?;
    s.send_bytes(b"\xc3\x28\x80").await?;
    s.expect_answer().await
}

async fn empty_lines(s: &mut Session<'_>) -> Result<(), Stop> {
    s.open().await?;
    s.write(b"\n\r\n  \n").await?;
    s.expect_answer().await?;
    let id = s.new_id();
    let frame = s.frame(Some(&id), s.simple_method(), json!({}), None);
    s.write(format!("{frame}\r\n").as_bytes()).await?;
    s.answer(&id).await?;
    if s.seen().iter().any(|frame| frame.is_error_without_id()) {
        return wrong("an empty line was answered with an error");
    }
    Ok(())
}

async fn frames_in_pieces(s: &mut Session<'_>) -> Result<(), Stop> {
    s.open().await?;
    let ids = [s.new_id(), s.new_id(), s.new_id()];
    let mut all = String::new();
    for id in &ids {
        let _ = writeln!(all, "{}", s.frame(Some(id), s.simple_method(), json!({"_extra": "é"}), None));
    }
    // The second piece begins within a character, and ends within the third line.
    let at = all.find('é').map_or(10, |at| at + 1);
    let last = all.len() - 20;
    for piece in [&all.as_bytes()[..at], &all.as_bytes()[at..last], &all.as_bytes()[last..]] {
        s.write(piece).await?;
        s.receive_for(Duration::from_millis(150)).await?;
    }
    for id in &ids {
        s.result(id).await?;
    }
    Ok(())
}

async fn batch_goes_unharmed(s: &mut Session<'_>) -> Result<(), Stop> {
    s.open().await?;
    let (one, other) = (s.new_id(), s.new_id());
    let frames =
        [s.frame(Some(&one), s.simple_method(), json!({}), None), s.frame(Some(&other), s.simple_method(), json!({}), None)];
    s.send(&format!("[{}]", frames.join(","))).await?;
    s.expect_answer().await?;
    s.quiet().await?;
    match s.response(&one).is_some() || s.response(&other).is_some() || s.seen().iter().any(|frame| frame.is_error_without_id()) {
        true => Ok(()),
        false => {
            s.warn("the batch was neither answered nor refused");
            Ok(())
        }
    }
}

async fn batch_is_answered(s: &mut Session<'_>) -> Result<(), Stop> {
    let result = s.handshake("2025-03-26").await?;
    if result["protocolVersion"] != "2025-03-26" {
        return not_run("the server does not speak 2025-03-26");
    }
    let (one, other) = (s.new_id(), s.new_id());
    let frames = [
        s.frame(Some(&one), "ping", Value::Null, None),
        s.frame(None, "notifications/no-such", Value::Null, None),
        s.frame(Some(&other), "tools/list", Value::Null, None),
    ];
    s.send(&format!("[{}]", frames.join(","))).await?;
    s.result(&one).await?;
    s.result(&other).await?;
    s.expect_answer().await
}

async fn large_argument(s: &mut Session<'_>) -> Result<(), Stop> {
    s.open().await?;
    let name = s.quick().map_or_else(|_| "no-such-tool".to_owned(), |quick| quick.name);
    let mut arguments = s.quick().map(|quick| quick.arguments).unwrap_or_default();
    arguments.insert("filler".to_owned(), json!("x".repeat(1 << 20)));
    let id = s.request("tools/call", json!({"name": name, "arguments": arguments})).await?;
    answered_or_refused(s, &id).await?;
    s.expect_answer().await
}

/// Waits for a JSON-RPC response. Over HTTP, an HTTP response without one also suffices.
async fn answered_or_refused(s: &mut Session<'_>, id: &str) -> Result<(), Stop> {
    match s.answer(id).await {
        Err(Stop::Fault(Fault::Wrong(_))) if s.is_http() => Ok(()),
        other => other.map(drop),
    }
}

async fn deep_nesting(s: &mut Session<'_>) -> Result<(), Stop> {
    s.open().await?;
    let id = s.new_id();
    let frame = s.frame(Some(&id), "tools/call", json!({"name": "no-such-tool", "arguments": {"deep": "HERE"}}), None);
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    s.send(&frame.replace(r#""HERE""#, &deep)).await?;
    s.expect_answer().await?;
    s.quiet().await?;
    if s.response(&id).is_none() && !s.seen().iter().any(|frame| frame.is_error_without_id()) {
        s.warn("the request was neither answered nor refused");
    }
    Ok(())
}

async fn odd_strings(s: &mut Session<'_>) -> Result<(), Stop> {
    s.open().await?;
    for text in [r#""\u0000""#, r#""\ud800""#, r#""\udc00\ud800 x""#] {
        let id = s.new_id();
        let call = json!({"name": "no-such-tool", "arguments": {"message": "HERE", "HERE": 1}});
        let frame = s.frame(Some(&id), "tools/call", call, None).replace(r#""HERE""#, text);
        s.send(&frame).await?;
        s.expect_answer().await?;
    }
    // The tool may return its argument, so the server also has to write such a string.
    if let Ok(quick) = s.quick() {
        let id = s.new_id();
        let text = r#""\ud800""#;
        let mut arguments = quick.arguments.clone();
        arguments.values_mut().filter(|value| value.is_string()).for_each(|value| *value = json!("HERE"));
        let call = json!({"name": quick.name, "arguments": arguments});
        let frame = s.frame(Some(&id), "tools/call", call, None).replace(r#""HERE""#, text);
        s.send(&frame).await?;
        s.expect_answer().await?;
    }
    Ok(())
}

async fn response_to_nothing(s: &mut Session<'_>) -> Result<(), Stop> {
    s.open().await?;
    let before = s.seen().len();
    s.send(r#"{"jsonrpc":"2.0","id":4711,"result":{}}"#).await?;
    s.send(r#"{"jsonrpc":"2.0","id":"none","error":{"code":-32603,"message":"no"}}"#).await?;
    s.expect_answer().await?;
    s.quiet().await?;
    unanswered(s, before, "a response")
}

/// Expects at most one response after the first `before` frames: the response to the request of [`Session::expect_answer`]. Over HTTP there
/// may also be errors without an id and responses with an id.
fn unanswered(s: &mut Session<'_>, before: usize, what: &str) -> Result<(), Stop> {
    let responses = s.seen()[before..].iter().filter(|frame| frame.is_response());
    match responses.clone().count() {
        0 | 1 => Ok(()),
        // Each message needs an HTTP response, whose body may be a refusal.
        _ if s.is_http() && responses.clone().skip(1).all(|frame| frame.is_error_without_id() || frame.id().is_some()) => Ok(()),
        _ => {
            let odd = responses.clone().find(|frame| frame.id().is_none_or(|id| id.parse::<u64>().is_err()));
            let odd = odd.or_else(|| responses.clone().next()).map(|frame| frame.short()).unwrap_or_default();
            wrong(format!("{what} was answered with {odd}"))
        }
    }
}

async fn notification_first(s: &mut Session<'_>) -> Result<(), Stop> {
    s.notify("notifications/cancelled", json!({"requestId": 424_242})).await?;
    s.expect_answer().await
}

async fn notifications_unanswered(s: &mut Session<'_>) -> Result<(), Stop> {
    s.open().await?;
    s.expect_answer().await?;
    let before = s.seen().len();
    s.notify("notifications/no-such", json!({"a": 1})).await?;
    s.notify("no-such", Value::Null).await?;
    s.notify("notifications/cancelled", Value::Null).await?;
    s.notify("notifications/cancelled", json!({"requestId": {"a": 1}})).await?;
    if !s.is_stateless() {
        s.notify("notifications/initialized", Value::Null).await?;
        s.notify("notifications/progress", json!({"progressToken": "none", "progress": 1})).await?;
        s.notify("notifications/roots/list_changed", Value::Null).await?;
        // A notification whose method is that of a request.
        s.notify("ping", Value::Null).await?;
    }
    s.expect_answer().await?;
    s.quiet().await?;
    unanswered(s, before, "a notification")
}

async fn output_is_frames(s: &mut Session<'_>) -> Result<(), Stop> {
    s.open().await?;
    let mut ids = vec![s.request("tools/list", json!({})).await?, s.request("no/such/method", json!({})).await?];
    ids.push(s.request("tools/call", json!({"name": "no-such-tool", "arguments": {"text": "a\nb\r\n\u{2028}c"}})).await?);
    if let Ok(quick) = s.quick() {
        ids.push(s.call(&quick, None).await?);
    }
    for id in &ids {
        s.answer(id).await?;
    }
    s.quiet().await?;
    if let Some(frame) = s.seen().iter().find(|frame| !is_message(&frame.value())) {
        let what = if std::str::from_utf8(&frame.text).is_ok() { "no message" } else { "not UTF-8" };
        return wrong(format!("a line of standard output is {what}: {}", frame.short()));
    }
    if !s.rest().is_empty() {
        return wrong("the last line of standard output has no line feed");
    }
    Ok(())
}

fn is_message(value: &Value) -> bool {
    let is_one =
        value.get("method").is_some_and(Value::is_string) || (value.get("result").is_some() != value.get("error").is_some());
    value["jsonrpc"] == "2.0" && is_one
}
