//! An MCP server on standard input and output that offers the actions of the Tesseron apps of this user: `gateway [HOME]`.

use sansmcp::prelude::*;
use sansmcp::tesseron::bridge::{BridgeConfig, BridgeEvent};
use sansmcp::tesseron::net::{Gateway, Home};
use sansmcp::tokio::TokioRuntime;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let home = std::env::args_os().nth(1).map_or_else(Home::of_user, |home| Ok(Home::at(home)))?;
    let gateway = Gateway::new(TokioRuntime::start(), BridgeConfig::new(Identity::new("gateway", "1.0"), 0), home)?;
    gateway.rescan()?; // apps that run already; a real gateway watches the folder of the manifests

    let events = async {
        loop {
            match gateway.next_event().await? {
                // The user gives the code to the agent, which claims the app with it.
                BridgeEvent::AppReady { app, code: Some(code), .. } => {
                    eprintln!("{} waits to be claimed with {code}", app.identity.name)
                }
                BridgeEvent::AgentClosed(_) => return Ok(()),
                _ => {}
            }
        }
    };
    let serving = gateway.serve(sansmcp::tokio::stdio());
    let ended: Result<(), sansmcp::tesseron::TesseronError> = tokio::select! {
        ended = events => ended,
        ended = serving => ended,
    };
    gateway.close(Close::Now);
    Ok(ended?)
}
