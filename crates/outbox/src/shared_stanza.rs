//! A stanza ready to be routed: its bytes and its head in one shared allocation.
//!
//! A shared stanza is immutable, except that its only owner can append a child ([`SharedStanza::append_child`]), in place
//! if it was made with room. What differs between recipients (the `to` of a presence broadcast) is inserted
//! while writing, at [`stanza::Head::attr_insert_offset`]; so one allocation serves every recipient.

use std::ops::Range;

use base::clock::Millis;
use jid::Jid;
use stanza::{Element, Head, StanzaKind};
use triomphe::ThinArc;
use xml::{NamespaceContext, Ns};

use crate::delivery_state::{AtomicDeliveryState, DeliveryMark, DeliveryState};
use crate::delivery_waiters;
use crate::limits::STANZA_LIMITS;

static CLIENT: NamespaceContext = NamespaceContext::client();

/// Shared, immutable stanza. Cloning costs one atomic increment.
#[derive(Clone)]
pub struct SharedStanza(ThinArc<StanzaHeader, u8>);

struct StanzaHeader {
    head: Head,
    /// Unused bytes after the stanza.
    room: u16,
    delivery_state: AtomicDeliveryState,
}

/// Queue classes, which decide what is dropped first when queues are full: presence, and unsolicited responses
/// (`admission.rs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum QueueClass {
    /// IQ and everything else that a client waits for.
    Control,
    /// Messages: never dropped, moved to the store instead.
    Message,
    /// Presence: only the newest counts.
    Presence,
}

impl QueueClass {
    /// All classes, each at its [`QueueClass::index`].
    pub const ALL: [QueueClass; 3] = [QueueClass::Control, QueueClass::Message, QueueClass::Presence];

    /// Position of the class in tables with one entry for each class.
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Name in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            QueueClass::Control => "control",
            QueueClass::Message => "message",
            QueueClass::Presence => "presence",
        }
    }
}

impl SharedStanza {
    /// Builds a shared stanza from bytes whose head is known.
    #[inline]
    pub fn new(head: Head, bytes: &[u8]) -> SharedStanza {
        SharedStanza::with_state(head, bytes, DeliveryState::NEW)
    }

    /// As [`SharedStanza::new`], with room for a child of this length, which is added to `bytes`.
    pub fn with_room(head: Head, bytes: &mut Vec<u8>, room: u16) -> SharedStanza {
        bytes.resize(bytes.len() + usize::from(room), 0);
        let delivery_state = AtomicDeliveryState::new(DeliveryState::NEW);
        SharedStanza(ThinArc::from_header_and_slice(StanzaHeader { head, room, delivery_state }, bytes))
    }

    fn with_state(head: Head, bytes: &[u8], state: DeliveryState) -> SharedStanza {
        let delivery_state = AtomicDeliveryState::new(state);
        SharedStanza(ThinArc::from_header_and_slice(StanzaHeader { head, room: 0, delivery_state }, bytes))
    }

    /// Appends a child: in place if this is the only owner and there is room, else in a new allocation, assembled in
    /// `buffer`.
    ///
    /// # Errors
    /// As for [`stanza::append_child`].
    pub fn append_child(&mut self, child: &[u8], ns: Ns, buffer: &mut Vec<u8>) -> Result<(), xml::Error> {
        if !self.append_in_place(child, ns) {
            let head = stanza::append_child(self.bytes(), self.head(), child, ns, buffer)?;
            *self = SharedStanza::new(head, buffer);
        }
        Ok(())
    }

    fn append_in_place(&mut self, child: &[u8], ns: Ns) -> bool {
        self.0.with_arc_mut(|stanza| {
            let Some(stanza) = triomphe::Arc::get_mut(stanza) else { return false };
            let StanzaHeader { head, room, .. } = *stanza.header();
            let length = stanza.slice().len() - usize::from(room);
            let Some(head) = stanza::append_child_in_place(stanza.slice_mut(), length, &head, child, ns)
            else {
                return false;
            };
            let header = stanza.header_mut();
            header.head = head;
            // The child fits into the room, so the difference does, too.
            header.room = room.saturating_sub(u16::try_from(child.len()).unwrap_or(room));
            true
        })
    }

