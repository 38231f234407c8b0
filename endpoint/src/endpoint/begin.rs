//! Begins the handler of a request.

use std::sync::Arc;

use crate::service::{PendingReply, Service, Start};
use crate::state::ServedCall;
use crate::tool_error::ToolError;
use engine::{BlockingTask, Runtime, Task};
use protocol_core::dialect::Request;

/// Begins the handler of a request.
pub(super) fn begin(runtime: &dyn Runtime, service: &Service, served: Arc<ServedCall>, request: Request) {
    match service.start(&served, request) {
        Start::Reply(reply) => served.respond(reply),
        Start::Task(task) => runtime.spawn(task),
        Start::Local(make) => runtime.spawn_local(make),
        Start::Inline(handler, context, states, arguments) => {
            let begin = || handler(context, states, arguments).map(ToolError::tool_reply).map_err(PendingReply);
            if let Some(task) = Task::begin_in_place(&served, begin) {
                runtime.spawn(Box::pin(task));
            }
        }
        Start::Blocking(job) => {
            served.note_blocking();
            let task = BlockingTask::new(served, job);
            runtime.spawn_blocking(Box::new(move || task.run()));
        }
    }
}
