//! Configurations of ends, most of which declare nearly all capabilities.

use protocol_core::tesseron::{App, AppId, ClaimState, GatewayConfig, Welcome};
use protocol_core::{Capabilities, Config, Identity};

use crate::scripted::json;

/// All that a client can declare, except tools in sampling requests.
#[must_use]
pub fn client_capabilities() -> Capabilities {
    let mut all = Capabilities::default();
    (all.sampling, all.elicitation, all.elicitation_url) = (true, true, true);
    (all.roots, all.roots_list_changed) = (true, true);
    all
}

/// All that a server can declare, except changes of the lists of prompts and of resources.
#[must_use]
pub fn server_capabilities() -> Capabilities {
    let mut all = Capabilities::default();
    (all.tools, all.tools_list_changed, all.prompts, all.resources, all.resources_subscribe) = (true, true, true, true, true);
    (all.completions, all.logging) = (true, true);
    all
}

/// A client with [`client_capabilities`].
#[must_use]
pub fn client_config() -> Config {
    let mut config = Config::mcp_client(Identity::new("client", "1"));
    config.capabilities = client_capabilities();
    config.custom_notifications = Vec::from([String::from("notifications/x")]);
    config
}

/// A server of both eras with [`server_capabilities`], which reports progress without a rate window, so that each update is sent.
#[must_use]
pub fn server_config() -> Config {
    let mut config = Config::mcp_server(Identity::new("server", "1"));
    config.capabilities = server_capabilities();
    config.progress.window = protocol_core::RateWindow::UNLIMITED;
    config.era = protocol_core::mcp::Era::Auto;
    config.custom_notifications = Vec::from([String::from("notifications/x")]);
    config
}

/// Returns `config` after `change`, to configure an end in one expression.
#[must_use]
pub fn with(mut config: Config, change: impl FnOnce(&mut Config)) -> Config {
    change(&mut config);
    config
}

/// The app `ledger` with the action `t` and the resource `balance`, which reports progress without a rate window, so that each update is
/// sent.
#[must_use]
pub fn app_config() -> Config {
    let mut app = App::default();
    app.actions = json(r#"[{"name":"t","description":"","inputSchema":{"type":"object"}}]"#);
    app.resources = json(r#"[{"name":"balance","description":"","subscribable":true}]"#);
    let id = AppId::parse("ledger").expect("a valid id");
    let mut config = Config::tesseron_app(&id, "Ledger", app);
    config.progress.window = protocol_core::RateWindow::UNLIMITED;
    config.custom_notifications = Vec::from([String::from("notifications/x")]);
    config
}

/// The answer of a gateway to a new app.
#[must_use]
pub fn welcome() -> Welcome {
    Welcome {
        session_id: "s_1".into(),
        resume_token: Some("rt_1".into()),
        claim_state: ClaimState::Unclaimed { claim_code: "AB3X-7K".into() },
    }
}

/// A gateway that answers every hello with [`welcome`].
#[must_use]
pub fn gateway_config() -> Config {
    let mut config = Config::tesseron_gateway(GatewayConfig::welcoming(welcome()));
    config.custom_notifications = Vec::from([String::from("notifications/x")]);
    config
}

/// A gateway that leaves every handshake request to the test.
#[must_use]
pub fn asking_gateway_config() -> Config {
    Config::tesseron_gateway(GatewayConfig::default())
}

/// The agent that claims apps in tests.
#[must_use]
pub fn agent() -> Identity {
    let mut agent = Identity::new("acme-cli", "");
    agent.title = Some("acme-cli".to_owned());
    agent
}

/// The capabilities of an agent that supports every input request of Tesseron.
#[must_use]
pub fn agent_capabilities() -> Capabilities {
    let mut all = Capabilities::default();
    (all.sampling, all.elicitation) = (true, true);
    all
}