    /// A message from the offline store, which holds it under the number `seq` until it is delivered. `None` as
    /// for [`SharedStanza::parse`].
    pub fn from_store(bytes: &[u8], seq: u64) -> Option<SharedStanza> {
        let head = *SharedStanza::parse(bytes)?.head();
        Some(SharedStanza::with_state(head, bytes, DeliveryState::stored(seq)))
    }

    /// A message that was sent to a session before and contains the time of that (XEP-0203). `None` as for
    /// [`SharedStanza::parse`].
    pub fn delayed(bytes: &[u8]) -> Option<SharedStanza> {
        let head = *SharedStanza::parse(bytes)?.head();
        Some(SharedStanza::with_state(head, bytes, DeliveryState::NEW.with(DeliveryMark::Delayed)))
    }

    /// Whether the store still holds this message, so that dropping this copy loses nothing.
    #[inline]
    pub fn is_stored(&self) -> bool {
        self.stored().is_some()
    }

    /// The store number of this message.
    #[inline]
    pub fn stored(&self) -> Option<u64> {
        self.delivery_state().load().store_number()
    }

    /// Whether it was made by [`SharedStanza::delayed`].
    #[inline]
    pub fn is_delayed(&self) -> bool {
        self.delivery_state().load().has(DeliveryMark::Delayed)
    }

    /// Marks a response that the receiving session requested, or presence that its client expects although the
    /// account is not subscribed (any more); must be called before it is queued.
    #[inline]
    pub fn mark_requested(&self) {
        self.delivery_state().set(DeliveryMark::Requested);
    }

    /// Whether it is a response that its session requested, or presence that its client expects.
    #[inline]
    pub fn is_requested(&self) -> bool {
        self.delivery_state().load().has(DeliveryMark::Requested)
    }

    /// Marks a response or error that the server generated with the address of another entity (RFC 6120, section 8.3.1),
    /// such as a service or an account: what a client causes by its stanzas counts for nobody else. Must be called before it
    /// is queued.
    #[inline]
    pub fn mark_server_answer(&self) {
        self.delivery_state().set(DeliveryMark::ServerAnswer);
    }

    /// Whether the server generated it on behalf of another entity.
    #[inline]
    pub fn is_server_answer(&self) -> bool {
        self.delivery_state().load().has(DeliveryMark::ServerAnswer)
    }

    /// Marks a message of a multicast: its copies have no `to` until they are written, and are not lost when a session
    /// ends. Must be called before it is queued.
    #[inline]
    pub fn mark_multicast(&self) {
        self.delivery_state().set(DeliveryMark::Multicast);
    }

    /// Whether it is a message of a multicast.
    #[inline]
    pub fn is_multicast(&self) -> bool {
        self.delivery_state().load().has(DeliveryMark::Multicast)
    }

    /// Marks a copy of a message for which another node answers. Although nobody waits for its delivery, it is kept until the
    /// kernel has taken it, so that it is not lost if this node must answer for it later. Must be called before it is queued.
    pub fn mark_node_copy(&self) {
        self.delivery_state().set(DeliveryMark::NodeCopy);
    }

    /// Whether another node answered for the message when it was queued.
    #[inline]
    pub fn is_node_copy(&self) -> bool {
        self.delivery_state().load().has(DeliveryMark::NodeCopy)
    }

    /// A copy with this `to`, or without one. `None` if its start tag would become too long.
    pub fn with_to(&self, to: Option<jid::JidRef<'_>>) -> Option<SharedStanza> {
        let from = self.head().from(self.bytes());
        let mut out = Vec::with_capacity(self.bytes().len() + 64);
        let new = stanza::NewAddresses { from: from.as_deref(), to: to.map(|to| to.as_str()) };
        let head = stanza::rewrite_addresses(self.bytes(), self.head(), new, &mut out).ok()?;
        Some(SharedStanza::new(head, &out))
    }

