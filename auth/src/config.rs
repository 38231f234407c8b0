//! What a login is told before it begins.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use crate::jwt::Signer;
use crate::secret::Secret;

/// A login: to which server, as which client.
#[derive(Debug)]
#[non_exhaustive]
pub struct LoginConfig {
    /// The address of the MCP server.
    pub server: String,
    /// The name of the program, which pages show.
    pub client_name: String,
    /// How tokens are got.
    pub grant: Grant,
    /// The scopes to ask for; `None` asks for those that the server names.
    pub scopes: Option<Vec<String>>,
    /// An issuer that the metadata of an authorization server may name in place of its own: for a server that is known to be wrong.
    pub accept_issuer: Option<String>,
    /// Uses a server that does not say that it offers PKCE. PKCE is used all the same. Off by default.
    pub accept_silent_pkce: bool,
    /// Leaves the parameter `resource` out: for Entra ID. Off by default.
    pub omit_resource: bool,
    /// Repeats the scopes on refresh: for Entra ID. Off by default.
    pub refresh_scopes: bool,
    /// The key that tokens are bound to (DPoP), of P-256. Its owner keeps it: tokens that are bound to another key are not refreshed. Used
    /// with each authorization server that lists its algorithm.
    pub proof_key: Option<Box<dyn Signer>>,
    /// Lets the documents lead to private networks although the address of the server does not tell that it is in one. Off by default.
    pub is_private: bool,
}

impl LoginConfig {
    /// A login of a person at a server.
    #[must_use]
    pub fn new(server: impl Into<String>, client_name: impl Into<String>) -> Self {
        Self {
            server: server.into(),
            client_name: client_name.into(),
            grant: Grant::Person { clients: Vec::new(), document: None },
            scopes: None,
            accept_issuer: None,
            accept_silent_pkce: false,
            omit_resource: false,
            refresh_scopes: false,
            proof_key: None,
            is_private: false,
        }
    }
}

/// How tokens are got.
#[derive(Debug)]
#[non_exhaustive]
pub enum Grant {
    /// A person logs in on a page, and a callback brings a code.
    Person {
        /// Clients that were registered by hand. If there are any, no other client is used.
        clients: Vec<GivenClient>,
        /// The address of the client's metadata document, which is its id where a server takes such ids.
        document: Option<String>,
    },
    /// The client is its own user (`client_credentials`). Its issuer must be set.
    ClientCredentials(GivenClient),
    /// An identity provider vouches for the user (enterprise-managed authorization). The issuer of `client` must be set.
    EnterpriseManaged {
        /// The token endpoint of the identity provider.
        provider: String,
        /// The client at the identity provider.
        provider_client: GivenClient,
        /// The client at the authorization server.
        client: GivenClient,
    },
    /// A platform vouches for the workload: its token is the grant.
    Workload {
        /// The authorization server.
        issuer: String,
        /// The id of the client, if it has one.
        client_id: Option<String>,
    },
}

/// A client that was registered by hand.
#[derive(Debug)]
#[non_exhaustive]
pub struct GivenClient {
    /// The server that knows it; for a person `None` takes the first server that is used.
    pub issuer: Option<String>,
    /// Its id.
    pub client_id: String,
    /// Its secret, if it has one.
    pub client_secret: Option<Secret>,
    /// Its key, if it authenticates by assertions.
    pub key: Option<Box<dyn Signer>>,
}

impl GivenClient {
    /// A client without a secret.
    #[must_use]
    pub fn new(client_id: impl Into<String>) -> Self {
        Self { issuer: None, client_id: client_id.into(), client_secret: None, key: None }
    }
}

impl Grant {
    pub(crate) fn is_person(&self) -> bool {
        matches!(self, Self::Person { .. })
    }

    /// The issuer that alone may get what proves who we are. A resource does not choose it.
    pub(crate) fn issuer(&self) -> Option<&str> {
        match self {
            Self::Person { .. } => None,
            Self::ClientCredentials(client) | Self::EnterpriseManaged { client, .. } => {
                Some(client.issuer.as_deref().unwrap_or_default())
            }
            Self::Workload { issuer, .. } => Some(issuer),
        }
    }

    /// The key of a client.
    pub(crate) fn key(&self, client_id: &str) -> Option<&dyn Signer> {
        let clients: &[GivenClient] = match self {
            Self::Person { clients, .. } => clients,
            Self::ClientCredentials(client) | Self::EnterpriseManaged { client, .. } => core::slice::from_ref(client),
            Self::Workload { .. } => &[],
        };
        clients.iter().find(|client| client.client_id == client_id).and_then(|client| client.key.as_deref())
    }
}
