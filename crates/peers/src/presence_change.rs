//! Presence that goes to contacts on other nodes, in its format, with the entries of the sender's blocklist that may cover a recipient:
//! only the receiver has the addresses.
//!
//! ```text
//! change   2 number of entries of the sender's blocklist that may cover a recipient, each 2 + n; 4 number of the sender's
//!          account; then the presence. The highest bit of the number of entries: the sender's node did not locate the
//!          recipients on this node
//! ```
//!
//! # Pitfalls
//!
//! The store bounds a blocklist ([`store::blocklists::MAX_BLOCKLIST_BYTES`]), and an envelope its octets. Each envelope has the entries
//! that concern its own recipients, and fewer recipients if these are too many.

use std::sync::Arc;

use cluster::Recipient;
use jid::{Jid, JidRef};
use stanza::{PresenceType, StanzaKind};
use store::AddressId;
use throng_core::account::Account;
use throng_core::blocklist::Blocklist;
use throng_core::domains::Domain;
use throng_core::shared_stanza::SharedStanza;

use super::inbox::recipient_hash;
use crate::ClusteredNode;
use crate::notices::{read_text, write_text};

/// Bit of the first octet of a change.
const UNLOCATED: u8 = 0x80;
/// Maximum number of entries of a blocklist in a change.
const MAX_ENTRIES: u16 = 0x7fff;
/// Maximum octets of these entries: half of an envelope.
const MAX_ENTRY_OCTETS: usize = 256 << 10;

pub(super) fn read_id(rest: &mut &[u8]) -> Option<AddressId> {
    let (octets, after) = rest.split_first_chunk()?;
    *rest = after;
    AddressId::new(u32::from_be_bytes(*octets))
}

pub(super) fn encode_change(entries: &[&Jid], sender: AddressId, stanza: &SharedStanza) -> Vec<u8> {
    let entries = &entries[..entries.len().min(MAX_ENTRIES.into())];
    let mut out = Vec::with_capacity(stanza.bytes().len() + 6);
    out.extend(u16::try_from(entries.len()).unwrap_or(MAX_ENTRIES).to_be_bytes());
    entries.iter().for_each(|entry| write_text(&mut out, entry.as_str()));
    out.extend(sender.get().to_be_bytes());
    out.extend(stanza.bytes());
    out
}

/// Presence that was received from another node.
pub(super) struct PresenceChange {
    /// The sender's node did not locate the recipients: it may not send them the next change.
    pub(super) unlocated: bool,
    pub(super) blocked: Option<Blocklist>,
    /// The sender's account.
    pub(super) sender: AddressId,
    pub(super) stanza: SharedStanza,
    pub(super) from: Jid,
}

pub(super) fn decode_change(rest: &[u8]) -> Option<PresenceChange> {
    let (&[first, second], mut rest) = rest.split_first_chunk()?;
    let mut entries = Vec::new();
    for _ in 0..u16::from_be_bytes([first & !UNLOCATED, second]) {
        entries.push(JidRef::from_normalised(read_text(&mut rest)?)?.to_jid());
    }
    let sender = read_id(&mut rest)?;
    let stanza = SharedStanza::read(rest).filter(is_presence_of_session)?;
    let from = stanza.sender()?;
    let unlocated = first & UNLOCATED != 0;
    Some(PresenceChange { unlocated, blocked: Blocklist::new(&entries), sender, stanza, from })
}

/// Other kinds would reach sessions without the recipient's chain.
pub(super) fn is_presence_of_session(stanza: &SharedStanza) -> bool {
    matches!(stanza.kind(), StanzaKind::Presence(PresenceType::Available | PresenceType::Unavailable))
}

/// A blocklist, indexed by the recipients that its entries may cover.
struct BlocklistIndex {
    list: Arc<Blocklist>,
    /// Hash of the bare address of an entry with a localpart, and its position in the list. Sorted.
    by_address: Vec<(u64, usize)>,
    /// Positions of entries that cover a domain with accounts, or a resource there.
    by_domain: Vec<usize>,
}

impl BlocklistIndex {
    fn new(node: &ClusteredNode<'_>, list: Arc<Blocklist>) -> BlocklistIndex {
        let domains = node.domains();
        let (mut by_address, mut by_domain) = (Vec::new(), Vec::new());
        for (position, entry) in list.entries().iter().enumerate() {
            match entry.local() {
                Some(_) => by_address.push((node.routing_table.hash(entry.as_ref()), position)),
                // Entries of other servers cover no contact on another node.
                None if matches!(domains.find(entry.domain()), Domain::Accounts(_)) => {
                    by_domain.push(position)
                }
                None => {}
            }
        }
        by_address.sort_unstable();
        BlocklistIndex { list, by_address, by_domain }
    }

    /// The entries that may cover an address with one of these hashes. `None` if they are too long for an envelope.
    fn concerning(&self, hashes: impl Iterator<Item = u64>) -> Option<Vec<&Jid>> {
        let of_address = |hash: u64| {
            let first = self.by_address.partition_point(|(known, _)| *known < hash);
            self.by_address[first..].iter().take_while(move |(known, _)| *known == hash)
        };
        let mut positions = self.by_domain.clone();
        positions.extend(hashes.flat_map(of_address).map(|(_, position)| *position));
        positions.sort_unstable();
        positions.dedup();
        let entries: Vec<&Jid> =
            positions.into_iter().filter_map(|position| self.list.entries().get(position)).collect();
        let octets: usize = entries.iter().map(|entry| 2 + entry.as_str().len()).sum();
        (octets <= MAX_ENTRY_OCTETS && entries.len() <= usize::from(MAX_ENTRIES)).then_some(entries)
    }
}

