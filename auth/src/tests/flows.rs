//! What a login does where all goes well, or where a server cannot answer.

use std::string::ToString as _;
use std::vec::Vec;
use std::{format, vec};

use super::{AUTHORITY, CALLBACK, CHALLENGE, Reply, SERVER, World, reply};
use crate::*;

#[test]
fn a_person_logs_in_once_and_all_that_waits_is_sent() {
    let mut world = World::new();
    world.callbacks = vec![String::new()];
    for tag in 1..=100 {
        world.call(tag);
    }
    for tag in 1..=100 {
        world.reject(tag, 401, CHALLENGE);
    }
    assert_eq!(world.pages.len(), 1);
    let page = world.pages[0].clone();
    assert!(page.contains("resource=https%3A%2F%2Frs.example%2Fmcp") && page.contains("scope=read"), "{page}");
    world.login.handle_callback(&format!("{CALLBACK}?{}", super::filled(super::PAIRS, &page)), world.now);
    world.run();
    assert_eq!((world.sent.len(), world.token().as_deref()), (200, Some("Bearer at-1")));
    let form = world.posts("/token")[0].to_string();
    for part in [
        "grant_type=authorization_code",
        "code=the-code",
        "code_verifier=",
        "resource=https%3A%2F%2Frs.example%2Fmcp",
        "client_id=c1",
    ] {
        assert!(form.contains(part), "{form}");
    }
    assert!(world.posts("/register")[0].contains(r#""application_type":"native""#));
    assert_eq!(world.stored.as_ref().unwrap().generation, 1);
}

#[test]
fn tokens_are_refreshed_once_before_their_end_and_saved_before_they_are_used() {
    let mut world = World::new();
    world.log_in();
    world.pass(3539);
    world.call(2);
    assert_eq!(world.token().as_deref(), Some("Bearer at-1"));
    world.pass(1);
    for tag in 10..110 {
        world.call(tag);
    }
    assert_eq!(world.token().as_deref(), Some("Bearer at-2"));
    assert_eq!(world.posts("/token").len(), 2);
    let form = world.posts("/token")[1].to_string();
    assert!(form.contains("refresh_token=rt-1") && form.contains("resource=") && !form.contains("scope="), "{form}");
    assert_eq!(world.stored.as_ref().map(|tokens| (tokens.generation, tokens.intent)), Some((2, false)));
    // An answer to the old token is no reason to refresh.
    for tag in 3..10 {
        world.reject(tag, 401, CHALLENGE);
    }
    assert_eq!(world.posts("/token").len(), 2);
}

/// Each way in which a refresh can fail: what the request that waits gets, how often the token endpoint is asked, the pages.
#[test]
fn a_refresh_that_fails_is_told_from_one_that_is_refused() {
    let unavailable = |retry_after| Some(Reason::Unavailable { retry_after });
    let busy = Some(Reply(429, Vec::from([("Retry-After", "7".to_string())]), String::new()));
    for (what, answer, is_over, reason, posts, pages) in [
        ("busy", busy.clone(), false, None, 1, 0),
        ("busy, and over", busy, true, unavailable(Some(7)), 1, 0),
        ("down, and over", reply(500, "x"), true, unavailable(None), 1, 0),
        ("a page, and over", reply(200, "<html>"), true, unavailable(None), 1, 0),
        ("no answer", None, false, None, 2, 0),
        ("no answer, and over", None, true, unavailable(None), 2, 0),
        ("dead", reply(400, r#"{"error":"invalid_grant"}"#), false, None, 2, 1),
        ("odd", reply(400, r#"{"error":"invalid_request"}"#), false, None, 2, 1),
        ("client dead", reply(401, r#"{"error":"invalid_client"}"#), false, None, 2, 1),
    ] {
        let mut world = World::new();
        world.log_in();
        world.requests.clear();
        world.pages.clear();
        world
            .rules
            .push(Box::new(move |request| (request.body.expose().contains("grant_type=refresh_token")).then(|| answer.clone())));
        world.pass(if is_over { 3601 } else { 3550 });
        world.call(2);
        let ended = world.ended.first().map(|(_, reason)| reason.clone());
        assert_eq!((ended, world.posts("/token").len(), world.pages.len()), (reason, posts, pages), "{what}");
        assert!(!world.is_locked && world.stored.is_some(), "{what}");
        assert_eq!(world.registrations.len(), 1, "{what}");
    }
}

#[test]
fn tokens_that_another_process_has_renewed_are_taken() {
    let mut world = World::new();
    world.log_in();
    let mut other = world.stored.clone().unwrap();
    world.pass(3550);
    (other.generation, other.access, other.received_at) = (7, "at-7".into(), world.now.unix);
    other.expires_at = Some(world.now.unix + 3600);
    world.stored = Some(other);
    world.call(2);
    assert_eq!((world.token().as_deref(), world.posts("/token").len()), (Some("Bearer at-7"), 1));
    // Another process has logged out.
    world.pass(3600);
    world.stored = None;
    world.call(3);
    assert_eq!((world.pages.len(), world.token().as_deref()), (2, Some("Bearer at-2")));
}

#[test]
fn tokens_that_cannot_be_saved_are_used_and_saved_later() {
    let mut world = World::new();
    world.cannot_save = true;
    world.log_in();
    assert_eq!((world.token().as_deref(), &*world.notices), (Some("Bearer at-1"), &[Notice::NotSaved][..]));
    world.cannot_save = false;
    world.pass(3550);
    world.call(2);
    assert_eq!((world.token().as_deref(), world.pages.len()), (Some("Bearer at-2"), 1));
    assert_eq!(world.stored.as_ref().unwrap().access, Secret::from("at-2"));
}

#[test]
fn more_scopes_are_asked_for_with_those_there_are_and_a_refusal_is_remembered() {
    let mut world = World::new();
    world.log_in();
    let short = |scope: &str| format!(r#"Bearer error="insufficient_scope", scope="{scope}""#);
    world.reject(1, 403, &short("write"));
    assert!(world.pages[1].contains("scope=read%20write"), "{}", world.pages[1]);
    assert_eq!(world.token().as_deref(), Some("Bearer at-2"));
    assert_eq!(world.requests.iter().filter(|(line, _)| line.contains("well-known")).count(), 2, "the metadata is still known");
    // Granted already, so another page would be in vain.
    world.reject(1, 403, &short("write"));
    assert_eq!(world.ended, [(Tag(1), Reason::Scope)]);
    world.callbacks = vec!["error=access_denied&state=STATE&iss=https://as.example".into()];
    for (tag, reason) in [(2, Reason::Denied), (3, Reason::Scope)] {
        world.call(tag);
        world.reject(tag, 403, &short("admin"));
        assert_eq!(world.ended.last(), Some(&(Tag(tag), reason)));
    }
    assert_eq!(world.pages.len(), 3);
    world.call(4);
    assert_eq!(world.token().as_deref(), Some("Bearer at-2"), "what there was is still used");
    world.login.handle_rejected(Tag(4), 403, &["Bearer"], None, world.now);
    assert_eq!(world.ended.len(), 3, "another refusal is the caller's");
}

#[test]
fn a_login_ends_by_its_deadline_or_by_an_abort() {
    for (aborts, reason) in [(false, Reason::TimedOut), (true, Reason::Aborted)] {
        let mut world = World::new();
        world.callbacks = vec![String::new()];
        world.log_in();
        world.pass(599);
        assert_eq!(world.ended, []);
        if aborts {
            world.login.abort(world.now);
        }
        world.pass(1);
        assert_eq!(world.ended, [(Tag(1), reason)]);
        world.login.restart();
        world.callbacks = vec![super::PAIRS.into()];
        world.call(2);
        world.reject(2, 401, CHALLENGE);
        assert_eq!(world.token().as_deref(), Some("Bearer at-1"));
    }
}

#[test]
fn a_caller_who_leaves_does_not_stop_a_refresh() {
    let mut world = World::new();
    world.log_in();
    world.pass(3550);
    world.login.authorize(Tag(2), "POST", world.now);
    let lock = world.login.poll_output().unwrap();
    world.obey(lock);
    world.login.finished(Tag(2));
    world.login.abort(world.now);
    world.run();
    assert_eq!(world.stored.as_ref().unwrap().access, Secret::from("at-2"));
    assert!(!world.is_locked);
}

#[test]
fn a_clock_that_is_set_back_makes_the_end_of_a_token_unknown() {
    let mut world = World::new();
    world.log_in();
    world.now.unix -= 86_400;
    world.call(2);
    world.now.unix += 86_400;
    world.call(3);
    assert_eq!(world.posts("/token").len(), 1);
}

fn given(issuer: Option<&str>) -> GivenClient {
    let mut client = GivenClient::new("my id");
    client.issuer = issuer.map(Into::into);
    client.client_secret = Some("c-secret:".into());
    client
}

/// The client that a login has, by what it was given and what the server offers.
#[test]
fn a_client_is_chosen_and_authenticates_as_its_server_wants() {
    let methods = |list: &str| format!("\"token_endpoint_auth_methods_supported\":{list},\"issuer\"");
    for (clients, document, offers, expected) in [
        (vec![given(None)], None, methods("[\"client_secret_post\"]"), "client_id=my%20id&client_secret=c-secret%3A"),
        (vec![given(Some("https://as.example"))], None, methods("[\"none\"]"), "client_id=my%20id"),
        (vec![given(None)], None, methods("[\"tls_client_auth\"]"), "NoAuthentication"),
        (vec![given(Some("https://other.example"))], None, methods("[]"), "OtherServer"),
        (
            vec![],
            Some("https://me.example/client"),
            "\"client_id_metadata_document_supported\":true,\"issuer\"".into(),
            "client_id=https%3A%2F%2Fme.example%2Fclient",
        ),
        (
            vec![],
            Some("https://me.example/client"),
            "\"client_id_metadata_document_supported\":\"true\",\"issuer\"".into(),
            "client_id=c1",
        ),
        (vec![], None, "\"issuer\"".into(), "client_id=c1"),
    ] {
        let mut config = LoginConfig::new(SERVER, "test");
        config.grant = Grant::Person { clients, document: document.map(Into::into) };
        let mut world = World::with(config);
        world.on("oauth-authorization-server", reply(200, AUTHORITY.replace("\"issuer\"", &offers)));
        world.log_in();
        match world.ended.first() {
            Some((_, reason)) => assert_eq!(format!("{reason:?}"), expected),
            None => assert!(world.posts("/token")[0].ends_with(expected), "{expected}: {}", world.posts("/token")[0]),
        }
    }
}

struct Key;

impl Signer for Key {
    fn algorithm(&self) -> &str {
        "ES256"
    }

    fn public_point(&self) -> Option<[u8; 64]> {
        Some([7; 64])
    }

    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, SignFailed> {
        assert!(message.is_ascii());
        Ok(vec![9; 64])
    }
}

fn claims(token: &str) -> String {
    let part = token.split('.').nth(1).unwrap();
    String::from_utf8(data_encoding::BASE64URL_NOPAD.decode(part.as_bytes()).unwrap()).unwrap()
}

#[test]
fn a_client_that_is_its_own_user_needs_no_person_and_goes_to_its_own_server_alone() {
    for (has_key, issuer) in [(false, "https://as.example"), (true, "https://as.example"), (false, "https://mine.example")] {
        let mut client = given(Some(issuer));
        if has_key {
            client.client_secret = None;
            client.key = Some(Box::new(Key));
        }
        let mut config = LoginConfig::new(SERVER, "test");
        config.grant = Grant::ClientCredentials(client);
        let mut world = World::with(config);
        world.log_in();
        if issuer == "https://mine.example" {
            assert_eq!(world.ended, [(Tag(1), Reason::OtherServer)]);
            assert_eq!(world.posts(""), [""; 0]);
            continue;
        }
        assert_eq!((world.token().as_deref(), world.pages.len()), (Some("Bearer at-1"), 0));
        let form = world.posts("/token")[0].to_string();
        assert!(form.starts_with("grant_type=client_credentials&resource=") && form.contains("scope=read"), "{form}");
        let assertion = form.split_once("client_assertion=").map(|(_, token)| claims(token));
        assert_eq!(assertion.is_some_and(|claims| claims.contains(r#""aud":"https://as.example""#)), has_key);
        assert!(!has_key || !form.contains("client_id"));
    }
}

fn token_of(kind: &str, claims: &str) -> String {
    let part = |text: &str| data_encoding::BASE64URL_NOPAD.encode(text.as_bytes());
    format!("{}.{}.sig", part(&format!(r#"{{"alg":"ES256","typ":"{kind}"}}"#)), part(claims))
}

#[test]
fn a_token_of_who_we_are_goes_only_where_it_is_meant_to() {
    let good =
        r#"{"aud":"https://as.example","client_id":"my id","resource":"https://rs.example/mcp","scope":"read","exp":2000000}"#;
    for (from, to, is_taken) in [
        ("read", "read", true),
        ("https://as.example", "https://evil.example", false),
        ("my id", "other", false),
        ("rs.example/mcp", "rs.example/other", false),
        ("\"read\"", "\"read admin\"", false),
        ("2000000", "1000000", false),
        ("\"exp\"", "\"x\"", false),
    ] {
        let assertion = token_of("oauth-id-jag+jwt", &good.replace(from, to));
        let mut config = LoginConfig::new(SERVER, "test");
        let provider_client = given(None);
        config.grant = Grant::EnterpriseManaged {
            provider: "https://idp.example/token".into(),
            provider_client,
            client: given(Some("https://as.example")),
        };
        let mut world = World::with(config);
        world.subject = Some("id.token.x".into());
        let body = format!(
            r#"{{"issued_token_type":"urn:ietf:params:oauth:token-type:id-jag","token_type":"N_A","access_token":"{assertion}"}}"#
        );
        world.on("idp.example", reply(200, body));
        world.log_in();
        assert!(world.posts("idp.example")[0].contains("audience=https%3A%2F%2Fas.example&subject_token=id.token.x"));
        assert_eq!(world.posts("as.example/token").len(), usize::from(is_taken), "{to}");
        let reason = world.ended.first().map(|(_, reason)| reason.clone());
        assert_eq!(reason, (!is_taken).then_some(Reason::NoSubject), "{to}");
        // Of a workload, only the audience and the end are known.
        let mut config = LoginConfig::new(SERVER, "test");
        config.grant = Grant::Workload { issuer: "https://as.example".into(), client_id: None };
        let mut world = World::with(config);
        world.subject = Some(token_of("JWT", &good.replace(from, to)));
        world.on("/token", reply(400, r#"{"error":"invalid_grant"}"#));
        world.log_in();
        let is_meant = !to.contains("evil") && to != "1000000" && to != "\"x\"";
        assert_eq!(world.posts("as.example/token").len(), usize::from(is_meant), "{to}: no repetition, no other grant");
    }
}

#[test]
fn tokens_are_bound_to_a_key_and_nonces_are_repeated() {
    let mut config = LoginConfig::new(SERVER, "test");
    config.proof_key = Some(Box::new(Key));
    let mut world = World::with(config);
    let offers = AUTHORITY.replace("\"issuer\"", "\"dpop_signing_alg_values_supported\":[\"ES256\"],\"issuer\"");
    world.on("oauth-authorization-server", reply(200, offers));
    world.rules.push(Box::new(|request| {
        let proof = request.headers.iter().find(|(name, _)| *name == "dpop").map(|(_, proof)| claims(proof.expose()))?;
        let nonce = Vec::from([("DPoP-Nonce", "as-nonce".to_string())]);
        Some(Some(if proof.contains("as-nonce") {
            Reply(200, nonce, r#"{"access_token":"at-1","refresh_token":"rt-1","token_type":"DPoP"}"#.into())
        } else {
            Reply(400, nonce, r#"{"error":"use_dpop_nonce"}"#.into())
        }))
    }));
    world.log_in();
    assert_eq!((world.token().as_deref(), world.posts("/token").len()), (Some("DPoP at-1"), 2));
    assert!(world.pages[0].contains("dpop_jkt="));
    let proof = |world: &World| {
        world.sent.last().unwrap().1.iter().find(|(name, _)| *name == "dpop").map(|(_, proof)| claims(proof.expose())).unwrap()
    };
    let first = proof(&world);
    assert!(
        first.contains("\"ath\"")
            && first.contains(r#""htm":"POST""#)
            && first.contains(r#""htu":"https://rs.example/mcp""#)
            && !first.contains("nonce")
    );
    for number in 0..3 {
        let nonce = format!("rs-{number}");
        world.login.handle_rejected(Tag(1), 401, &["DPoP error=\"use_dpop_nonce\""], Some(&nonce), world.now);
        world.run();
        assert!(number == 2 || proof(&world).contains(&nonce));
    }
    assert_eq!(world.ended, [(Tag(1), Reason::Rejected)]);
    world.login.handle_nonce(Some("a\r\nb"));
    world.call(2);
    assert!(proof(&world).contains("rs-2"), "a nonce that breaks its header is not kept");
    assert_eq!(world.posts("/token").len(), 2);
    // A server that no longer takes proofs is no reason to go without.
    world.rules.clear();
    world.reject(2, 401, CHALLENGE);
    assert_eq!((world.ended.last(), world.pages.len()), (Some(&(Tag(2), Reason::NoProof)), 1));
}
