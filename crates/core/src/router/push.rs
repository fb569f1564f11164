//! Pushes to an account's own sessions on all nodes: copies, roster and blocklist pushes, presence of the account itself.

use std::sync::Arc;

use stanza::{IqType, StanzaKind};
use xml::Ns;

use super::RoutingWork;
use crate::account::Account;
use crate::node::Node;
use crate::session::{Session, ToRewrite, flags};
use crate::shared_stanza::SharedStanza;

/// Sessions of an account that receive a push.
#[derive(Clone, Copy)]
pub struct PushSelection {
    /// They have all of these flags.
    pub flags: u64,
    /// They are available.
    pub available: bool,
    /// The `to` that is written.
    pub to: ToRewrite,
}

impl PushSelection {
    /// Whether the session receives the push.
    pub fn selects(&self, session: &Session) -> bool {
        session.flags.has(self.flags) && (!self.available || session.is_available())
    }
}

impl Node {
    /// Pushes a stanza to the selected sessions of an account on all nodes, except some resources.
    pub(super) fn push_to_selected<'a>(
        self: &Arc<Self>,
        account: &Arc<Account>,
        selection: PushSelection,
        except: impl Iterator<Item = &'a str> + Clone,
        stanza: &SharedStanza,
        work: &mut RoutingWork,
    ) {
        let peers = self.peers();
        let is_latest = peers.is_none_or(|peers| peers.record_push(self, account, stanza));
        for session in account.sessions().into_iter().filter(|_| is_latest) {
            if selection.selects(&session) && !except.clone().any(|other| other == session.resource()) {
                self.push_to_session(&session, stanza.clone(), selection.to, work);
            }
        }
        if let Some(peers) = peers {
            peers.push_to_peers(self, account, selection, &mut except.into_iter(), stanza);
        }
    }
    /// Puts a push to the sessions of an account into the queue of one of them.
    pub fn push_to_session(
        self: &Arc<Self>,
        session: &Arc<Session>,
        stanza: SharedStanza,
        to: ToRewrite,
        work: &mut RoutingWork,
    ) {
        let missed = session.flags.has(flags::MAY_LACK_ROSTER_PUSH);
        let incomplete = if missed { with_incomplete_version(&stanza) } else { None };
        self.push(session, incomplete.unwrap_or(stanza), to, work);
    }
}

/// A roster push with a version that no roster has: a version is opaque to clients (RFC 6121, section 2.6.1). `None` for other stanzas.
fn with_incomplete_version(stanza: &SharedStanza) -> Option<SharedStanza> {
    if stanza.kind() != StanzaKind::Iq(IqType::Set) {
        return None;
    }
    let version: u64 = stanza.tree().ok()?.root().child("query", Ns::Roster)?.attr("ver")?.parse().ok()?;
    let version = format!(" ver='{version}");
    let bytes = stanza.bytes();
    let end = bytes.windows(version.len()).position(|part| part == version.as_bytes())? + version.len();
    let (before, after) = bytes.split_at_checked(end)?;
    SharedStanza::parse(&[before, b"-incomplete", after].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_a_push_to_a_client_that_has_missed_one_names_no_roster() {
        let push = |content: &str| {
            let stanza = format!("<iq type='set' id='1'>{content}</iq>");
            let stanza = with_incomplete_version(&SharedStanza::parse(stanza.as_bytes()).unwrap())?;
            Some(String::from_utf8(stanza.bytes().to_vec()).unwrap())
        };
        let roster = "<query xmlns='jabber:iq:roster' ver='7'><item jid='a@b' name='c'/></query>";
        let expected = format!("<iq type='set' id='1'>{}</iq>", roster.replace("'7'", "'7-incomplete'"));
        assert_eq!(push(roster).unwrap().replace(" xmlns='jabber:client'", ""), expected);
        for other in [
            "<query xmlns='jabber:iq:roster'><item jid='a@b' name=' ver='/></query>",
            "<query xmlns='jabber:iq:roster' ver='x'><item jid='a@b'/></query>",
            "<block xmlns='urn:xmpp:blocking' ver='7'><item jid='a@b'/></block>",
        ] {
            assert_eq!(push(other), None);
        }
    }
}
