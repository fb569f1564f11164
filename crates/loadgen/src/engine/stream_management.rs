//! Stream management of a user's stream (XEP-0198, version 1.6): acknowledgements both ways and resumption of a lost
//! stream.
//!
//! The time of an acknowledgement (`sm_ack`) is that from a request, `<r/>`, to the first `<a/>` that covers all stanzas
//! before the request. A server may answer with a lower count first, if it counts stanzas only when they are safe.
//!
//! Not implemented: `location`.
//!
//! # Pitfalls
//!
//! `h` counts stanzas since `<enabled/>` and wraps at 2^32. The stanzas kept for a resumption are bounded, and a stream
//! that exceeded the bound can no longer be resumed.

use xml::Tree;

use super::connection::LIMITS;
use super::event_loop::WorkerEngine;
use super::failover::NOT_RESUMED;
use super::slot::UserSlot;
use super::virtual_user::{LOGGED_IN, StreamManagementState, UnackedStanza, WaitState};
use crate::clock::now_us;
use crate::measure::{Counter, Timing};
use crate::plan::TransportSecurity;

/// Bytes of sent stanzas kept for a resumption; beyond it the stream cannot be resumed.
const KEPT: usize = 256 << 10;
/// Stanzas sent between two requests for an acknowledgement.
const ASK_EVERY: u32 = 8;
/// Unanswered requests whose time is measured; further ones are sent and not measured.
const MAX_REQUESTS: usize = 4096;
const REQUEST: &[u8] = b"<r xmlns='urn:xmpp:sm:3'/>";

