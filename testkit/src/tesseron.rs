//! The two ends of Tesseron with the test as their peer, and a pair of both.

use protocol_core::{Config, InboundId, Invoke, OutboundId};

use crate::config::{agent, agent_capabilities, app_config, gateway_config};
use crate::scripted::{json, notification};
use crate::{Pair, Scripted};

/// The frame of an app's hello.
#[must_use]
pub fn hello(id: u64, version: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tesseron/hello","params":{{"protocolVersion":"{version}","app":{{"id":"ledger","name":"Ledger","origin":"unknown"}},"actions":[],"resources":[],"capabilities":{{"streaming":true,"subscriptions":true,"sampling":true,"elicitation":true}}}}}}"#
    )
}

/// The frame of the response to the hello with id 1, from a gateway whose agent supports every input request.
pub const WELCOME: &str = r#"{"jsonrpc":"2.0","id":1,"result":{"sessionId":"s_1","protocolVersion":"1.2.0","capabilities":{"streaming":true,"subscriptions":true,"sampling":true,"elicitation":true},"agent":{"id":"acme-cli","name":"acme-cli"},"claimCode":"AB3X-7K","resumeToken":"rt_1"}}"#;

/// A frame that invokes the action `t`.
#[must_use]
pub fn invoke(id: u64, invocation: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"actions/invoke","params":{{"name":"t","input":{{}},"invocationId":"{invocation}"}}}}"#
    )
}

/// A frame that cancels an invocation.
#[must_use]
pub fn cancel(invocation: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"actions/cancel","params":{{"invocationId":"{invocation}"}}}}"#)
}

/// The invocation id of the call with this number.
#[must_use]
pub fn named(exchange: u64) -> String {
    format!("inv_{exchange}")
}

/// A frame with the result of an invocation.
#[must_use]
pub fn invoked(id: u64, invocation: &str, output: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"invocationId":"{invocation}","output":{output}}}}}"#)
}

/// A frame with progress of an invocation; `members` are the members after its id, each with a comma before it.
#[must_use]
pub fn progress(invocation: &str, members: &str) -> String {
    notification("actions/progress", &format!(r#"{{"invocationId":"{invocation}"{members}}}"#))
}

/// A frame with a sampling request on behalf of an invocation.
#[must_use]
pub fn sample(id: u64, invocation: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"sampling/request","params":{{"invocationId":"{invocation}","prompt":"?"}}}}"#)
}

/// The frame that notifies an app of the claim by [`Scripted::claim`].
pub const CLAIMED: &str = r#"{"jsonrpc":"2.0","method":"tesseron/claimed","params":{"agent":{"id":"acme-cli","name":"acme-cli"},"claimedAt":1795259462592,"agentCapabilities":{"streaming":true,"subscriptions":true,"sampling":true,"elicitation":true}}}"#;

impl Scripted {
    /// An app after its welcome by a gateway whose agent supports every input request. The test is the gateway.
    #[must_use]
    pub fn app(config: Config) -> Self {
        let mut end = Self::new(config);
        end.drain();
        end.frame(WELCOME);
        assert!(end.session.is_ready());
        end.drain();
        end
    }

    /// A gateway after the hello of its app, with a session that is not claimed. The test is the app.
    #[must_use]
    pub fn unclaimed_gateway(config: Config) -> Self {
        let mut end = Self::new(config);
        end.frame(&hello(1, "1.2.0"));
        end.drain();
        end
    }

    /// A gateway whose app is claimed for an agent that supports every input request. Its first call has the request id 1 and the
    /// invocation id `inv_1`.
    #[must_use]
    pub fn gateway(config: Config) -> Self {
        let mut end = Self::unclaimed_gateway(config);
        end.claim();
        end.drain();
        end
    }

    /// Invokes the action `t`, which the session must accept, and drops the frame.
    pub fn invoke_action(&mut self) -> OutboundId {
        let call = self.invoke(call_action());
        self.sent();
        call
    }

    /// Receives an invocation of the action `t`, and drops the other queued events.
    pub fn receive_invoke(&mut self, id: u64, invocation: &str) -> InboundId {
        self.frame(&invoke(id, invocation));
        self.request()
    }

    /// Claims the session for an agent that supports every input request.
    pub fn claim(&mut self) -> &mut Self {
        self.session.claim(agent(), agent_capabilities(), 1_795_259_462_592, self.now).expect("the session can be claimed");
        self
    }
}

/// A call of the action `t`.
#[must_use]
pub fn call_action() -> Invoke {
    Invoke::call_tool("t", json(r#"{"cents":4200}"#))
}

impl Pair {
    /// A gateway (the client) and an app (the server), claimed for an agent that supports every input request.
    #[must_use]
    pub fn tesseron() -> Self {
        Self::tesseron_with(gateway_config(), app_config())
    }

    /// A pair like that of [`Self::tesseron`], with these configurations.
    #[must_use]
    pub fn tesseron_with(gateway: Config, app: Config) -> Self {
        let mut pair = Self { client: Scripted::new(gateway), server: Scripted::new(app), trace: Vec::new() };
        pair.run();
        pair.client.claim();
        pair.run();
        assert!(pair.client.session.is_ready() && pair.server.session.is_ready());
        pair.client.events();
        pair.server.events();
        pair.trace.clear();
        pair
    }
}
