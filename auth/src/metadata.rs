//! The documents that say where to log in: of a protected resource (RFC 9728) and of an authorization server (RFC 8414).

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::address::{Reach, covers, is_fit, is_issuer, query, written_origin};
use crate::document::Document;

/// The largest document, in bytes.
pub(crate) const MAX_DOCUMENT: usize = 64 * 1024;

/// The most authorization servers of a resource that are tried.
const MAX_SERVERS: usize = 4;

/// What a resource says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Resource {
    /// As it was written: the parameter `resource` of all requests. Absent for a server of 2025-03-26.
    pub(crate) name: Option<String>,
    pub(crate) issuers: Vec<String>,
    pub(crate) scopes: Option<Vec<String>>,
    pub(crate) needs_dpop: bool,
}

/// Why a document is not that of the resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotResource {
    /// It is something else.
    Other,
    /// It is that of another resource.
    Foreign,
}

impl Resource {
    pub(crate) fn parse(body: &[u8], server: &str, reach: Reach) -> Result<Self, NotResource> {
        let document = Document::parse(body, MAX_DOCUMENT).ok_or(NotResource::Other)?;
        if !document.has("resource") && !document.has("authorization_servers") {
            return Err(NotResource::Other);
        }
        let name = document.text("resource").filter(|name| covers(name, server)).ok_or(NotResource::Foreign)?;
        let mut issuers = document.list("authorization_servers").unwrap_or_default();
        issuers.retain(|issuer| is_fit(issuer, reach) && !issuer.contains('?'));
        issuers.truncate(MAX_SERVERS);
        Ok(Self {
            name: Some(name),
            issuers,
            scopes: document.list("scopes_supported").and_then(|scopes| crate::scope::parse(&scopes.join(" "))),
            needs_dpop: document.flag("dpop_bound_access_tokens_required"),
        })
    }
}

/// What an authorization server says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Server {
    /// As the document has it.
    pub(crate) issuer: String,
    pub(crate) authorization_endpoint: Option<String>,
    pub(crate) token_endpoint: String,
    pub(crate) registration_endpoint: Option<String>,
    /// How clients may authenticate; absent if nothing is said.
    pub(crate) methods: Option<Vec<String>>,
    pub(crate) assertion_algorithms: Option<Vec<String>>,
    pub(crate) proof_algorithms: Vec<String>,
    pub(crate) offers_offline: bool,
    /// Callbacks name their issuer.
    pub(crate) sends_issuer: bool,
    pub(crate) takes_documents: bool,
}

/// Why a server cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotServer {
    /// The document is something else, or an address in it is unfit.
    Other,
    /// The document is that of another issuer.
    Issuer,
    /// It does not offer PKCE with S256.
    Pkce,
}

impl Server {
    /// Reads the document of `issuer`. `accepted` is one more issuer that the user lets it name.
    pub(crate) fn parse(body: &[u8], issuer: &str, accepted: Option<&str>, needs: Needs, reach: Reach) -> Result<Self, NotServer> {
        let document = Document::parse(body, MAX_DOCUMENT).ok_or(NotServer::Other)?;
        let named = document.text("issuer").ok_or(NotServer::Issuer)?;
        if !is_issuer(issuer, &named) && accepted != Some(&*named) {
            return Err(NotServer::Issuer);
        }
        let endpoint = |name: &str| match document.text(name) {
            Some(address) if is_fit(&address, reach) => Ok(Some(address)),
            Some(_) => Err(NotServer::Other),
            None => Ok(None),
        };
        let authorization_endpoint = endpoint("authorization_endpoint")?;
        let token_endpoint = endpoint("token_endpoint")?.ok_or(NotServer::Other)?;
        if needs.page {
            let address = authorization_endpoint.as_deref().ok_or(NotServer::Other)?;
            let ours = [
                "response_type",
                "client_id",
                "redirect_uri",
                "state",
                "code_challenge",
                "code_challenge_method",
                "resource",
                "scope",
            ];
            let names = query(address).ok_or(NotServer::Other)?;
            let is_coded = document.list("response_types_supported").is_none_or(|types| types.iter().any(|name| name == "code"));
            if !is_coded || names.iter().any(|(name, _)| ours.contains(&&**name)) {
                return Err(NotServer::Other);
            }
            let methods = document.list("code_challenge_methods_supported");
            let has_pkce = methods.map_or(!needs.pkce, |methods| methods.iter().any(|method| method == "S256"));
            if !has_pkce {
                return Err(NotServer::Pkce);
            }
        }
        Ok(Self {
            issuer: named,
            authorization_endpoint,
            token_endpoint,
            registration_endpoint: endpoint("registration_endpoint")?,
            methods: document.list("token_endpoint_auth_methods_supported"),
            assertion_algorithms: document.list("token_endpoint_auth_signing_alg_values_supported"),
            proof_algorithms: document.list("dpop_signing_alg_values_supported").unwrap_or_default(),
            offers_offline: document
                .list("scopes_supported")
                .is_some_and(|scopes| scopes.iter().any(|name| name == "offline_access")),
            sends_issuer: document.flag("authorization_response_iss_parameter_supported"),
            takes_documents: document.flag("client_id_metadata_document_supported"),
        })
    }

