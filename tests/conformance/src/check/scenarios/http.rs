//! Streamable HTTP: status codes, sessions and connections that break.

use std::time::Duration;

use bytes::Bytes;
use hyper::{Method, StatusCode};
use serde_json::json;

use super::{Level, Over, Revision, Scenario};
use crate::check::session::{HttpResponse, Session};
use crate::check::{Fault, Stop, not_run, wrong};

const SECTION: &str = "basic/transports, Streamable HTTP";
const SESSIONS: &str = "basic/transports, Session Management";

pub(super) fn scenarios() -> Vec<Scenario> {
    use Level::{Must, Should};
    let on = |id, level, section, sentence, run| Scenario::new(id, level, section, sentence, run).over(Over::Http);
    vec![
        on("http-notification", Must, SECTION, "A notification is answered with 202 and no body.", |s| Box::pin(notification(s))),
        on("http-closed-request", Must, SECTION, "After the connection of a running call was closed, the server goes on.", |s| {
            Box::pin(closed_request(s))
        }),
        on(
            "http-resume",
            Should,
            "basic/transports, Resumability and Redelivery",
            "A call whose connection was closed goes on, and a GET with the id of the last event brings its result.",
            |s| Box::pin(resume(s)),
        )
        .only(Revision::Handshake),
        on("http-half-request", Must, SECTION, "After a connection that ends within a request, the server goes on.", |s| {
            Box::pin(half_request(s))
        }),
        on("http-idle-connections", Must, SECTION, "While 100 connections are open and silent, a request is answered.", |s| {
            Box::pin(idle_connections(s))
        }),
        on("http-bad-body", Should, SECTION, "A body that is not a message is refused with a status of 4xx.", |s| {
            Box::pin(bad_body(s))
        }),
        on(
            "http-content-type",
            Should,
            SECTION,
            "A request whose Content-Type is not JSON is refused with a status of 4xx.",
            |s| Box::pin(content_type(s)),
        ),
        on(
            "http-get",
            Must,
            SECTION,
            "GET is answered with an event stream or 405; in 2026-07-28, which has no GET, it should be refused with a status of 4xx.",
            |s| Box::pin(get(s)),
        ),
        on("http-get-accept", Should, SECTION, "GET that accepts no event stream is answered with a status of 4xx.", |s| {
            Box::pin(get_accept(s))
        }),
        on("http-session-deleted", Must, SESSIONS, "After DELETE a request of the session is answered with 404.", |s| {
            Box::pin(session_deleted(s))
        })
        .only(Revision::Handshake),
        on("http-session-unknown", Should, SESSIONS, "A request of a session that does not exist is answered with 404.", |s| {
            Box::pin(session_unknown(s))
        })
        .only(Revision::Handshake),
        on("http-session-missing", Should, SESSIONS, "A request without the session id is answered with 400.", |s| {
            Box::pin(session_missing(s))
        })
        .only(Revision::Handshake),
        on(
            "http-version",
            Must,
            "basic/transports, Protocol Version Header",
            "A version header with an invalid value is answered with 400.",
            |s| Box::pin(version(s)),
        ),
        on(
            "http-origin",
            Must,
            "basic/transports, Security Warning",
            "A request of a foreign web page, by its Origin, is answered with 403.",
            |s| Box::pin(origin(s)),
        ),
    ]
}

/// Sends a simple request with these headers, and returns the HTTP response.
async fn send(s: &mut Session<'_>, headers: &[(&str, &str)]) -> Result<HttpResponse, Stop> {
    let id = s.new_id();
    let frame = s.frame(Some(&id), s.simple_method(), json!({}), None);
    let exchange = s.post(frame.as_bytes(), headers)?;
    s.response_of(exchange).await
}

fn expect(answer: &HttpResponse, statuses: &[u16]) -> Result<(), Stop> {
    if statuses.contains(&answer.status.as_u16()) { Ok(()) } else { wrong(format!("the answer is HTTP {}", answer.status)) }
}

/// Expects a status of 4xx, and warns if it is none of `statuses`. If `statuses` is empty, every status of 4xx is right.
fn expect_refusal(s: &mut Session<'_>, answer: &HttpResponse, statuses: &[u16], what: &str) -> Result<(), Stop> {
    if !answer.status.is_client_error() {
        return wrong(format!("{what} was answered with HTTP {}", answer.status));
    }
    if !statuses.is_empty() && !statuses.contains(&answer.status.as_u16()) {
        s.warn(format!("{what} was answered with HTTP {}", answer.status));
    }
    Ok(())
}

async fn notification(s: &mut Session<'_>) -> Result<(), Stop> {
    s.open().await?;
    let frame = s.frame(None, "notifications/cancelled", json!({"requestId": 424_242}), None);
    let exchange = s.post(frame.as_bytes(), &[])?;
    let answer = s.response_of(exchange).await?;
    expect(&answer, &[202])?;
    match answer.messages.first() {
        Some(body) => wrong(format!("the answer has a body: {}", body.short())),
        None => s.expect_answer().await,
    }
}

async fn closed_request(s: &mut Session<'_>) -> Result<(), Stop> {
    s.open().await?;
    let id = s.slow_running().await?;
    s.close_exchange_of(&id);
    s.expect_answer().await?;
    s.receive_for(Duration::from_secs(1)).await?;
    s.expect_answer().await
}

