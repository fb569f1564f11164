//! The same rules for users who are not connected: XEP-0191 section 3.3.
//!
//! The trap: a message to somebody who is away must not cost a visit to the database each time. The node remembers what
//! was asked ([`throng_core::blocklists`]).

use std::sync::Arc;

use jid::JidRef;
use stanza::Kind;
use throng_core::fault::store_error;
use throng_core::hooks::{Flow, Outcome};
use throng_core::{Effects, Node};

use super::{exempt, verdict};

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
