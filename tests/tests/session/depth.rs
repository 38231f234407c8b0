//! Nested sampling: both ends count its depth and refuse what is deeper than the limit (`docs/protocols/mcp.md`, "Sampling depth";
//! no revision of MCP has a rule for it).

use protocol_core::{
    AskError, CallTimeouts, DepthInference, Elicit, Event, InboundId, InputKey, InputRequest, InputResponse, Invoke, Op,
    OutboundId, Sample, SampleResult, Violation,
};
use testkit::config::{client_config, server_config, with};
use testkit::scripted::{call_tool, json, request, result};
use testkit::{Pair, Scripted};

fn sample() -> InputRequest {
    InputRequest::from(Sample::new("?"))
}

fn tool(parent: Option<InputKey>) -> Invoke {
    let call = Invoke::new(Op::CallTool, json(r#"{"name":"t"}"#)).without_progress();
    let call = call.with_timeouts(CallTimeouts::NONE);
    parent.into_iter().fold(call, Invoke::with_parent)
}

/// The request that arrived at the server, and its depth.
fn served(pair: &mut Pair) -> (InboundId, u8) {
    let events = pair.server_events();
    let [Event::Request { id, depth, .. }] = events[..] else { panic!("{events:?}") };
    (id, depth)
}

/// The input request that arrived at the client, the call that it belongs to, and its depth.
fn asked(client: &mut Scripted) -> (InputKey, Option<OutboundId>, u8) {
    let events = client.events();
    let [Event::InputRequested { key, parent, depth, .. }] = events[..] else { panic!("{events:?}") };
    (key, parent, depth)
}

/// The frame of a sampling request with the id `id`; `meta` are the members of its `_meta`.
fn sampling(id: u64, meta: &str) -> String {
    request(id, "sampling/createMessage", &format!(r#"{{"messages":[],"maxTokens":1,"_meta":{{{meta}}}}}"#))
}

fn too_deep(id: u64, depth: u8, max: u8) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32808,"message":"sampling is nested too deep","data":{{"depth":{depth},"max":{max}}}}}}}"#
    )
}

#[test]
fn two_ends_agree_on_each_depth_up_to_three_and_the_fourth_level_is_never_sent() {
    let mut pair = Pair::ready();
    let (mut parent, mut input_requests, mut handlers) = (None, Vec::new(), Vec::new());
    for level in 0..=3 {
        let call = pair.client.invoke(tool(parent));
        pair.run();
        let (id, depth) = served(&mut pair);
        assert_eq!(depth, level);
        handlers.push(id);
        if level == 3 {
            let refused = pair.server.session.request_input(id, sample(), pair.server.now);
            assert_eq!(refused, Err(AskError::TooDeep { depth: 4, max: 3 }));
            assert_eq!(pair.server.sent(), Vec::<String>::new());
            break;
        }
        pair.server.ask(id, sample());
        pair.run();
        let (key, of, depth) = asked(&mut pair.client);
        assert_eq!((of, depth), (Some(call), level + 1));
        input_requests.push(key);
        parent = Some(key);
    }
    // From the innermost outward, each call is answered, and then the input request that it was made for.
    pair.server.respond(handlers[3]);
    for (key, handler) in input_requests.into_iter().zip(handlers).rev() {
        pair.run();
        pair.client.session.provide_input(key, InputResponse::Sample(SampleResult::new("a", "m")), pair.client.now).unwrap();
        pair.run();
        pair.server.respond(handler);
    }
    pair.run();
    let done = pair.client_events().into_iter().filter(|event| matches!(event, Event::Done { .. })).count();
    assert_eq!((done, pair.client.session.stats().outbound_calls, pair.server.session.stats().inbound_calls), (4, 0, 0));
}

