//! MCP 2026-07-28: a server asks for input by the result of a request, and its client answers by a retry (Multi Round-Trip Requests).

use std::time::Duration;

use protocol_core::mcp::Era;
use protocol_core::{
    AskError, CallTimeouts, Close, Elicit, ElicitResult, Event, Gone, Identity, InputKey, InputMode, InputRequest, InputResponse,
    InputRound, Invalid, Invoke, Json, NotLive, OpenUrl, OpenUrlResult, Outcome, PendingInput, Progress, Reply, RouteKind,
    RpcError, Sample, SampleResult, SendError, ServeOptions, TimeoutKind, TransportEnd, Violation,
};

use testkit::Scripted;
use testkit::config::{client_config, server_config, with};
use testkit::scripted::{json, progress, request, stateless_request};

const FORM: &str = r#"{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}"#;
/// The capabilities of a client that can answer every input request.
const ALL: &str = r#"{"roots":{},"elicitation":{"form":{},"url":{}},"sampling":{}}"#;

fn form() -> InputRequest {
    InputRequest::Elicit(Elicit::new("Your name?", json(FORM)))
}

// ---- The server's end ----

fn server() -> Scripted {
    Scripted::new(server_config())
}

/// A stateless request of a client with the capabilities `declares`. `params` has a comma after each member.
fn stateless(id: u64, method: &str, params: &str, declares: &str) -> String {
    stateless_request(id, method, params, declares, "")
}

