//! The same rules for users who are not connected: XEP-0191 section 3.3.
//!
//! The trap: a message to somebody who is away must not cost a visit to the database each time. The node remembers what
//! was asked ([`throng_core::blocklists`]).
//!
//! A connected account has its list in memory. Its blocklist is read all the same when a sender asks that may not see its
//! presence, as it is for an absent account: otherwise the time of the first answer would tell who is connected.

use std::sync::Arc;

use jid::JidRef;
use stanza::Kind;
use throng_core::fault::store_error;
use throng_core::hooks::{Flow, Outcome};
use throng_core::visibility::Visibility;
use throng_core::{Effects, Node};

use super::{ANSWERED, KEPT, exempt, verdict};

/// What becomes of a stanza for the account `to`, which is not connected.
pub(super) fn police(node: &Arc<Node>, kind: Kind, from: JidRef<'_>, to: JidRef<'_>) -> Flow {
    if exempt(to, from) {
        return Flow::Next;
    }
    match node.has_blocked(to, from) {
        Some(false) => Flow::Next,
        Some(true) => Flow::Stop(verdict(kind)),
        None => {
            let (node, from, to) = (node.clone(), from.to_jid(), to.bare().to_jid());
            Flow::Wait(Box::pin(async move {
                match node.ask_blocked(to.as_ref(), from.as_ref()).await {
                    Ok(false) => Outcome::next(),
                    Ok(true) => Outcome { flow: Flow::Stop(verdict(kind)), effects: Effects::default() },
                    Err(error) => Outcome::refused(store_error(error)),
                }
            }))
        }
    }
}

/// Lets a stanza for the connected account `to` pass, after the read that it would cost if the account were absent.
pub(super) fn like_absent(node: &Arc<Node>, from: JidRef<'_>, to: JidRef<'_>) -> Flow {
    if exempt(to, from)
        || matches!(node.visibility(to, from), Visibility::Visible)
        || node.has_blocked(to, from).is_some()
    {
        return Flow::Next;
    }
    ask(node, from, to, None)
}

/// Refuses a stanza of a blocked sender, after the same read.
pub(super) fn refuse_like_absent(node: &Arc<Node>, kind: Kind, from: JidRef<'_>, to: JidRef<'_>) -> Flow {
    let answered = ANSWERED.and(KEPT).has(kind);
    if !answered || node.has_blocked(to, from).is_some() {
        return Flow::Stop(verdict(kind));
    }
    ask(node, from, to, Some(kind))
}

/// What memory has decided, once the store has answered: what it says was in memory first.
fn ask(node: &Arc<Node>, from: JidRef<'_>, to: JidRef<'_>, refused: Option<Kind>) -> Flow {
    let (node, from, to) = (node.clone(), from.to_jid(), to.bare().to_jid());
    Flow::Wait(Box::pin(async move {
        match (node.ask_blocked(to.as_ref(), from.as_ref()).await, refused) {
            (Ok(_), None) => Outcome::next(),
            (Ok(_), Some(kind)) => Outcome { flow: Flow::Stop(verdict(kind)), effects: Effects::default() },
            (Err(error), _) => Outcome::refused(store_error(error)),
        }
    }))
}
