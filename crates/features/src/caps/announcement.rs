//! Capability announcements of clients, and the queries that resolve them: XEP-0115 1.6.0, sections 4 and 6.2;
//! XEP-0390 0.3.2, sections 5.4 and 5.5.
//!
//! An announcement is parsed in one pass, without a tree, because every presence of many clients contains one. If
//! both kinds are present, XEP-0390 is used, because it cannot be forged; of several hashes the strongest supported
//! one is used. Hashes of unsupported functions and announcements in the legacy format (without `hash`) are ignored.
//!
//! # Pitfalls
//!
//! [`CapsHash`] stores the digest, not its text, because base64 has several texts for one digest.

use std::sync::Arc;

use base64::Engine;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use feature_api::server_iq::{ServerIqReply, send_iq_get};
use throng_core::limits::STANZA_LIMITS;
use throng_core::{Effects, Node, Session};
use xml::{Event, NamespaceContext, Ns, Reader};

use super::cache::{CapsLookup, caps_cache};
use super::hash::CapsAlgorithm;
use super::observation;
use super::verification::verify;

/// Specification that an announcement follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CapsVersion {
    /// XEP-0115.
    Xep0115,
    /// XEP-0390.
    Xep0390,
}

/// A hash that a client announced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CapsHash {
    pub(super) version: CapsVersion,
    pub(super) algorithm: CapsAlgorithm,
    pub(super) digest: Vec<u8>,
    /// Node under which the client answers disco queries for it.
    pub(super) node: String,
}

static CLIENT: NamespaceContext = NamespaceContext::client();
/// Longest node that is queried, in bytes.
const MAX_NODE_BYTES: usize = 512;

/// Clients differ about padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

impl CapsHash {
    fn new(
        scheme: CapsVersion,
        algorithm: &str,
        text: &str,
        node: impl FnOnce() -> String,
    ) -> Option<CapsHash> {
        let algorithm = CapsAlgorithm::from_name(algorithm)?;
        // XEP-0300, section 3.2 forbids SHA-1 except where a legacy protocol requires it.
        if scheme == CapsVersion::Xep0390 && algorithm == CapsAlgorithm::Sha1 || text.len() > 128 {
            return None;
        }
        let digest =
            BASE64.decode(text.trim()).ok().filter(|digest| digest.len() == algorithm.digest_len())?;
        let node = node();
        (node.len() <= MAX_NODE_BYTES).then_some(CapsHash { version: scheme, algorithm, digest, node })
    }

    /// Reads the announcement of a stanza.
    pub(super) fn from_stanza(bytes: &[u8]) -> Option<CapsHash> {
        let mut reader = Reader::new(bytes, &CLIENT, &STANZA_LIMITS).ok()?;
        let mut best: Option<CapsHash> = None;
        let (mut depth, mut inside, mut algo) = (0_u32, false, None);
        let mut text = String::new();
        while let Some(event) = reader.next().ok()? {
            match event {
                Event::Start(start) => {
                    depth += 1;
                    let attr = |name| start.attr(name).map(|a| a.value());
                    match depth {
                        2 => {
                            inside = start.is("c", Ns::Caps2);
                            if best.is_none() && start.is("c", Ns::Caps) {
                                let (ver, node) =
                                    (attr("ver").unwrap_or_default(), attr("node").unwrap_or_default());
                                let hash = attr("hash").unwrap_or_default();
                                best = CapsHash::new(CapsVersion::Xep0115, &hash, &ver, || {
                                    format!("{node}#{ver}")
                                });
                            }
                        }
                        3 if inside && start.is("hash", Ns::Hashes2) => {
                            algo = attr("algo").map(std::borrow::Cow::into_owned);
                            text.clear();
                        }
                        _ => {}
                    }
                }
                Event::Text(piece) if algo.is_some() && depth == 3 && text.len() <= 128 => {
                    text.push_str(&piece.unescape());
                }
                Event::Text(_) => {}
                Event::End => {
                    if depth == 3
                        && let Some(algo) = algo.take()
                    {
                        let text = text.trim();
                        let node = || format!("{}#{algo}.{text}", Ns::Caps2.as_str());
                        let new = CapsHash::new(CapsVersion::Xep0390, &algo, text, node);
                        let strength = |p: &Option<CapsHash>| {
                            p.as_ref().map(|p| (p.version == CapsVersion::Xep0390, p.algorithm.digest_len()))
                        };
                        if strength(&new) > strength(&best) {
                            best = new;
                        }
                    }
                    depth = depth.saturating_sub(1);
                }
            }
        }
        best
    }