impl WorkerEngine<'_> {
    /// Continues the resumption of a lost stream; these steps are not part of the program.
    pub(super) fn continue_resumption(&mut self, slot: UserSlot) {
        let features = &self.users[slot].login().features;
        let (starttls, mechanisms) = (features.starttls, !features.mechanisms.is_empty());
        let secure = self.users[slot].socket.as_ref().is_some_and(crate::socket::Socket::is_secure);
        if starttls && !secure && self.security(slot) == TransportSecurity::Starttls {
            self.ask_starttls(slot);
        } else if mechanisms {
            self.authenticate(slot, &[], None);
        } else {
            self.send_resume(slot);
        }
    }

    /// Enables stream management.
    pub(super) fn enable_management(&mut self, slot: UserSlot, resume: bool) {
        self.record_unacknowledged(slot);
        let user = &mut self.users[slot];
        user.extra().management =
            Some(Box::new(StreamManagementState { lost_at: now_us(), ..StreamManagementState::default() }));
        user.wait = WaitState::Enabled;
        let enable: &[u8] = if resume {
            b"<enable xmlns='urn:xmpp:sm:3' resume='true'/>"
        } else {
            b"<enable xmlns='urn:xmpp:sm:3'/>"
        };
        user.out.extend_from_slice(enable);
        self.mark_dirty(slot);
        self.set_response_timeout(slot, self.plan.options.answer_timeout_ms);
    }

    pub(super) fn management(&mut self, slot: UserSlot, name: &str, bytes: &[u8]) {
        let now = now_us();
        let user = &mut self.users[slot];
        let scope = user.scope.clone();
        let attribute = |name: &str| {
            let tree = Tree::parse(bytes, &scope, &LIMITS).ok()?;
            tree.root().attr(name).map(std::borrow::Cow::into_owned)
        };
        let wait = user.wait;
        let Some(management) = user.extra.as_mut().and_then(|extra| extra.management.as_mut()) else {
            return;
        };
        match name {
            "r" => {
                let answer = format!("<a xmlns='urn:xmpp:sm:3' h='{}'/>", management.received);
                user.out.extend_from_slice(answer.as_bytes());
                self.mark_dirty(slot);
            }
            "a" => {
                let Some(h) = attribute("h").and_then(|h| h.parse().ok()) else { return };
                let count = management.acknowledge(h);
                self.record.add(Counter::StanzasAcknowledged, u64::from(count.stanzas));
                self.record.add(Counter::MessagesAcknowledged, u64::from(count.messages));
                while let Some(since) = management.next_answered() {
                    self.record.time(Timing::SmAck, now.saturating_sub(since));
                }
                if let WaitState::Acknowledged(sent) = wait
                    && management.covers(sent)
                {
                    let took = now.saturating_sub(self.users[slot].due);
                    self.record_acceptable(slot, took);
                    self.resume_program(slot, now);
                }
            }
            "enabled" if wait == WaitState::Enabled => {
                let resumable = attribute("resume").is_some_and(|value| value == "true" || value == "1");
                management.id = attribute("id").filter(|_| resumable).map(Into::into);
                management.enabled = true;
                let since = management.lost_at;
                self.record.time(Timing::SmEnable, now - since);
                self.record_acceptable(slot, now - since);
                self.resend_messages(slot);
                self.resume_program(slot, now);
            }
            "resumed" if wait == WaitState::Resumed => {
                let h = attribute("h").and_then(|h| h.parse().ok());
                self.resumed(slot, h, now);
            }
            "failed" if wait == WaitState::Enabled => {
                self.record.error("sm:refused");
                self.users[slot].extra().management = None;
                self.resume_program(slot, now);
            }
            "failed" => self.not_resumed(slot),
            _ => {}
        }
    }

    /// Handles `<resumed/>`: the server has received `h` stanzas of the stream.
    pub(super) fn resumed(&mut self, slot: UserSlot, h: Option<u32>, now: u64) {
        let user = &mut self.users[slot];
        let Some(management) = user.extra.as_mut().and_then(|extra| extra.management.as_mut()) else {
            return;
        };
        if let Some(h) = h {
            let count = management.acknowledge(h);
            self.record.add(Counter::StanzasAcknowledged, u64::from(count.stanzas));
            self.record.add(Counter::MessagesAcknowledged, u64::from(count.messages));
        }
        // Those of the lost connection are not answered.
        management.requests.clear();
        let since = management.lost_at;
        let mut out = Vec::with_capacity(management.bytes);
        management.unacked.iter().for_each(|stanza| out.extend_from_slice(&stanza.bytes));
        let messages = management.unacked.iter().filter(|stanza| stanza.message.is_some()).count();
        self.record.add(Counter::MessagesResent, messages as u64);
        let (wait, pc) = management.resume_wait.take().unwrap_or((WaitState::End, 0));
        user.out.extend_from_slice(&out);
        user.wait = wait;
        user.pc = pc;
        user.login = None;
        user.set(LOGGED_IN, true);
        self.record.time(Timing::SmResume, now - since);
        self.record.add(Counter::SessionsResumed, 1);
        self.record.adjust_gauge(crate::measure::Gauge::Online, 1);
        let acceptable = !self.users[slot].is(super::virtual_user::SLOW);
        self.record.adjust_gauge(crate::measure::Gauge::Acceptable, i64::from(acceptable));
        self.mark_dirty(slot);
        self.mark_available(slot);
        self.rearm(slot, now);
    }

    /// Handles a failed resumption.
    pub(super) fn not_resumed(&mut self, slot: UserSlot) {
        self.record.error(NOT_RESUMED);
        self.record.add(Counter::SessionsLost, 1);
        if !self.start_over(slot, NOT_RESUMED) {
            self.end_session(slot);
        }
    }

    /// Drops the connection without ending the stream. A resumable stream is kept for the step `resume`.
    pub(super) fn cut(&mut self, slot: UserSlot) {
        let user = &self.users[slot];
        let stays = user.is(super::virtual_user::AVAILABLE) && self.resumable(slot);
        let account = user.account;
        self.drop_socket(slot);
        // For others this user's state is unchanged: the server queues its stanzas.
        if stays && account != super::virtual_user::NOBODY {
            self.left[account as usize] = false;
        }
    }

    /// Reconnects and resumes the stream that was cut.
    pub(super) fn resume(&mut self, slot: UserSlot) -> super::interpreter::StepOutcome {
        if self.users[slot].is_open() || !self.resumable(slot) {
            self.record.error("sm:not-resumable");
            return super::interpreter::StepOutcome::Go;
        }
        let user = &mut self.users[slot];
        let (due, pc) = (user.due, user.pc);
        if let Some(management) = &mut user.extra().management {
            management.lost_at = due;
            management.resume_wait = Some((WaitState::Pause, pc));
        }
        user.login().resuming = true;
        self.connect(slot);
        super::interpreter::StepOutcome::Block
    }

    /// Whether the lost stream of `slot` can be resumed.
    pub(super) fn resumable(&self, slot: UserSlot) -> bool {
        self.may_act()
            && self.users[slot]
                .extra
                .as_ref()
                .and_then(|extra| extra.management.as_ref())
                .is_some_and(|management| management.id.is_some() && management.bytes <= KEPT)
    }

    /// Starts to replace the lost connection.
    pub(super) fn start_resumption(&mut self, slot: UserSlot) {
        let now = now_us();
        let available = self.users[slot].is(super::virtual_user::AVAILABLE);
        let fails_over = self.fails_over();
        if fails_over {
            self.keep_online(slot);
        }
        self.drop_socket(slot);
        let random = self.rng.below(u32::MAX);
        let user = &mut self.users[slot];
        let (wait, pc) = (user.wait, user.pc);
        // For others this user's state is unchanged: the server queues its stanzas.
        if available {
            self.left[user.account as usize] = false;
        }
        if let Some(management) = &mut user.extra().management {
            management.lost_at = now;
            management.resume_wait.get_or_insert((wait, pc));
        }
        user.due = now;
        user.login().resuming = true;
        if fails_over {
            user.target = self.spread.other(user.target, random);
        }
        self.record.error("lost:resuming");
        self.connect(slot);
    }

    fn send_resume(&mut self, slot: UserSlot) {
        let user = &mut self.users[slot];
        let Some(management) = user.extra.as_ref().and_then(|extra| extra.management.as_ref()) else {
            return;
        };
        let mut resume = b"<resume xmlns='urn:xmpp:sm:3' previd='".to_vec();
        xml::escape::attr(management.id.as_deref().unwrap_or_default(), &mut resume);
        resume.extend_from_slice(format!("' h='{}'/>", management.received).as_bytes());
        user.wait = WaitState::Resumed;
        user.out.extend_from_slice(&resume);
        self.mark_dirty(slot);
    }

    /// Tracks a stanza of `slot` that starts at `begin` in its `out`.
    pub(super) fn track_sent_stanza(&mut self, slot: UserSlot, begin: usize) {
        let user = &mut self.users[slot];
        let Some(management) = user.extra.as_mut().and_then(|extra| extra.management.as_mut()) else {
            return;
        };
        if !management.enabled {
            return;
        }
        management.sent = management.sent.wrapping_add(1);
        if management.id.is_some() {
            let bytes: Box<[u8]> = user.out[begin.min(user.out.len())..].into();
            management.bytes += bytes.len();
            management.unacked.push_back(UnackedStanza { bytes, message: None });
        }
        // In a run with failures, what a failure may lose should be as little as with a client of a person.
        let ask_every = if self.plan.options.failover { 1 } else { ASK_EVERY };
        if management.sent % ask_every == 0 {
            management.request(now_us());
            user.out.extend_from_slice(REQUEST);
        }
        if management.bytes > KEPT && management.id.take().is_some() {
            let unacked = std::mem::take(&mut management.unacked);
            self.count_unacknowledged(unacked);
            self.record.error("sm:queue-full");
        }
    }

    /// Requests an acknowledgement of everything that was sent, at the end of a run that accounts for it.
    pub(super) fn request_last_acknowledgements(&mut self) {
        if self.acknowledgements.is_none() {
            return;
        }
        let now = now_us();
        for slot in self.users.indices() {
            let user = &mut self.users[slot];
            let management = user.extra.as_mut().and_then(|extra| extra.management.as_mut());
            let Some(management) = management.filter(|management| !management.unacked.is_empty()) else {
                continue;
            };
            if user.flags & LOGGED_IN != 0 {
                management.request(now);
                user.out.extend_from_slice(REQUEST);
                self.mark_dirty(slot);
            }
        }
        self.flush();
    }

    /// Waits until the server has acknowledged everything that was sent.
    pub(super) fn await_acknowledgement(&mut self, slot: UserSlot) -> super::interpreter::StepOutcome {
        let user = &mut self.users[slot];
        let due = user.due;
        let management = user.extra.as_mut().and_then(|extra| extra.management.as_mut());
        let Some(management) = management.filter(|management| management.enabled) else {
            self.record.error("sm:not-enabled");
            return super::interpreter::StepOutcome::Go;
        };
        let sent = management.sent;
        if management.requests.back().is_none_or(|(before, _)| *before != sent) {
            management.request(due);
            user.out.extend_from_slice(REQUEST);
        }
        user.wait = WaitState::Acknowledged(sent);
        self.mark_dirty(slot);
        self.set_response_timeout(slot, self.plan.options.answer_timeout_ms);
        super::interpreter::StepOutcome::Block
    }
}

