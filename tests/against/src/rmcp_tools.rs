//! A server built with rmcp, whose speed is measured. Its tools return a text, report progress, or run until they are cancelled.

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData, ProgressNotificationParam,
    ServerCapabilities, ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, ServerHandler};
use serde_json::Value;
use tests::speed::HandlerCount;
use tests::speed::values::tool_text;

pub(crate) struct Server;

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn call_tool(
        &self,
        call: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = call.arguments.unwrap_or_default();
        let result = match &*call.name {
            "report" => {
                let count = arguments.get("count").and_then(Value::as_u64).unwrap_or_default();
                let token = context.meta.get_progress_token().expect("a token");
                for step in 1..=count {
                    let update = ProgressNotificationParam::new(token.clone(), step as f64).with_total(count as f64);
                    // A hostile client may have left.
                    if context.peer.notify_progress(update).await.is_err() {
                        break;
                    }
                }
                CallToolResult::success(Vec::new())
            }
            "hang" => {
                let _count = HandlerCount::begin();
                context.ct.cancelled().await;
                CallToolResult::success(Vec::new())
            }
            tool => CallToolResult::success(vec![ContentBlock::text(tool_text(tool, arguments).expect("a known tool"))]),
        };
        Ok(CallToolResponse::Complete(result))
    }
}
