//! URLs that a handler asks the caller's user to open.

use std::sync::{Arc, Mutex};

use super::{harness, service};
use crate::testing::{Executor, connect};
use crate::{AskFailed, BoxFuture, Client, Context, Endpoint, InputContext, Runtime, Tool, ToolError};
use protocol_core::Protocol;
use protocol_core::config::Config;
use protocol_core::dialect::{Capabilities, Identity, InputRequest, InputResponse, Notification, OpenUrl, OpenUrlResult, mcp};
use protocol_core::error::RpcError;
use protocol_core::json::Json;
use protocol_core::session::SendError;
use protocol_core::time::Instant;

const URL: &str = "https://example.com/in";

/// A tool that asks to open two URLs, one under a chosen id, and returns the decisions.
fn opens() -> Tool {
    Tool::new("opens", async |context: Context, (): ()| {
        let first = context.elicit_url("Sign in?", URL).await?;
        let second = context.open_url(OpenUrl::new("Pay?", URL).with_id("mine")).await?;
        Ok(format!("{} {}", first.as_str(), second.as_str()))
    })
}

#[test]
fn the_handler_gets_each_decision_and_a_url_has_a_random_id_unless_one_is_chosen() {
    let run = || {
        let harness = harness(opens())
            .answer(InputResponse::OpenUrl(OpenUrlResult::Accept))
            .answer(InputResponse::OpenUrl(OpenUrlResult::Cancel));
        let run = harness.call_tool("opens", Json::empty_object());
        assert_eq!(run.text(), "accept cancel");
        let [(_, InputRequest::OpenUrl(first)), (_, InputRequest::OpenUrl(second))] = &run.asks[..] else {
            panic!("{:?}", run.asks)
        };
        assert_eq!((&*first.message, &*first.url, &*second.id), ("Sign in?", URL, "mine"));
        first.id.clone()
    };
    assert_eq!(run().len(), 32, "16 random bytes of the runtime");
    assert_eq!(run(), run(), "which under test are the same in every run");
}

/// A runtime without random bytes.
struct WithoutRandom(Executor);

impl Runtime for WithoutRandom {
    fn now(&self) -> Instant {
        self.0.now()
    }
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.0.spawn(task);
    }
    fn spawn_blocking(&self, job: Box<dyn FnOnce() + Send>) {
        job();
    }
}

#[test]
fn each_url_has_its_own_id_with_or_without_random_bytes() {
    let ids = |has_random: bool| {
        let names = Tool::new("names", async |context: Context, (): ()| {
            Ok([context.new_url("Sign in?", URL).id, context.new_url("Sign in?", URL).id])
        });
        let executor = Executor::new();
        let runtime = if has_random { executor.runtime() } else { Arc::new(WithoutRandom(executor.clone())) };
        let server = Endpoint::server(Arc::new(service().tool(names)), runtime);
        let client = Endpoint::client(Arc::new(()), Config::mcp_client(Identity::new("c", "1")), executor.runtime());
        let peer = client.peer();
        connect(&executor, client, server);
        let names = async { peer.call_tool_as::<Vec<String>>("names", &serde_json::json!({})).await.unwrap() };
        executor.block_on(names).unwrap()
    };
    for has_random in [false, true] {
        let ids = ids(has_random);
        // Random ids have 32 characters, and the others fewer.
        assert!(ids[0] != ids[1] && ids.iter().all(|id| has_random == (id.len() == 32)), "{ids:?}");
    }
}

#[test]
fn a_missing_capability_or_an_invalid_url_is_refused_before_anything_is_sent() {
    let failed = |url: &'static str, change: fn(&mut Config)| {
        let tool = Tool::new("opens", move |context: Context, (): ()| async move {
            Ok(context.elicit_url("?", url).await.map_err(|failed| format!("{} {failed}", failed.code())).unwrap_err())
        });
        let run = harness(tool).configure(change).call_tool("opens", Json::empty_object());
        assert_eq!(run.asks, []);
        run.text()
    };
    let missing = "-32007 the caller does not offer elicitation by URL";
    assert_eq!(failed(URL, |config| config.capabilities.elicitation_url = false), missing);
    let older = |config: &mut Config| {
        config.protocol = Protocol::Mcp { side: mcp::Side::Client, newest: mcp::Revision::R2025_06_18 };
    };
    assert_eq!(failed(URL, older), missing);
    let message = failed("javascript:alert(1)", |_| {});
    assert!(message.contains("-32602 the input request is not valid: url must be absolute"), "{message}");
}

