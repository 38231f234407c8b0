//! The client: for each scenario of the suite, the calls that the scenario expects.

use std::env;
use std::error::Error;
use std::future::Future;
use std::sync::Arc;

use endpoint::{BoxFuture, CallError, Client, InputContext, Peer};
use futures_lite::future::zip;
use protocol_core::mcp::Era;
use protocol_core::{
    Capabilities, Close, Config, Elicit, ElicitResult, Identity, Json, RpcError, Sample, SampleResult, ToolInfo, ToolResult,
};
use serde::Deserialize;
use serde_json::{Value, json};

/// Runs the scenario that the variable `MCP_CONFORMANCE_SCENARIO` names against the server whose URL is the last argument. `connect` opens
/// the connection, and returns its peer and a future that is ready when the connection has ended.
///
/// # Cancel safety
/// Cancel safe: dropping the future drops the connection.
///
/// # Errors
/// Those of `connect`, and of the first call that fails.
pub async fn run<C, E>(connect: C) -> Result<(), Box<dyn Error>>
where
    C: FnOnce(Arc<dyn Client>, Config, &str) -> Result<(Peer, E), Box<dyn Error>>,
    E: Future<Output = ()>,
{
    let variable = |name: &str| env::var(format!("MCP_CONFORMANCE_{name}"));
    let url = env::args().next_back().unwrap_or_default();
    let mut config = Config::mcp_client(Identity::new("conformance-client", env!("CARGO_PKG_VERSION")));
    config.era = match variable("PROTOCOL_VERSION") {
        Ok(version) if version.as_str() >= "2026" => Era::Modern,
        Ok(_) => Era::Legacy,
        Err(_) => Era::Auto,
    };
    let (peer, end) = connect(Arc::new(Accepts), config, &url)?;
    let calls = async {
        let done = scenario(&peer, &variable("SCENARIO")?, &variable("CONTEXT").unwrap_or_default()).await;
        peer.close(Close::Now);
        done
    };
    let (done, ()) = zip(calls, end).await;
    done
}

/// A client that accepts every form, with the default values of the form or, if there are none, with `confirmed`. Its model answers `Yes.`,
/// and it has no roots.
struct Accepts;

impl Client for Accepts {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::default();
        capabilities.elicitation = true;
        capabilities.sampling = true;
        capabilities.roots = true;
        capabilities
    }

    fn sample(&self, _: InputContext, _: Sample) -> BoxFuture<'static, Result<SampleResult, RpcError>> {
        Box::pin(async { Ok(SampleResult::new("Yes.", "none")) })
    }

    fn roots(&self, _: InputContext) -> BoxFuture<'static, Result<Json, RpcError>> {
        Box::pin(async { Ok(json!([]).into()) })
    }

    fn elicit(&self, _: InputContext, form: Elicit) -> BoxFuture<'static, Result<ElicitResult, RpcError>> {
        let content = form.defaults().unwrap_or_else(|_| json!({"confirmed": true}).into());
        Box::pin(async { Ok(ElicitResult::Accept(content)) })
    }
}

async fn scenario(peer: &Peer, name: &str, context: &str) -> Result<(), Box<dyn Error>> {
    let server = peer.ready().await.map_err(|reason| format!("no connection: {reason}"))?;
    let tools = if server.capabilities.tools { peer.list_tools().await? } else { Vec::new() };
    match name {
        "initialize" | "request-metadata" | "json-schema-ref-no-deref" => {}
        "tools_call" => drop(call(peer, "add_numbers", json!({"a": 2, "b": 3})).await?),
        "elicitation-sep1034-client-defaults" => drop(call(peer, "test_client_elicitation_defaults", json!({})).await?),
        "sse-retry" => drop(call(peer, "test_reconnection", json!({})).await?),
        "json-schema-2020-12-preservation" => {
            let tool = tools.iter().find(|tool| &*tool.name == "json_schema_2020_12_tool").ok_or("the tool is missing")?;
            let schema: Value = tool.input_schema.decode()?;
            call(peer, "json_schema_echo", json!({"schema": schema})).await?;
        }
        "sep-2322-client-request-state" => {
            let asking = zip(call(peer, "test_mrtr_echo_state", json!({})), call(peer, "test_mrtr_no_state", json!({})));
            let plain = zip(call(peer, "test_mrtr_unrelated", json!({})), call(peer, "test_mrtr_no_result_type", json!({})));
            let ((one, other), (unrelated, untyped)) = zip(asking, plain).await;
            for result in [one, other, unrelated, untyped] {
                result?;
            }
        }
        "http-standard-headers" => {
            call_all(peer, &tools).await?;
            for resource in peer.list_resources().await? {
                peer.read_resource(&resource.uri)?.await.result()?;
            }
            for prompt in peer.list_prompts().await? {
                peer.get_prompt(&prompt.name, &Default::default())?.await.result()?;
            }
        }
        "http-custom-headers" => {
            let context: Wanted = serde_json::from_str(context)?;
            for wanted in context.tool_calls {
                call(peer, &wanted.name, wanted.arguments).await?;
            }
        }
        "http-invalid-tool-headers" => call_all(peer, &tools).await?,
        name => return Err(format!("the scenario {name} is unknown").into()),
    }
    Ok(())
}

/// The data of the scenario `http-custom-headers`, in the variable `MCP_CONFORMANCE_CONTEXT`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wanted {
    tool_calls: Vec<WantedCall>,
}

#[derive(Deserialize)]
struct WantedCall {
    name: String,
    arguments: Value,
}

async fn call(peer: &Peer, tool: &str, arguments: Value) -> Result<ToolResult, CallError> {
    peer.call_tool_with(tool, &arguments)?.await.tool()
}

/// Calls each tool, with values for its required arguments.
async fn call_all(peer: &Peer, tools: &[ToolInfo]) -> Result<(), Box<dyn Error>> {
    for tool in tools {
        call(peer, &tool.name, arguments(&tool.input_schema)?).await?;
    }
    Ok(())
}

/// The simplest arguments that a schema of flat properties accepts.
fn arguments(schema: &Json) -> Result<Value, Box<dyn Error>> {
    let schema: Value = schema.decode()?;
    let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let value = |name: &str| match schema["properties"][name]["type"].as_str() {
        Some("number" | "integer") => json!(0),
        Some("boolean") => json!(false),
        _ => json!("test"),
    };
    Ok(required.map(|name| (name.to_owned(), value(name))).collect())
}