    /// What a server of 2025-03-26 without a document is (section "Fallbacks for Servers without Metadata Discovery").
    pub(crate) fn by_default(server: &str) -> Self {
        let issuer = written_origin(server);
        Self {
            authorization_endpoint: Some(format!("{issuer}/authorize")),
            token_endpoint: format!("{issuer}/token"),
            registration_endpoint: Some(format!("{issuer}/register")),
            issuer,
            methods: None,
            assertion_algorithms: None,
            proof_algorithms: Vec::new(),
            offers_offline: false,
            sends_issuer: false,
            takes_documents: false,
        }
    }
}

/// What a login needs of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needs {
    /// A page for a person.
    pub(crate) page: bool,
    /// That it says that it offers PKCE.
    pub(crate) pkce: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_of_a_resource_has_its_name_and_servers_that_may_be_asked() {
        let read = |body: &str| Resource::parse(body.as_bytes(), "https://h/mcp", Reach::Public);
        let servers = r#"["file:///x","https://u@a","http://a","https://10.0.0.1","https://a","javascript:x","https://b"]"#;
        let resource =
            read(&format!(r#"{{"resource":"https://h/","authorization_servers":{servers},"scopes_supported":["a","b"]}}"#));
        let resource = resource.unwrap();
        assert_eq!(resource.name.as_deref(), Some("https://h/"), "as it was written");
        assert_eq!(resource.issuers, ["https://a", "https://b"]);
        assert_eq!(resource.scopes.unwrap(), ["a", "b"]);
        let many = alloc::vec!["\"https://a\""; 3000].join(",");
        assert_eq!(
            read(&format!(r#"{{"resource":"https://h/","authorization_servers":[{many}]}}"#)).unwrap().issuers.len(),
            MAX_SERVERS
        );
        assert_eq!(read("<html>"), Err(NotResource::Other));
        assert_eq!(read(r#"{"a":1}"#), Err(NotResource::Other));
        assert_eq!(read(r#"{"resource":"https://evil/","authorization_servers":["https://a"]}"#), Err(NotResource::Foreign));
        assert_eq!(read(r#"{"authorization_servers":["https://a"]}"#), Err(NotResource::Foreign));
    }

    #[test]
    fn the_document_of_a_server_is_refused_for_each_fault() {
        let read = |replaced: &str, by: &str| {
            let body = r#"{"issuer":"https://a/t","authorization_endpoint":"https://a/auth?x=1","token_endpoint":"https://a/token","code_challenge_methods_supported":["S256"]}"#;
            assert!(body.contains(replaced));
            let needs = Needs { page: true, pkce: true };
            Server::parse(body.replacen(replaced, by, 1).as_bytes(), "https://a/t", Some("https://known"), needs, Reach::Public)
                .map(drop)
        };
        for (replaced, by, expected) in [
            ("S256", "S256", Ok(())),
            ("https://a/t\"", "https://known\"", Ok(())),
            ("https://a/t\"", "https://a/t/\"", Err(NotServer::Issuer)),
            ("https://a/t\"", "https://a\"", Err(NotServer::Issuer)),
            ("https://a/t\"", "https://A/t\"", Err(NotServer::Issuer)),
            ("\"issuer\"", "\"Issuer\"", Err(NotServer::Issuer)),
            ("S256", "plain", Err(NotServer::Pkce)),
            ("code_challenge_methods_supported", "x", Err(NotServer::Pkce)),
            ("https://a/token", "http://a/token", Err(NotServer::Other)),
            ("https://a/token", "https://127.0.0.1/token", Err(NotServer::Other)),
            ("\"token_endpoint\"", "\"x\"", Err(NotServer::Other)),
            ("x=1", "client_id=1", Err(NotServer::Other)),
            ("x=1", "%73tate=1", Err(NotServer::Other)),
            ("?x=1", "#x", Err(NotServer::Other)),
            ("https://a/auth", "javascript:alert(1)", Err(NotServer::Other)),
            ("\"issuer\"", "\"response_types_supported\":[\"token\"],\"issuer\"", Err(NotServer::Other)),
        ] {
            assert_eq!(read(replaced, by), expected, "{replaced} by {by}");
        }
    }
}