#[test]
fn a_call_that_requires_opened_urls_fails_with_an_error_that_lists_the_urls() {
    let requires = |urls: &'static [&'static str]| {
        Tool::new("requires", move |context: Context, (): ()| async move {
            let urls = urls.iter().map(|url| context.new_url("Sign in", *url));
            Err::<(), _>(ToolError::urls_required(&context, urls))
        })
    };
    let run = harness(requires(&[URL, "https://example.com/pay"])).call_tool("requires", Json::empty_object());
    let error = run.error().unwrap();
    let urls = error.required_urls();
    assert_eq!((error.code, urls.len(), &*urls[1].url), (-32042, 2, "https://example.com/pay"));
    assert_ne!(urls[0].id, urls[1].id);

    let without = harness(requires(&[URL])).configure(|config| config.capabilities.elicitation_url = false);
    let run = without.call_tool("requires", Json::empty_object());
    assert_eq!((run.is_tool_error(), run.text()), (true, "the caller does not offer elicitation by URL".into()));
    for (urls, why) in [(&["https://"][..], "no proper host"), (&[], "there is no address")] {
        let run = harness(requires(urls)).call_tool("requires", Json::empty_object());
        assert!(run.is_tool_error() && run.text().contains(why), "{}", run.text());
    }
}

/// The messages about elicitation by URL that a client has received.
#[derive(Default)]
struct Seen {
    /// The URLs that it was asked to open.
    urls: Vec<OpenUrl>,
    /// The ids of the elicitations that were reported as complete.
    complete: Vec<String>,
}

/// A client that declares elicitation by URL, and accepts each request.
struct AcceptsUrls(Arc<Mutex<Seen>>);

fn elicitation_by_url() -> Capabilities {
    let mut can = Capabilities::default();
    can.elicitation_url = true;
    can
}

impl Client for AcceptsUrls {
    fn capabilities(&self) -> Capabilities {
        elicitation_by_url()
    }

    fn open_url(&self, _: InputContext, open: OpenUrl) -> BoxFuture<'static, Result<OpenUrlResult, RpcError>> {
        self.0.lock().unwrap().urls.push(open);
        Box::pin(async { Ok(OpenUrlResult::Accept) })
    }

    fn notification(&self, notification: Notification) {
        if let Notification::ElicitationComplete { id } = notification {
            self.0.lock().unwrap().complete.push(id.to_string());
        }
    }
}

#[test]
fn a_client_is_notified_that_an_elicitation_is_complete_even_after_the_call() {
    let stored = Arc::new(Mutex::new(None));
    let for_handler = Arc::clone(&stored);
    let tool = Tool::new("opens", move |context: Context, (): ()| {
        let stored = Arc::clone(&for_handler);
        async move {
            let consent = context.open_url(OpenUrl::new("?", URL).with_id("e-1")).await?;
            assert_eq!(context.complete_url("e-0"), Ok(()));
            *stored.lock().unwrap() = Some(context.clone());
            Ok(consent.as_str())
        }
    });
    let executor = Executor::new();
    let seen = Arc::new(Mutex::new(Seen::default()));
    let server = Endpoint::server(Arc::new(service().tool(tool)), executor.runtime());
    let config = Config::mcp_client(Identity::new("opens", "1"));
    let client = Endpoint::client(Arc::new(AcceptsUrls(Arc::clone(&seen))), config, executor.runtime());
    let peer = client.peer();
    connect(&executor, server, client);
    let done = executor.block_on(peer.call_tool("opens", Json::empty_object()).unwrap()).unwrap();
    assert_eq!(done.tool().unwrap().text(), "accept");

    let context = stored.lock().unwrap().take().unwrap();
    assert_eq!(executor.block_on(context.elicit_url("?", URL)), Some(Err(AskFailed::Over)), "no input request is sent any more");
    assert_eq!(context.complete_url("e-1"), Ok(()), "but the completion is still reported");
    while executor.run_until_stalled() {}
    let seen = seen.lock().unwrap();
    assert_eq!((seen.urls.len(), &seen.complete[..]), (1, &["e-0".to_owned(), "e-1".to_owned()][..]));
    assert_eq!(peer.notify(Notification::ElicitationComplete { id: "e-1".into() }), Err(SendError::WrongEnd));
}

#[test]
fn a_client_that_does_not_implement_open_url_declines() {
    struct Quiet;
    impl Client for Quiet {
        fn capabilities(&self) -> Capabilities {
            elicitation_by_url()
        }
    }
    let executor = Executor::new();
    let server = Endpoint::server(Arc::new(service().tool(opens())), executor.runtime());
    let client = Endpoint::client(Arc::new(Quiet), Config::mcp_client(Identity::new("quiet", "1")), executor.runtime());
    let peer = client.peer();
    connect(&executor, server, client);
    let done = executor.block_on(peer.call_tool("opens", Json::empty_object()).unwrap()).unwrap();
    assert_eq!(done.tool().unwrap().text(), "decline decline");
}
