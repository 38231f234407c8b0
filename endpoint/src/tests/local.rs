//! Handlers whose futures are not `Send`.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};
use std::thread::ThreadId;

use serde_json::{Value, json};

use crate::testing::Executor;
use crate::{
    CompletionRequest, Context, Endpoint, HookRequest, HookResponse, LocalBoxFuture, LocalRuntime, LocalTasks, Next, Prompt,
    PromptMessage, PromptOutput, Resource, ResourceContents, ResourceTemplate, ResourceUri, Result, Runtime, Service, Tool,
};
use protocol_core::drive::Machine;
use protocol_core::{Completion, Instant};

std::thread_local! {
    /// The number of values of [`Held`] on this thread.
    static HELD: Cell<u32> = const { Cell::new(0) };
}

/// A value that must not leave its thread, and is held across an `.await`.
struct Held(Rc<ThreadId>);

impl Held {
    fn new() -> Self {
        HELD.set(HELD.get() + 1);
        Self(Rc::new(std::thread::current().id()))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        HELD.set(HELD.get() - 1);
    }
}

/// Waits once.
async fn pause() {
    let mut is_first = true;
    core::future::poll_fn(|cx| match core::mem::take(&mut is_first) {
        true => {
            cx.waker().wake_by_ref();
            Poll::Pending
        }
        false => Poll::Ready(()),
    })
    .await;
}

async fn held() -> Result<String> {
    let held = Held::new();
    pause().await;
    Ok(String::from(if *held.0 == std::thread::current().id() { "same thread" } else { "moved" }))
}

async fn passes(request: HookRequest, next: Next) -> Result<HookResponse> {
    next.run(request).await
}

/// A service with a handler of each kind, with or without a hook around them.
fn service(hooked: bool) -> Arc<Service> {
    let service = Service::new("server", "1");
    let service = if hooked { service.around(passes) } else { service };
    let service = service
        .tool(Tool::local("tool", async |_: Context, ()| held().await))
        .tool(Tool::local("panics", async |_: Context, ()| -> Result<()> {
            let _held = Held::new();
            panic!("on purpose")
        }))
        .tool(Tool::local("waits", async |_: Context, ()| -> Result<()> {
            let _held = Held::new();
            core::future::pending().await
        }))
        .prompt(Prompt::local("prompt", async |_: Context, _| Ok(PromptOutput::new([PromptMessage::user(held().await?)]))))
        .resource(Resource::local("u:a", "a", async |_: Context| Ok(ResourceContents::text(held().await?))))
        .resource_template(ResourceTemplate::local("u:{b}", "b", async |_: Context, _: ResourceUri| {
            Ok(ResourceContents::text(held().await?))
        }))
        .completion_local(async |_: Context, _: CompletionRequest| Ok(Completion::all([held().await?])));
    Arc::new(service)
}

/// A server on one thread, with the local tasks of its runtime if it has any.
struct Server {
    endpoint: Endpoint,
    runner: Option<LocalBoxFuture<'static, ()>>,
    started: Rc<std::cell::RefCell<Vec<LocalBoxFuture<'static, ()>>>>,
    executor: Executor,
}

impl Server {
    fn new(runs_local: bool, hooked: bool) -> Self {
        let executor = Executor::new();
        let started = Rc::<std::cell::RefCell<Vec<_>>>::default();
        let (runtime, runner): (Arc<dyn Runtime>, _) = match runs_local {
            false => (executor.runtime(), None),
            true => {
                let (runtime, tasks): (_, LocalTasks) = LocalRuntime::new(executor.runtime());
                let into = Rc::clone(&started);
                let runner: LocalBoxFuture<'static, ()> = Box::pin(tasks.run(move |task| into.borrow_mut().push(task)));
                (Arc::new(runtime), Some(runner))
            }
        };
        let mut server = Self { endpoint: Endpoint::server(service(hooked), runtime), runner, started, executor };
        let client = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}});
        server.send(&json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": client}));
        server.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        server
    }

    /// Passes a message on, lets all tasks run, and returns the last frame that the server sends.
    fn send(&mut self, message: &Value) -> Value {
        self.endpoint.handle_frame(message.to_string().into(), Instant::ZERO).unwrap();
        let mut last = Value::Null;
        for _ in 0..4 {
            while let Some(sent) = self.endpoint.poll_transmit() {
                last = serde_json::from_slice(&sent.frame).unwrap();
            }
            self.executor.run_until_stalled();
            let mut cx = TaskContext::from_waker(Waker::noop());
            if let Some(runner) = &mut self.runner {
                assert!(runner.as_mut().poll(&mut cx).is_pending());
            }
            self.started.borrow_mut().retain_mut(|task| task.as_mut().poll(&mut cx).is_pending());
        }
        last
    }

    fn request(&mut self, id: u32, method: &str, params: &Value) -> Value {
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
    }
}

#[test]
fn each_kind_of_handler_may_hold_a_value_that_is_not_send() {
    for hooked in [false, true] {
        let mut server = Server::new(true, hooked);
        let completion = json!({"ref": {"type": "ref/prompt", "name": "prompt"}, "argument": {"name": "a", "value": ""}});
        for (id, method, params, at) in [
            (1, "tools/call", json!({"name": "tool"}), "/result/content/0/text"),
            (2, "prompts/get", json!({"name": "prompt"}), "/result/messages/0/content/text"),
            (3, "resources/read", json!({"uri": "u:a"}), "/result/contents/0/text"),
            (4, "resources/read", json!({"uri": "u:other"}), "/result/contents/0/text"),
            (5, "completion/complete", completion, "/result/completion/values/0"),
        ] {
            let reply = server.request(id, method, &params);
            assert_eq!(reply.pointer(at), Some(&json!("same thread")), "{method}: {reply}");
            assert_eq!(HELD.get(), 0, "{method}");
        }
        let reply = server.request(6, "tools/call", &json!({"name": "panics"}));
        assert_eq!(reply.pointer("/error/code"), Some(&json!(-32603)), "{reply}");
        assert_eq!(HELD.get(), 0);
    }
}

#[test]
fn a_cancel_drops_the_future_on_its_thread_and_frees_the_call() {
    for hooked in [false, true] {
        let mut server = Server::new(true, hooked);
        server.request(1, "tools/call", &json!({"name": "waits"}));
        assert_eq!(HELD.get(), 1);
        server.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}));
        server.executor.run_for(core::time::Duration::from_secs(60));
        server.endpoint.handle_timeout(server.executor.now());
        server.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}));
        assert_eq!((HELD.get(), server.endpoint.peer().stats().inbound_calls), (0, 0));
    }
}

#[test]
fn a_runtime_without_local_tasks_or_that_has_ended_answers_with_an_error_that_says_so() {
    for hooked in [false, true] {
        let mut gone = Server::new(true, hooked);
        gone.runner = None;
        for mut server in [Server::new(false, hooked), gone] {
            for (id, method, params) in [
                (1, "tools/call", json!({"name": "tool"})),
                (2, "prompts/get", json!({"name": "prompt"})),
                (3, "resources/read", json!({"uri": "u:a"})),
            ] {
                let reply = server.request(id, method, &params);
                assert_eq!(reply.pointer("/error/code"), Some(&json!(-32603)), "{reply}");
                let message = reply.pointer("/error/message").and_then(Value::as_str).unwrap_or_default();
                assert!(message.contains("Runtime::spawn_local"), "{message}");
            }
        }
    }
}
