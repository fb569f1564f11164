//! Serialisation of everything that users send.
//!
//! # Pitfalls
//!
//! Everything goes through [`WorkerEngine::sent_stanza`], which counts it and keeps it for stream management.

use std::fmt::Write as _;

use super::connection::FULL;
use super::event_loop::WorkerEngine;
use super::message_id::{MessageId, hex, unhex};
use super::slot::UserSlot;
use super::virtual_user::WaitState;
use crate::measure::{Counter, Gauge};
use crate::plan::{AckMode, Destination, MessageBody, MessageKind, PresenceKind, RosterChange, TextTemplate};

/// Filler text of message bodies.
const FILLING: &str = "The quick brown fox jumps over the lazy dog and keeps on running through the meadow. ";

/// Appends the id of a request: its class, its number, its due time.
pub(super) fn request_id(class: u8, number: u32, due: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(&[b'Q', class]);
    hex(u64::from(number), out);
    out.push(b'-');
    hex(due, out);
}

/// Parses such an id.
pub(super) fn read_request_id(id: &str) -> Option<(u8, u32, u64)> {
    let rest = id.as_bytes().strip_prefix(b"Q")?;
    let (class, rest) = rest.split_first()?;
    let dash = rest.iter().position(|byte| *byte == b'-')?;
    let number = u32::try_from(unhex(&rest[..dash])?).ok()?;
    Some((*class, number, unhex(&rest[dash + 1..])?))
}

/// Appends the content of a body: the rendered text, or filler text.
pub(super) fn write_body(text: Option<&str>, body: &MessageBody, out: &mut Vec<u8>) {
    match (text, body) {
        (Some(text), _) => xml::escape::text(text, out),
        (None, MessageBody::Size(size)) => {
            let mut left = *size as usize;
            while left > 0 {
                let piece = left.min(FILLING.len());
                out.extend_from_slice(&FILLING.as_bytes()[..piece]);
                left -= piece;
            }
        }
        (None, MessageBody::Text(_)) => {}
    }
}

/// Recipient of a step.
pub(super) enum ResolvedDestination {
    /// A user of the run.
    User(u32),
    /// Any address.
    Address(String),
    /// No user qualifies; the error has been counted.
    Nobody,
}