#[test]
fn only_a_depth_above_zero_is_sent_and_a_depth_in_the_parameters_of_the_caller_never_is() {
    let mut pair = Pair::ready();
    let params = r#"{"name":"t","_meta":{"protocol-core/samplingDepth":9,"protocol-core/parent":9,"mine":1}}"#;
    let call_with_depth = |parent: Option<InputKey>| {
        let call = Invoke::new(Op::CallTool, json(params)).without_progress().with_timeouts(CallTimeouts::NONE);
        parent.into_iter().fold(call, Invoke::with_parent)
    };
    pair.client.invoke(call_with_depth(None));
    assert!(pair.client.sent()[0].ends_with(r#""params":{"name":"t","_meta":{"mine":1}}}"#));
    pair.client.invoke(tool(None));
    pair.run();
    let (id, _) = served(&mut pair);
    pair.server.ask(id, sample());
    pair.run();
    let (key, ..) = asked(&mut pair.client);
    pair.client.invoke(call_with_depth(Some(key)));
    assert!(pair.client.sent()[0].ends_with(r#""params":{"name":"t","_meta":{"mine":1,"protocol-core/samplingDepth":1}}}"#));
}

#[test]
fn sampling_requests_of_one_call_have_the_same_depth_and_other_input_requests_that_of_the_call() {
    let mut server = Scripted::server(server_config());
    server.frame(&request(1, "tools/call", r#"{"name":"t","_meta":{"protocol-core/samplingDepth":2}}"#));
    let id = server.request();
    let form = || InputRequest::Elicit(Elicit::new("m", json(r#"{"type":"object","properties":{}}"#)));
    for (ask, depth) in [(sample(), 3), (form(), 2), (sample(), 3), (InputRequest::Roots, 2), (sample(), 3)] {
        server.ask(id, ask);
        let sent = server.sent();
        assert!(sent[0].contains(&format!(r#""protocol-core/samplingDepth":{depth}"#)), "{sent:?}");
    }
    server.frame(&request(2, "tools/call", r#"{"name":"t","_meta":{"protocol-core/samplingDepth":200}}"#));
    let deep = server.request();
    server.ask(deep, form());
    server.ask(deep, InputRequest::Roots);
    assert_eq!(
        server.session.request_input(deep, sample(), server.now),
        Err(AskError::TooDeep { depth: 201, max: 3 }),
        "only sampling is refused for its depth"
    );
}

#[test]
fn a_server_takes_the_depth_in_a_request_and_the_greatest_one_if_the_value_is_invalid() {
    for (given, depth) in [
        ("0", 0),
        // Counts as absent.
        ("null", 0),
        ("1", 1),
        ("3", 3),
        ("255", 255),
        // An invalid depth counts as the greatest one, since it may be an attempt to hide the real depth.
        ("256", 255),
        ("-1", 255),
        ("1.5", 255),
        (r#""1""#, 255),
    ] {
        let mut server = Scripted::server(server_config());
        server.frame(&request(1, "tools/call", &format!(r#"{{"name":"t","_meta":{{"protocol-core/samplingDepth":{given}}}}}"#)));
        let events = server.events();
        assert!(matches!(events[..], [Event::Request { depth: read, .. }] if read == depth), "{given}: {events:?}");
    }
}

#[test]
fn the_depth_in_a_request_can_raise_and_not_lower_the_depth_that_a_server_infers() {
    let call = |id: u64, given: u8| {
        request(id, "tools/call", &format!(r#"{{"name":"t","_meta":{{"protocol-core/samplingDepth":{given}}}}}"#))
    };
    let mut server = Scripted::server(with(server_config(), |config| config.depth.inference = DepthInference::DeepestOpen));
    server.frame(&call(1, 1));
    let outer = server.request();
    server.ask(outer, sample());
    for (id, given, depth) in [(2, 0, 2), (3, 1, 2), (4, 2, 2), (5, 3, 3)] {
        server.frame(&call(id, given));
        let events = server.events();
        assert!(matches!(events[..], [Event::Request { depth: read, .. }] if read == depth), "{given}: {events:?}");
    }
}

#[test]
fn a_client_refuses_the_fourth_level_even_if_the_request_gives_a_smaller_depth() {
    // The deepest call of the client has depth 3. The sampling request names no call or an unknown one, and gives no depth, one below 4, or
    // one above 4.
    for (meta, depth) in [
        ("", 4),
        (r#""protocol-core/samplingDepth":1"#, 4),
        (r#""protocol-core/parent":99"#, 4),
        (r#""protocol-core/samplingDepth":7"#, 7),
    ] {
        let mut client = Scripted::client(client_config());
        client.invoke(tool(None));
        for level in 1..=3 {
            client.drain().frame(&sampling(level, ""));
            let (key, _, depth) = asked(&mut client);
            assert_eq!(u64::from(depth), level);
            client.invoke(tool(Some(key)));
        }
        client.drain().frame(&sampling(9, meta));
        assert_eq!(
            (client.sent(), client.events()),
            (vec![too_deep(9, depth, 3)], vec![Event::Violation(Violation::SamplingTooDeep)])
        );
        // Other input requests are still accepted at that depth.
        client.frame(&request(10, "roots/list", "{}"));
        assert_eq!(asked(&mut client).2, 3);
    }
}

#[test]
fn an_input_request_belongs_to_the_call_that_it_names_or_else_to_the_newest_of_the_deepest_calls() {
    let mut client = Scripted::client(client_config());
    let root = client.invoke(tool(None));
    client.drain().frame(&sampling(1, ""));
    let (key, ..) = asked(&mut client);
    let inner = client.invoke(tool(Some(key)));
    let newest = client.invoke(tool(None));
    client.drain();
    for (id, meta, parent, depth) in [
        (2, String::new(), inner, 2),
        (3, r#""protocol-core/parent":2"#.to_owned(), root, 1),
        (4, format!(r#""protocol-core/parent":{}"#, newest.to_string().trim_start_matches("out-")), newest, 1),
        (5, r#""protocol-core/parent":2,"protocol-core/samplingDepth":3"#.to_owned(), root, 3),
    ] {
        client.frame(&sampling(id, &meta));
        let (_, of, read) = asked(&mut client);
        assert_eq!((of, read), (Some(parent), depth), "{meta}");
    }
    client.session.cancel(inner, None, client.now).unwrap();
    client.drain().frame(&sampling(6, ""));
    assert_eq!(asked(&mut client).1, Some(newest), "the newest among equals");
}

#[test]
fn a_sampling_request_without_any_open_call_belongs_to_none_and_has_the_depth_that_it_gives() {
    let mut client = Scripted::client(client_config());
    client.frame(&sampling(1, ""));
    assert_eq!(asked(&mut client).1, None);
    client.frame(&sampling(2, r#""protocol-core/samplingDepth":3"#));
    let (key, of, depth) = asked(&mut client);
    assert_eq!((of, depth), (None, 3));
    client.invoke(tool(Some(key)));
    assert!(client.sent()[0].contains(r#""protocol-core/samplingDepth":3"#));
}

#[test]
fn only_if_configured_a_call_without_a_depth_is_nested_in_the_deepest_open_sampling_request() {
    for (inference, depths) in [(DepthInference::Off, [0, 0, 0, 0]), (DepthInference::DeepestOpen, [1, 2, 2, 0])] {
        let mut server = Scripted::server(with(server_config(), |config| config.depth.inference = inference));
        let receive = |server: &mut Scripted, id: u64| {
            server.frame(&call_tool(id, false));
            let events = server.events();
            let [Event::Request { id, depth, .. }] = events[..] else { panic!("{events:?}") };
            (id, depth)
        };
        let (root, depth) = receive(&mut server, 1);
        assert_eq!(depth, 0);
        // Only sampling counts toward the depth.
        server.ask(root, InputRequest::Roots);
        assert_eq!(receive(&mut server, 2).1, 0);
        let outer = server.ask(root, sample());
        let (inner, first) = receive(&mut server, 3);
        // Under both policies the depth in a request can raise the depth of its call.
        server.frame(&request(4, "tools/call", r#"{"name":"t","_meta":{"protocol-core/samplingDepth":1}}"#));
        let raised = server.request();
        let deeper = server.ask(if inference == DepthInference::Off { raised } else { inner }, sample());
        let second = receive(&mut server, 5).1;
        server.session.abandon_input(outer, server.now).unwrap();
        let third = receive(&mut server, 6).1;
        server.session.abandon_input(deeper, server.now).unwrap();
        let last = receive(&mut server, 7).1;
        assert_eq!([first, second, third, last], depths);
    }
}

#[test]
fn each_end_can_set_its_own_limit_of_depth() {
    let mut server = Scripted::server(with(server_config(), |config| config.depth.max = 0));
    let id = server.receive_call(1);
    assert_eq!(server.session.request_input(id, sample(), server.now), Err(AskError::TooDeep { depth: 1, max: 0 }));
    let mut client = Scripted::client(with(client_config(), |config| config.depth.max = 1));
    client.frame(&sampling(1, "")).frame(&sampling(2, r#""protocol-core/samplingDepth":2"#));
    assert_eq!(client.sent(), [too_deep(2, 2, 1)]);
}

#[test]
fn a_refused_input_request_does_not_change_the_call_that_it_would_have_belonged_to() {
    let mut client = Scripted::client(with(client_config(), |config| config.depth.max = 0));
    client.call();
    let deadline = client.session.poll_timeout();
    client.drain().frame(&sampling(1, ""));
    assert_eq!(client.session.poll_timeout(), deadline, "the idle timeout of the call goes on");
    client.drain().frame(&result(2));
    assert_eq!(client.sent(), Vec::<String>::new());
}
