//! Completion of the arguments of prompts and the variables of resource templates.

use std::sync::Arc;

use crate::context::Context;
use crate::tool_error::ToolError;
use engine::BoxFuture;
use protocol_core::dialect::{Completion, CompletionRequest, Reply};

pub(crate) type Completer =
    Arc<dyn Fn(Context, CompletionRequest) -> BoxFuture<'static, Result<Completion, ToolError>> + Send + Sync>;

pub(crate) async fn start(completer: Completer, context: Context, request: CompletionRequest) -> Reply {
    let completed = completer(context, request).await;
    completed.map_or_else(ToolError::into_error_reply, Reply::Completion)
}