impl WorkerEngine<'_> {
    /// Starts a new request of `slot`.
    pub(super) fn begin_request(&mut self, slot: UserSlot) -> u32 {
        let user = &mut self.users[slot];
        user.request = user.request.wrapping_add(1);
        user.request
    }

    /// Counts something written to `out` before stream management applies.
    pub(super) fn sent(&mut self, slot: UserSlot, counter: Counter) {
        self.record.add(counter, 1);
        self.record.add(Counter::StanzasOut, 1);
        self.mark_dirty(slot);
    }

    /// Counts the stanza that starts at `begin` in `out`.
    pub(super) fn sent_stanza(&mut self, slot: UserSlot, begin: usize, counter: Counter) {
        self.track_sent_stanza(slot, begin);
        self.sent(slot, counter);
    }

    /// Returns true, and counts it, if earlier output of `slot` is still unsent.
    pub(super) fn skip_if_blocked(&mut self, slot: UserSlot) -> bool {
        let full = self.users[slot].out.len() > FULL;
        if full {
            self.record.add(Counter::Skipped, 1);
        }
        full
    }

    /// Writes the address of `to`, escaped for an attribute.
    fn write_to(&mut self, slot: UserSlot, to: &ResolvedDestination) {
        let mut address = String::new();
        match to {
            ResolvedDestination::User(user) => self.names.bare(*user, &mut address),
            ResolvedDestination::Address(text) => address.push_str(text),
            ResolvedDestination::Nobody => {}
        }
        xml::escape::attr(&address, &mut self.users[slot].out);
    }

    /// Sends a message that was due at `due`. Returns the number that its delivery would have, if it is numbered.
    pub(super) fn send_message(
        &mut self,
        slot: UserSlot,
        destination: &Destination,
        body: &MessageBody,
        kind: MessageKind,
        ack: &AckMode,
        due: u64,
    ) -> Option<(u16, u32)> {
        if self.skip_if_blocked(slot) {
            return None;
        }
        let (account, resource) = match destination {
            Destination::Full(account, resource) => (&**account, Some(resource)),
            account => (account, None),
        };
        let to = self.destination(slot, account);
        if matches!(to, ResolvedDestination::Nobody) {
            return None;
        }
        if let ResolvedDestination::User(recipient) = to {
            self.users[slot].last_message = recipient;
        }
        let text = match body {
            MessageBody::Text(text) => Some(self.text(slot, text)),
            MessageBody::Size(_) => None,
        };
        let begin = self.users[slot].out.len();
        self.users[slot].out.extend_from_slice(b"<message to='");
        self.write_to(slot, &to);
        if let Some(resource) = resource {
            let resource = self.text(slot, resource);
            let out = &mut self.users[slot].out;
            out.push(b'/');
            xml::escape::attr(&resource, out);
        }
        let number = match &to {
            ResolvedDestination::User(recipient) if self.plan.options.stamps => {
                Some(self.stamp(slot, *recipient, ack, due))
            }
            _ => None,
        };
        let out = &mut self.users[slot].out;
        out.extend_from_slice(match kind {
            MessageKind::Chat => b"' type='chat'><body>",
            MessageKind::Normal => b"' type='normal'><body>",
            MessageKind::Headline => b"' type='headline'><body>",
        });
        write_body(text.as_deref(), body, out);
        out.extend_from_slice(b"</body></message>");
        let counter = if number.is_some() { Counter::MessagesSent } else { Counter::MessagesElsewhere };
        self.sent_stanza(slot, begin, counter);
        if let Some(number) = number {
            self.track_message(slot, number);
        }
        number
    }

    /// Numbers a message and writes its id after the open quote of `to`.
    fn stamp(&mut self, slot: UserSlot, recipient: u32, ack: &AckMode, due: u64) -> (u16, u32) {
        let owner = self.owner(u64::from(recipient));
        let online = self.online.contains(recipient);
        let number = self.accounting.number(owner, recipient, online);
        self.record.adjust_gauge(Gauge::UnderWay, 1);
        if online {
            self.record.add(Counter::MessagesToOnline, 1);
        }
        let me = self.assignment.worker;
        let clock = |worker: u16| self.assignment.clocks.get(usize::from(worker));
        // An echo measures what clocks cannot: between machines, or when the sender waits for a user of another worker.
        let echo = clock(owner) != clock(me) || (matches!(ack, AckMode::Delivery) && owner != me);
        let user = &mut self.users[slot];
        let stamp = MessageId {
            class: if echo { b'D' } else { b'T' },
            run: self.assignment.run,
            worker: me,
            number,
            sender: user.account,
            target: user.target,
            due,
        };
        user.out.extend_from_slice(b"' id='");
        stamp.write(&mut user.out);
        (owner, number)
    }

    /// Sends presence that was due at `due`.
    pub(super) fn send_presence(
        &mut self,
        slot: UserSlot,
        kind: PresenceKind,
        to: Option<&Destination>,
        show: Option<&TextTemplate>,
        status: Option<&TextTemplate>,
        due: u64,
    ) {
        if self.skip_if_blocked(slot) {
            return;
        }
        let to = match to {
            Some(to) => match self.destination(slot, to) {
                ResolvedDestination::Nobody => return,
                to => Some(to),
            },
            None => None,
        };
        let (show, status) =
            (show.map(|text| self.text(slot, text)), status.map(|text| self.text(slot, text)));
        let begin = self.users[slot].out.len();
        self.users[slot].out.extend_from_slice(b"<presence");
        if let Some(to) = &to {
            self.users[slot].out.extend_from_slice(b" to='");
            self.write_to(slot, to);
            self.users[slot].out.push(b'\'');
        }
        let name = match kind {
            PresenceKind::Available => None,
            PresenceKind::Unavailable => Some("unavailable"),
            PresenceKind::Subscribe => Some("subscribe"),
            PresenceKind::Subscribed => Some("subscribed"),
            PresenceKind::Unsubscribe => Some("unsubscribe"),
            PresenceKind::Probe => Some("probe"),
        };
        let stamps = self.plan.options.stamps && kind == PresenceKind::Available;
        let (run, worker) = (self.assignment.run, self.assignment.worker);
        let user = &mut self.users[slot];
        if let Some(name) = name {
            user.out.extend_from_slice(format!(" type='{name}'").as_bytes());
        }
        if stamps {
            user.out.extend_from_slice(b" id='");
            let (sender, target) = (user.account, user.target);
            MessageId { class: b'P', run, worker, number: 0, sender, target, due }.write(&mut user.out);
            user.out.push(b'\'');
        }
        self.end_presence(slot, begin, show.as_deref(), status.as_deref());
        if to.is_none() {
            match kind {
                PresenceKind::Available => self.appears(slot),
                PresenceKind::Unavailable => {
                    self.mark_unavailable(slot);
                    // The server leaves the rooms for the user (XEP-0045, section 7.14).
                    self.end_stays(slot);
                }
                _ => {}
            }
        }
    }

    /// Completes a presence stanza whose start tag is open, and counts it.
    pub(super) fn end_presence(
        &mut self,
        slot: UserSlot,
        begin: usize,
        show: Option<&str>,
        status: Option<&str>,
    ) {
        let out = &mut self.users[slot].out;
        if show.is_none() && status.is_none() {
            out.extend_from_slice(b"/>");
        } else {
            out.push(b'>');
            for (name, text) in [("show", show), ("status", status)] {
                if let Some(text) = text {
                    out.extend_from_slice(format!("<{name}>").as_bytes());
                    xml::escape::text(text, out);
                    out.extend_from_slice(format!("</{name}>").as_bytes());
                }
            }
            out.extend_from_slice(b"</presence>");
        }
        self.sent_stanza(slot, begin, Counter::PresenceSent);
    }

    /// Handles the sent initial presence: the user counts as available once the server has reflected it.
    fn appears(&mut self, slot: UserSlot) {
        let user = &mut self.users[slot];
        if user.is(super::virtual_user::AVAILABLE) || user.is(super::virtual_user::APPEARING) {
            return;
        }
        user.set(super::virtual_user::APPEARING, true);
        self.appearing.push_back((slot, user.arrived, crate::clock::now_us()));
    }

    /// Requests the roster.
    pub(super) fn send_roster(&mut self, slot: UserSlot, due: u64) -> u32 {
        self.send_request(slot, b'R', due, None, |out| {
            out.extend_from_slice(b"<query xmlns='jabber:iq:roster'/>");
        })
    }

    /// Sends a ping.
    pub(super) fn send_ping(&mut self, slot: UserSlot, to: Option<&Destination>, due: u64) -> Option<u32> {
        let to = match to {
            None | Some(Destination::Server) => None,
            Some(to) => match self.destination(slot, to) {
                ResolvedDestination::Nobody => return None,
                // The server answers a ping to a bare JID; the client is wanted.
                ResolvedDestination::User(user) => Some(self.full_address(user)),
                ResolvedDestination::Address(address) => Some(address),
            },
        };
        let class = if to.is_some() { b'N' } else { b'P' };
        let address = to.unwrap_or_else(|| self.plan.target.domain.clone());
        Some(self.send_request(slot, class, due, Some(&address), |out| {
            out.extend_from_slice(b"<ping xmlns='urn:xmpp:ping'/>");
        }))
    }

    /// Full JID of a user if this worker has it online, its bare JID otherwise.
    fn full_address(&self, account: u32) -> String {
        let mut address = String::new();
        self.names.bare(account, &mut address);
        if let Some(slot) = self.slots[account as usize] {
            let user = &self.users[slot];
            if !user.resource.is_empty() {
                address.push('/');
                address.push_str(&user.resource);
            }
        }
        address
    }

    /// Changes the roster.
    pub(super) fn send_roster_set(
        &mut self,
        slot: UserSlot,
        change: RosterChange,
        to: &Destination,
        name: Option<&TextTemplate>,
        group: Option<&TextTemplate>,
        due: u64,
    ) -> Option<u32> {
        let mut address = String::new();
        match self.destination(slot, to) {
            ResolvedDestination::Nobody => return None,
            ResolvedDestination::User(user) => {
                self.names.bare(user, &mut address);
                self.users[slot].last_contact = user;
            }
            ResolvedDestination::Address(text) => address = text,
        }
        let (name, group) = (name.map(|text| self.text(slot, text)), group.map(|text| self.text(slot, text)));
        let number = self.begin_request(slot);
        let begin = self.users[slot].out.len();
        let out = &mut self.users[slot].out;
        out.extend_from_slice(b"<iq type='set' id='");
        request_id(b'W', number, due, out);
        out.extend_from_slice(b"'>");
        let mut writer = xml::Writer::new(out);
        writer.start_ns("query", xml::Ns::Roster).start("item").attr("jid", &address);
        if change == RosterChange::Remove {
            writer.attr("subscription", "remove");
        } else {
            writer.attr_opt("name", name.as_deref());
            if let Some(group) = group {
                writer.text_element("group", &group);
            }
        }
        writer.end().end();
        writer.finish();
        out.extend_from_slice(b"</iq>");
        self.sent_stanza(slot, begin, Counter::IqSent);
        Some(number)
    }

    fn send_request(
        &mut self,
        slot: UserSlot,
        class: u8,
        due: u64,
        to: Option<&str>,
        payload: impl FnOnce(&mut Vec<u8>),
    ) -> u32 {
        let number = self.begin_request(slot);
        let out = &mut self.users[slot].out;
        let begin = out.len();
        out.extend_from_slice(b"<iq type='get' id='");
        request_id(class, number, due, out);
        if let Some(to) = to {
            out.extend_from_slice(b"' to='");
            xml::escape::attr(to, out);
        }
        out.extend_from_slice(b"'>");
        payload(out);
        out.extend_from_slice(b"</iq>");
        self.sent_stanza(slot, begin, Counter::IqSent);
        number
    }

    /// Sends an echo of a message back to its sender, of class `E` or `F`.
    pub(super) fn send_echo(&mut self, slot: UserSlot, stamp: MessageId, class: u8) {
        if self.skip_if_blocked(slot) {
            return;
        }
        let begin = self.users[slot].out.len();
        self.users[slot].out.extend_from_slice(b"<message type='chat' to='");
        self.write_to(slot, &ResolvedDestination::User(stamp.sender));
        let out = &mut self.users[slot].out;
        out.extend_from_slice(b"' id='");
        MessageId { class, ..stamp }.write(out);
        out.extend_from_slice(b"'><body>echo</body></message>");
        self.track_sent_stanza(slot, begin);
        self.record.add(Counter::StanzasOut, 1);
        self.mark_dirty(slot);
    }

    /// Starts a ping-pong of messages.
    pub(super) fn start_bounce(
        &mut self,
        slot: UserSlot,
        in_flight: u32,
        to: &Destination,
        size: u32,
        due: u64,
    ) {
        self.users[slot].wait = WaitState::Bounce;
        for _ in 0..in_flight {
            self.send_message(slot, to, &MessageBody::Size(size), MessageKind::Chat, &AckMode::None, due);
        }
    }

    /// Appends a number that is unique in the run.
    pub(super) fn unique(&mut self, out: &mut String) {
        let workers = self.assignment.clocks.len().max(1) as u64;
        let _ = write!(out, "{}", self.next_unique * workers + u64::from(self.assignment.worker));
        self.next_unique += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::{read_request_id, request_id};

    #[test]
    fn ids_of_requests_are_read_back() {
        let mut id = Vec::new();
        request_id(b'R', 77, 0xABCDEF, &mut id);
        assert_eq!(read_request_id(std::str::from_utf8(&id).unwrap()), Some((b'R', 77, 0xABCDEF)));
        for other in ["", "Q", "QR", "QR1", "R1-2", "QR1-x", "QR1-2-3"] {
            assert_eq!(read_request_id(other), None, "{other}");
        }
    }
}