/// Newly acknowledged stanzas, and the messages among them that are accounted for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct AcknowledgedCounts {
    stanzas: u32,
    messages: u32,
}

impl StreamManagementState {
    /// The server has handled `h` stanzas; returns how many of them are new.
    fn acknowledge(&mut self, h: u32) -> AcknowledgedCounts {
        let stanzas = h.wrapping_sub(self.acknowledged);
        // A server cannot acknowledge what was not sent.
        if stanzas > self.sent.wrapping_sub(self.acknowledged) {
            return AcknowledgedCounts::default();
        }
        self.acknowledged = h;
        let mut messages = 0;
        for _ in 0..stanzas {
            if let Some(stanza) = self.unacked.pop_front() {
                self.bytes -= stanza.bytes.len();
                messages += u32::from(stanza.message.is_some());
            }
        }
        AcknowledgedCounts { stanzas, messages }
    }

    /// An acknowledgement of everything that was sent is requested; it was due at `due`.
    fn request(&mut self, due: u64) {
        if self.requests.len() < MAX_REQUESTS {
            self.requests.push_back((self.sent, due));
        }
    }

    /// Whether the server has acknowledged the first `sent` stanzas.
    fn covers(&self, sent: u32) -> bool {
        // What is sent and not acknowledged lies between the two.
        self.sent.wrapping_sub(sent) >= self.sent.wrapping_sub(self.acknowledged)
    }