/// Presence of a session on this node, for contacts on others.
pub(super) struct OutgoingPresenceChange<'a> {
    sender: AddressId,
    stanza: &'a SharedStanza,
    blocklist: Option<BlocklistIndex>,
    /// The directory does not have the recipients on the nodes to which it goes.
    pub(super) unlocated: bool,
}

impl<'a> OutgoingPresenceChange<'a> {
    /// Presence that is hidden from the entities that the sender has blocked.
    pub(super) fn with_blocklist(
        node: &ClusteredNode<'_>,
        sender: &Account,
        stanza: &'a SharedStanza,
    ) -> OutgoingPresenceChange<'a> {
        let blocklist = sender.blocked().map(|list| BlocklistIndex::new(node, list));
        OutgoingPresenceChange { blocklist, ..OutgoingPresenceChange::without_blocklist(sender, stanza) }
    }

    /// Presence to which the sender's blocklist does not apply.
    pub(super) fn without_blocklist(
        sender: &Account,
        stanza: &'a SharedStanza,
    ) -> OutgoingPresenceChange<'a> {
        OutgoingPresenceChange { sender: sender.id, stanza, blocklist: None, unlocated: false }
    }

    /// Whether it announces the end of a session.
    pub(super) fn is_unavailable(&self) -> bool {
        self.stanza.kind() == StanzaKind::Presence(PresenceType::Unavailable)
    }

    /// Its octets for these recipients. `None` if the entries that concern them are too long.
    pub(super) fn encode_for(&self, node: &ClusteredNode<'_>, recipients: &[Recipient]) -> Option<Vec<u8>> {
        let Some(blocklist) = &self.blocklist else { return Some(self.encode_without_entries()) };
        let hashes = recipients.iter().map(|recipient| recipient_hash(node, recipient));
        blocklist.concerning(hashes).map(|entries| self.encode(&entries))
    }

    /// Its octets without a blocklist.
    pub(super) fn encode_without_entries(&self) -> Vec<u8> {
        self.encode(&[])
    }

    fn encode(&self, entries: &[&Jid]) -> Vec<u8> {
        let mut octets = encode_change(entries, self.sender, self.stanza);
        if let Some(first) = octets.first_mut().filter(|_| self.unlocated) {
            *first |= UNLOCATED;
        }
        octets
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use throng_core::router::routing_table::RoutingTable;

    fn jids(count: usize, of: impl Fn(usize) -> String) -> Vec<Jid> {
        (0..count).map(|number| Jid::parse(&of(number)).unwrap()).collect()
    }

    #[test]
    fn a_change_carries_the_blocklist_and_anything_else_is_refused() {
        let stanza = SharedStanza::parse(b"<presence from='a@b/c'/>").unwrap();
        let entries = ["x@y/z", "spam.example"].map(|text| Jid::parse(text).unwrap());
        let sender = AddressId::new(7).unwrap();
        let entries: Vec<&Jid> = entries.iter().collect();
        for unlocated in [false, true] {
            let change = OutgoingPresenceChange { sender, stanza: &stanza, blocklist: None, unlocated };
            let octets = change.encode(&entries);
            let read = decode_change(&octets).unwrap();
            assert_eq!((read.unlocated, read.blocked.unwrap().entries().len()), (unlocated, 2));
            assert_eq!((read.stanza.bytes(), read.from.as_str()), (stanza.bytes(), "a@b/c"));
            assert_eq!(read.sender, sender);
            assert!((0..octets.len()).all(|length| decode_change(&octets[..length]).is_none()));
        }
        assert!(decode_change(&encode_change(&[], sender, &stanza)).unwrap().blocked.is_none());
        let nobody = SharedStanza::parse(b"<presence/>").unwrap();
        assert!(decode_change(&encode_change(&[], sender, &nobody)).is_none(), "without a sender");
    }

    #[test]
    fn an_envelope_has_the_entries_that_concern_its_recipients_if_they_fit() {
        let table = RoutingTable::new(cluster::AddressHasher::new([1; 16]));
        let hash = |text: &str| table.hash(Jid::parse(text).unwrap().as_ref());
        let mut entries = jids(1000, |number| format!("romeo@example.com/{number:0>500}"));
        entries.extend(jids(1000, |number| format!("user{number}@example.com/{}", "r".repeat(500))));
        entries.extend(jids(1, |_| "example.org".to_owned()));
        let list = Arc::new(Blocklist::new(&entries).unwrap());
        let mut by_address: Vec<(u64, usize)> = Vec::new();
        for (position, entry) in
            list.entries().iter().enumerate().filter(|(_, entry)| entry.local().is_some())
        {
            by_address.push((table.hash(entry.as_ref()), position));
        }
        by_address.sort_unstable();
        let by_domain = vec![list.entries().iter().position(|entry| entry.local().is_none()).unwrap()];
        let blocklist = BlocklistIndex { list, by_address, by_domain };
        let concerning = |users: &[&str]| {
            blocklist.concerning(users.iter().map(|user| hash(user))).map(|entries| entries.len())
        };
        assert_eq!(concerning(&["nurse@example.com"]), Some(1), "the domain");
        assert_eq!(concerning(&["user1@example.com", "user2@example.com", "nurse@example.com"]), Some(3));
        assert_eq!(concerning(&["romeo@example.com", "user1@example.com"]), None, "too long");
        let many: Vec<String> = (0..1000).map(|number| format!("user{number}@example.com")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!((concerning(&many), concerning(&many[..400])), (None, Some(401)));
    }
}
