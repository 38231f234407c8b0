//! A server of rmcp on its standard input and output, for `conformance-check`: `work` reports each step and then sleeps, and stops if it is
//! cancelled; `echo` returns its text.

use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData, JsonObject, ListToolsResult,
    PaginatedRequestParams, ProgressNotificationParam, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::transport::stdio;
use rmcp::{RoleServer, ServerHandler, ServiceExt};
use serde_json::{Value, json};

struct Server;

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let work = json!({"type": "object", "properties": {"steps": {"type": "integer"}, "step_ms": {"type": "integer"}}});
        let echo = json!({"type": "object", "properties": {"text": {"type": "string"}}});
        let tool = |name, description, schema: Value| Tool::new(name, description, schema.as_object().cloned().unwrap_or_default());
        let tools = vec![tool("work", "Reports each step.", work), tool("echo", "Returns its text.", echo)];
        Ok(ListToolsResult::with_all_items(tools))
    }

    async fn call_tool(
        &self,
        call: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = call.arguments.unwrap_or_default();
        match &*call.name {
            "echo" => {
                let text = arguments.get("text").and_then(Value::as_str).unwrap_or_default();
                Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
            }
            "work" => work(&arguments, &context).await,
            name => Err(ErrorData::invalid_params(format!("there is no tool {name}"), None)),
        }
    }
}

async fn work(arguments: &JsonObject, context: &RequestContext<RoleServer>) -> Result<CallToolResponse, ErrorData> {
    let number = |name: &str, default| arguments.get(name).and_then(Value::as_u64).unwrap_or(default);
    let (steps, pause) = (number("steps", 5), Duration::from_millis(number("step_ms", 200)));
    for step in 1..=steps {
        if let Some(token) = context.meta.get_progress_token() {
            let update = ProgressNotificationParam::new(token, step as f64).with_total(steps as f64);
            context.peer.notify_progress(update).await.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = context.ct.cancelled() => return Err(ErrorData::internal_error("cancelled", None)),
        }
    }
    Ok(CallToolResult::success(vec![ContentBlock::text(format!("worked {steps} steps"))]).into())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    Server.serve(stdio()).await?.waiting().await?;
    Ok(())
}
