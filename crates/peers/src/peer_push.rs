//! Pushes to an account's sessions on other nodes: copies, roster and blocklist pushes, presence of the account itself. One
//! envelope for each node, which selects among its sessions.
//!
//! ```text
//! octets  field           all numbers big-endian
//! 8       flags           all must be set ([`throng_core::session::flags`])
//! 1       options         bit 0: only available sessions; bits 1 and 2: the `to` that is written (0 unchanged, 1 bare, 2 full)
//! 2       resources that receive nothing, then for each
//! 2 + n   resource        length, text
//! rest    stanza
//! ```
//!
//! A push of a roster, of a blocklist or of a subscription that does not fit into a queue is sent when there is room
//! (`due_pushes.rs`), and so is presence. A copy of a message is lost.
//!
//! # Pitfalls
//!
//! Two nodes that change the same entry of a roster push it in either order. The later state is that of the higher version (RFC
//! 6121, section 2.6.3), so the other push is dropped where it comes second.
//!
//! The version of a push says that the client has all earlier changes. The store counts changes that are shown, so a push with a version that
//! skips a number may follow one that was lost: then it gets a version that no roster has (see [`flags::MAY_LACK_ROSTER_PUSH`]). It is
//! compared with the push before it, not with the account's view of its roster: an invalidation does not wait for room as a push does, so the
//! view may be newer than what clients have received.

use std::sync::Arc;

use cluster::{Envelope, EnvelopeClass, NodeId};
use jid::JidRef;
use stanza::{IqType, PresenceType, StanzaKind};
use throng_core::account::Account;
use throng_core::router::RoutingWork;
use throng_core::router::peer_routing::address_number;
use throng_core::router::push::PushSelection;
use throng_core::session::{Extension, ToRewrite, flags};
use throng_core::shared_stanza::{QueueClass, SharedStanza};
use xml::Ns;

use super::home::account_recipient;
use crate::ClusteredNode;
use crate::envelope_kinds::PUSH;

/// Roster entries of an account whose last version is remembered.
const MAX_PUSHED: usize = 64;

/// The last pushes of an account's roster entries. An account has it once another node has changed its roster.
struct PushedEntries {
    /// Hash of the contact and version, in the order of the pushes.
    entries: Vec<(u64, u64)>,
    /// The highest version of a push, or of the view before another node's first change.
    latest: u64,
}

impl Extension for PushedEntries {}

impl PushedEntries {
    /// Before any push.
    fn after(viewed: u64) -> PushedEntries {
        PushedEntries { entries: Vec::new(), latest: viewed }
    }

    /// Whether a push with this version may follow one that was lost.
    fn skips(&self, version: u64) -> bool {
        version > self.latest.saturating_add(1)
    }

    /// Records a push. False if a later state of the entry was pushed before.
    fn note(&mut self, contact: u64, version: u64) -> bool {
        self.latest = self.latest.max(version);
        let entries = &mut self.entries;
        let known = entries.iter().position(|(pushed, _)| *pushed == contact);
        if known.is_some_and(|at| entries[at].1 > version) {
            return false;
        }
        match known {
            Some(at) => drop(entries.remove(at)),
            None if entries.len() == MAX_PUSHED => drop(entries.remove(0)),
            None => {}
        }
        entries.push((contact, version));
        true
    }
}

/// Result of `contact` for the address of the contact in a roster push, and the version of the push.
fn roster_push<T>(stanza: &SharedStanza, contact: impl FnOnce(JidRef<'_>) -> T) -> Option<(T, u64)> {
    if stanza.kind() != StanzaKind::Iq(IqType::Set) {
        return None;
    }
    let tree = stanza.tree().ok()?;
    let query = tree.root().child("query", Ns::Roster)?;
    let version = query.attr("ver")?.parse().ok()?;
    let jid = query.child("item", Ns::Roster)?.attr("jid")?;
    let jid = jid::parse(&jid).ok()?;
    Some((contact(jid.as_ref()), version))
}

fn options(selection: PushSelection) -> u8 {
    let to = match selection.to {
        ToRewrite::None => 0,
        ToRewrite::Bare => 1,
        ToRewrite::Full => 2,
    };
    u8::from(selection.available) | to << 1
}

fn selection_of(flags: u64, options: u8) -> Option<PushSelection> {
    let to = match options >> 1 {
        0 => ToRewrite::None,
        1 => ToRewrite::Bare,
        2 => ToRewrite::Full,
        _ => return None,
    };
    Some(PushSelection { flags, available: options & 1 != 0, to })
}

fn encode<'a>(
    selection: PushSelection,
    except: impl Iterator<Item = &'a str>,
    stanza: &SharedStanza,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(stanza.bytes().len() + 32);
    out.extend(selection.flags.to_be_bytes());
    out.push(options(selection));
    let count_at = out.len();
    out.extend([0; 2]);
    let mut count = 0_u16;
    for resource in except.take(1024) {
        let Ok(length) = u16::try_from(resource.len()) else { continue };
        out.extend(length.to_be_bytes());
        out.extend(resource.as_bytes());
        count += 1;
    }
    out[count_at..count_at + 2].copy_from_slice(&count.to_be_bytes());
    out.extend(stanza.bytes());
    out
}

