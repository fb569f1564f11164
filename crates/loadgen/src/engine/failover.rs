//! Users that return after a failure of their server: they try to resume at another target, otherwise begin their
//! session anew there and send again what the server had not acknowledged, as clients do.
//!
//! Only in runs with `--failover` or `--chaos`. For other users, one who will return is still online, so messages to it
//! continue: what becomes of them is what such a run measures.
//!
//! Not implemented: presence and requests that were not acknowledged are not sent again.
//!
//! # Pitfalls
//!
//! A message that is sent again has its old number: it is a duplicate if the server had accepted it the first time.

use std::collections::VecDeque;

use super::bytecode::{Instruction, Pc};
use super::event_loop::WorkerEngine;
use super::slot::UserSlot;
use super::virtual_user::{APPEARING, AVAILABLE, CLOSED, NOBODY, SESSION_OPEN, UnackedStanza, WaitState};
use crate::clock::now_us;
use crate::measure::Counter;

/// Failed attempts after which a user does not return.
const MAX_ATTEMPTS: u32 = 120;
/// Longest pause before another attempt, in microseconds. The time of a server's restart is not scaled with the plan.
const PAUSE_US: u32 = 1_000_000;

/// A resumption that the server refuses.
pub(super) const NOT_RESUMED: &str = "sm:not-resumed";

/// Failures of a login that another attempt cannot repair.
const FINAL_FAILURES: [&str; 5] = [
    "login:not-authorized",
    "login:account-disabled",
    "login:no-mechanism",
    "login:no-starttls",
    "login:credentials",
];

