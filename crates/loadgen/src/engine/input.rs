//! Received stanzas: counted, measured, answered where the protocol requires it, and matched against the event that the
//! user waits for.
//!
//! # Pitfalls
//!
//! The engine's programs are moved out while a user runs its program; input is never handled at that time.

use stanza::kind::{IqType, MessageType, PresenceType, StanzaKind};
use stanza::{Element, Head, PayloadNs};
use xml::{NamespaceContext, Ns, Tree};

use super::acknowledgement_accounting::DuplicateKind;
use super::bytecode::{CompiledPattern, Instruction, RawOp, RawWait};
use super::connection::LIMITS;
use super::delivery_accounting::DeliveryKind;
use super::event_loop::WorkerEngine;
use super::message_id::MessageId;
use super::nodes::{PUBLICATION, SUBSCRIBE, UNSUBSCRIBE};
use super::room_message_id::RoomMessageId;
use super::slot::UserSlot;
use super::virtual_user::{APPEARING, AVAILABLE, WaitState};
use super::writer::read_request_id;
use crate::clock::now_us;
use crate::measure::{Counter, Gauge, Timing};
use crate::plan::{AckMode, MatchAction, MessageBody, MessageKind, PlanStep};

impl WorkerEngine<'_> {
    /// Handles one complete element.
    pub(super) fn element(&mut self, slot: UserSlot, bytes: &[u8]) {
        let scope = self.users[slot].scope.clone();
        match Element::read(bytes, &scope, &LIMITS) {
            Ok(Element::Stanza(head) | Element::UnknownType(head)) => self.stanza(slot, bytes, &head),
            Ok(Element::Other { ns_text, name, .. }) => self.other(slot, ns_text, name, bytes),
            Ok(Element::NotSelfContained) => {
                let mut normal = Vec::new();
                match xml::normalise(bytes, &scope, &LIMITS, &mut normal) {
                    Ok(()) => {
                        let own = xml::NamespaceContext::client();
                        if let Ok(Element::Stanza(head)) = Element::read(&normal, &own, &LIMITS) {
                            self.stanza(slot, &normal, &head);
                        }
                    }
                    Err(error) => self.invalid_xml(slot, &error),
                }
            }
            Err(error) => self.invalid_xml(slot, &error),
        }
    }

    fn stanza(&mut self, slot: UserSlot, bytes: &[u8], head: &Head) {
        let now = now_us();
        self.record.add(Counter::StanzasIn, 1);
        let user = &mut self.users[slot];
        if let Some(management) = user.extra.as_mut().and_then(|extra| extra.management.as_mut())
            && management.enabled
        {
            management.received = management.received.wrapping_add(1);
        }
        // This stanza may start the wait for the next one; only a wait that began before it can be ended by it.
        let (wait, pc) = (user.wait, user.pc);
        match head.kind {
            StanzaKind::Message(kind) => self.message(slot, kind, bytes, head, now),
            StanzaKind::Presence(kind) => self.presence(slot, kind, bytes, head, now),
            StanzaKind::Iq(IqType::Get | IqType::Set) => self.handle_request(slot, bytes, head),
            StanzaKind::Iq(_) => self.handle_response(slot, bytes, head, now),
        }
        let user = &self.users[slot];
        if (user.wait, user.pc) != (wait, pc) {
            return;
        }
        if wait == WaitState::Any || (wait == WaitState::Match && self.is_awaited(slot, bytes, head)) {
            self.matched(slot, bytes, head, now);
        }
    }

    fn message(&mut self, slot: UserSlot, kind: MessageType, bytes: &[u8], head: &Head, now: u64) {
        let id = head.raw_id(bytes);
        if let Some(id) = id.and_then(|id| RoomMessageId::read(id, b'G', self.assignment.run)) {
            return self.room_message(slot, kind == MessageType::Error, id, bytes, head, now);
        }
        let stamp = id.and_then(|id| MessageId::read(id, self.assignment.run));
        let Some(stamp) = stamp else {
            if kind != MessageType::Error && self.node_event(slot, bytes, head, now) {
                return;
            }
            // Rooms send their subject without an id of ours.
            if kind == MessageType::Groupchat {
                return;
            }
            self.record.add(Counter::MessagesForeign, 1);
            return;
        };
        if kind == MessageType::Error {
            // The message bounced to its sender: the recipient will never receive it.
            if !matches!(stamp.class, b'E' | b'F') {
                self.record.add(Counter::MessagesRefused, 1);
                self.record.adjust_gauge(Gauge::UnderWay, -1);
                if let Some(recipient) = head.from(bytes).and_then(|from| self.names.index(&from)) {
                    self.accounting.refused.add(recipient);
                    let worker = self.owner(u64::from(recipient));
                    if let Some(acknowledgements) = &mut self.acknowledgements {
                        acknowledgements.refused((worker, stamp.number));
                    }
                    // The bounced message will not be delivered, so release a sender that waits for its delivery.
                    self.delivery_resolved(slot, recipient, stamp, now);
                }
            }
            return;
        }
        if matches!(stamp.class, b'E' | b'F') {
            let recipient = head.from(bytes).and_then(|from| self.names.index(&from));
            return self.handle_echo(slot, recipient, stamp, now);
        }
        let delayed = head.payloads().contains(PayloadNs::Delay);
        let account = self.users[slot].account;
        let arrival = self.accounting.arrive(stamp.worker, stamp.number, stamp.sender, account, delayed);
        match arrival {
            DeliveryKind::Duplicate => {
                self.record.add(Counter::MessagesDuplicate, 1);
                return self.record_duplicate(slot, stamp, bytes);
            }
            DeliveryKind::Invalid => return self.record.add(Counter::MessagesForeign, 1),
            DeliveryKind::Late => self.record.add(Counter::MessagesReordered, 1),
            DeliveryKind::New => {}
        }
        self.record.add(Counter::MessagesDelivered, 1);
        if let Some(acknowledgements) = &mut self.acknowledgements {
            let id = stanza_id(bytes, &self.users[slot].scope);
            acknowledgements.arrived((stamp.worker, stamp.number), id.as_deref());
        }
        self.record.adjust_gauge(Gauge::UnderWay, -1);
        let me = self.assignment.worker;
        let clocks = &self.assignment.clocks;
        let same_clock = clocks.get(usize::from(stamp.worker)) == clocks.get(usize::from(me));
        if same_clock {
            let took = now.saturating_sub(stamp.due);
            if delayed {
                self.record.add(Counter::MessagesDelayed, 1);
            }
            if delayed || self.waited_for(slot, stamp.due) {
                self.record.time(Timing::MessageStored, took);
            } else {
                self.record.time(Timing::Message, took);
                self.record_path(slot, stamp, [Timing::MessageSameNode, Timing::MessageCrossNode], took);
                self.record.add(Counter::MessageBytes, self.answer_bytes as u64);
                self.record_acceptable(slot, took);
            }
        } else if delayed {
            self.record.add(Counter::MessagesDelayed, 1);
        }
        if stamp.class == b'D' && same_clock {
            // The one-way time has been measured here; the sender waits to learn of the arrival, even from offline
            // storage.
            self.send_echo(slot, stamp, b'F');
        } else if stamp.class == b'D' && !delayed {
            self.send_echo(slot, stamp, b'E');
        } else if stamp.worker == me {
            self.delivered(stamp, now);
        }
        self.bounce(slot, stamp.sender, now);
    }

    /// Counts a duplicate by whether the server delivered one message twice or accepted it twice.
    fn record_duplicate(&mut self, slot: UserSlot, stamp: MessageId, bytes: &[u8]) {
        let Some(acknowledgements) = &self.acknowledgements else { return };
        let id = stanza_id(bytes, &self.users[slot].scope);
        let kind = acknowledgements.duplicate((stamp.worker, stamp.number), id.as_deref());
        let counter = match kind {
            DuplicateKind::SameId => Counter::DuplicateSameId,
            DuplicateKind::OtherId => Counter::DuplicateOtherId,
            DuplicateKind::Unknown => Counter::DuplicateUnknownId,
        };
        self.record.add(counter, 1);
    }

    /// Handles an arrived message of `stamp.sender`, a user of this worker.
    fn delivered(&mut self, stamp: MessageId, now: u64) {
        let Some(slot) = self.slots.get(stamp.sender as usize).copied().flatten() else {
            return;
        };
        if self.users[slot].wait == WaitState::Delivery(self.assignment.worker, stamp.number) {
            self.resume_program(slot, now);
        }
    }

    fn handle_echo(&mut self, slot: UserSlot, recipient: Option<u32>, stamp: MessageId, now: u64) {
        if stamp.worker != self.assignment.worker {
            return;
        }
        if stamp.class == b'E' {
            let took = now.saturating_sub(stamp.due);
            self.record.time(Timing::Echo, took);
            self.record_acceptable(slot, took);
        }
        if let Some(recipient) = recipient {
            self.delivery_resolved(slot, recipient, stamp, now);
        }
    }

    /// Resumes the sender if it waits for this message, whose outcome is now known.
    fn delivery_resolved(&mut self, slot: UserSlot, recipient: u32, stamp: MessageId, now: u64) {
        let worker = self.owner(u64::from(recipient));
        if self.users[slot].wait == WaitState::Delivery(worker, stamp.number) {
            self.resume_program(slot, now);
        }
    }

    /// Answers the partner's message with the next one.
    fn bounce(&mut self, slot: UserSlot, sender: u32, now: u64) {
        let user = &self.users[slot];
        if user.wait != WaitState::Bounce || sender != user.account ^ 1 || !self.may_act() {
            return;
        }
        if let Some(Instruction::Step(step)) = self.awaited_instruction(slot)
            && let step @ &PlanStep::Bounce { size, .. } = *step
            && let PlanStep::Bounce { to, .. } = step
        {
            let body = MessageBody::Size(size);
            self.send_message(slot, to, &body, MessageKind::Chat, &AckMode::None, now);
        }
    }

    fn presence(&mut self, slot: UserSlot, kind: PresenceType, bytes: &[u8], head: &Head, now: u64) {
        self.record.add(Counter::PresenceReceived, 1);
        if self.room_presence(slot, kind, bytes, head, now) {
            return;
        }
        match kind {
            PresenceType::Available => {}
            PresenceType::Subscribe => return self.handle_subscription_request(slot, bytes, head),
            PresenceType::Error => return self.record.add(Counter::PresenceErrors, 1),
            _ => return,
        }
        let stamp = head.raw_id(bytes).and_then(|id| MessageId::read(id, self.assignment.run));
        let Some(stamp) = stamp else { return };
        let same_clock = self.assignment.clocks.get(usize::from(stamp.worker))
            == self.assignment.clocks.get(usize::from(self.assignment.worker));
        if stamp.sender != self.users[slot].account {
            self.presence_delivered(stamp, now);
        }
        let user = &self.users[slot];
        if stamp.sender == user.account {
            if user.is(APPEARING) {
                self.mark_available(slot);
            }
            let took = now.saturating_sub(stamp.due);
            self.record.time(Timing::PresenceEcho, took);
            self.record.add(Counter::PresenceBytes, self.answer_bytes as u64);
            self.record_acceptable(slot, took);
        } else if same_clock
            && user.is(AVAILABLE)
            && stamp.due >= user.available_at
            && !head.payloads().contains(PayloadNs::Delay)
        {
            // Presence sent before this user became available is the answer to a probe, not a delivery.
            let took = now.saturating_sub(stamp.due);
            self.record.time(Timing::Presence, took);
            self.record_path(slot, stamp, [Timing::PresenceSameNode, Timing::PresenceCrossNode], took);
        }
    }

    /// Records the time of a delivery by whether both users are connected to the same target.
    fn record_path(&mut self, slot: UserSlot, stamp: MessageId, [same, cross]: [Timing; 2], took: u64) {
        if self.spread.is_several() {
            self.record.time(if stamp.target == self.users[slot].target { same } else { cross }, took);
        }
    }

    /// Handles a presence of `stamp.sender` that reached another user: the last awaited delivery resumes its sender.
    fn presence_delivered(&mut self, stamp: MessageId, now: u64) {
        if stamp.worker != self.assignment.worker {
            return;
        }
        let Some(slot) = self.slots.get(stamp.sender as usize).copied().flatten() else {
            return;
        };
        let sender = &mut self.users[slot];
        match sender.wait {
            // Deliveries of an earlier presence do not count.
            WaitState::Deliveries(left) if sender.due == stamp.due => {
                sender.wait = WaitState::Deliveries(left.saturating_sub(1));
                if left <= 1 {
                    self.resume_program(slot, now);
                }
            }
            _ => {}
        }
    }

    fn handle_subscription_request(&mut self, slot: UserSlot, bytes: &[u8], head: &Head) {
        let user = &self.users[slot];
        if !user.program(&self.programs).accept_subscriptions || !self.may_act() {
            return;
        }
        let Some(from) = head.from(bytes) else { return };
        let bare = from.split('/').next().unwrap_or_default().to_owned();
        let out = &mut self.users[slot].out;
        let begin = out.len();
        out.extend_from_slice(b"<presence type='subscribed' to='");
        xml::escape::attr(&bare, out);
        out.extend_from_slice(b"'/>");
        self.sent_stanza(slot, begin, Counter::PresenceSent);
    }

    /// Answers a request: RFC 6120, section 8.2.3 requires a response to every one.
    fn handle_request(&mut self, slot: UserSlot, bytes: &[u8], head: &Head) {
        let Some(id) = head.raw_id(bytes) else { return };
        let known = head.payloads().contains(PayloadNs::Ping) || head.payloads().contains(PayloadNs::Roster);
        let from = head.from(bytes);
        let out = &mut self.users[slot].out;
        let begin = out.len();
        out.extend_from_slice(if known { b"<iq type='result' id='" } else { b"<iq type='error' id='" });
        // The id may have been quoted either way, so its escaping is unknown.
        let id = xml::escape::unescape(id).unwrap_or_default();
        xml::escape::attr(&id, out);
        if let Some(from) = from {
            out.extend_from_slice(b"' to='");
            xml::escape::attr(&from, out);
        }
        out.extend_from_slice(if known {
            b"'/>".as_slice()
        } else {
            b"'><error type='cancel'><service-unavailable xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error></iq>"
        });
        self.track_sent_stanza(slot, begin);
        self.record.add(Counter::StanzasOut, 1);
        self.mark_dirty(slot);
    }

    fn handle_response(&mut self, slot: UserSlot, bytes: &[u8], head: &Head, now: u64) {
        let good = head.kind == StanzaKind::Iq(IqType::Result);
        let run = self.assignment.run;
        if let Some(id) = head.raw_id(bytes).and_then(|id| RoomMessageId::read(id, PUBLICATION, run)) {
            return self.publication_answered(slot, id, good, bytes, now);
        }
        let Some((class, number, due)) = head.raw_id(bytes).and_then(read_request_id) else { return };
        self.record.add(Counter::IqAnswered, 1);
        if !good {
            self.record.add(Counter::IqErrors, 1);
        }
        if matches!(class, SUBSCRIBE | UNSUBSCRIBE) {
            return self.subscription_answered(slot, (class, number, due), good, bytes, now);
        }
        let awaited = self.users[slot].wait == WaitState::Answer(number);
        if matches!(class, b'B' | b'L' | b'S' | b'G' | b'U') {
            if awaited {
                self.negotiated(slot, class, head, bytes);
            }
            return;
        }
        let timing = match class {
            b'R' => Timing::Roster,
            b'W' => Timing::RosterSet,
            b'P' => Timing::Ping,
            b'N' => Timing::PingUser,
            _ => Timing::Request,
        };
        let took = now.saturating_sub(due);
        // An error is a response too: a server that does not support pings has answered.
        self.record.time(timing, took);
        self.record_acceptable(slot, took);
        if class == b'R' {
            self.record.add(Counter::RosterBytes, self.answer_bytes as u64);
            self.record.add(Counter::RosterErrors, u64::from(!good));
        }
        if !good {
            let condition = super::negotiate::error_condition(bytes, &self.users[slot].scope);
            self.record.error(&format!("{}:{condition}", timing.name()));
        } else if class == b'R' {
            self.learn_contacts(slot, bytes);
        }
        if awaited {
            self.resume_program(slot, now);
        }
    }

    /// Records which contacts are users of this run.
    fn learn_contacts(&mut self, slot: UserSlot, bytes: &[u8]) {
        let user = &self.users[slot];
        if !user.program(&self.programs).contacts {
            return;
        }
        let Ok(tree) = Tree::parse(bytes, &user.scope, &LIMITS) else { return };
        let Some(query) = tree.root().child("query", Ns::Roster) else { return };
        let contacts = query
            .child_elements()
            .filter_map(|item| self.names.index(&item.attr("jid")?))
            .collect::<Vec<_>>();
        self.users[slot].contacts = contacts.into();
    }

    /// Whether the user waits for this stanza.
    fn is_awaited(&mut self, slot: UserSlot, bytes: &[u8], head: &Head) -> bool {
        let pattern = match self.awaited_instruction(slot) {
            Some(Instruction::WaitFor { pattern, .. }) => pattern,
            Some(Instruction::Raw(raw)) => match &raw.wait {
                RawWait::Match(pattern) => pattern,
                RawWait::Answer => {
                    let wanted =
                        self.users[slot].extra.as_ref().and_then(|extra| extra.awaited_id.as_deref());
                    return wanted.is_none_or(|wanted| head.id(bytes).is_some_and(|id| id == wanted));
                }
                _ => return true,
            },
            _ => return false,
        };
        let text = match pattern {
            CompiledPattern::Stanza { name, kind, namespace } => {
                return self.pattern_matches(slot, bytes, head, *name, *kind, *namespace);
            }
            CompiledPattern::Regex(regex) => {
                return std::str::from_utf8(bytes).is_ok_and(|text| regex.is_match(text));
            }
            CompiledPattern::Contains(text) => *text,
        };
        let text = self.text(slot, text);
        memchr::memmem::find(bytes, text.as_bytes()).is_some()
    }

    fn pattern_matches(
        &self,
        slot: UserSlot,
        bytes: &[u8],
        head: &Head,
        name: Option<&str>,
        kind: Option<&str>,
        namespace: Option<&str>,
    ) -> bool {
        if name.is_some_and(|name| name != head.kind.name()) {
            return false;
        }
        let Ok(tree) = Tree::parse(bytes, &self.users[slot].scope, &LIMITS) else { return false };
        let root = tree.root();
        kind.is_none_or(|kind| root.attr("type").is_some_and(|value| value == kind))
            && namespace
                .is_none_or(|namespace| root.child_elements().any(|child| child.ns_text() == namespace))
    }

    /// Handles the stanza that the user waited for.
    fn matched(&mut self, slot: UserSlot, bytes: &[u8], head: &Head, now: u64) {
        let programs = std::mem::take(&mut self.programs);
        let user = &self.users[slot];
        let op = user.program(&programs).ops.get(usize::from(user.pc).wrapping_sub(1));
        let mut action = None;
        if let Some(Instruction::Raw(raw)) = op {
            if raw.request {
                let took = now.saturating_sub(user.due);
                self.record.time(Timing::Request, took);
                self.record_acceptable(slot, took);
                if head.kind == StanzaKind::Iq(IqType::Error) {
                    self.record.error("request:error");
                }
            }
            action = self.checks(slot, raw, bytes);
        }
        self.programs = programs;
        match action {
            None => {
                if let Some(extra) = &mut self.users[slot].extra {
                    extra.repeats = 0;
                }
                self.resume_program(slot, now);
            }
            Some((MatchAction::Loop, pause)) => {
                self.users[slot].pc -= 1;
                self.timers.limit(slot, 0);
                self.sleep_from(slot, now, pause * 1_000, WaitState::Pause);
            }
            Some((MatchAction::Restart, pause)) => {
                self.drop_socket(slot);
                let user = &mut self.users[slot];
                user.pc = 0;
                user.login = None;
                if let Some(extra) = &mut user.extra {
                    extra.frames.clear();
                }
                self.sleep_from(slot, now, pause * 1_000, WaitState::Pause);
            }
            Some((_, _)) => {
                self.record.error("aborted-by-match");
                self.close_stream(slot);
            }
        }
    }

    /// Sets variables and applies conditions. Returns the action other than continuing, if any, and the pause before
    /// it.
    fn checks(&mut self, slot: UserSlot, raw: &RawOp<'_>, bytes: &[u8]) -> Option<(MatchAction, u64)> {
        let text = std::str::from_utf8(bytes).unwrap_or_default();
        for (variable, regex) in &raw.captures {
            let values: Vec<&str> = regex
                .captures_iter(text)
                .filter_map(|found| found.get(1).or_else(|| found.get(0)).map(|group| group.as_str()))
                .collect();
            self.set_variable(slot, variable, values.join(&super::text::BETWEEN.to_string()));
        }
        for (regex, check) in &raw.matches {
            if regex.is_match(text) != check.when {
                self.record.add(Counter::NoMatches, 1);
                continue;
            }
            self.record.add(Counter::Matches, 1);
            if let Some(name) = &check.name {
                self.record.error(&format!("match:{name}"));
            }
            match check.action {
                MatchAction::Continue => continue,
                MatchAction::Log => {
                    self.record.log(|| format!("match {}: {text}", check.regex));
                    continue;
                }
                MatchAction::AbortRun => {
                    self.refusal = Some(format!("a match of the plan aborted the run: {}", check.regex));
                    self.stage = super::event_loop::WorkerStage::Draining(now_us());
                }
                MatchAction::Loop => {
                    let extra = self.users[slot].extra();
                    extra.repeats += 1;
                    if extra.repeats > check.max {
                        extra.repeats = 0;
                        self.record.error("match:repeated-too-often");
                        return None;
                    }
                }
                MatchAction::Restart => {
                    let extra = self.users[slot].extra();
                    extra.restarts += 1;
                    if extra.restarts > check.max {
                        self.record.error("match:restarted-too-often");
                        return Some((MatchAction::Abort, 0));
                    }
                }
                MatchAction::Abort => {}
            }
            return Some((check.action, check.pause_ms));
        }
        None
    }
}

/// The id that the server gave to a message (XEP-0359).
fn stanza_id(bytes: &[u8], scope: &NamespaceContext) -> Option<String> {
    let tree = Tree::parse(bytes, scope, &LIMITS).ok()?;
    Some(tree.root().child("stanza-id", Ns::StanzaId)?.attr("id")?.into_owned())
}
