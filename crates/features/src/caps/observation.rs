//! Capabilities for other features: look-ups, and reports of sessions whose capabilities have become known
//! ([`throng_core::provided`]).
//!
//! Every session with verified capabilities is reported once for each change of them. Those that announced a hash while another
//! client was queried for it are found in a list; if there are too many for the list, in the routing table. One client alone
//! does not cause such a search.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use throng_core::provided::{CapabilitiesObserver, ClientCapabilities};
use throng_core::session::Extension;
use throng_core::{Node, Session};

use super::cache::{FeatureSet, VerifiedSessions, caps_cache};

/// Look-ups of verified capabilities.
pub(super) const CAPABILITIES: ClientCapabilities = ClientCapabilities {
    has: |node, session, feature| {
        caps_cache(node).features(session).is_some_and(|features| features.has(feature))
    },
    with_suffix: |node, session, suffix| {
        let features = caps_cache(node).features(session)?;
        let found = features.features().filter_map(|feature| feature.strip_suffix(suffix));
        Some(found.map(str::to_owned).collect())
    },
};

/// The capabilities before those that are not known yet.
struct PreviousCapabilities(Arc<FeatureSet>);

impl Extension for PreviousCapabilities {}

/// The capabilities that a session announces are not known.
pub(super) fn remember(session: &Session, before: Option<Arc<FeatureSet>>) {
    if let Some(before) = before {
        session.with(|state| state.extensions.insert(PreviousCapabilities(before)));
    }
}

/// A session has announced capabilities that are known.
pub(super) fn announced(
    node: &Arc<Node>,
    session: &Arc<Session>,
    before: Option<Arc<FeatureSet>>,
    known: &Arc<FeatureSet>,
) {
    if before.as_ref().is_none_or(|before| !Arc::ptr_eq(before, known)) {
        report(node, session, before);
    }
}

/// The capabilities of these sessions, and of the one that was queried, were verified.
pub(super) fn verified(node: &Arc<Node>, queried: &Arc<Session>, sessions: VerifiedSessions) {
    let VerifiedSessions { number, sessions, has_more } = sessions;
    if queried.caps_id.load(Ordering::Relaxed) == number {
        report(node, queried, None);
    }
    if !has_more {
        return sessions.iter().for_each(|session| report(node, session, None));
    }
    let (node, queried) = (node.clone(), queried.clone());
    let spawner = node.spawner.clone();
    let search = async move {
        for shard in 0..node.routing_table.shard_count() {
            let mut found: Vec<Arc<Session>> = Vec::new();
            node.routing_table.for_each_in_shard(shard, |account| {
                account.for_each_session(|session| {
                    if session.caps_id.load(Ordering::Relaxed) == number && !Arc::ptr_eq(session, &queried) {
                        found.push(session.clone());
                    }
                });
            });
            found.iter().for_each(|session| report(&node, session, None));
            base::spawn::yield_now().await;
        }
    };
    spawner.spawn("caps-verified", Box::pin(search));
}

fn report(node: &Arc<Node>, session: &Arc<Session>, before: Option<Arc<FeatureSet>>) {
    let stored = session.with(|state| state.extensions.remove::<PreviousCapabilities>());
    let before = before.or_else(|| stored.map(|stored| stored.0));
    let host = session.account.host();
    if let Some(observer) = host.extensions.get::<CapabilitiesObserver>() {
        let had = |feature: &str| before.as_ref().is_some_and(|before| before.has(feature));
        observer.0.capabilities_known(node, session, &had);
    }
}
