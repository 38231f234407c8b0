//! Code shared by tests, benches, the soak examples and the fuzz targets.

pub mod bridge;
#[cfg(feature = "schemas")]
pub mod fixtures;
pub mod fuzz;
#[cfg(unix)]
pub mod harness;
#[cfg(unix)]
pub mod http_speed;
pub mod processes;
#[cfg(unix)]
mod raw_http;
pub mod replay;
#[cfg(unix)]
pub mod scenarios;
pub mod scratch;
#[cfg(unix)]
pub mod soak;
pub mod speed;
pub mod until;

/// Compiles the examples of the README, of the guides, of the cookbook and of the page on long-running tools, and runs them. Those that
/// need a peer or a signal are marked `no_run`, and are only compiled.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../README.md")]
    mod readme {}
    #[doc = include_str!("../../docs/cookbook.md")]
    mod cookbook {}
    #[doc = include_str!("../../docs/guides/from-rmcp.md")]
    mod from_rmcp {}
    #[doc = include_str!("../../docs/guides/fuzzing.md")]
    mod fuzzing {}
    #[doc = include_str!("../../docs/guides/gateway.md")]
    mod gateway {}
    #[doc = include_str!("../../docs/guides/hooks.md")]
    mod hooks {}
    #[doc = include_str!("../../docs/guides/http.md")]
    mod http {}
    #[doc = include_str!("../../docs/guides/macros.md")]
    mod macros {}
    #[doc = include_str!("../../docs/guides/no-std.md")]
    mod no_std {}
    #[doc = include_str!("../../docs/guides/own-loop.md")]
    mod own_loop {}
    #[doc = include_str!("../../docs/guides/own-runtime.md")]
    mod own_runtime {}
    #[doc = include_str!("../../docs/guides/smol.md")]
    mod smol {}
    #[doc = include_str!("../../docs/guides/testing.md")]
    mod testing {}
    #[doc = include_str!("../../docs/guides/tokio.md")]
    mod tokio {}
    #[doc = include_str!("../../docs/guides/transport.md")]
    mod transport {}
    #[doc = include_str!("../../docs/long-running-tools.md")]
    mod long_running_tools {}
}