async fn resume(s: &mut Session<'_>) -> Result<(), Stop> {
    s.open().await?;
    let token = r#""resumed""#;
    let id = s.slow_with_progress(token).await?;
    let Some(event) = s.seen().iter().rev().find_map(|frame| frame.event.clone()) else { return not_run("the events have no ids") };
    s.close_exchange_of(&id);
    let until = s.deadline() + s.plan.timeout;
    let exchange = s.http(Method::GET, &[("accept", "text/event-stream"), ("last-event-id", &event)], Bytes::new())?;
    let answer = s.response_of(exchange).await?;
    if !answer.is_stream {
        return wrong(format!("GET with the id of the last event was answered with HTTP {}", answer.status));
    }
    match s.answer_by(&id, until).await {
        Err(Stop::Fault(Fault::Silent(_))) => wrong("the result of the call never came"),
        other => other.map(drop),
    }
}

async fn half_request(s: &mut Session<'_>) -> Result<(), Stop> {
    s.open().await?;
    for bytes in [&b"content-le"[..], b"content-type: application/json\r\ncontent-length: 1000\r\n\r\n{\"jsonrpc\""] {
        s.note("closed a connection within a request");
        drop(s.unfinished_post(bytes).await?);
        s.expect_answer().await?;
    }
    Ok(())
}

async fn idle_connections(s: &mut Session<'_>) -> Result<(), Stop> {
    s.open().await?;
    let mut idle = Vec::new();
    for _ in 0..100 {
        idle.push(s.silent_connection().await?);
    }
    s.note("opened 100 connections");
    s.expect_answer().await
}

async fn bad_body(s: &mut Session<'_>) -> Result<(), Stop> {
    s.open().await?;
    for body in ["hello", "{", "{}", "5", ""] {
        let exchange = s.post(body.as_bytes(), &[])?;
        let answer = s.response_of(exchange).await?;
        expect_refusal(s, &answer, &[400], &format!("the body {body:?}"))?;
    }
    s.expect_answer().await
}

async fn content_type(s: &mut Session<'_>) -> Result<(), Stop> {
    s.open().await?;
    let answer = send(s, &[("content-type", "text/plain")]).await?;
    expect_refusal(s, &answer, &[], "the request")
}

async fn get(s: &mut Session<'_>) -> Result<(), Stop> {
    s.open().await?;
    let mut headers = vec![("accept", "text/event-stream")];
    headers.extend(s.is_stateless().then(|| ("mcp-protocol-version", s.revision.name())));
    let exchange = s.http(Method::GET, &headers, Bytes::new())?;
    let answer = s.response_of(exchange).await?;
    match answer.status {
        StatusCode::METHOD_NOT_ALLOWED => Ok(()),
        // A server that also serves revisions with a handshake may answer as these demand, such as with 400, since there is no session id.
        status if s.is_stateless() && status.is_client_error() => Ok(()),
        StatusCode::OK if answer.is_stream && !s.is_stateless() => Ok(()),
        status if s.is_stateless() => {
            s.warn(format!("the answer is HTTP {status}"));
            Ok(())
        }
        status => wrong(format!("the answer is HTTP {status}")),
    }
}

async fn get_accept(s: &mut Session<'_>) -> Result<(), Stop> {
    s.open().await?;
    let exchange = s.http(Method::GET, &[("accept", "text/html")], Bytes::new())?;
    let answer = s.response_of(exchange).await?;
    expect_refusal(s, &answer, &[], "the request")
}

async fn session_deleted(s: &mut Session<'_>) -> Result<(), Stop> {
    s.open().await?;
    if s.session_id().is_none() {
        return not_run("the server gives no session id");
    }
    let exchange = s.http(Method::DELETE, &[], Bytes::new())?;
    let answer = s.response_of(exchange).await?;
    if answer.status == StatusCode::METHOD_NOT_ALLOWED {
        return not_run("the server does not let its clients end a session");
    }
    if !answer.status.is_success() {
        return wrong(format!("DELETE was answered with HTTP {}", answer.status));
    }
    let answer = send(s, &[]).await?;
    expect(&answer, &[404])
}

async fn session_unknown(s: &mut Session<'_>) -> Result<(), Stop> {
    s.open().await?;
    if s.session_id().is_none() {
        return not_run("the server gives no session id");
    }
    let answer = send(s, &[("mcp-session-id", "00000000-0000-4000-8000-000000000000")]).await?;
    expect_refusal(s, &answer, &[404], "the request")?;
    s.expect_answer().await
}

async fn session_missing(s: &mut Session<'_>) -> Result<(), Stop> {
    s.open().await?;
    let Some(id) = s.session_id().map(str::to_owned) else { return not_run("the server gives no session id") };
    s.forget_session();
    let answer = send(s, &[]).await?;
    expect(&answer, &[400])?;
    let answer = send(s, &[("mcp-session-id", &id)]).await?;
    expect(&answer, &[200])
}

async fn version(s: &mut Session<'_>) -> Result<(), Stop> {
    s.open().await?;
    let answer = send(s, &[("mcp-protocol-version", "1999-01-01")]).await?;
    expect(&answer, &[400])?;
    s.expect_answer().await
}

async fn origin(s: &mut Session<'_>) -> Result<(), Stop> {
    s.open().await?;
    let answer = send(s, &[("origin", "http://attacker.example")]).await?;
    expect(&answer, &[403])?;
    s.expect_answer().await
}