    /// Declares that several sessions receive this message; must be called before the first does. It is lost
    /// only when all of them lose it.
    #[inline]
    pub fn add_recipients(&self, sessions: usize) {
        self.delivery_state().add_recipients(sessions);
    }

    /// Whether several sessions received this message.
    #[inline]
    pub fn is_shared(&self) -> bool {
        self.delivery_state().load().recipients() > 0
    }

    /// Records that one of the sessions that share it has received it.
    #[inline]
    pub fn mark_delivered(&self) {
        if self.is_shared() {
            self.delivery_state().set(DeliveryMark::Delivered);
        }
    }

    /// Records that one session will not receive it. True if no session has received it or still may: the
    /// caller must reroute it.
    #[inline]
    pub fn release_copy(&self) -> bool {
        if !self.is_shared() {
            return true;
        }
        let before = self.delivery_state().release_recipient();
        !before.has(DeliveryMark::Delivered) && before.recipients() == 1
    }

    /// Begins to track the delivery of a message to a client; must be called before it is queued. True unless the
    /// delivery is settled, or the message is from the store.
    pub fn track_delivery(&self, now: Millis) -> bool {
        self.delivery_state().track(now.0)
    }

    /// Whether [`SharedStanza::track_delivery`] was called.
    #[inline]
    pub fn is_delivery_tracked(&self) -> bool {
        self.delivery_state().load().is_tracked()
    }

    /// Whether the delivery is tracked and not settled.
    #[inline]
    pub fn is_delivery_unsettled(&self) -> bool {
        self.delivery_state().load().is_unsettled()
    }

    /// Milliseconds for which the delivery has been tracked and not settled, modulo 17 minutes.
    #[inline]
    pub fn unsettled_millis(&self, now: Millis) -> Option<u64> {
        self.delivery_state().load().unsettled_millis(now.0)
    }

    /// Those who wait for the delivery need not wait any more: the message is delivered or stored, or its sender has an
    /// error.
    pub fn settle_delivery(&self) {
        if self.delivery_state().set(DeliveryMark::Settled).has(DeliveryMark::Awaited) {
            delivery_waiters::wake(self.delivery_key());
        }
    }

    /// A client has acknowledged the message, or the kernel has taken it. True if the store may have a backup of it, which
    /// must be removed.
    #[inline]
    pub fn confirm_delivery(&self) -> bool {
        if !self.delivery_state().load().is_tracked() {
            return false;
        }
        let before = self.delivery_state().set(DeliveryMark::Confirmed);
        self.settle_delivery();
        before.is_backed_up() && !before.has(DeliveryMark::Confirmed)
    }

    /// Whether [`SharedStanza::confirm_delivery`] was called.
    pub fn is_delivery_confirmed(&self) -> bool {
        self.delivery_state().load().has(DeliveryMark::Confirmed)
    }

    /// Whether the store has a backup, or is about to store one.
    #[inline]
    pub fn is_backed_up(&self) -> bool {
        self.delivery_state().load().is_backed_up()
    }

    /// The store is about to store a backup. False if it has one, or needs none.
    pub fn begin_backup(&self) -> bool {
        self.delivery_state().begin_backup()
    }

    /// The store has no backup. True if no session holds the message either, so that its sender must get an error.
    pub fn cancel_backup(&self) -> bool {
        self.delivery_state().cancel_backup()
    }

    /// The last session that held the message is gone. True if there is a backup, or will be: the message must not be
    /// rerouted.
    pub fn abandon_to_backup(&self) -> bool {
        self.delivery_state().abandon()
    }

    /// Whether no session holds the message, so that its backup is an ordinary stored message.
    pub fn is_abandoned_to_backup(&self) -> bool {
        self.delivery_state().load().is_abandoned()
    }

    /// Whether both are the same allocation.
    pub fn is_same(&self, other: &SharedStanza) -> bool {
        std::ptr::eq(self.bytes().as_ptr(), other.bytes().as_ptr())
    }