/// A stateless call of the tool `t`. `more` has further parameters, with a comma after each.
fn call(id: u64, more: &str, declares: &str) -> String {
    stateless(id, "tools/call", &format!(r#""name":"t","arguments":{{}},{more}"#), declares)
}

/// The `_meta` of a result, which names the server.
const SERVED_BY: &str = r#""_meta":{"io.modelcontextprotocol/serverInfo":{"name":"server","version":"1"}}"#;

#[test]
fn a_round_is_the_result_of_its_request_and_ends_the_call() {
    let mut server = server();
    server.frame(&call(7, "", ALL));
    let id = server.request();
    assert_eq!(server.session.input_mode(id), Ok(InputMode::Rounds));
    let round = InputRound::new()
        .ask("user_name", form())
        .ask("say \"go\"", InputRequest::Confirm { message: "Go?".into() })
        .ask("where", InputRequest::Roots)
        .with_state("sealed \u{1f511}");
    server.session.finish_round(id, round, server.now).unwrap();
    let asks = [
        &format!(r#""user_name":{{"method":"elicitation/create","params":{{"message":"Your name?","requestedSchema":{FORM}}}}}"#),
        r#""say \"go\"":{"method":"elicitation/create","params":{"message":"Go?","requestedSchema":{"type":"object","properties":{},"required":[]}}}"#,
        r#""where":{"method":"roots/list","params":{}}"#,
    ];
    let expected = format!(
        r#"{{"jsonrpc":"2.0","id":7,"result":{{"resultType":"input_required","inputRequests":{{{}}},"requestState":"sealed 🔑",{SERVED_BY}}}}}"#,
        asks.join(",")
    );
    assert_eq!(server.sent(), [expected]);
    assert_eq!(server.session.respond(id, Reply::Done, server.now), Err(NotLive), "the call is over");
    assert_eq!(server.session.progress(id, Progress::value(1.0), server.now), Err(protocol_core::ProgressError::NotLive));
    assert_eq!(server.session.stats().inbound_calls, 0);
}

#[test]
fn kept_progress_is_sent_before_the_round() {
    let mut server = Scripted::new(with(server_config(), |config| {
        config.progress.window = protocol_core::RateWindow::new(1, Duration::from_secs(1));
    }));
    let token = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","progressToken":"p","io.modelcontextprotocol/clientCapabilities":{}"#;
    server.frame(&request(7, "tools/call", &format!(r#"{{"name":"t","_meta":{{{token}}}}}"#)));
    let id = server.request();
    server.report(id, Progress::value(1.0));
    server.report(id, Progress::value(2.0));
    server.sent();
    server.session.finish_round(id, InputRound::new().with_state("s"), server.now).unwrap();
    let sent = server.sent();
    assert!(sent[0].contains(r#""progress":2"#) && sent[1].contains("input_required") && sent.len() == 2, "{sent:?}");
}

/// Basic, "Capabilities": a round may contain only input requests whose capability the request of its call declares. What another request
/// declares does not count.
#[test]
fn only_what_the_request_itself_declares_can_be_asked_for() {
    let url = || InputRequest::from(OpenUrl::new("Sign in", "https://example.com/"));
    let tools = json(r#"{"messages":[],"maxTokens":1,"tools":[]}"#);
    let mut with_tools = Sample::new("");
    with_tools.params = Some(tools);
    let rows: [(InputRequest, &str, &str); 5] = [
        (form(), r#"{"elicitation":{}}"#, r#"{"elicitation":{"url":{}}}"#),
        (url(), r#"{"elicitation":{"url":{}}}"#, r#"{"elicitation":{}}"#),
        (InputRequest::from(Sample::new("?")), r#"{"sampling":{}}"#, r#"{"roots":{}}"#),
        (InputRequest::Roots, r#"{"roots":{}}"#, r#"{"sampling":{}}"#),
        (InputRequest::from(Sample::new("?")), ALL, "{}"),
    ];
    for (ask, enough, too_little) in rows {
        let mut server = server();
        server.frame(&call(1, "", enough));
        let id = server.request();
        assert_eq!(server.session.check_round_input(id, &ask).map(drop), Ok(()), "{ask:?}");
        server.frame(&call(2, "", too_little));
        let id = server.request();
        assert_eq!(server.session.check_round_input(id, &ask), Err(AskError::Unsupported), "{ask:?}");
        let round = InputRound::new().ask("a", ask).with_state("s");
        assert_eq!(server.session.finish_round(id, round, server.now), Err(AskError::Unsupported));
        assert_eq!(server.sent(), [""; 0], "nothing was sent, and the call goes on");
        server.respond(id);
    }
    let mut server = server();
    server.frame(&call(1, "", r#"{"sampling":{}}"#));
    let id = server.request();
    assert!(matches!(server.session.check_round_input(id, &InputRequest::from(with_tools)), Err(AskError::Invalid(_))));
}

/// A regression: the identity of the server and the id of the request were not counted, so the error for a response that is too long could
/// be sent in place of a round.
#[test]
fn a_round_is_either_refused_as_too_large_or_fits_into_a_frame() {
    let long = "x".repeat(400);
    let mut refused_and_sent = [0, 0];
    for length in (0..1600).step_by(20) {
        let mut server = Scripted::new(with(server_config(), |config| {
            config.limits.frame_bytes = 2000;
            config.identity = Identity::new(long.as_str(), "1");
        }));
        server.frame(&call(1, "", ALL).replace(r#""id":1"#, &format!(r#""id":"{long}""#)));
        let id = server.request();
        let finished = server.session.finish_round(id, InputRound::new().with_state("s".repeat(length)), server.now);
        let sent = server.sent();
        if finished.is_ok() {
            assert!(sent[0].len() <= 2000 && sent[0].contains("requestState"), "{length}: {sent:?}");
        } else {
            assert_eq!((&finished, sent.len()), (&Err(AskError::TooLarge), 0));
            server.respond(id);
        }
        refused_and_sent[usize::from(finished.is_ok())] += 1;
    }
    assert!(refused_and_sent[0] > 5 && refused_and_sent[1] > 5, "{refused_and_sent:?}");
}

#[test]
fn a_round_that_is_empty_or_repeats_a_name_or_is_longer_than_a_frame_is_refused() {
    let mut server = Scripted::new(with(server_config(), |config| config.limits.frame_bytes = 2000));
    server.frame(&call(1, "", ALL));
    let id = server.request();
    let refused = |server: &mut Scripted, round| server.session.finish_round(id, round, server.now).unwrap_err();
    assert!(matches!(refused(&mut server, InputRound::new()), AskError::Invalid(_)));
    let twice = InputRound::new().ask("a", InputRequest::Roots).ask("b", form()).ask("a", InputRequest::Roots);
    assert!(matches!(refused(&mut server, twice), AskError::Invalid(_)));
    assert_eq!(refused(&mut server, InputRound::new().with_state("s".repeat(2000))), AskError::TooLarge);
    server.expect_silence();
    server.respond(id);
    assert_eq!(refused(&mut server, InputRound::new().with_state("s")), AskError::NotLive);
}

#[test]
fn input_requests_while_a_call_runs_need_a_handshake_and_rounds_need_a_stateless_call() {
    let mut server = server();
    server.frame(&call(1, "", ALL));
    let id = server.request();
    assert_eq!(server.session.request_input(id, InputRequest::Roots, server.now), Err(AskError::Unsupported));
    server.frame(&stateless(2, "tools/list", "", ALL));
    let list = server.request();
    assert_eq!(server.session.input_mode(list), Ok(InputMode::Unsupported));
    assert_eq!(server.session.check_round_input(list, &InputRequest::Roots), Err(AskError::Unsupported));
    let mut legacy = Scripted::server(server_config());
    let id = legacy.receive_call(5);
    assert_eq!(legacy.session.input_mode(id), Ok(InputMode::Nested));
    assert_eq!(legacy.session.finish_round(id, InputRound::new().with_state("s"), legacy.now), Err(AskError::Unsupported));
    legacy.reply(id, Reply::Input(Box::new(InputRound::new().with_state("s"))));
    assert!(legacy.sent()[0].contains("-32603"), "a reply that does not fit is an internal error");
    assert_eq!(legacy.session.input_mode(id), Err(NotLive));
}

/// A regression: a round that was passed to `respond` was sent unchecked, with input requests that its caller had not declared and without
/// their depth.
#[test]
fn a_round_that_is_passed_to_respond_is_checked_as_any_other() {
    let mut server = server();
    server.frame(&call(1, "", r#"{"roots":{}}"#)).frame(&call(2, "", ALL));
    let events = server.events();
    let ids: Vec<_> =
        events.iter().filter_map(|event| if let Event::Request { id, .. } = event { Some(*id) } else { None }).collect();
    let sample = || Reply::Input(Box::new(InputRound::new().ask("a", Sample::new("?"))));
    ids.iter().for_each(|id| server.session.respond(*id, sample(), server.now).unwrap());
    let sent = server.sent();
    assert!(sent[0].contains("-32603") && sent[0].contains("cannot be sent"), "{sent:?}");
    assert!(sent[1].contains("input_required") && sent[1].contains(r#""protocol-core/samplingDepth":1"#), "{sent:?}");
}

#[test]
fn a_retry_brings_its_state_and_its_answers_and_nothing_is_taken_from_another_request() {
    let mut server = server();
    let answers = r#""inputResponses":{"a":{"action":"accept","content":{"name":"Ada"}},"b":7},"requestState":"s\u0031","#;
    server.frame(&call(1, answers, ALL)).frame(&call(2, "", ALL));
    let events = server.events();
    let [Event::Request { request: first, .. }, Event::Request { request: second, .. }] = events.as_slice() else {
        panic!("{events:?}")
    };
    let retry = first.retry().unwrap();
    assert_eq!(retry.state().map(|state| state.as_str()), Some("s1"));
    let answer = retry.answer("a").unwrap();
    assert_eq!(form().read_answer(&answer), Ok(InputResponse::Elicit(ElicitResult::Accept(json(r#"{"name":"Ada"}"#)))));
    assert!(form().read_answer(&json(r#"{"action":"accept","content":{}}"#)).is_err(), "a required field is missing");
    assert!(form().read_answer(&retry.answer("b").unwrap()).is_err());
    assert_eq!(retry.answer("c"), None);
    assert_eq!(second.retry(), None);
}

#[test]
fn members_of_a_retry_with_the_wrong_type_are_invalid_parameters() {
    for members in [r#""requestState":7,"#, r#""inputResponses":[],"#, r#""inputResponses":"x","#] {
        let mut server = server();
        server.frame(&call(1, members, ALL));
        assert_eq!(server.violations(), [Violation::InvalidParams], "{members}");
        assert!(server.sent()[0].contains("-32602"), "{members}");
    }
    // A list request cannot be a retry, so there the member is ignored.
    let mut server = server();
    server.frame(&stateless(1, "tools/list", r#""requestState":7,"#, ALL));
    server.request();
}

#[test]
fn the_configured_depth_of_a_call_only_rises_and_is_sent_in_its_rounds() {
    let mut server = server();
    server.frame(&call(1, "", ALL));
    let id = server.request();
    server.session.configure(id, ServeOptions::default().with_depth(2), server.now).unwrap();
    assert_eq!(server.session.check_round_input(id, &InputRequest::from(Sample::new("?"))), Ok(3));
    let round = InputRound::new().ask("a", Sample::new("?")).ask("b", InputRequest::Roots);
    server.session.finish_round(id, round, server.now).unwrap();
    let sent = server.sent();
    assert!(
        sent[0].contains(r#""_meta":{"protocol-core/samplingDepth":3}"#)
            && sent[0].contains(r#""_meta":{"protocol-core/samplingDepth":2}"#)
    );
    server.frame(&call(2, "", ALL));
    let id = server.request();
    server.session.configure(id, ServeOptions::default().with_depth(3), server.now).unwrap();
    server.session.configure(id, ServeOptions::default().with_depth(1), server.now).unwrap();
    let too_deep = AskError::TooDeep { depth: 4, max: 3 };
    assert_eq!(server.session.check_round_input(id, &InputRequest::from(Sample::new("?"))), Err(too_deep), "the depth only rises");
}

#[test]
fn a_cancelled_call_cannot_end_with_a_round() {
    let mut server = server();
    server.frame(&call(1, "", ALL));
    let id = server.request();
    server.frame(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#);
    server.events();
    for round in [InputRound::new().with_state("s"), InputRound::new()] {
        assert_eq!(server.session.finish_round(id, round, server.now), Err(AskError::NotLive), "whatever the round is");
    }
    assert_eq!(server.session.respond(id, Reply::Done, server.now), Err(NotLive));
    server.expect_silence();
    assert_eq!(server.session.stats().inbound_calls, 0);
}

// ---- The client's end ----

/// A client that has chosen stateless requests. Its first call has id 2.
fn client() -> Scripted {
    client_with(|_| {})
}

fn client_with(change: impl FnOnce(&mut protocol_core::Config)) -> Scripted {
    let mut client = Scripted::new(with(client_config(), |config| {
        config.era = Era::Auto;
        change(config);
    }));
    let answer = r#"{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private"}}"#;
    client.drain().frame(answer).drain();
    client
}

/// A round as the response to the request `id`; `members` are the members of the result after `resultType`.
fn asks(id: u64, members: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"resultType":"input_required",{members}}}}}"#)
}

fn form_named(name: &str) -> String {
    format!(r#""{name}":{{"method":"elicitation/create","params":{{"message":"Your name?","requestedSchema":{FORM}}}}}"#)
}

/// A round with one form, of the name `a`, and the state `state`, as the response to the request `id`.
fn asks_once(id: u64, state: &str) -> String {
    asks(id, &format!(r#""inputRequests":{{{}}},"requestState":"{state}""#, form_named("a")))
}

fn complete(id: u64) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"resultType":"complete","content":[]}}}}"#)
}

fn accepted(name: &str) -> InputResponse {
    InputResponse::Elicit(ElicitResult::Accept(json(&format!(r#"{{"name":"{name}"}}"#))))
}

/// The keys of the input requests among the queued events, in order.
fn keys(client: &mut Scripted) -> Vec<InputKey> {
    let key = |event| if let Event::InputRequested { key, .. } = event { Some(key) } else { None };
    client.events().into_iter().filter_map(key).collect()
}

/// The text of the parameters of a frame up to `_meta`, which must be the last member.
fn params(frame: &str) -> String {
    let params = json(frame).member("params").unwrap();
    let text = params.as_str();
    text.split(r#","_meta""#).next().unwrap().to_owned()
}

#[test]
fn a_retry_has_a_new_id_the_state_as_it_is_and_the_answers_of_its_round() {
    let mut client = client();
    let id = client.invoke(Invoke::call_tool("t", json(r#"{"x":1}"#)));
    client.drain();
    let members = format!(r#""inputRequests":{{{},"b \"":{{"method":"roots/list"}}}},"requestState":"s \"1\"""#, form_named("a"));
    client.frame(&asks(2, &members));
    let events = client.events();
    let [Event::InputRequested { key: a, parent, ask, .. }, Event::InputRequested { key: b, ask: InputRequest::Roots, .. }] =
        events.as_slice()
    else {
        panic!("{events:?}")
    };
    assert_eq!((*parent, ask), (Some(id), &form()));
    client.session.provide_input(*b, InputResponse::Roots(json("[]")), client.now).unwrap();
    client.expect_silence();
    client.session.provide_input(*a, accepted("Ada"), client.now).unwrap();
    let out = client.session.poll_transmit().unwrap();
    let sent = std::str::from_utf8(&out.frame).unwrap().to_owned();
    assert!(matches!(out.route.kind, RouteKind::Request(exchange) if exchange.to_string() == "exchange-5"), "{:?}", out.route);
    assert!(
        sent.starts_with(r#"{"jsonrpc":"2.0","id":5,"method":"tools/call""#) && sent.contains(r#""progressToken":5"#),
        "{sent}"
    );
    let answers = r#"{"b \"":{"roots":[]},"a":{"action":"accept","content":{"name":"Ada"}}}"#;
    assert_eq!(params(&sent), format!(r#"{{"name":"t","arguments":{{"x":1}},"inputResponses":{answers},"requestState":"s \"1\"""#));
    // The second round has answers of its own, and a response to the first exchange is late.
    client.frame(&complete(2)).frame(&asks_once(5, "s2"));
    let key = keys(&mut client)[0];
    assert_eq!(client.session.stats().late_frames, 1);
    client.session.provide_input(key, accepted("Bob"), client.now).unwrap();
    let sent = client.sent();
    let answers = r#"{"a":{"action":"accept","content":{"name":"Bob"}}}"#;
    assert_eq!(params(&sent[0]), format!(r#"{{"name":"t","arguments":{{"x":1}},"inputResponses":{answers},"requestState":"s2""#));
    client.frame(&complete(7));
    assert!(matches!(client.outcome(), Outcome::Result(_)));
    client.frame(&complete(7)).frame(&complete(5));
    assert_eq!((client.events(), client.session.stats().late_frames), (vec![], 3), "one end for all exchanges");
}

#[test]
fn parameters_given_as_json_are_sent_again_without_members_of_an_older_retry() {
    let mut client = client();
    let given = r#"{"name":"t","requestState":"old","inputResponses":{},"more":1,"_meta":{"mine":2}}"#;
    client.invoke(Invoke::new(protocol_core::Op::CallTool, json(given)));
    client.drain();
    client.frame(&asks(2, r#""requestState":"new""#)).at(50);
    let sent = client.sent();
    assert_eq!(params(&sent[0]), r#"{"name":"t","more":1,"requestState":"new""#);
    assert!(sent[0].contains(r#""mine":2"#), "{sent:?}");
    client.frame(&asks(3, &format!(r#""inputRequests":{{{}}}"#, form_named("a"))));
    let key = keys(&mut client)[0];
    client.session.provide_input(key, InputResponse::Elicit(ElicitResult::Decline), client.now).unwrap();
    assert_eq!(params(&client.sent()[0]), r#"{"name":"t","more":1,"inputResponses":{"a":{"action":"decline"}}"#, "no state");
}

#[test]
fn a_round_with_only_a_state_is_retried_after_50_and_then_after_250_milliseconds() {
    let mut client = client();
    client.call();
    client.drain();
    client.at(1000).frame(&asks(2, r#""requestState":"a""#));
    client.at(1049).expect_silence();
    client.at(1050);
    assert!(client.sent()[0].contains(r#""id":3,"#));
    client.frame(&asks(3, r#""requestState":"b""#)).at(1299).expect_silence();
    client.at(1300);
    assert!(client.sent()[0].contains(r#""requestState":"b""#));
    client.frame(&complete(4));
    assert!(matches!(client.outcome(), Outcome::Result(_)));
}

#[test]
fn the_ninth_round_ends_the_call_and_sends_nothing() {
    let mut client = client();
    client.call();
    client.drain();
    let mut exchange = 2;
    for round in 1..=8 {
        client.frame(&asks_once(exchange, "s"));
        let key = keys(&mut client)[0];
        client.session.provide_input(key, accepted("x"), client.now).unwrap();
        exchange += 2;
        assert!(client.sent()[0].contains(&format!(r#""id":{exchange},"#)), "round {round}");
    }
    client.frame(&asks_once(exchange, "s"));
    assert_eq!(client.outcome(), Outcome::Invalid(Invalid::TooManyRounds));
    client.expect_silence();
}

#[test]
fn the_time_limits_of_a_call_do_not_run_while_the_user_answers() {
    let mut client = client();
    let mut timeouts = CallTimeouts::NONE;
    (timeouts.idle, timeouts.max_total) = (Some(Duration::from_secs(2)), Some(Duration::from_secs(10)));
    client.invoke(Invoke::call_tool("t", Json::empty_object()).with_timeouts(timeouts));
    client.drain();
    client.at(1000).frame(&asks_once(2, "s"));
    client.at(500_000);
    let key = keys(&mut client)[0];
    client.session.provide_input(key, accepted("x"), client.now).unwrap();
    client.drain();
    client.at(501_999).expect_silence();
    client.at(502_000);
    assert_eq!(client.outcome(), Outcome::TimedOut(TimeoutKind::Idle));
    assert!(client.sent()[0].contains(r#""requestId":4"#), "the retry is cancelled, not the first exchange");
}

/// No request is in flight between two rounds, so there is nothing to cancel.
#[test]
fn between_two_rounds_a_cancel_a_deadline_and_the_end_of_the_channel_send_nothing() {
    let between = |client: &mut Scripted| {
        let id = client.call();
        client.drain();
        client.frame(&asks_once(2, "s"));
        (id, keys(client)[0])
    };
    let mut client = client();
    let (id, key) = between(&mut client);
    assert_eq!(client.session.handle_gone(Gone::Exchange(protocol_core::ExchangeId::from_number(2)), client.now), Err(NotLive));
    client.session.cancel(id, Some("enough"), client.now).unwrap();
    let events = client.events();
    assert_eq!(events.len(), 2, "{events:?}");
    assert_eq!(events[0], Event::InputGone { key });
    assert!(matches!(events[1], Event::Done { outcome: Outcome::Cancelled, .. }));
    client.expect_silence();
    assert_eq!(client.session.provide_input(key, accepted("x"), client.now), Err(NotLive));
    assert_eq!(client.session.stats().exchanges_out, 0);

    let mut client = client_with(|_| {});
    let mut timeouts = CallTimeouts::NONE;
    timeouts.max_total = Some(Duration::from_millis(20));
    client.invoke(Invoke::call_tool("t", Json::empty_object()).with_timeouts(timeouts));
    client.drain();
    client.frame(&asks(2, r#""requestState":"a""#)).at(100);
    assert_eq!(client.outcome(), Outcome::TimedOut(TimeoutKind::MaxTotal));
    client.expect_silence();

    for end in [TransportEnd::Eof, TransportEnd::Failed] {
        let mut client = client_with(|_| {});
        between(&mut client);
        client.session.handle_end(end, client.now);
        assert!(client.events().iter().any(|event| matches!(event, Event::Done { outcome: Outcome::Lost, .. })));
        assert_eq!(client.sent(), [""; 0], "{end:?}");
    }
    let mut client = client_with(|_| {});
    between(&mut client);
    client.session.close(Close::Now, client.now);
    assert_eq!(client.sent(), [""; 0]);
}

#[test]
fn a_refused_elicitation_is_answered_with_cancel_and_a_refused_sampling_request_ends_the_call() {
    let mut client = client();
    client.call();
    client.drain();
    client.frame(&asks_once(2, "s"));
    let key = keys(&mut client)[0];
    let refused = || InputResponse::Refused(RpcError::internal("no terminal"));
    client.session.provide_input(key, refused(), client.now).unwrap();
    assert!(params(&client.sent()[0]).contains(r#""inputResponses":{"a":{"action":"cancel"}}"#));
    let sampling = r#""inputRequests":{"a":{"method":"sampling/createMessage","params":{"messages":[],"maxTokens":5}},"b":{"method":"roots/list"}}"#;
    client.frame(&asks(4, sampling));
    let keys = keys(&mut client);
    client.session.provide_input(keys[0], refused(), client.now).unwrap();
    let events = client.events();
    assert_eq!(events[0], Event::InputGone { key: keys[1] });
    assert!(matches!(&events[1], Event::Done { outcome: Outcome::Unanswered(_), .. }), "{events:?}");
    client.expect_silence();
}

#[test]
fn answers_longer_than_a_frame_end_the_call() {
    let mut client = client_with(|config| config.limits.frame_bytes = 1000);
    client.call();
    client.drain();
    client.frame(&asks_once(2, "s"));
    let key = keys(&mut client)[0];
    client.session.provide_input(key, accepted(&"x".repeat(900)), client.now).unwrap();
    let outcome = client.outcome();
    assert!(matches!(&outcome, Outcome::Unanswered(error) if error.message.starts_with("the retry is larger")), "{outcome:?}");
    client.expect_silence();
}

#[test]
fn a_round_that_is_malformed_or_asks_for_what_was_not_declared_ends_the_call() {
    let roots = r#"{"method":"roots/list"}"#;
    let rows = [
        (r#""inputRequests":{}"#.into(), Violation::InvalidResponse),
        (r#""inputRequests":[]"#.into(), Violation::InvalidResponse),
        (r#""requestState":7"#.into(), Violation::InvalidResponse),
        (r#""inputRequests":{"a":7}"#.into(), Violation::InvalidResponse),
        (r#""inputRequests":{"a":{"method":"roots/list","params":[]}}"#.into(), Violation::InvalidResponse),
        (format!(r#""inputRequests":{{"a":{roots},"a":{roots}}}"#), Violation::InvalidResponse),
        (r#""inputRequests":{"a":{"method":"tools/call","params":{}}}"#.into(), Violation::UndeclaredInput),
        (r#""inputRequests":{"a":{"method":"elicitation/create","params":{}}}"#.into(), Violation::InvalidParams),
        (
            format!(r#""requestState":"s","inputRequests":{{{},"b":{{"method":"sampling/createMessage"}}}}"#, form_named("a")),
            Violation::UndeclaredInput,
        ),
    ];
    for (members, rule) in rows {
        let mut client = client_with(|config| config.capabilities.sampling = false);
        client.call();
        client.drain();
        client.frame(&asks(2, &members));
        let events = client.events();
        assert_eq!(events[0], Event::Violation(rule), "{members}");
        assert!(
            matches!(&events[1], Event::Done { outcome: Outcome::Invalid(Invalid::Unreadable(_)), .. }),
            "{members}: {events:?}"
        );
        assert_eq!(events.len(), 2, "no input request is reported: {events:?}");
        client.expect_silence();
    }
}

#[test]
fn a_round_as_the_result_of_a_list_request_is_an_invalid_response() {
    let mut client = client();
    client.invoke(Invoke::list_tools(None));
    client.drain();
    client.frame(&asks_once(2, "s"));
    let events = client.events();
    assert_eq!(events[0], Event::Violation(Violation::InvalidResponse));
    assert!(matches!(&events[1], Event::Done { outcome: Outcome::Invalid(Invalid::Unreadable(_)), .. }));
}

#[test]
fn sampling_that_is_nested_too_deep_ends_the_call_and_sends_nothing() {
    let sample = |depth: u8| {
        let meta = format!(r#""_meta":{{"protocol-core/samplingDepth":{depth}}}"#);
        format!(r#""inputRequests":{{"a":{{"method":"sampling/createMessage","params":{{"messages":[],"maxTokens":5,{meta}}}}}}}"#)
    };
    let mut client = client();
    client.call();
    client.drain();
    client.frame(&asks(2, &sample(3)));
    let events = client.events();
    assert!(matches!(&events[0], Event::InputRequested { depth: 3, .. }), "{events:?}");
    client.invoke(Invoke::call_tool("u", Json::empty_object()).with_depth(3));
    client.drain();
    client.frame(&asks(4, &sample(0)));
    let events = client.events();
    assert_eq!(events[0], Event::Violation(Violation::SamplingTooDeep));
    assert!(matches!(&events[1], Event::Done { outcome: Outcome::Invalid(Invalid::TooDeep), .. }));
    client.expect_silence();
}

/// A call that is made to answer a sampling request of a round is as deep as that request.
#[test]
fn a_call_on_behalf_of_an_input_request_of_a_round_inherits_its_depth() {
    let mut client = client();
    client.call();
    client.drain();
    client.frame(&asks(2, r#""inputRequests":{"a":{"method":"sampling/createMessage","params":{"messages":[],"maxTokens":5}}}"#));
    let key = keys(&mut client)[0];
    client.invoke(Invoke::call_tool("u", Json::empty_object()).with_parent(key));
    assert!(client.sent()[0].contains(r#""protocol-core/samplingDepth":1"#));
    client.session.provide_input(key, InputResponse::Sample(SampleResult::new("hi", "m")), client.now).unwrap();
    assert!(client.sent()[0].contains(r#""inputResponses":{"a":{"role":"assistant""#));
}

#[test]
fn progress_of_a_retry_has_its_own_token_and_is_reported_only_above_the_earlier_progress() {
    let mut client = client();
    client.call();
    client.drain();
    client.frame(&progress(2, 5.0)).frame(&asks_once(2, "s"));
    let key = keys(&mut client)[0];
    client.session.provide_input(key, accepted("x"), client.now).unwrap();
    client.drain();
    client.frame(&progress(2, 6.0));
    assert_eq!((client.events(), client.session.stats().late_frames), (vec![], 1), "the token of an exchange that has ended");
    client.frame(&progress(4, 1.0)).frame(&progress(4, 5.0));
    assert_eq!(client.events(), [], "a server that starts again repeats what was reported");
    client.frame(&progress(4, 5.5));
    assert!(matches!(client.events().as_slice(), [Event::Progress { .. }]));
    client.frame(&progress(4, 2.0));
    assert_eq!(client.violations(), [Violation::ProgressNotIncreasing]);
}

#[test]
fn an_input_request_to_open_a_url_has_no_id_in_a_round() {
    let mut client = client();
    client.call();
    client.drain();
    let params = r#"{"mode":"url","message":"Sign in","url":"https://example.com/"}"#;
    client.frame(&asks(2, &format!(r#""inputRequests":{{"a":{{"method":"elicitation/create","params":{params}}}}}"#)));
    let events = client.events();
    let [Event::InputRequested { key, ask: InputRequest::OpenUrl(open), .. }] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!(**open, OpenUrl::new("Sign in", "https://example.com/"));
    client.session.provide_input(*key, InputResponse::OpenUrl(OpenUrlResult::Accept), client.now).unwrap();
    assert!(client.sent()[0].contains(r#""a":{"action":"accept"}"#));
    assert_eq!(
        InputRequest::from(OpenUrl::new("Sign in", "https://example.com/")).method_and_params(),
        ("elicitation/create", json(params))
    );
}

#[test]
fn the_loss_of_the_exchange_of_a_retry_loses_the_call() {
    let mut client = client();
    client.call();
    client.drain();
    client.frame(&asks_once(2, "s"));
    let key = keys(&mut client)[0];
    client.session.provide_input(key, accepted("x"), client.now).unwrap();
    client.drain();
    client.session.handle_gone(Gone::Exchange(protocol_core::ExchangeId::from_number(4)), client.now).unwrap();
    assert_eq!(client.outcome(), Outcome::Lost);
}

#[test]
fn a_retry_whose_call_is_cancelled_before_it_was_polled_is_never_sent() {
    let mut client = client();
    let id = client.call();
    client.drain();
    client.frame(&asks_once(2, "s"));
    let key = keys(&mut client)[0];
    client.session.provide_input(key, accepted("x"), client.now).unwrap();
    // Before the retry is sent, the peer can only guess its id.
    client.frame(&complete(4));
    assert_eq!(client.violations(), [Violation::UnknownResponse]);
    client.session.cancel(id, None, client.now).unwrap();
    assert_eq!(client.outcome(), Outcome::Cancelled);
    client.expect_silence();
}

// ---- Both ends ----

#[test]
fn with_a_handshake_no_result_is_read_as_a_round() {
    let mut client = Scripted::client(client_config());
    client.call();
    client.drain();
    assert_eq!(client.session.peer().unwrap().protocol, "2025-11-25");
    client.frame(&asks_once(2, "s"));
    let events = client.events();
    let [Event::Done { outcome: Outcome::Result(result), .. }] = events.as_slice() else { panic!("{events:?}") };
    assert!(result.as_str().contains("input_required"), "`resultType` has no meaning with a handshake: {result:?}");
    client.at(50).expect_silence();
}

// ---- Pending input ----

/// Makes a call, answers one of its two input requests, cancels the call, and returns its pending input, taken before the cancel, as JSON.
fn pending_json(client: &mut Scripted, call: Invoke) -> String {
    let id = client.invoke(call);
    client.drain();
    assert_eq!(client.session.pending_input(id), None, "the peer has asked for nothing yet");
    let members = format!(r#""inputRequests":{{{},{}}},"requestState":"s \"1\"""#, form_named("a"), form_named("b"));
    client.frame(&asks(2, &members));
    let key = keys(client)[0];
    client.session.provide_input(key, accepted("Ada"), client.now).unwrap();
    let pending = client.session.pending_input(id).unwrap();
    // Cancelling the call does not affect its pending input.
    client.session.cancel(id, None, client.now).unwrap();
    assert_eq!(client.session.pending_input(id), None);
    client.drain();
    serde_json::to_string(&pending).unwrap()
}

fn resume(client: &mut Scripted, pending: &str) -> Result<protocol_core::OutboundId, SendError> {
    let pending: PendingInput = serde_json::from_str(pending).unwrap();
    client.session.resume_input(&pending, client.now)
}

#[test]
fn a_call_goes_on_in_another_session_from_its_pending_input() {
    let given = r#"{"name":"t","arguments":{"x":1},"_meta":{"mine":2}}"#;
    let calls = [
        Invoke::call_tool("t", json(r#"{"x":1}"#)),
        Invoke::call_tool("t", json(r#"{"x":1}"#)).with_meta(json(r#"{"mine":2}"#)),
        Invoke::new(protocol_core::Op::CallTool, json(given)),
        Invoke::call_tool("t", json(r#"{"x":1}"#)).with_log_level(protocol_core::Level::Debug),
    ];
    for (number, call) in calls.into_iter().enumerate() {
        let (has_meta, has_level) = (number == 1 || number == 2, number == 3);
        let text = pending_json(&mut client(), call.clone());
        let mut other = client();
        let id = resume(&mut other, &text).unwrap();
        assert_eq!(other.sent(), [""; 0], "nothing is sent before the answer");
        let events = other.events();
        let [Event::InputRequested { key, parent, ask, .. }] = events.as_slice() else { panic!("{events:?}") };
        assert_eq!((*parent, ask), (Some(id), &form()), "the answered one is not asked again");
        let again = other.session.pending_input(id).unwrap();
        assert_eq!(serde_json::to_value(again).unwrap(), serde_json::from_str::<serde_json::Value>(&text).unwrap());
        other.session.provide_input(*key, accepted("Bob"), other.now).unwrap();
        let sent = other.sent();
        let answers = r#"{"a":{"action":"accept","content":{"name":"Ada"}},"b":{"action":"accept","content":{"name":"Bob"}}}"#;
        let expected = format!(r#"{{"name":"t","arguments":{{"x":1}},"inputResponses":{answers},"requestState":"s \"1\"""#);
        assert_eq!((sent.len(), params(&sent[0])), (1, expected));
        assert_eq!(sent[0].contains(r#""mine":2"#), has_meta, "{}", sent[0]);
        assert_eq!(sent[0].contains(r#"logLevel":"debug""#), has_level, "{}", sent[0]);
        // The next round of the call is its second.
        let retry_id = json(&sent[0]).member("id").unwrap().decode::<u64>().unwrap();
        other.frame(&asks_once(retry_id, "s2"));
        let key = keys(&mut other)[0];
        assert_eq!(serde_json::to_value(other.session.pending_input(id).unwrap()).unwrap()["rounds"], 2);
        other.session.provide_input(key, accepted("C"), other.now).unwrap();
        let retry_id = json(&other.sent()[0]).member("id").unwrap().decode::<u64>().unwrap();
        other.frame(&complete(retry_id));
        assert!(matches!(other.outcome(), Outcome::Result(_)));
    }
}

#[test]
fn pending_input_with_only_a_state_or_with_all_answers_is_retried_by_itself() {
    let mut first = client();
    let id = first.call();
    first.drain();
    first.frame(&asks(2, r#""requestState":"alone""#));
    let text = serde_json::to_string(&first.session.pending_input(id).unwrap()).unwrap();
    let mut other = client();
    resume(&mut other, &text).unwrap();
    other.at(49).expect_silence();
    assert_eq!(params(&other.at(50).sent()[0]), r#"{"name":"t","requestState":"alone""#);

    let mut value: serde_json::Value =
        serde_json::from_str(&pending_json(&mut client(), Invoke::call_tool("t", json("{}")))).unwrap();
    value["answers"]["b"] = serde_json::json!({"action": "decline"});
    let mut other = client();
    resume(&mut other, &value.to_string()).unwrap();
    let sent = other.sent();
    assert!(sent.len() == 1 && sent[0].contains(r#""b":{"action":"decline"}"#), "{sent:?}");
    assert_eq!(other.events(), vec![]);
}

#[test]
fn a_resumed_call_keeps_its_rounds_and_depth_its_deadline_starts_again_and_invalid_pending_input_is_misuse() {
    let text = pending_json(&mut client(), Invoke::call_tool("t", json("{}")));
    let changed = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut value: serde_json::Value = serde_json::from_str(&text).unwrap();
        change(&mut value);
        value.to_string()
    };
    // At most eight rounds are answered; the ninth ends the call.
    let mut other = client();
    resume(&mut other, &changed(&|value| value["rounds"] = 8.into())).unwrap();
    let key = keys(&mut other)[0];
    other.session.provide_input(key, accepted("x"), other.now).unwrap();
    let retry_id = json(&other.sent()[0]).member("id").unwrap().decode::<u64>().unwrap();
    other.frame(&asks_once(retry_id, "s"));
    assert_eq!(other.outcome(), Outcome::Invalid(Invalid::TooManyRounds));
    // The time limits do not run while the user answers, and start afterwards.
    let mut other = client_with(|config| config.timeouts.call = CallTimeouts::NONE.with_max_total(Some(Duration::from_millis(20))));
    let id = resume(&mut other, &text).unwrap();
    let key = keys(&mut other)[0];
    other.at(5_000);
    assert_eq!(other.events(), vec![]);
    other.session.provide_input(key, accepted("x"), other.now).unwrap();
    other.drain();
    other.at(5_019);
    assert_eq!(other.events(), vec![]);
    assert!(
        matches!(other.at(5_020).events().as_slice(), [Event::Done { id: ended, outcome: Outcome::TimedOut(_), .. }] if *ended == id)
    );
    // The retry has the depth of the pending input.
    let mut other = client();
    resume(&mut other, &changed(&|value| value["depth"] = 2.into())).unwrap();
    let key = keys(&mut other)[0];
    other.session.provide_input(key, accepted("x"), other.now).unwrap();
    assert!(other.sent()[0].contains(r#""protocol-core/samplingDepth":2"#));
    // A cancel between two rounds sends no frame here either.
    let mut other = client();
    let id = resume(&mut other, &text).unwrap();
    other.session.cancel(id, None, other.now).unwrap();
    assert_eq!(other.outcome(), Outcome::Cancelled);
    other.expect_silence();
    // Pending input with invalid values is refused as misuse.
    let mut other = client();
    let sampling = r#"{"s":{"method":"sampling/createMessage","params":{"messages":[],"maxTokens":1}}}"#;
    let nested: serde_json::Value = serde_json::from_str(sampling).unwrap();
    for (change, why) in [
        (
            &(|value: &mut serde_json::Value| value["method"] = "tools/list".into()) as &dyn Fn(&mut serde_json::Value),
            SendError::Params,
        ),
        (&|value| value["rounds"] = 9.into(), SendError::Params),
        (&|value| value["rounds"] = 0.into(), SendError::Params),
        (&|value| value["params"] = 7.into(), SendError::Params),
        (&|value| value["log_level"] = "loud".into(), SendError::Params),
        (&|value| value["round"] = serde_json::json!({"resultType": "input_required"}), SendError::Params),
        (&|value| (value["depth"], value["round"]["inputRequests"]) = (3.into(), nested.clone()), SendError::Params),
    ] {
        assert_eq!(resume(&mut other, &changed(change)), Err(why), "{}", changed(change));
    }
    assert!(serde_json::from_str::<PendingInput>(r#"{"method":"tools/call"}"#).is_err());
    other.expect_silence();
}

#[test]
fn pending_input_is_resumed_only_with_a_known_stateless_peer_and_the_capabilities_that_were_asked_for() {
    let text = pending_json(&mut client(), Invoke::call_tool("t", json("{}")));
    let mut unknown = Scripted::new(with(client_config(), |config| config.era = Era::Auto));
    unknown.drain();
    assert_eq!(resume(&mut unknown, &text), Err(SendError::NotReady));
    let mut legacy = Scripted::client(client_config());
    legacy.drain();
    assert_eq!(resume(&mut legacy, &text), Err(SendError::Unsupported));
    let mut mute = client_with(|config| config.capabilities.elicitation = false);
    assert_eq!(resume(&mut mute, &text), Err(SendError::Unsupported));
    let mut closing = client();
    closing.session.close(Close::Graceful { grace: Duration::from_secs(1) }, closing.now);
    assert_eq!(resume(&mut closing, &text), Err(SendError::Closing));
    let mut full = client_with(|config| config.limits.in_flight = 1);
    full.call();
    assert_eq!(resume(&mut full, &text), Err(SendError::Full));
}
