//! Servers that lie, and callbacks of others. Each ends with a reason, and nothing goes where it must not.

use std::string::{String, ToString as _};
use std::vec::Vec;
use std::{format, vec};

use super::{AUTHORITY, CHALLENGE, PAIRS, RESOURCE, Reply, World, reply};
use crate::*;

const PRM: &str = "oauth-protected-resource";
const ASM: &str = "oauth-authorization-server";

fn changed(text: &str, from: &str, to: &str) -> Option<Reply> {
    assert!(text.contains(from), "{from}");
    reply(200, text.replacen(from, to, 1))
}

fn refused(code: &str, description: &str) -> Reason {
    Reason::Refused(Refusal::new(code, description))
}

/// How a login ends whose servers answer some addresses in another way.
#[test]
fn a_login_at_a_hostile_server_ends_with_a_reason() {
    let unavailable = || Reason::Unavailable { retry_after: None };
    let redirect = |to: &str| Some(Reply(302, Vec::from([("Location", to.to_string())]), String::new()));
    let rows: Vec<(&str, &str, Option<Reply>, Reason)> = vec![
        ("metadata of another resource", PRM, changed(RESOURCE, "rs.example", "evil.example"), Reason::BadResource),
        ("metadata that is a page", PRM, reply(200, "<html>"), Reason::BadResource),
        ("metadata that never comes", PRM, None, unavailable()),
        (
            "metadata that is too large",
            PRM,
            reply(200, format!("{{\"resource\":\"{}\"}}", "x".repeat(70_000))),
            Reason::BadResource,
        ),
        ("metadata of a server that is down", PRM, reply(503, ""), unavailable()),
        (
            "a redirect to the metadata of a cloud",
            PRM,
            redirect("http://169.254.169.254/latest"),
            Reason::Registration(Refusal::new("", "")),
        ),
        (
            "a redirect in a circle",
            PRM,
            redirect("/.well-known/oauth-protected-resource/mcp"),
            Reason::Registration(Refusal::new("", "")),
        ),
        (
            "servers that are no addresses",
            PRM,
            changed(RESOURCE, "\"https://as.example\"", "\"file:///x\",\"javascript:x\""),
            Reason::BadResource,
        ),
        ("a server with a user name", PRM, changed(RESOURCE, "https://as.", "https://u@as."), Reason::BadResource),
        ("a server in a private network", PRM, changed(RESOURCE, "as.example", "10.0.0.1"), Reason::BadResource),
        ("a server on this machine", PRM, changed(RESOURCE, "https://as.example", "http://localhost"), Reason::BadResource),
        ("no server", PRM, changed(RESOURCE, "\"https://as.example\"", ""), Reason::BadResource),
        ("an issuer in another case", ASM, changed(AUTHORITY, "https://as.", "https://AS."), Reason::IssuerMismatch),
        (
            "an issuer with a port",
            ASM,
            changed(AUTHORITY, "\"https://as.example\"", "\"https://as.example:443\""),
            Reason::IssuerMismatch,
        ),
        ("another issuer", ASM, changed(AUTHORITY, "https://as.example", "https://good.example"), Reason::IssuerMismatch),
        ("no issuer", ASM, changed(AUTHORITY, "\"issuer\"", "\"x\""), Reason::IssuerMismatch),
        ("no PKCE", ASM, changed(AUTHORITY, "S256", "plain"), Reason::NoPkce),
        ("silence about PKCE", ASM, changed(AUTHORITY, "code_challenge_methods_supported", "x"), Reason::NoPkce),
        (
            "a token endpoint without TLS",
            ASM,
            changed(AUTHORITY, "https://as.example/token", "http://as.example/token"),
            Reason::NoServer,
        ),
        ("a token endpoint in a private network", ASM, changed(AUTHORITY, "as.example/token", "[fd00::1]/token"), Reason::NoServer),
        ("a page that is a script", ASM, changed(AUTHORITY, "https://as.example/auth", "javascript:alert(1)"), Reason::NoServer),
        ("a page with a client of its own", ASM, changed(AUTHORITY, "/auth\"", "/auth?client_id=x\""), Reason::NoServer),
        ("a page with shell characters", ASM, changed(AUTHORITY, "/auth\"", "/auth?a=`x y`\""), Reason::NoServer),
        ("metadata that is a list", ASM, reply(200, "[]"), Reason::NoServer),
        ("no metadata at all", "as.example/.well-known", reply(404, ""), Reason::NoServer),
        (
            "registration of a foreign address",
            "/register",
            reply(201, r#"{"client_id":"c","redirect_uris":["https://evil/"]}"#),
            Reason::Registration(Refusal::new("another redirect URI", "")),
        ),
        (
            "registration without the secret",
            "/register",
            reply(201, r#"{"client_id":"c","token_endpoint_auth_method":"client_secret_basic"}"#),
            Reason::NoAuthentication,
        ),
        (
            "registration without an id",
            "/register",
            reply(201, r#"{"client_id":""}"#),
            Reason::Registration(Refusal::new("no client_id", "")),
        ),
        (
            "registration of 5 MB",
            "/register",
            reply(201, format!("{{\"client_id\":\"{}\"}}", "c".repeat(5_000_000))),
            Reason::Registration(Refusal::new("no JSON object", "")),
        ),
        ("registration by staff alone", "/register", reply(403, ""), Reason::NeedClientId { issuer: "https://as.example".into() }),
        ("registration that redirects", "/register", redirect("https://evil.example/"), Reason::Registration(Refusal::new("", ""))),
        ("a token that is none", "/token", reply(200, r#"{"access_token":""}"#), Reason::NoTokens),
        ("a token that breaks its header", "/token", reply(200, r#"{"access_token":"a\r\nx: y"}"#), Reason::NoTokens),
        ("a token of another kind", "/token", reply(200, r#"{"access_token":"a","token_type":"mac"}"#), Reason::NoTokens),
        ("a token bound to no key of ours", "/token", reply(200, r#"{"access_token":"a","token_type":"DPoP"}"#), Reason::NoTokens),
        ("tokens elsewhere", "/token", redirect("https://evil.example/"), Reason::NoTokens),
        (
            "tokens elsewhere, with the form",
            "/token",
            Some(Reply(307, Vec::from([("Location", "https://evil.example/".into())]), String::new())),
            Reason::NoTokens,
        ),
        (
            "an error with status 200",
            "/token",
            reply(200, r#"{"error":"bad","error_description":"\u001b[31m<b>\nx"}"#),
            refused("bad", "[31m<b>x"),
        ),
        ("a refused code", "/token", reply(400, r#"{"error":"invalid_grant"}"#), refused("invalid_grant", "")),
        ("tokens that never come", "/token", None, unavailable()),
    ];
    for (what, address, answer, expected) in rows {
        let mut world = World::new();
        world.on(address, answer);
        world.log_in();
        assert_eq!(world.ended, [(Tag(1), expected)], "{what}");
        assert!(world.requests.len() <= 13, "{what}: {:?}", world.requests);
        for (line, _) in &world.requests {
            assert!(line.contains(" https://rs.example/") || line.contains(" https://as.example/"), "{what}: {line}");
        }
        assert!(world.posts("/token").len() <= 1, "{what}: a code is sent once");
        assert!(!world.is_locked, "{what}");
        // It rests, then begins anew.
        world.call(2);
        assert_eq!(world.ended.len(), 2, "{what}");
        world.pass(31);
        world.call(3);
        assert_eq!(world.sent.last().unwrap().0, Tag(3), "{what}");
    }
}

#[test]
fn a_stray_callback_is_refused_and_the_true_one_still_succeeds() {
    let long = format!("{PAIRS}&x={}", "y".repeat(9000));
    for (what, query) in [
        ("two codes", "code=a&code=b&state=STATE&iss=https://as.example"),
        ("two states", "code=a&state=STATE&state=x&iss=https://as.example"),
        ("no state", "code=a&iss=https://as.example"),
        ("another state", "code=a&state=x&iss=https://as.example"),
        ("the issuer of another", "code=a&state=STATE&iss=https://evil.example"),
        ("an issuer with a slash", "code=a&state=STATE&iss=https://as.example/"),
        ("an issuer with a port", "code=a&state=STATE&iss=https://as.example:443"),
        ("no issuer where it was announced", "code=a&state=STATE"),
        ("two issuers", "code=a&state=STATE&iss=https://as.example&iss=https://as.example"),
        ("a code and an error", "code=a&error=b&state=STATE&iss=https://as.example"),
        ("neither", "state=STATE&iss=https://as.example"),
        ("an error without state", "error=access_denied"),
        ("an error of another issuer", "error=access_denied&state=STATE&iss=https://evil.example"),
        ("a malformed escape", "code=%zz&state=STATE&iss=https://as.example"),
        ("a long one", &long),
    ] {
        let mut world = World::new();
        world.callbacks = vec![String::new()];
        world.log_in();
        let page = world.pages.first().unwrap().clone();
        let mut callback = |address: &str, query: &str| {
            let answer = world.login.handle_callback(&format!("{address}?{}", super::filled(query, &page)), world.now);
            world.run();
            (answer, world.posts("/token").len())
        };
        assert_eq!(callback(super::CALLBACK, query), (CallbackAnswer::Stray, 0), "{what}");
        assert_eq!(callback("http://127.0.0.1:4711/other", PAIRS), (CallbackAnswer::Stray, 0), "{what}");
        assert_eq!(callback("http://evil.example/callback", PAIRS), (CallbackAnswer::Stray, 0), "{what}");
        assert_eq!(callback(super::CALLBACK, PAIRS), (CallbackAnswer::Done, 1), "{what}");
        assert_eq!(callback(super::CALLBACK, PAIRS), (CallbackAnswer::Stray, 1), "the same again");
        assert_eq!(world.token().as_deref(), Some("Bearer at-1"), "{what}");
    }
}

#[test]
fn a_refusal_of_the_page_ends_with_its_reason() {
    let scoped = changed(AUTHORITY, "\"issuer\"", "\"scopes_supported\":[\"offline_access\"],\"issuer\"");
    for (error, expected, pages) in [
        ("access_denied", Reason::Denied, 1),
        ("server_error", Reason::Unavailable { retry_after: None }, 1),
        ("invalid_target&error_description=a%0Ab", refused("invalid_target", "ab"), 1),
        ("invalid_scope", refused("invalid_scope", ""), 2),
        ("unauthorized_client", refused("unauthorized_client", ""), 2),
    ] {
        let mut world = World::new();
        world.on(ASM, scoped.clone());
        world.callbacks = vec![format!("error={error}&state=STATE&iss=https://as.example")];
        world.log_in();
        assert_eq!(world.ended, [(Tag(1), expected)], "{error}");
        assert_eq!(world.pages.len(), pages, "{error}");
    }
}

#[test]
fn a_server_that_refuses_for_ever_is_asked_a_bounded_number_of_times() {
    for in_turn in [["401"; 2], ["403"; 2], ["401", "403"]] {
        let mut world = World::new();
        world.call(1);
        let mut tries = 0;
        while world.ended.is_empty() {
            tries += 1;
            assert!(tries < 10, "{in_turn:?}");
            let scope = format!(r#"Bearer error="insufficient_scope", scope="s{tries}""#);
            match in_turn[tries % 2] {
                "401" => world.reject(1, 401, CHALLENGE),
                _ => world.reject(1, 403, &scope),
            }
        }
        assert!(matches!(world.ended[0].1, Reason::Rejected | Reason::Scope), "{:?}", world.ended);
        assert!(
            world.sent.len() <= 6 && world.pages.len() <= 3,
            "{in_turn:?}: {} sent, {} pages",
            world.sent.len(),
            world.pages.len()
        );
    }
}

#[test]
fn a_token_that_is_over_when_it_comes_is_tried_once() {
    for life in ["-1", "0", "\"0\"", "1e400", "\"abc\"", "null"] {
        let mut world = World::new();
        world.on("/token", reply(200, format!(r#"{{"access_token":"at-9","expires_in":{life}}}"#)));
        world.log_in();
        assert_eq!(world.token().as_deref(), Some("Bearer at-9"), "{life}");
        world.reject(1, 401, CHALLENGE);
        assert_eq!((world.ended.len(), world.pages.len()), (1, 1), "{life}");
    }
}

#[test]
fn metadata_that_vanishes_does_not_make_a_server_an_old_one() {
    let mut world = World::new();
    world.log_in();
    world.login.finished(Tag(1));
    world.on(PRM, reply(404, ""));
    world.on("/token", reply(400, r#"{"error":"unsupported_grant_type"}"#));
    world.call(2);
    world.reject(2, 401, "Bearer");
    assert_eq!(world.ended, [(Tag(2), Reason::BadResource)]);
    assert!(!world.requests.iter().any(|(line, _)| line.contains("rs.example/authorize") || line.contains("rs.example/token")));
}

#[test]
fn a_server_of_the_first_revision_is_its_own_authorization_server() {
    let mut world = World::new();
    world.on(PRM, reply(404, ""));
    world.on("rs.example/register", reply(201, r#"{"client_id":"c"}"#));
    world.on("rs.example/token", reply(200, r#"{"access_token":"at-1"}"#));
    world.callbacks = vec!["code=the-code&state=STATE".into()];
    world.log_in();
    assert_eq!(world.token().as_deref(), Some("Bearer at-1"));
    assert!(world.pages[0].starts_with("https://rs.example/authorize?") && !world.pages[0].contains("resource="));
    assert!(world.pages[0].contains("code_challenge_method=S256"));
}