fn decode(input: &[u8]) -> Option<(PushSelection, Vec<&str>, SharedStanza)> {
    let (flags, rest) = input.split_first_chunk()?;
    let (&[options], rest) = rest.split_first_chunk()?;
    let selection = selection_of(u64::from_be_bytes(*flags), options)?;
    let (count, mut rest) = rest.split_first_chunk()?;
    let mut except = Vec::new();
    for _ in 0..u16::from_be_bytes(*count) {
        let (length, after) = rest.split_first_chunk()?;
        let (resource, after) = after.split_at_checked(u16::from_be_bytes(*length).into())?;
        except.push(std::str::from_utf8(resource).ok()?);
        rest = after;
    }
    Some((selection, except, SharedStanza::read(rest)?))
}

/// The `unavailable` of another resource that a push has.
pub(super) fn pushed_unavailable(octets: &[u8]) -> Option<SharedStanza> {
    let leaves = StanzaKind::Presence(PresenceType::Unavailable);
    decode(octets).map(|(_, _, stanza)| stanza).filter(|stanza| stanza.kind() == leaves)
}

impl ClusteredNode<'_> {
    /// Pushes a stanza to the selected sessions of an account on other nodes, except some resources.
    pub(super) fn push_to_peers<'a>(
        &self,
        account: &Arc<Account>,
        selection: PushSelection,
        except: impl Iterator<Item = &'a str>,
        stanza: &SharedStanza,
    ) {
        let own = self.cluster.node();
        let others: Vec<NodeId> = if stanza.kind() == StanzaKind::Presence(PresenceType::Unavailable) {
            // As for contacts: a resource there may have received presence, and its node may not be in the directory yet.
            self.cluster.members().into_iter().map(|at| at.node).filter(|node| *node != own).collect()
        } else {
            self.cluster.locate(account.hash, address_number(account)).other_nodes(own).collect()
        };
        if others.is_empty() {
            return;
        }
        let octets = encode(selection, except, stanza);
        let recipients = vec![account_recipient(account)];
        let envelope = Envelope::new(PUSH, EnvelopeClass::Control, own, recipients, octets);
        for node in others {
            if stanza.class() == QueueClass::Control {
                self.push_in_order(node, account, envelope.clone());
                continue;
            }
            if let Err(refused) = self.cluster.deliver(node, envelope.clone()) {
                tracing::debug!(account = %account.jid, %refused, "a carbon copy or presence push was not accepted");
                if stanza.class() == QueueClass::Presence {
                    self.presence_is_due(node, account);
                }
            }
        }
    }

    /// Records a roster push to the sessions here. False if it must be dropped, because a later state of its entry was pushed to
    /// them. True for any other stanza. If no other node pushes to an account, all pushes are in order. `from_peer`: whether one does.
    pub(super) fn record_push(&self, account: &Account, stanza: &SharedStanza, from_peer: bool) -> bool {
        let Some((contact, version)) = roster_push(stanza, |contact| self.routing_table.hash(contact)) else {
            return true;
        };
        let (is_latest, skips) = account.with(|state| {
            if let Some(pushed) = state.extension::<PushedEntries>() {
                let skips = pushed.skips(version);
                return (pushed.note(contact, version), skips);
            }
            let mut pushed = PushedEntries::after(state.roster_version);
            let skips = pushed.skips(version);
            pushed.note(contact, version);
            if from_peer || !state.peers().is_empty() {
                state.insert_extension(pushed);
            }
            (true, skips)
        });
        if skips {
            self.mark_roster_outdated(account);
        }
        is_latest
    }

    /// The roster of an account is about to be read again because of another node. Clients have the changes up to now; its pushes tell which
    /// of the later ones they have.
    pub(super) fn note_pushed_version(&self, account: &Account) {
        account.with(|state| {
            let is_interested = state.sessions.iter().any(|session| session.flags.has(flags::INTERESTED));
            if is_interested && state.extension::<PushedEntries>().is_none() {
                let pushed = PushedEntries::after(state.roster_version);
                state.insert_extension(pushed);
            }
        });
    }

    /// The roster of an account was read again because pushes of another node may be lost. If it has changes that were not pushed here, its
    /// clients may lack them.
    pub(super) fn mark_missed_pushes(&self, account: &Account) {
        let misses = account.with(|state| {
            let viewed = state.roster_version;
            let pushed = state.extension::<PushedEntries>().filter(|pushed| pushed.latest < viewed);
            pushed.map(|pushed| pushed.latest = viewed).is_some()
        });
        if misses {
            self.mark_roster_outdated(account);
        }
    }

    /// Roster pushes of another node to the sessions of an account here may be lost (see [`flags::MAY_LACK_ROSTER_PUSH`]).
    pub(super) fn mark_roster_outdated(&self, account: &Account) {
        for session in account.sessions() {
            if session.flags.has(flags::INTERESTED) {
                session.flags.set(flags::MAY_LACK_ROSTER_PUSH);
            }
        }
    }

    /// Another node pushes to the sessions of an account here. False if the octets are no push.
    pub(super) fn on_push(
        &self,
        from: NodeId,
        account: &Account,
        octets: &[u8],
        work: &mut RoutingWork,
    ) -> bool {
        let Some((selection, except, stanza)) = decode(octets) else { return false };
        tracing::trace!(account = %account.jid, node = %from, "a push arrived");
        if !self.record_push(account, &stanza, true) {
            return true;
        }
        for session in account.sessions() {
            if selection.selects(&session) && !except.contains(&session.resource()) {
                self.push(&session, stanza.clone(), selection.to, work);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_push_of_an_entry_is_dropped_if_a_later_one_was_before_it() {
        let mut pushed = PushedEntries::after(3);
        assert!(pushed.skips(5) && !pushed.skips(4));
        assert!(pushed.note(1, 5) && pushed.note(2, 4), "another entry");
        assert!(!pushed.note(1, 4) && pushed.note(1, 5) && pushed.note(1, 6) && !pushed.note(1, 5));
        assert!((0..1000).all(|contact| pushed.note(10 + contact, 7)));
        assert_eq!((pushed.entries.len(), pushed.latest), (MAX_PUSHED, 7), "bounded");
        assert!(!pushed.note(1009, 6), "the latest are remembered");
    }

    #[test]
    fn only_a_roster_push_has_an_entry_with_a_version() {
        let entry = |content: &str| {
            let stanza = format!("<iq type='set' id='1' to='a@b'>{content}</iq>");
            roster_push(&SharedStanza::parse(stanza.as_bytes()).unwrap(), |jid| jid.to_string())
        };
        let roster = "<query xmlns='jabber:iq:roster' ver='7'><item jid='c@d' subscription='both'/></query>";
        assert_eq!(entry(roster), Some(("c@d".to_owned(), 7)));
        for other in ["ver='x'", "", "v='7'"].map(|ver| roster.replace("ver='7'", ver)) {
            assert_eq!(entry(&other), None);
        }
        assert_eq!(entry("<block xmlns='urn:xmpp:blocking'><item jid='c@d'/></block>"), None);
    }

    #[test]
    fn a_push_is_read_as_it_was_written_and_anything_else_is_refused() {
        let stanza = SharedStanza::parse(b"<message from='a@b' to='c@d'/>").unwrap();
        for to in [ToRewrite::None, ToRewrite::Bare, ToRewrite::Full] {
            for available in [false, true] {
                let selection = PushSelection { flags: 1 << 63 | 1, available, to };
                let octets = encode(selection, ["balcony", ""].into_iter(), &stanza);
                let (read, except, read_stanza) = decode(&octets).unwrap();
                assert_eq!((read.flags, read.available, read.to), (selection.flags, available, to));
                assert_eq!((except, read_stanza.bytes()), (vec!["balcony", ""], stanza.bytes()));
                assert!((0..octets.len()).all(|length| decode(&octets[..length]).is_none()));
                let mut undefined = octets.clone();
                undefined[8] = 6;
                assert!(decode(&undefined).is_none());
            }
        }
    }
}
