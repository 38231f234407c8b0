//! The beginning of a session.

use serde_json::json;

use super::{Level, Over, Revision, Scenario};
use crate::check::session::{Session, initialize};
use crate::check::{Stop, wrong};

pub(super) fn scenarios() -> Vec<Scenario> {
    use Level::{Must, Should};
    vec![
        Scenario::new(
            "request-before-initialize",
            Must,
            "basic/lifecycle, Initialization",
            "A request before the handshake is answered, with a result or an error, and the handshake works after it.",
            |s| Box::pin(request_before_initialize(s)),
        )
        .over(Over::Stdio)
        .only(Revision::Handshake),
        Scenario::new("ping-before-initialize", Must, "basic/utilities/ping", "A ping before the handshake is answered.", |s| {
            Box::pin(ping_before_initialize(s))
        })
        .over(Over::Stdio)
        .only(Revision::Handshake),
        Scenario::new(
            "second-initialize",
            Must,
            "basic/lifecycle, Initialization",
            "A second handshake is answered, with a result or an error, and the session goes on.",
            |s| Box::pin(second_initialize(s)),
        )
        .only(Revision::Handshake),
        Scenario::new(
            "unknown-version",
            Must,
            "basic/lifecycle, Version Negotiation",
            "An unknown version is answered with one that the server speaks; in 2026-07-28 with the error -32022, which lists them.",
            |s| Box::pin(unknown_version(s)),
        ),
        Scenario::new(
            "probe-goes-unharmed",
            Should,
            "basic/versioning",
            "After a probe with `server/discover` the handshake works; a server without it answers it with an error.",
            |s| Box::pin(handshake_after_probe(s)),
        )
        .over(Over::Stdio)
        .only(Revision::Handshake),
    ]
}

async fn request_before_initialize(s: &mut Session<'_>) -> Result<(), Stop> {
    let id = s.request("tools/list", json!({})).await?;
    s.answer(&id).await?;
    s.open().await?;
    s.expect_answer().await
}

async fn ping_before_initialize(s: &mut Session<'_>) -> Result<(), Stop> {
    s.expect_answer().await?;
    s.open().await?;
    s.expect_answer().await
}

async fn second_initialize(s: &mut Session<'_>) -> Result<(), Stop> {
    s.open().await?;
    let id = s.request("initialize", initialize(s.revision.name())).await?;
    s.answer(&id).await?;
    s.expect_answer().await
}

async fn unknown_version(s: &mut Session<'_>) -> Result<(), Stop> {
    if s.is_stateless() {
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "1999-01-01",
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let id = s.request("tools/list", json!({"_meta": meta})).await?;
        let answer = s.answer(&id).await?;
        let error = &answer.value()["error"];
        let lists_versions = error["data"]["supported"].as_array().is_some_and(|all| !all.is_empty());
        return if error["code"] == -32022 && lists_versions { Ok(()) } else { wrong(format!("the answer is {}", answer.short())) };
    }
    let id = s.request("initialize", initialize("1999-01-01")).await?;
    let answer = s.answer(&id).await?;
    let value = answer.value();
    let version = value["result"]["protocolVersion"].as_str();
    match version {
        Some("1999-01-01") => wrong(format!("the server takes it: {}", answer.short())),
        Some(version) if version.starts_with("20") => Ok(()),
        // In an example of the specification the server refuses the handshake, so this is only a warning.
        _ if value["error"].is_object() => {
            s.warn(format!("the handshake was refused: {}", answer.short()));
            Ok(())
        }
        _ => wrong(format!("the answer is {}", answer.short())),
    }
}

async fn handshake_after_probe(s: &mut Session<'_>) -> Result<(), Stop> {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let id = s.request("server/discover", json!({"_meta": meta})).await?;
    let answer = s.answer(&id).await?;
    if answer.code().is_none() {
        // The server has the method. The probe may have decided its era, so it may refuse the handshake.
        return Ok(());
    }
    s.open().await?;
    s.expect_answer().await
}
