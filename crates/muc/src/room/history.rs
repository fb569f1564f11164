//! Discussion history of a room: XEP-0045 1.35.5, sections 7.2.13 and 7.2.14; delay: XEP-0203 2.0; hints: XEP-0334 0.4.0;
//! tombstones of retracted messages: XEP-0424 0.4.2, section 5, and XEP-0425 0.3.0, section 5.

use std::collections::VecDeque;

use jid::Jid;
use stanza::payload::{datetime, delay, stanza_id};
use throng_core::SharedStanza;
use xml::{Ns, TreeNode, Writer};

use super::messages::MAX_ID_BYTES;
use crate::options::RoomLimits;

/// A message of the history.
#[derive(Clone, Debug)]
pub(crate) struct HistoryItem {
    /// As newcomers receive it: with the occupant JID, ids and delay, without `to`.
    pub(crate) stanza: SharedStanza,
    /// The occupant JID.
    pub(crate) from: Jid,
    /// Id that the room has assigned (XEP-0359).
    pub(crate) id: Box<str>,
    /// That of the author; empty if it is the room itself.
    pub(crate) occupant_id: Box<str>,
    pub(crate) millis: u64,
}

impl HistoryItem {
    /// Whether the message was retracted.
    pub(super) fn is_tombstone(&self) -> bool {
        self.stanza.tree().is_ok_and(|tree| {
            let message = tree.root();
            message.child("retracted", Ns::Retract).is_some() && message.child("body", Ns::Client).is_none()
        })
    }
}

/// The latest messages.
#[derive(Debug, Default)]
pub(crate) struct RoomHistory {
    items: VecDeque<HistoryItem>,
    bytes: usize,
}

/// Limits that a newcomer requests; none of them: all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HistoryRequest {
    pub(crate) max_chars: Option<u64>,
    pub(crate) max_stanzas: Option<u64>,
    pub(crate) seconds: Option<u64>,
    /// Milliseconds since 1970.
    pub(crate) since: Option<u64>,
}

impl HistoryRequest {
    /// Reads the `<history/>` of `<x/>`. Invalid values are ignored.
    pub(crate) fn read(x: TreeNode<'_>) -> HistoryRequest {
        let Some(history) = x.child("history", Ns::Muc) else { return HistoryRequest::default() };
        let number = |name: &str| history.attr(name).and_then(|text| text.trim().parse().ok());
        let since = history.attr("since").and_then(|text| datetime::parse_datetime(text.trim()));
        HistoryRequest {
            max_chars: number("maxchars"),
            max_stanzas: number("maxstanzas"),
            seconds: number("seconds"),
            since: since.map(|millis| u64::try_from(millis).unwrap_or(0)),
        }
    }
}

/// Memory of a message besides its octets, about.
const ITEM_BYTES: usize = 300;

impl RoomHistory {
    /// Adds a message, and removes the oldest ones beyond the limits.
    pub(crate) fn push(&mut self, item: HistoryItem, limits: &RoomLimits) {
        self.bytes += item.stanza.bytes().len();
        self.items.push_back(item);
        self.trim(limits);
    }

    /// Memory of all messages, about.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes + self.items.len() * ITEM_BYTES
    }

    /// Removes the oldest messages beyond the limits.
    pub(crate) fn trim(&mut self, limits: &RoomLimits) {
        while self.items.len() > limits.history_messages || self.bytes > limits.history_bytes {
            let Some(oldest) = self.items.pop_front() else { break };
            self.bytes -= oldest.stanza.bytes().len();
        }
    }

    /// The messages for a newcomer, oldest first. `limit` is what the room permits, `to` the address that each of them gets.
    pub(crate) fn select(
        &self,
        request: &HistoryRequest,
        limit: u32,
        now: u64,
        to: &str,
    ) -> Vec<&HistoryItem> {
        let address_chars = char_count(to.as_bytes()) + " to=''".len() as u64;
        let limit = request.max_stanzas.unwrap_or(u64::MAX).min(u64::from(limit));
        let from_seconds = request.seconds.map(|seconds| now.saturating_sub(seconds.saturating_mul(1000)));
        let from = from_seconds.max(request.since).unwrap_or(0);
        let mut chars = 0_u64;
        let mut chosen: Vec<&HistoryItem> = self
            .items
            .iter()
            .rev()
            .take(usize::try_from(limit).unwrap_or(usize::MAX))
            .take_while(|item| item.millis >= from)
            .take_while(|item| {
                chars = chars.saturating_add(char_count(item.stanza.bytes()) + address_chars);
                request.max_chars.is_none_or(|limit| chars <= limit)
            })
            .collect();
        chosen.reverse();
        chosen
    }

    /// The message with the room's id.
    pub(crate) fn get(&self, id: &str) -> Option<&HistoryItem> {
        self.items.iter().find(|item| &*item.id == id)
    }

    /// Number of messages.
    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    /// All messages, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &HistoryItem> {
        self.items.iter()
    }

    /// Replaces the content of a message by a tombstone, if it is still here. `retracted` is the element `<retracted/>`.
    pub(crate) fn retract(&mut self, id: &str, room: &str, retracted: &[u8], limits: &RoomLimits) -> bool {
        let Some(item) = self.items.iter_mut().find(|item| &*item.id == id) else { return false };
        let (head, bytes) = (item.stanza.head(), item.stanza.bytes());
        let tombstone = SharedStanza::build(|w| {
            w.start("message").attr("type", "groupchat").attr("from", item.from.as_str());
            w.attr_opt("id", head.id(bytes).filter(|id| id.len() <= MAX_ID_BYTES).as_deref());
            w.raw(retracted);
            stanza_id::write(w, id, room);
            if !item.occupant_id.is_empty() {
                write_occupant_id(w, &item.occupant_id);
            }
            delay::write(w, room, item.millis);
            w.end();
        });
        let Some(tombstone) = tombstone else { return false };
        self.bytes -= item.stanza.bytes().len();
        self.bytes += tombstone.bytes().len();
        item.stanza = tombstone;
        // It may be longer than the message.
        self.trim(limits);
        true
    }
}

