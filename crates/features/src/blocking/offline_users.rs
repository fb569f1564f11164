//! Blocking rules for users who are not connected: XEP-0191 1.3, section 3.3.
//!
//! A connected account has its list in memory. Its blocklist is still read when the request comes from a sender that
//! may not see its presence, as it is for an absent account: otherwise the response time would reveal who is
//! connected.
//!
//! If the store fails, blocked and other senders receive the same: an error of the store for a message or a request,
//! and nothing for presence, which the engine never answers for a recipient.
//!
//! # Pitfalls
//!
//! A message to an absent user must not cost a database query each time. The node caches earlier results
//! ([`throng_core::account_views`]).

use std::sync::Arc;

use jid::JidRef;
use stanza::StanzaKind;
use throng_core::hooks::{Flow, HandlerOutcome};
use throng_core::server_error::store_error;
use throng_core::visibility::Visibility;
use throng_core::{Effects, Node};

use super::{AUTO_ANSWERED, STORABLE, blocked_outcome, never_blocked};

/// Filters a stanza for the account `to`, which is not connected.
pub(super) fn filter(node: &Arc<Node>, kind: StanzaKind, from: JidRef<'_>, to: JidRef<'_>) -> Flow {
    if never_blocked(to, from) {
        return Flow::Next;
    }
    match node.account_views().has_blocked(to, from) {
        Some(false) => Flow::Next,
        Some(true) => Flow::Stop(blocked_outcome(kind)),
        None => {
            let (node, from, to) = (node.clone(), from.to_jid(), to.bare().to_jid());
            Flow::Wait(Box::pin(async move {
                match node.account_views().load_has_blocked(&node, to.as_ref(), from.as_ref()).await {
                    Ok(false) => HandlerOutcome::next(),
                    Ok(true) => HandlerOutcome {
                        flow: Flow::Stop(blocked_outcome(kind)),
                        effects: Effects::default(),
                    },
                    Err(error) => HandlerOutcome::refused(store_error(error)),
                }
            }))
        }
    }
}

/// Lets a stanza for the connected account `to` pass, after the read that it would cost if the account were absent.
pub(super) fn like_absent(node: &Arc<Node>, from: JidRef<'_>, to: JidRef<'_>) -> Flow {
    if never_blocked(to, from)
        || matches!(node.visibility(to, from), Visibility::Visible)
        || node.account_views().has_blocked(to, from).is_some()
    {
        return Flow::Next;
    }
    ask(node, from, to, None)
}

/// Refuses a stanza of a blocked sender, after the same read.
pub(super) fn refuse_like_absent(
    node: &Arc<Node>,
    kind: StanzaKind,
    from: JidRef<'_>,
    to: JidRef<'_>,
) -> Flow {
    let answered = AUTO_ANSWERED.union(STORABLE).contains(kind);
    if !answered || node.account_views().has_blocked(to, from).is_some() {
        return Flow::Stop(blocked_outcome(kind));
    }
    ask(node, from, to, Some(kind))
}

/// Applies the decision that memory has made after the store has answered; the answer itself is not used.
fn ask(node: &Arc<Node>, from: JidRef<'_>, to: JidRef<'_>, refused: Option<StanzaKind>) -> Flow {
    let (node, from, to) = (node.clone(), from.to_jid(), to.bare().to_jid());
    Flow::Wait(Box::pin(async move {
        let answer = node.account_views().load_has_blocked(&node, to.as_ref(), from.as_ref()).await;
        match (answer, refused) {
            (Ok(_), None) => HandlerOutcome::next(),
            (Ok(_), Some(kind)) => {
                HandlerOutcome { flow: Flow::Stop(blocked_outcome(kind)), effects: Effects::default() }
            }
            (Err(error), _) => HandlerOutcome::refused(store_error(error)),
        }
    }))
}