    /// Removes a request that is answered and returns when it was due.
    fn next_answered(&mut self) -> Option<u64> {
        let (sent, _) = *self.requests.front()?;
        if !self.covers(sent) {
            return None;
        }
        self.requests.pop_front().map(|(_, due)| due)
    }
}

#[cfg(test)]
mod tests {
    use super::{AcknowledgedCounts, StreamManagementState, UnackedStanza};

    /// XEP-0198, section 4: `h` wraps, and what was never sent cannot be acknowledged.
    #[test]
    fn acknowledgement_counts_wrap_and_are_validated() {
        let mut management =
            StreamManagementState { sent: 1, acknowledged: u32::MAX, ..StreamManagementState::default() };
        for (stanza, message) in [("a", Some((0, 7))), ("b", None)] {
            management.unacked.push_back(UnackedStanza { bytes: stanza.as_bytes().into(), message });
            management.bytes += 1;
        }
        assert_eq!(management.acknowledge(5), AcknowledgedCounts::default());
        assert_eq!((management.acknowledged, management.unacked.len()), (u32::MAX, 2));
        assert_eq!(management.acknowledge(0), AcknowledgedCounts { stanzas: 1, messages: 1 });
        assert_eq!((management.acknowledged, management.unacked.len(), management.bytes), (0, 1, 1));
    }

    #[test]
    fn a_request_is_answered_by_the_first_count_that_covers_what_was_sent_before_it() {
        let start = u32::MAX - 1;
        let mut management =
            StreamManagementState { sent: start, acknowledged: start, ..StreamManagementState::default() };
        for due in [10, 20, 30] {
            management.sent = management.sent.wrapping_add(1);
            management.request(due);
        }
        assert_eq!((management.next_answered(), management.covers(start)), (None, true));
        assert_eq!(management.acknowledge(start).stanzas, 0);
        assert_eq!(management.next_answered(), None, "the count is too low");
        assert_eq!(management.acknowledge(start.wrapping_add(2)).stanzas, 2);
        assert_eq!([(); 3].map(|()| management.next_answered()), [Some(10), Some(20), None]);
        assert_eq!(management.acknowledge(start.wrapping_add(3)).stanzas, 1);
        assert_eq!(management.next_answered(), Some(30));
    }

    #[test]
    fn unanswered_requests_are_bounded() {
        let mut management = StreamManagementState::default();
        (0..2 * super::MAX_REQUESTS as u64).for_each(|due| management.request(due));
        assert_eq!(management.requests.len(), super::MAX_REQUESTS);
    }
}
