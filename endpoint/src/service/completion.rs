//! Completion: what an argument of a prompt or a variable of a resource template may be.

use std::sync::Arc;

use super::ToolError;
use crate::context::Context;
use engine::BoxFuture;
use protocol_core::dialect::{Completion, CompletionRequest, Reply};

pub(crate) type Completer =
    Arc<dyn Fn(Context, CompletionRequest) -> BoxFuture<'static, Result<Completion, ToolError>> + Send + Sync>;

pub(crate) async fn start(completer: Completer, context: Context, request: CompletionRequest) -> Reply {
    let completed = completer(context, request).await;
    completed.map_or_else(ToolError::into_reply, Reply::Completion)
}
