//! The resource `clock` of the Tesseron app: the time, sent to subscribers once a second.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use endpoint::{Resource, ResourceContents};
use protocol_core::Json;
use serde::Serialize;

/// The name of the resource.
pub const NAME: &str = "clock";

/// The interval at which subscribers get a new value.
pub const TICK: Duration = Duration::from_secs(1);

/// The resource.
#[must_use]
pub fn resource() -> Resource {
    Resource::new(NAME, NAME, || async { Ok(ResourceContents::text(now().as_str())) })
        .description("What the time is, in milliseconds since 1970")
        .mime_type("application/json")
        .subscribable()
}

/// The value of the resource now.
#[must_use]
pub fn now() -> Json {
    #[derive(Serialize)]
    struct Time {
        unix_ms: u64,
    }
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Json::encode(&Time { unix_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX) }).unwrap_or_default()
}
