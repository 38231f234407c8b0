use std::sync::Arc;

use adapter_io::{HTTP_CONNECT_TIMEOUT, HTTP_DEAD_TIMEOUT, HttpServerAddress, http_client};
use endpoint::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioTimer;
use protocol_core::Config;

use crate::{Connection, Error, TokioRuntime};

/// Connects to an MCP server over Streamable HTTP as a caller, in a new task. `client` answers the input requests of the server.
///
/// The era is that of [`Config::era`]; with [`Auto`](protocol_core::mcp::Era::Auto) the server is asked which era it speaks. This function
/// only starts the task: if the server cannot be reached, or does not speak MCP, the connection ends later with [`Error::Broken`]. A call
/// that the server refuses with an HTTP status ends with an error that names the status.
///
/// Over TLS, if the server speaks HTTP/2, up to 100 requests share a connection. Otherwise each request has a connection of its own while
/// it runs.
///
/// ```no_run
/// use std::sync::Arc;
///
/// use adapter_tokio::{HttpServerAddress, http_connect};
/// use protocol_core::{Config, Identity, Json, mcp::Era};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let mut config = Config::mcp_client(Identity::new("client", "1.0"));
/// config.era = Era::Auto;
/// let server = HttpServerAddress::new("http://localhost:8080/mcp").header("Authorization", "Bearer TOKEN")?;
/// let connection = http_connect(Arc::new(()), config, server)?;
/// let result = connection.peer().call_tool("greet", Json::empty_object())?.await.tool()?;
/// println!("{}", result.text());
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`Error::Connect`] if the address is malformed; or if it begins with `https://`, and there are no root certificates, or the feature
/// `http-client-tls` is off.
///
/// # Panics
/// Outside of a tokio runtime.
#[track_caller]
pub fn http_connect(client: Arc<dyn Client>, config: Config, server: HttpServerAddress) -> Result<Connection, Error> {
    let clock = TokioRuntime::start();
    let mut connector = HttpConnector::new();
    connector.set_connect_timeout(Some(HTTP_CONNECT_TIMEOUT));
    connector.set_nodelay(true);
    // A connection to a server that is gone ends within `HTTP_DEAD_TIMEOUT`.
    connector.set_keepalive(Some(HTTP_DEAD_TIMEOUT / 2));
    connector.set_keepalive_interval(Some(HTTP_DEAD_TIMEOUT / 6));
    connector.set_keepalive_retries(Some(3));
    #[cfg(target_os = "linux")]
    connector.set_tcp_user_timeout(Some(HTTP_DEAD_TIMEOUT));
    // Also connect for addresses that begin with `https://`: TLS is made over these connections.
    connector.enforce_http(false);
    let (peer, driven) = http_client(client, config, server, Arc::new(clock), connector, TokioTimer::new())?;
    Ok(Connection::of(peer, tokio::spawn(driven)))
}
