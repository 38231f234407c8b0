use std::fmt;
use std::io;
use std::sync::Arc;

use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use protocol_core::http::{HttpClientConfig, HttpReason, without_credentials};
#[cfg(feature = "http-client-tls")]
use rustls::pki_types::CertificateDer;

use super::proxy::Proxy;
use crate::Error;

/// A function that gets the reason for which a stream broke.
pub(super) type OnResume = Arc<dyn Fn(&HttpReason) + Send + Sync>;

/// The address of an MCP server over HTTP, with the configuration of the client and the header fields that are added to every request.
#[derive(Clone)]
pub struct HttpServerAddress {
    pub(super) config: HttpClientConfig,
    pub(super) headers: HeaderMap,
    #[cfg(feature = "http-client-tls")]
    pub(super) roots: Vec<CertificateDer<'static>>,
    pub(super) on_resume: Option<OnResume>,
    pub(super) proxy: Proxy,
}

impl HttpServerAddress {
    /// An address of the form `http://HOST/PATH` or `http://HOST:PORT/PATH`, or, with the feature `http-client-tls`, of the same forms with
    /// `https`. The address is checked only when the client is made.
    #[must_use]
    pub fn new(url: &str) -> Self {
        Self {
            config: HttpClientConfig::new(url),
            headers: HeaderMap::new(),
            #[cfg(feature = "http-client-tls")]
            roots: Vec::new(),
            on_resume: None,
            proxy: Proxy::default(),
        }
    }

    /// Adds a field to every request, such as `Authorization`, also after a redirection. The client follows no redirection to another
    /// origin.
    ///
    /// # Errors
    /// [`Error::Connect`] if HTTP does not allow the name or the value.
    pub fn header(mut self, name: &str, value: &str) -> Result<Self, Error> {
        let name = HeaderName::try_from(name).map_err(|_| self.invalid("a header has an invalid name"))?;
        let mut value = HeaderValue::try_from(value).map_err(|_| self.invalid("a header has an invalid value"))?;
        // `Debug` does not show a sensitive value.
        value.set_sensitive(true);
        self.headers.append(name, value);
        Ok(self)
    }

    /// Adds root certificates to those of the system: one in DER, or any number in PEM. May be called several times.
    ///
    /// # Errors
    /// [`Error::Connect`] if `certificates` is malformed, has no certificate, or has a certificate that cannot be a root.
    #[cfg(feature = "http-client-tls")]
    pub fn root_certificates(mut self, certificates: &[u8]) -> Result<Self, Error> {
        let read = super::tls::read(certificates).map_err(|why| self.invalid(why))?;
        self.roots.extend(read);
        Ok(self)
    }

    /// Sends all requests through the proxy with this address, of the form `http://HOST:PORT` or `http://NAME:PASSWORD@HOST:PORT`, instead
    /// of that of the environment. A server over TLS is reached through a tunnel. The address is checked only when the client is made.
    ///
    /// By default the variables `HTTP_PROXY`, `HTTPS_PROXY` and `NO_PROXY` are read as curl reads them (also `ALL_PROXY`, and the same in
    /// lower case), except for servers on this machine.
    #[must_use]
    pub fn proxy(mut self, address: &str) -> Self {
        self.proxy = Proxy::At(address.to_owned());
        self
    }

    /// Sends no request through a proxy, whatever the environment says.
    #[must_use]
    pub fn without_proxy(mut self) -> Self {
        self.proxy = Proxy::None;
        self
    }

    /// Changes the configuration of the client.
    #[must_use]
    pub fn configure(mut self, change: impl FnOnce(&mut HttpClientConfig)) -> Self {
        change(&mut self.config);
        self
    }

    /// Calls `on_resume` when a stream broke or the server has forgotten the session, and the client tries for a while to go on, so that a
    /// person who waits can be told. It is called by the task of the client, and must not block.
    #[must_use]
    pub fn on_resume(mut self, on_resume: impl Fn(&HttpReason) + Send + Sync + 'static) -> Self {
        self.on_resume = Some(Arc::new(on_resume));
        self
    }

    /// The address without a password.
    pub(super) fn shown(&self) -> String {
        without_credentials(&self.config.url)
    }

    pub(super) fn invalid(&self, why: &'static str) -> Error {
        Error::connecting_to(self.shown())(io::Error::new(io::ErrorKind::InvalidInput, why))
    }
}

impl fmt::Debug for HttpServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpServerAddress").field("config", &self.config).field("headers", &self.headers).finish_non_exhaustive()
    }
}
