//! What all connections of one listener share: the node, TLS settings, and what may be negotiated.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::Secret;
use sasl::{Decoy, MechanismSet, TokenKey};
use throng_core::Node;

/// Whether a plaintext stream must, may or cannot be encrypted (RFC 6120 section 5.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsPolicy {
    /// Nothing but STARTTLS is offered before it is done.
    Required,
    /// Offered, not demanded.
    Optional,
    /// Not offered.
    Off,
}

/// How clients may log in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthPolicy {
    /// Mechanisms that are switched on, besides ANONYMOUS.
    pub mechanisms: MechanismSet,
    /// SASL ANONYMOUS.
    pub allow_anonymous: bool,
}

/// What may be negotiated on a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NegotiationPolicy {
    /// STARTTLS.
    pub tls: TlsPolicy,
    /// PLAIN without TLS: only where the listener says so.
    pub allow_plain_without_tls: bool,
    /// SASL ANONYMOUS.
    pub allow_anonymous: bool,
    /// Mechanisms that are switched on, besides ANONYMOUS.
    pub mechanisms: MechanismSet,
    /// Iterations of new keys. Accounts that do not exist pretend to have them.
    pub scram_iterations: u32,
    /// Domains whose clients log in otherwise.
    pub domains: BTreeMap<String, AuthPolicy>,
}

impl NegotiationPolicy {
    /// How clients of this domain may log in; of the listener's default, if they have named none.
    pub fn auth(&self, domain: Option<&str>) -> AuthPolicy {
        let own = domain.and_then(|domain| self.domains.get(domain));
        own.copied()
            .unwrap_or(AuthPolicy { mechanisms: self.mechanisms, allow_anonymous: self.allow_anonymous })
    }
}

/// What all connections of one listener share.
pub struct C2sContext {
    /// The engine.
    pub node: Arc<Node>,
    /// Certificates; none when no listener has TLS.
    pub tls: Option<Arc<net::tls::TlsConfig>>,
    /// What may be negotiated.
    pub policy: NegotiationPolicy,
    /// Answers for accounts that do not exist.
    pub decoy: Arc<Decoy>,
    /// Stored credentials of nobody, of the usual length.
    pub decoy_credentials: Vec<u8>,
    /// What tokens are made with (XEP-0484).
    pub token_key: TokenKey,
    /// The default domain, for clients that name none.
    pub default_domain: String,
    /// The parser's limits after authentication and before.
    pub xml_limits: xml::Limits,
}

impl C2sContext {
    /// Puts a service together. `secret` must stay the same over restarts, or the answers for accounts that do
    /// not exist change and give them away, and every token is worth nothing.
    pub fn new(
        node: Arc<Node>,
        tls: Option<Arc<net::tls::TlsConfig>>,
        policy: NegotiationPolicy,
        secret: &Secret,
        default_domain: String,
    ) -> Arc<C2sContext> {
        let limits = node.limits().stanza();
        let decoy = Arc::new(Decoy::new(secret, policy.scram_iterations));
        let tokens = TokenKey::new(secret);
        let decoy_text = decoy.credentials("").encode();
        Arc::new(C2sContext {
            node,
            tls,
            policy,
            decoy,
            decoy_credentials: decoy_text,
            token_key: tokens,
            default_domain,
            xml_limits: limits,
        })
    }
}