impl WorkerEngine<'_> {
    /// Whether users return after a failure.
    pub(super) fn fails_over(&self) -> bool {
        self.plan.options.failover && self.may_act()
    }

    /// Leaves a user that will return online for others. Call before its connection is dropped.
    pub(super) fn keep_online(&mut self, slot: UserSlot) {
        self.users[slot].flags &= !(AVAILABLE | APPEARING);
    }

    /// Starts the session of a user again from its first step, at another target. Returns false if the user does not
    /// return; the caller then ends its session.
    pub(super) fn start_over(&mut self, slot: UserSlot, kind: &str) -> bool {
        let account = self.users[slot].account;
        if !self.fails_over() || !self.ever_logged_in || account == NOBODY {
            return false;
        }
        let extra = self.users[slot].extra();
        extra.failovers += 1;
        let attempts = extra.failovers;
        if attempts > MAX_ATTEMPTS || FINAL_FAILURES.contains(&kind) {
            self.left[account as usize] = true;
            if self.online.set(account, false) {
                self.changes.push((account, false));
            }
            return false;
        }
        let unacked = extra.management.take().map(|management| management.unacked).unwrap_or_default();
        let messages = unacked.into_iter().filter(|stanza| stanza.message.is_some());
        extra.resend.get_or_insert_default().extend(messages);
        extra.frames.clear();
        self.keep_online(slot);
        self.end_stays(slot);
        if kind == NOT_RESUMED && self.bind_in_place_of_resumption(slot) {
            return true;
        }
        self.drop_socket(slot);
        let random = self.rng.below(u32::MAX);
        let user = &mut self.users[slot];
        if user.wait == WaitState::Barrier {
            self.waiting -= 1;
        }
        // A server that answers a resumption accepts logins too.
        if kind != NOT_RESUMED {
            user.target = self.spread.other(user.target, random);
        }
        user.pc = 0;
        user.login = None;
        user.set(CLOSED | SESSION_OPEN, false);
        let pause = if attempts == 1 { 0 } else { u64::from(self.rng.below(PAUSE_US)) };
        self.sleep_from(slot, now_us(), pause, WaitState::Pause);
        true
    }

    /// Continues a stream whose resumption was refused with the bind step of the session, as clients do (XEP-0198, section 5: the
    /// client may bind on the same stream). Returns false if the session does not begin with such a login.
    fn bind_in_place_of_resumption(&mut self, slot: UserSlot) -> bool {
        let user = &mut self.users[slot];
        let is_first_login = |op: &&Instruction<'_>| {
            matches!(
                op,
                Instruction::LoginBegin
                    | Instruction::Connect
                    | Instruction::StartTls
                    | Instruction::Authenticate { .. }
                    | Instruction::Bind { .. }
            )
        };
        let mut login = user.program(&self.programs).ops.iter().take_while(is_first_login);
        let bind = login.position(|op| matches!(op, Instruction::Bind { unless_bound: false, .. }));
        let Some(bind) = bind.and_then(|at| Pc::try_from(at).ok()).filter(|_| user.is_open()) else {
            return false;
        };
        if user.wait == WaitState::Barrier {
            self.waiting -= 1;
        }
        let user = &mut self.users[slot];
        user.pc = bind;
        user.login().resuming = false;
        user.set(CLOSED | SESSION_OPEN, false);
        self.resume_program(slot, now_us());
        true
    }

    /// Whether a message was due before this user's session began in place of a lost one: it has waited for its recipient.
    pub(super) fn waited_for(&self, slot: UserSlot, due: u64) -> bool {
        self.users[slot].extra.as_ref().is_some_and(|extra| due < extra.returned_at)
    }

    /// Sends the messages of the lost session that were not acknowledged, on a stream with stream management.
    pub(super) fn resend_messages(&mut self, slot: UserSlot) {
        let Some(stanzas) = self.users[slot].extra.as_mut().and_then(|extra| extra.resend.take()) else {
            return;
        };
        for UnackedStanza { bytes, message } in *stanzas {
            let out = &mut self.users[slot].out;
            let begin = out.len();
            out.extend_from_slice(&bytes);
            self.sent_stanza(slot, begin, Counter::MessagesResent);
            if let Some(number) = message {
                self.track_message(slot, number);
            }
        }
    }

    /// Associates the stanza that was written last with the number of its message. One that cannot be acknowledged
    /// counts as unacknowledged at once.
    pub(super) fn track_message(&mut self, slot: UserSlot, number: (u16, u32)) {
        let Some(acknowledgements) = &mut self.acknowledgements else { return };
        let management = self.users[slot].extra.as_mut().and_then(|extra| extra.management.as_mut());
        let stanza = management
            .filter(|management| management.enabled && management.id.is_some())
            .and_then(|management| management.unacked.back_mut());
        match stanza {
            Some(stanza) => stanza.message = Some(number),
            None => acknowledgements.unacknowledged(number),
        }
    }

    /// Records the messages that the server has not acknowledged on a stream that is over.
    pub(super) fn record_unacknowledged(&mut self, slot: UserSlot) {
        let management = self.users[slot].extra.as_mut().and_then(|extra| extra.management.as_mut());
        let unacked = management.map(|management| std::mem::take(&mut management.unacked));
        self.count_unacknowledged(unacked.unwrap_or_default());
    }

    /// Records those of a session that is over.
    pub(super) fn record_not_resent(&mut self, slot: UserSlot) {
        self.record_unacknowledged(slot);
        let resend = self.users[slot].extra.as_mut().and_then(|extra| extra.resend.take());
        self.count_unacknowledged(resend.map(|stanzas| *stanzas).unwrap_or_default());
    }

    /// Records messages that the server has not acknowledged.
    pub(super) fn count_unacknowledged(&mut self, stanzas: VecDeque<UnackedStanza>) {
        let Some(acknowledgements) = &mut self.acknowledgements else { return };
        for number in stanzas.into_iter().filter_map(|stanza| stanza.message) {
            acknowledgements.unacknowledged(number);
        }
    }

    /// Records which users have no session at the end of the run: their messages may wait in the server.
    pub(super) fn record_away(&mut self) {
        let Some(acknowledgements) = &mut self.acknowledgements else { return };
        for (account, seen) in self.seen.iter().enumerate() {
            let user = self.slots[account].map(|slot| &self.users[slot]);
            if *seen && !self.left[account] && !user.is_some_and(|user| user.is(AVAILABLE)) {
                self.left[account] = true;
                acknowledgements.away += 1;
            }
        }
    }
}
