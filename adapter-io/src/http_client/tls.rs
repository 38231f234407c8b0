//! Connections over TLS. The handshake offers HTTP/2, and HTTP/1.1 for servers without HTTP/2.

use std::io;
use std::sync::Arc;

use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

/// Reads a certificate in DER, or several in PEM. The error describes what is wrong.
pub(super) fn read(certificates: &[u8]) -> Result<Vec<CertificateDer<'static>>, &'static str> {
    // A long sequence in DER begins with these bytes, and no text does.
    let is_der = matches!(certificates, [0x30, 0x80..=0xFF, ..]);
    let read = if is_der {
        vec![CertificateDer::from(certificates.to_vec())]
    } else {
        let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificates).collect();
        read.map_err(|_| "the root certificates are malformed")?
    };
    if read.is_empty() {
        return Err("there is no root certificate");
    }
    let mut roots = RootCertStore::empty();
    let are_roots = read.iter().all(|certificate| roots.add(certificate.clone()).is_ok());
    if are_roots { Ok(read) } else { Err("a root certificate is malformed") }
}

/// Adds TLS to the connections of `connector` to addresses that begin with `https://`. `is_wanted` is `true` if there are such addresses:
/// only then are the root certificates read: those of the system, and `more`.
pub(super) fn over<C>(connector: C, more: &[CertificateDer<'static>], is_wanted: bool) -> io::Result<HttpsConnector<C>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().map_err(io::Error::other)?;
    // Reading the certificates of the system takes a while.
    let roots = if is_wanted { roots(more)? } else { RootCertStore::empty() };
    let builder = HttpsConnectorBuilder::new().with_tls_config(versions.with_root_certificates(roots).with_no_client_auth());
    Ok(builder.https_or_http().enable_all_versions().wrap_connector(connector))
}

/// The root certificates of the system, and `more`.
fn roots(more: &[CertificateDer<'static>]) -> io::Result<RootCertStore> {
    let system = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // Some certificates of a system may be malformed or of an unknown kind; these are left out.
    roots.add_parsable_certificates(system.certs);
    roots.add_parsable_certificates(more.iter().cloned());
    if roots.is_empty() {
        let why = system.errors.first().map_or_else(String::new, |error| format!(": {error}"));
        return Err(io::Error::new(io::ErrorKind::NotFound, format!("the system has no root certificates{why}")));
    }
    Ok(roots)
}