    /// Unique as long as the stanza exists.
    pub(crate) fn delivery_key(&self) -> usize {
        self.bytes().as_ptr().addr()
    }

    pub(crate) fn delivery_state(&self) -> &AtomicDeliveryState {
        &self.0.header.header.delivery_state
    }

    /// Parses bytes that the server wrote or read from its store; `None` if they are not a valid stanza.
    pub fn parse(bytes: &[u8]) -> Option<SharedStanza> {
        let stanza = SharedStanza::read(bytes);
        if stanza.is_none() {
            tracing::error!(bytes = bytes.len(), "a stanza written by the server cannot be parsed");
        }
        stanza
    }

    /// Like [`SharedStanza::parse`], for bytes of another node: the caller reports an error.
    pub fn read(bytes: &[u8]) -> Option<SharedStanza> {
        match Element::read(bytes, &CLIENT, &STANZA_LIMITS) {
            Ok(Element::Stanza(head)) => Some(SharedStanza::new(head, bytes)),
            _ => None,
        }
    }

    /// Builds a shared stanza with the writer.
    pub fn build(write: impl FnOnce(&mut xml::Writer<'_>)) -> Option<SharedStanza> {
        let mut out = Vec::with_capacity(256);
        write(&mut xml::Writer::new(&mut out));
        SharedStanza::parse(&out)
    }

    /// Positions and properties of the stanza.
    #[inline]
    pub fn head(&self) -> &Head {
        &self.0.header.header.head
    }

    /// The sender's address, if the stanza has one that is valid.
    pub fn sender(&self) -> Option<Jid> {
        self.head().from(self.bytes()).and_then(|from| Jid::parse(&from).ok())
    }

    /// The recipient's address, if the stanza has one that is valid.
    pub fn recipient(&self) -> Option<Jid> {
        self.head().to(self.bytes()).and_then(|to| Jid::parse(&to).ok())
    }

    /// The stanza.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        let length = self.0.slice.len() - usize::from(self.0.header.header.room);
        self.0.slice.get(..length).unwrap_or_default()
    }

    /// Bytes of the stanza and of the unused room after it.
    #[inline]
    pub fn allocated_bytes(&self) -> usize {
        self.0.slice.len()
    }

    /// Kind and type.
    #[inline]
    pub fn kind(&self) -> StanzaKind {
        self.head().kind
    }

    /// The queue class.
    #[inline]
    pub fn class(&self) -> QueueClass {
        match self.kind() {
            StanzaKind::Message(_) => QueueClass::Message,
            StanzaKind::Iq(_) => QueueClass::Control,
            // Subscription requests are stored and answered; only plain presence may be dropped.
            StanzaKind::Presence(p) if p.is_subscription() => QueueClass::Control,
            StanzaKind::Presence(_) => QueueClass::Presence,
        }
    }

    /// The stanza without the ranges that `choose` adds to its list: for each child, the child's range or
    /// ranges within it, in order. `None` if there are none.
    ///
    /// # Errors
    /// If it cannot be parsed: it may have such children then.
    pub fn without(
        &self,
        choose: impl Fn(&xml::TreeNode<'_>, &mut Vec<Range<usize>>),
    ) -> Result<Option<SharedStanza>, xml::Error> {
        let tree = self.tree()?;
        let mut gone = Vec::new();
        tree.root().child_elements().for_each(|child| choose(&child, &mut gone));
        if gone.is_empty() {
            return Ok(None);
        }
        let bytes = self.bytes();
        let mut out = Vec::with_capacity(bytes.len());
        let mut at = 0;
        for range in gone {
            out.extend_from_slice(&bytes[at..range.start]);
            at = range.end;
        }
        out.extend_from_slice(&bytes[at..]);
        SharedStanza::parse(&out)
            .map(Some)
            .ok_or(xml::Error::NotWellFormed("a stanza without some of its children"))
    }

    /// A tree over the bytes, for features that read payloads.
    ///
    /// # Errors
    /// Only if it was built from bytes that were never checked.
    pub fn tree(&self) -> Result<xml::Tree<'_>, xml::Error> {
        tree(self.bytes())
    }
}

