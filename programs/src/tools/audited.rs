//! Tools whose calls are audited.

use std::future::Future;

use endpoint::{Context, Tool, ToolError};
use protocol_core::ToolOutput;
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::audit::{Audit, Record};

/// A tool whose calls are audited and whose result is structured.
pub(super) fn structured<A, R, F, Fut>(audit: &Audit, name: &'static str, handler: F) -> Tool
where
    A: DeserializeOwned + JsonSchema + Send + 'static,
    R: Serialize + JsonSchema + Send + 'static,
    F: Fn(Context, A, Record) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, ToolError>> + Send + 'static,
{
    let audit = audit.clone();
    Tool::new(name, move |context: Context, arguments: A| {
        let (audited, record) = audit.open(name, &context);
        audited.over(handler(context, arguments, record))
    })
}

/// A tool whose calls are audited, and which builds its result itself.
pub(super) fn shaped<A, F, Fut>(audit: &Audit, name: &'static str, handler: F) -> Tool
where
    A: DeserializeOwned + JsonSchema + Send + 'static,
    F: Fn(Context, A, Record) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<ToolOutput, ToolError>> + Send + 'static,
{
    let audit = audit.clone();
    Tool::with_content(name, move |context: Context, arguments: A| {
        let (audited, record) = audit.open(name, &context);
        audited.over(handler(context, arguments, record))
    })
}