    /// Key in the cache.
    pub(super) fn cache_key(&self) -> String {
        let scheme = if self.version == CapsVersion::Xep0115 { '1' } else { '2' };
        let digest = base64::prelude::BASE64_STANDARD.encode(&self.digest);
        format!("{scheme} {} {digest}", self.algorithm.name())
    }
}

/// Software of a client: the node that it announces (XEP-0115, section 4), which is the address of its site.
pub(super) fn software(session: &Session) -> Option<String> {
    let presence = session.with(|state| state.presence.clone())?;
    let mut reader = Reader::new(presence.bytes(), &CLIENT, &STANZA_LIMITS).ok()?;
    let mut depth = 0_u32;
    while let Some(event) = reader.next().ok()? {
        match event {
            Event::Start(start) => {
                depth += 1;
                if depth == 2 && start.is("c", Ns::Caps) {
                    let node = start.attr("node")?.value().into_owned();
                    return Some(node).filter(|node| !node.is_empty() && node.len() <= MAX_NODE_BYTES);
                }
            }
            Event::End => depth = depth.saturating_sub(1),
            Event::Text(_) => {}
        }
    }
    None
}

/// Processes the announcement of a session in this stanza.
pub(super) fn process_announcement(
    node: &Arc<Node>,
    session: &Arc<Session>,
    bytes: &[u8],
    effects: &mut Effects,
) {
    let Some(print) = CapsHash::from_stanza(bytes) else { return };
    let key = print.cache_key();
    let before = caps_cache(node).features(session);
    match caps_cache(node).announce(session, &key, node.seconds()) {
        CapsLookup::Known(set) => observation::announced(node, session, before, &set),
        CapsLookup::Wait => observation::remember(session, before),
        CapsLookup::Query => {
            observation::remember(session, before);
            let at = Some(print.node.clone());
            query_client(node, session, Arc::new((key, print)), at, effects);
        }
    }
}

/// Queries one client, and the next one if its reply is wrong.
fn query_client(
    node: &Arc<Node>,
    session: &Arc<Session>,
    print: Arc<(String, CapsHash)>,
    at: Option<String>,
    effects: &mut Effects,
) {
    let (queried_session, about) = (session.clone(), print.clone());
    let then = Box::new(move |node: &Arc<Node>, reply: ServerIqReply<'_>, effects: &mut Effects| {
        let verified = match reply {
            ServerIqReply::Result { bytes, .. } => verify(&about.1, bytes),
            ServerIqReply::Error | ServerIqReply::NoReply => None,
        };
        match verified {
            Some(set) => {
                if let Some(verified) = caps_cache(node).insert_verified(&about.0, set) {
                    observation::verified(node, &queried_session, verified);
                }
            }
            None => {
                tracing::debug!(client = %queried_session.jid, "a client did not reply to the query for its announced \
                 capabilities hash");
                if let Some(next) = caps_cache(node).query_failed(&about.0, &queried_session, node.seconds())
                {
                    // The node names the first client's software; the next one may have the same features in another.
                    query_client(node, &next, about, None, effects);
                }
            }
        }
    });
    let question = |w: &mut xml::Writer<'_>| {
        w.start_ns("query", Ns::DiscoInfo).attr_opt("node", at.as_deref()).end();
    };
    if !send_iq_get(node, session, effects, question, then) {
        caps_cache(node).abandon_query(&print.0);
    }
}
