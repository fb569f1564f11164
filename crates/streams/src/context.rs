//! State shared by all connections of one listener: the node, TLS settings and the negotiation policy.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use base::Secret;
use sasl::{Decoy, KeyShapes, MechanismSet, TokenKey};
use throng_core::{Node, NodeLimits};

/// Sets the stanza limits of a listener.
pub fn set_stanza_limits(listener: &mut net::ListenerConfig, limits: &NodeLimits) {
    listener.limits = limits.stanza();
    listener.unauthenticated_limits = limits.negotiation();
    // What these limits admit must arrive, on top of what was queued before it.
    let bytes = net::ListenerConfig::MAX_UNSENT_BYTES.saturating_add(limits.outgoing_stanza_bytes());
    listener.max_unsent_bytes.raise(bytes);
}

/// STARTTLS policy of plaintext streams (RFC 6120, section 5.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsPolicy {
    /// STARTTLS is the only feature offered until it is done.
    Required,
    /// Offered but not required.
    Optional,
    /// Not offered.
    Off,
}

/// Permitted ways to log in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthPolicy {
    /// Enabled mechanisms other than ANONYMOUS.
    pub mechanisms: MechanismSet,
    /// Whether SASL ANONYMOUS is enabled.
    pub allow_anonymous: bool,
}

/// Negotiation policy of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NegotiationPolicy {
    /// STARTTLS policy.
    pub tls: TlsPolicy,
    /// Whether PLAIN is offered without TLS; only if the listener's configuration permits it.
    pub allow_plain_without_tls: bool,
    /// Whether SASL ANONYMOUS is enabled.
    pub allow_anonymous: bool,
    /// Enabled mechanisms other than ANONYMOUS.
    pub mechanisms: MechanismSet,
    /// Iterations of newly derived keys. Accounts that do not exist report the same number.
    pub scram_iterations: u32,
    /// Login policies of domains that differ from the listener's default.
    pub domains: BTreeMap<String, AuthPolicy>,
}

impl NegotiationPolicy {
    /// Login policy of `domain`; the listener's default if it is `None` or has no policy of its own.
    pub fn auth(&self, domain: Option<&str>) -> AuthPolicy {
        let own = domain.and_then(|domain| self.domains.get(domain));
        own.copied()
            .unwrap_or(AuthPolicy { mechanisms: self.mechanisms, allow_anonymous: self.allow_anonymous })
    }
}

/// Extension of the node: the shapes of imported keys by domain, which accounts that do not exist must have, too.
#[derive(Default)]
pub struct ImportedKeyShapes(pub Arc<HashMap<String, KeyShapes>>);

/// State shared by all connections of one listener.
pub struct C2sContext {
    /// The node.
    pub node: Arc<Node>,
    /// TLS configuration; `None` when no listener has TLS.
    pub tls: Option<Arc<net::tls::TlsConfig>>,
    /// Negotiation policy.
    pub policy: NegotiationPolicy,
    /// Credentials for accounts that do not exist.
    pub decoy: Arc<Decoy>,
    /// Encoded credentials of a non-existent account, of the usual length.
    pub decoy_credentials: Vec<u8>,
    /// Key that FAST tokens are computed with (XEP-0484).
    pub token_key: TokenKey,
    /// Default domain, for clients that name none.
    pub default_domain: String,
    /// Parser limits of bound streams.
    pub xml_limits: xml::Limits,
}

impl C2sContext {
    /// Builds the context. `secret` must survive restarts: otherwise the decoys of accounts that do not exist change
    /// and reveal them, and every token becomes invalid.
    pub fn new(
        node: Arc<Node>,
        tls: Option<Arc<net::tls::TlsConfig>>,
        policy: NegotiationPolicy,
        secret: &Secret,
        default_domain: String,
    ) -> Arc<C2sContext> {
        let limits = node.limits().stanza();
        let shapes = node.extensions.get_or_default::<ImportedKeyShapes>().0.clone();
        let decoy = Arc::new(Decoy::new(secret, policy.scram_iterations).with_shapes(shapes));
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
