//! What clients announce, and asking them for what it stands for: XEP-0115 1.6.0 sections 4 and 6.2, XEP-0390 0.3.2
//! sections 5.4 and 5.5.
//!
//! An announcement is read in one pass, without a tree: every presence of many clients has one. Of both kinds the one of
//! XEP-0390 counts, because it cannot be forged; of several hashes the strongest one that is known here. Hashes of other
//! functions and announcements in the format of old (without `hash`) stand for nothing.
//!
//! The trap: a fingerprint holds the digest, not its text; base64 has several texts for one digest.

use std::sync::Arc;

use base64::Engine;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use throng_core::clients::Announced;
use throng_core::limits::FRAME_LIMITS;
use throng_core::questions::Reply;
use throng_core::{Effects, Node, Session};
use xml::{Event, Ns, Reader, Scope};

use super::hash::Algorithm;
use super::told::verify;

/// Which of the two specifications.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    /// XEP-0115.
    One,
    /// XEP-0390.
    Two,
}

/// A hash that a client announced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fingerprint {
    pub(super) scheme: Scheme,
    pub(super) algorithm: Algorithm,
    pub(super) digest: Vec<u8>,
    /// The node under which its client answers for it.
    pub(super) node: String,
}

static CLIENT: Scope = Scope::client();
/// Longest node that is asked for, in bytes.
const NODE_BYTES: usize = 512;

/// Clients differ about padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

impl Fingerprint {
    fn new(
        scheme: Scheme,
        algorithm: &str,
        text: &str,
        node: impl FnOnce() -> String,
    ) -> Option<Fingerprint> {
        let algorithm = Algorithm::of(algorithm)?;
        // XEP-0300 section 3.2 forbids SHA-1 where nothing of old asks for it.
        if scheme == Scheme::Two && algorithm == Algorithm::Sha1 || text.len() > 128 {
            return None;
        }
        let digest = BASE64.decode(text.trim()).ok().filter(|digest| digest.len() == algorithm.bytes())?;
        let node = node();
        (node.len() <= NODE_BYTES).then_some(Fingerprint { scheme, algorithm, digest, node })
    }

    /// What the announcement in a stanza stands for.
    pub(super) fn of(bytes: &[u8]) -> Option<Fingerprint> {
        let mut reader = Reader::new(bytes, &CLIENT, &FRAME_LIMITS).ok()?;
        let mut best: Option<Fingerprint> = None;
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
                                best = Fingerprint::new(Scheme::One, &hash, &ver, || format!("{node}#{ver}"));
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
                        let new = Fingerprint::new(Scheme::Two, &algo, text, node);
                        let strength = |p: &Option<Fingerprint>| {
                            p.as_ref().map(|p| (p.scheme == Scheme::Two, p.algorithm.bytes()))
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

    /// What the cache knows it by.
    pub(super) fn key(&self) -> String {
        let scheme = if self.scheme == Scheme::One { '1' } else { '2' };
        let digest = base64::prelude::BASE64_STANDARD.encode(&self.digest);
        format!("{scheme} {} {digest}", self.algorithm.name())
    }
}

/// What software a client is: the node that it announces (XEP-0115 section 4), which is the address of its site.
pub(super) fn software(session: &Session) -> Option<String> {
    let presence = session.with(|state| state.presence.clone())?;
    let mut reader = Reader::new(presence.bytes(), &CLIENT, &FRAME_LIMITS).ok()?;
    let mut depth = 0_u32;
    while let Some(event) = reader.next().ok()? {
        match event {
            Event::Start(start) => {
                depth += 1;
                if depth == 2 && start.is("c", Ns::Caps) {
                    let node = start.attr("node")?.value().into_owned();
                    return Some(node).filter(|node| !node.is_empty() && node.len() <= NODE_BYTES);
                }
            }
            Event::End => depth = depth.saturating_sub(1),
            Event::Text(_) => {}
        }
    }
    None
}

/// A session announced what is in this stanza.
pub(super) fn hear(node: &Arc<Node>, session: &Arc<Session>, bytes: &[u8], effects: &mut Effects) {
    let Some(print) = Fingerprint::of(bytes) else { return };
    let key = print.key();
    if node.clients.announce(session, &key, node.seconds()) == Announced::Ask {
        let at = Some(print.node.clone());
        ask(node, session, Arc::new((key, print)), at, effects);
    }
}

/// Asks one client, and the next one when its answer is not right.
fn ask(
    node: &Arc<Node>,
    session: &Arc<Session>,
    print: Arc<(String, Fingerprint)>,
    at: Option<String>,
    effects: &mut Effects,
) {
    let (asked, about) = (session.clone(), print.clone());
    let then = Box::new(move |node: &Arc<Node>, reply: Reply<'_>, effects: &mut Effects| {
        let told = match reply {
            Reply::Result { bytes, .. } => verify(&about.1, bytes),
            Reply::Error | Reply::Silence => None,
        };
        match told {
            Some(set) => node.clients.learn(&about.0, set),
            None => {
                tracing::debug!(client = %asked.jid, "a client did not answer for the hash that it announced");
                if let Some(next) = node.clients.failed(&about.0, &asked, node.seconds()) {
                    // The node names the first client's software; the next one may have the same features in another.
                    ask(node, &next, about, None, effects);
                }
            }
        }
    });
    let question = |w: &mut xml::Writer<'_>| {
        w.start_ns("query", Ns::DiscoInfo).attr_opt("node", at.as_deref()).end();
    };
    if !node.ask(session, effects, question, then) {
        node.clients.gave_up(&print.0);
    }
}