/// Number of characters of a text in UTF-8.
fn char_count(text: &[u8]) -> u64 {
    text.iter().filter(|octet| **octet & 0xC0 != 0x80).count() as u64
}

/// Writes `<occupant-id/>` (XEP-0421).
pub(crate) fn write_occupant_id(w: &mut Writer<'_>, occupant_id: &str) {
    w.start_ns("occupant-id", Ns::OccupantId).attr("id", occupant_id).end();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> RoomLimits {
        RoomLimits {
            occupants: 10,
            presence_occupants: 10,
            history_messages: 4,
            stored_history_messages: 0,
            history_bytes: 1_000,
            nick_bytes: 10,
            subject_bytes: 10,
            affiliations: 10,
            presence_bytes: 10,
            avatar_bytes: 10,
            invitations_per_hour: 10,
        }
    }

    fn history() -> RoomHistory {
        let mut history = RoomHistory::default();
        for second in 1..=6 {
            let stanza = SharedStanza::parse(format!("<message id='{second}'/>").as_bytes()).unwrap();
            let from = Jid::parse("coven@chat.shakespeare.lit/firstwitch").unwrap();
            let id = format!("s{second}").into();
            let item = HistoryItem { stanza, from, id, occupant_id: "o".into(), millis: second * 1_000 };
            history.push(item, &limits());
        }
        history
    }

    #[test]
    fn section_7_2_14_the_strictest_limit_decides() {
        let history = history();
        let ids = |request: HistoryRequest, limit| -> String {
            history.select(&request, limit, 6_000, "a@b/c").iter().map(|item| &item.id[1..]).collect()
        };
        let all = HistoryRequest::default();
        assert_eq!(ids(all, 20), "3456", "the room keeps four");
        assert_eq!(ids(all, 2), "56");
        assert_eq!(ids(HistoryRequest { max_stanzas: Some(3), ..all }, 20), "456");
        assert_eq!(ids(HistoryRequest { max_stanzas: Some(0), ..all }, 20), "");
        assert_eq!(ids(HistoryRequest { max_chars: Some(0), ..all }, 20), "");
        assert_eq!(ids(HistoryRequest { max_chars: Some(62), ..all }, 20), "56");
        assert_eq!(ids(HistoryRequest { seconds: Some(1), ..all }, 20), "56");
        assert_eq!(ids(HistoryRequest { since: Some(4_000), ..all }, 20), "456");
        assert_eq!(ids(HistoryRequest { since: Some(4_000), seconds: Some(1), ..all }, 20), "56");
    }

    #[test]
    fn section_7_2_14_characters_are_counted_and_not_octets() {
        assert_eq!(char_count("<body>Schrödinger €</body>".as_bytes()), 26);
    }

    #[test]
    fn a_retracted_message_leaves_a_tombstone() {
        let mut history = history();
        let retracted = b"<retracted xmlns='urn:xmpp:message-retract:1'/>";
        assert!(!history.get("s5").unwrap().is_tombstone());
        assert!(history.retract("s5", "coven@chat.shakespeare.lit", retracted, &limits()));
        assert!(history.get("s5").unwrap().is_tombstone());
        assert!(
            !history.retract("s1", "coven@chat.shakespeare.lit", retracted, &limits()),
            "not kept any more"
        );
        let text = String::from_utf8(history.get("s5").unwrap().stanza.bytes().to_vec()).unwrap();
        assert!(
            text.contains("<retracted ") && text.contains("id='5'") && text.contains("<delay "),
            "{text}"
        );
    }

    #[test]
    fn tombstones_repeat_no_long_ids_and_push_others_out() {
        let room = "coven@chat.shakespeare.lit";
        let retracted = format!("<retracted xmlns='urn:xmpp:message-retract:1' id='{}'/>", "x".repeat(700));
        let larger = RoomLimits { history_bytes: 100_000, ..limits() };
        let mut history = history();
        assert!(history.retract("s6", room, retracted.as_bytes(), &larger));
        assert_eq!(history.len(), 4);
        let strict =
            RoomLimits { history_bytes: history.get("s6").unwrap().stanza.bytes().len() + 20, ..larger };
        let mut history = self::history();
        assert!(history.retract("s6", room, retracted.as_bytes(), &strict));
        assert!(history.bytes <= strict.history_bytes, "{}", history.bytes);
        assert!(history.len() < 4 && history.get("s6").is_some(), "{}", history.len());
        let bytes: usize = history.iter().map(|item| item.stanza.bytes().len()).sum();
        assert_eq!(history.bytes, bytes);
        let long = "y".repeat(MAX_ID_BYTES + 1);
        let stanza = SharedStanza::parse(format!("<message id='{long}'/>").as_bytes()).unwrap();
        let item = HistoryItem { stanza, id: "s7".into(), ..history.get("s6").unwrap().clone() };
        history.push(item, &larger);
        assert!(history.retract("s7", room, b"<retracted xmlns='urn:xmpp:message-retract:1'/>", &larger));
        assert!(history.get("s7").unwrap().stanza.bytes().len() < MAX_ID_BYTES);
    }
}