/// Whether [`SharedStanza::parse`] accepts these bytes.
///
/// # Errors
/// The syntax error.
pub fn check(bytes: &[u8]) -> Result<(), xml::Error> {
    match Element::read(bytes, &CLIENT, &STANZA_LIMITS)? {
        Element::Stanza(_) => Ok(()),
        _ => Err(xml::Error::NotWellFormed("no stanza")),
    }
}

/// A tree over a checked stanza.
///
/// # Errors
/// Only for bytes that were never checked.
pub fn tree(bytes: &[u8]) -> Result<xml::Tree<'_>, xml::Error> {
    xml::Tree::parse(bytes, &CLIENT, &STANZA_LIMITS)
}

impl std::fmt::Debug for SharedStanza {
    /// Shows kind and size, never content.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SharedStanza({:?}, {} bytes)", self.kind(), self.bytes().len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_appended_in_place_if_there_is_room_and_one_owner() {
        let text = b"<message to='a@b'><body>x</body></message>";
        let child = b"<stanza-id xmlns='urn:xmpp:sid:0' id='1' by='a@b'/>";
        let expect = [&text[..text.len() - 10], child, b"</message>"].concat();
        let head = *SharedStanza::parse(text).unwrap().head();
        let fresh = SharedStanza::parse(&expect).unwrap();
        for (room, copies, in_place) in
            [(child.len(), 0, true), (child.len() + 9, 0, true), (child.len() - 1, 0, false), (99, 1, false)]
        {
            let mut stanza = SharedStanza::with_room(head, &mut text.to_vec(), u16::try_from(room).unwrap());
            assert_eq!((stanza.bytes(), stanza.allocated_bytes()), (&text[..], text.len() + room));
            let others: Vec<_> = (0..copies).map(|_| stanza.clone()).collect();
            let before = stanza.bytes().as_ptr();
            stanza.append_child(child, Ns::StanzaId, &mut Vec::new()).unwrap();
            assert_eq!(stanza.bytes(), expect);
            assert_eq!(format!("{:?}", stanza.head()), format!("{:?}", fresh.head()));
            assert_eq!(std::ptr::eq(before, stanza.bytes().as_ptr()), in_place, "{room} {copies}");
            assert!(others.iter().all(|other| other.bytes() == text), "copies do not change");
        }
    }

    #[test]
    fn a_shared_message_is_lost_when_its_last_copy_is_released() {
        let message = || SharedStanza::parse(b"<message/>").unwrap();
        let alone = message();
        alone.mark_delivered();
        assert!(alone.release_copy());
        let lost = message();
        lost.add_recipients(2);
        assert!(!lost.release_copy() && lost.release_copy());
        let arrived = message();
        arrived.add_recipients(2);
        arrived.mark_delivered();
        assert!(!arrived.release_copy());
        let late = message();
        late.add_recipients(3);
        assert!(!late.release_copy());
        late.mark_delivered();
        assert!(!late.release_copy());
    }

    #[test]
    fn a_stored_message_carries_its_store_number() {
        let stanza = SharedStanza::from_store(b"<message/>", 7).unwrap();
        assert_eq!((stanza.stored(), stanza.is_shared(), stanza.is_delayed()), (Some(7), false, false));
        assert!(stanza.release_copy());
        assert!(SharedStanza::delayed(b"<message/>").unwrap().is_delayed() && !stanza.is_delayed());
    }

    #[test]
    fn a_confirmed_message_reports_its_backup_once() {
        let message = SharedStanza::parse(b"<message/>").unwrap();
        assert!(!message.confirm_delivery(), "not tracked");
        message.track_delivery(Millis(0));
        assert!(message.begin_backup());
        assert!(message.confirm_delivery() && !message.confirm_delivery());
        assert!(message.is_delivery_confirmed() && !message.is_delivery_unsettled());
    }
}
