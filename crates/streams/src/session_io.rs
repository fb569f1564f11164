//! I/O of a bound stream: elements from the client to the engine, the outbox to the client. RFC 6120, sections 8 and
//! 10.
//!
//! One poll reads the available input, then writes the queued stanzas in as few system calls as possible; stanzas that
//! arrive together for the same receiver leave together. While a stanza waits for the store, later ones are held (to keep
//! the order), and only acknowledgements, answers and, with stream management, pings are handled. Reading pauses when much
//! is held or unsafe, and while the peer does not read (to bound memory).
//!
//! Long because reading, holding and writing in one poll share the connection's state.
//!
//! # Pitfalls
//!
//! Every return from `write` with stanzas left in the outbox needs a source of wake-ups: the socket, if it was not
//! writable, or the task itself. The outbox wakes the task only for newly queued stanzas.

use std::cell::RefCell;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::task::{Context, Poll};

use access::session_info::{SessionInfo, answer_session_info};
use base::spawn::BoxFuture;
use feature_api::stream_elements::handle_nonza;
use net::{Scratch, StreamEvent, Transport};
use stanza::{Element, Head, IqType, StanzaCondition, StanzaError, StanzaKind, StreamCondition, StreamError};
use throng_core::provided::KeepAlivePing;
use throng_core::session::outstanding::StanzaPosition;
use throng_core::session::stream_management::ACK_RETRY_SECONDS;
use throng_core::session::{DequeueOutcome, QueuedBatch, QueuedStanza, ToRewrite, WrittenMessages, flags};
use throng_core::{IngestOutcome, Node, Receipts, Session, SharedStanza};
use xml::{NamespaceContext, Ns, Tree};

use crate::c2s::{C2sConnection, PhaseOutcome};
use crate::stream_management;
use crate::unfinished::{HoldRule, StanzaTurn, UnfinishedStanzas};

/// Elements read in one poll before the task yields.
const MAX_ELEMENTS_PER_POLL: usize = 128;
/// Unsent output up to which it is refilled from the outbox. Unsent bytes stay below twice this plus one stanza.
const OUTPUT_TARGET_BYTES: usize = 32 * 1024;
/// Output refills in one poll before the task yields.
const MAX_REFILLS_PER_POLL: usize = 16;
/// Seconds for which a stream that its client has closed waits for receipts. The store has failed by then.
const CLIENT_CLOSE_SECONDS: u32 = 15;
/// Seconds for which a stream that the server closes waits for receipts: less than a planned shutdown takes.
const SERVER_CLOSE_SECONDS: u32 = 3;

/// Presence of a client that has closed its stream.
const UNAVAILABLE: &[u8] = b"<presence xmlns='jabber:client' type='unavailable'/>";

thread_local! {
    static BATCH: RefCell<QueuedBatch> = RefCell::new(QueuedBatch::new());
}

impl C2sConnection {
    pub(crate) fn poll_bound(
        &mut self,
        session: &Arc<Session>,
        cx: &mut Context<'_>,
        scratch: &mut Scratch,
    ) -> PhaseOutcome {
        let now = self.context.node.seconds();
        self.confirm_unflushed(session);
        if self.outbox.takeover_requested()
            && let Some(next) = self.hand_over(session, cx, scratch)
        {
            return next;
        }
        if self.outbox.info_requested() {
            let info = self.session_info(session, now);
            answer_session_info(&self.context.node, &self.outbox, Some(info));
        }
        if let Some(next) = self.on_deadline(session, now) {
            return next;
        }
        if let Some(next) = self.read(session, now, cx, scratch) {
            return next;
        }
        self.write(session, now, cx, scratch)
    }

    /// State of this connection for the API. The idle time follows from the deadline, which is reset by each read.
    fn session_info(&self, session: &Session, now: u32) -> SessionInfo {
        let info = self.stream.info();
        let limits = self.context.node.limits();
        let left = self.outbox.deadline().saturating_sub(now);
        let awaits_ack = session.flags.has(flags::STREAM_MANAGEMENT)
            && (self.outbox.ack_requested_at().is_some() || self.outbox.is_ack_stalled());
        let idle_seconds = match (self.write_stalled_since, self.ping_sent) {
            (0, true) => Some(
                limits.idle_ping_seconds.saturating_add(limits.ping_timeout_seconds.saturating_sub(left)),
            ),
            (0, false) if !awaits_ack => Some(limits.idle_ping_seconds.saturating_sub(left)),
            _ => None,
        };
        let transport = info.transport.name();
        SessionInfo { peer: info.peer, transport, secure: info.secure, idle_seconds }
    }

    /// Hands the session over to the connection that requested it, once the stanzas that were handled are safe. `None` if
    /// the request was cancelled, or cannot succeed because the stream is being closed.
    fn hand_over(
        &mut self,
        session: &Arc<Session>,
        cx: &mut Context<'_>,
        scratch: &mut Scratch,
    ) -> Option<PhaseOutcome> {
        if self.is_closing() {
            return None;
        }
        self.outbox.register_waker(cx);
        if let Err(error) = self.finish_stanzas(session, cx, scratch) {
            return Some(PhaseOutcome::EndStream(Some(error)));
        }
        if self.unfinished.as_ref().is_some_and(|unfinished| !unfinished.is_settled()) {
            return Some(PhaseOutcome::Sleep);
        }
        self.outbox.hand_over().then(|| {
            self.unfinished = None;
            PhaseOutcome::SessionTakenOver
        })
    }

    /// Completes stanzas that wait, and counts those that are safe (XEP-0198, section 4). A count that the client waits for is
    /// sent. True if any are safe, or have failed.
    fn finish_stanzas(
        &mut self,
        session: &Arc<Session>,
        cx: &mut Context<'_>,
        scratch: &mut Scratch,
    ) -> Result<bool, StreamError> {
        let Some(unfinished) = &mut self.unfinished else { return Ok(false) };
        let node = &self.context.node;
        let unsafe_before = unfinished.len();
        let handled = match catch_panic(session, || unfinished.poll(cx, node)) {
            Ok(handled) => handled,
            Err(error) => {
                unfinished.forget_failed();
                return Err(error);
            }
        };
        let progress = unfinished.len() < unsafe_before;
        let announce = handled > 0 && unfinished.must_announce();
        let resumes_input = unfinished.resumes_input();
        if unfinished.is_empty() {
            self.unfinished.take().into_iter().for_each(UnfinishedStanzas::recycle);
        }
        node.count_handled(session, handled);
        if announce {
            self.stream.queue(&stream_management::ack(session), scratch);
        }
        if resumes_input {
            // What the client has sent meanwhile, such as acknowledgements, was not read.
            let now = self.context.node.seconds();
            self.outbox.restart_ack_timer(now);
            self.reset_idle_deadline(session, now);
        }
        Ok(progress)
    }

    /// A stanza was handled; `position` if it was held before.
    fn complete_stanza(&mut self, session: &Session, position: Option<StanzaPosition>, receipts: Receipts) {
        let counted = session.flags.has(flags::STREAM_MANAGEMENT);
        if self.unfinished.is_none() && receipts.is_empty() {
            if counted {
                self.outbox.count_handled(1);
            }
            return;
        }
        let unfinished = self.unfinished.get_or_insert_with(UnfinishedStanzas::recycled);
        let position = position.unwrap_or_else(|| unfinished.begin(counted));
        unfinished.complete(position, receipts);
    }

    /// The input has ended. The result, if it takes effect at once.
    fn end_input(&mut self, session: &Session, end: PhaseOutcome, now: u32) -> Option<PhaseOutcome> {
        let Some(unfinished) = &mut self.unfinished else { return Some(end) };
        if matches!(end, PhaseOutcome::EndStream(_))
            && !unfinished.has_been_closing()
            && session.is_available()
        {
            // RFC 6121, section 4.5.2: contacts must not wait for the receipts. Once, because this presence may be what fails.
            unfinished.hold(UNAVAILABLE, StanzaTurn::AfterHandling, false);
        }
        let seconds = match end {
            PhaseOutcome::EndStream(None) => CLIENT_CLOSE_SECONDS,
            _ => SERVER_CLOSE_SECONDS,
        };
        unfinished.end_input(end, now.saturating_add(seconds));
        if let Some(limit) = unfinished.closing_deadline() {
            self.outbox.set_deadline(limit);
        }
        None
    }

    /// The server closes the stream. The result, if it takes effect at once: the final count must include stanzas whose
    /// receipts are outstanding, or the client sends them again.
    fn end_by_server(&mut self, now: u32) -> PhaseOutcome {
        let error = self.outbox.close_reason();
        match &mut self.unfinished {
            // A client that does not read gets no count either, nor does one whose session has ended.
            Some(unfinished) if self.outbox.management_terms().is_some() && self.write_stalled_since == 0 => {
                let limit = now.saturating_add(SERVER_CLOSE_SECONDS);
                let closes = unfinished.close(error, limit);
                self.outbox.set_deadline(unfinished.closing_deadline().unwrap_or(limit));
                // It may be finished already.
                if closes { PhaseOutcome::Again } else { PhaseOutcome::Sleep }
            }
            _ => PhaseOutcome::EndStream(error),
        }
    }

    /// Whether the stream is being closed and waits for receipts.
    pub(crate) fn is_closing(&self) -> bool {
        self.unfinished.as_ref().is_some_and(|unfinished| unfinished.is_closing())
    }

    /// Second at which a stream that is being closed ends although receipts are outstanding.
    fn closing_deadline(&self) -> Option<u32> {
        self.unfinished.as_ref()?.closing_deadline()
    }

    /// Sets the deadline for input, or for a requested acknowledgement if that is due earlier. A stream that is being closed
    /// keeps the deadline for that.
    fn reset_idle_deadline(&self, session: &Session, now: u32) {
        if let Some(limit) = self.closing_deadline() {
            return self.outbox.set_deadline(limit);
        }
        let limits = self.context.node.limits();
        let mut deadline = now.saturating_add(limits.idle_ping_seconds);
        if session.flags.has(flags::STREAM_MANAGEMENT) {
            if let Some(requested_at) = self.outbox.ack_requested_at() {
                deadline = deadline.min(requested_at.saturating_add(limits.ping_timeout_seconds));
            } else if self.outbox.is_ack_stalled() {
                deadline = deadline.min(now.saturating_add(ACK_RETRY_SECONDS));
            }
        }
        self.outbox.set_deadline(deadline);
    }

    /// Reads until no input is left or too much of it is unfinished.
    fn read(
        &mut self,
        session: &Arc<Session>,
        now: u32,
        cx: &mut Context<'_>,
        scratch: &mut Scratch,
    ) -> Option<PhaseOutcome> {
        let mut has_read = false;
        for count in 0.. {
            let progress = match self.finish_stanzas(session, cx, scratch) {
                Ok(progress) => progress,
                Err(error) => return Some(PhaseOutcome::EndStream(Some(error))),
            };
            // Input of a peer that does not accept output is not read.
            if self.write_stalled_since != 0 {
                return None;
            }
            if let Some(unfinished) = &mut self.unfinished {
                if progress && unfinished.may_end() {
                    // What the last stanzas caused, such as errors, is written first.
                    cx.waker().wake_by_ref();
                    return None;
                }
                if let Some(end) = unfinished.take_end() {
                    return Some(end);
                }
            }
            if !self.is_closing() && self.is_throttled(now) {
                return None;
            }
            if count == MAX_ELEMENTS_PER_POLL {
                cx.waker().wake_by_ref();
                return None;
            }
            let held = self.unfinished.as_mut().and_then(|unfinished| unfinished.next_held());
            let (position, taken) = if let Some((position, bytes)) = held {
                let taken = catch_panic(session, || take_element(self, session, &bytes, HoldRule::None));
                (Some(position), taken.and_then(|taken| taken))
            } else {
                if self.unfinished.as_mut().is_some_and(|unfinished| !unfinished.accepts_input()) {
                    return None;
                }
                let event = match self.stream.poll_event(cx, scratch) {
                    Poll::Pending => return None,
                    Poll::Ready(Err(error)) => {
                        let end = self.on_transport_error(error);
                        match self.end_input(session, end, now) {
                            None => continue,
                            end => return end,
                        }
                    }
                    Poll::Ready(Ok(event)) => event,
                };
                if !std::mem::replace(&mut has_read, true) {
                    self.ping_sent = false;
                    self.reset_idle_deadline(session, now);
                    self.context.node.follow_rates(session, self.is_local());
                }
                let taken = match event {
                    StreamEvent::Element(bytes) => {
                        let hold = self
                            .unfinished
                            .as_ref()
                            .map_or(HoldRule::None, |unfinished| unfinished.hold_rule());
                        let taken = catch_panic(session, || take_element(self, session, bytes, hold))
                            .and_then(|taken| taken);
                        if let (Ok(BoundElementOutcome::Hold(turn)), Some(unfinished)) =
                            (&taken, &mut self.unfinished)
                        {
                            unfinished.hold(bytes, *turn, session.flags.has(flags::STREAM_MANAGEMENT));
                        }
                        let bytes = bytes.len();
                        self.charge_rate(session, bytes, now);
                        taken
                    }
                    StreamEvent::Close => Ok(BoundElementOutcome::End(PhaseOutcome::EndStream(None))),
                    StreamEvent::Eof => Ok(BoundElementOutcome::End(PhaseOutcome::TransportClosed)),
                    // RFC 6120, section 4.9.3.1: no second header without a restart.
                    StreamEvent::Open(_) => Err(StreamError::new(StreamCondition::BadFormat)),
                };
                (None, taken)
            };
            let end = match taken {
                Ok(BoundElementOutcome::Done(receipts)) => {
                    self.complete_stanza(session, position, receipts);
                    continue;
                }
                Ok(BoundElementOutcome::Wait(later)) => {
                    let counted = session.flags.has(flags::STREAM_MANAGEMENT);
                    let unfinished = self.unfinished.get_or_insert_with(UnfinishedStanzas::recycled);
                    let position = position.unwrap_or_else(|| unfinished.begin(counted));
                    unfinished.wait(position, later);
                    continue;
                }
                Ok(BoundElementOutcome::Hold(_) | BoundElementOutcome::Nonza) => continue,
                Ok(BoundElementOutcome::Acknowledged) => {
                    self.reset_idle_deadline(session, now);
                    continue;
                }
                Ok(BoundElementOutcome::Reply(answer)) => {
                    self.stream.queue(&answer, scratch);
                    if let Some(unfinished) = &mut self.unfinished {
                        unfinished.announce_next_count();
                    }
                    continue;
                }
                Ok(BoundElementOutcome::End(end)) => end,
                Err(error) => PhaseOutcome::EndStream(Some(error)),
            };
            if let Some(position) = position {
                // The stream ends because of this stanza, so it and later ones are not handled.
                if let Some(unfinished) = &mut self.unfinished {
                    unfinished.forget_from(position);
                }
            }
            if let Some(end) = self.end_input(session, end, now) {
                return Some(end);
            }
        }
        None
    }

    /// Charges the bytes that were read to the session's rate limits.
    fn charge_rate(&mut self, session: &Session, bytes: usize, now: u32) {
        if let Some((class, until)) = session.rates(|rates| rates.charge_bytes(bytes, now)).flatten() {
            self.throttled_until = until;
            self.context.node.metrics.count_rate_limited(class);
        }
    }

    /// Whether the session is over its rate. The sweep wakes the task when reading may continue.
    fn is_throttled(&mut self, now: u32) -> bool {
        let until = self.throttled_until;
        if until == 0 {
            return false;
        }
        let expired = now >= until;
        if expired {
            self.throttled_until = 0;
        }
        let idle = now.saturating_add(self.context.node.limits().idle_ping_seconds);
        self.outbox.set_deadline(if expired { idle } else { until });
        !expired
    }

    /// Writes queued stanzas.
    fn write(
        &mut self,
        session: &Arc<Session>,
        now: u32,
        cx: &mut Context<'_>,
        scratch: &mut Scratch,
    ) -> PhaseOutcome {
        let mut written = WrittenMessages::default();
        for _ in 0..MAX_REFILLS_PER_POLL {
            let taken = if !self.stream.accepts_output() {
                // No request of the client is open for output; stanzas stay in the outbox under its guarantees.
                DequeueOutcome { closing: self.outbox.register_waker(cx), more: false, request_ack: false }
            } else if self.stream.unsent() >= OUTPUT_TARGET_BYTES {
                DequeueOutcome { closing: self.outbox.register_waker(cx), more: true, request_ack: false }
            } else if self.is_closing() {
                let closing = self.outbox.register_waker(cx);
                let more = self.write_non_messages(session, OUTPUT_TARGET_BYTES as u32, scratch);
                DequeueOutcome { closing, more, request_ack: false }
            } else {
                self.refill_output(session, now, &mut written, cx, scratch)
            };
            let before = self.stream.unsent();
            match self.stream.poll_flush(cx, scratch) {
                Poll::Ready(Ok(())) => {
                    self.context.node.record_delivery(&self.outbox);
                    let was_stalled = std::mem::take(&mut self.write_stalled_since) != 0;
                    self.confirm_written(session, &mut written);
                    if was_stalled {
                        self.count_unsent(session);
                        self.outbox.restart_ack_timer(now);
                        self.reset_idle_deadline(session, now);
                        // There is room again: write what was queued meanwhile and resume reading.
                        return PhaseOutcome::Again;
                    }
                    if taken.more {
                        continue;
                    }
                }
                Poll::Ready(Err(error)) => {
                    self.retain_unflushed(session, &mut written);
                    return self.on_transport_error(error);
                }
                Poll::Pending => {
                    if self.write_stalled_since != 0 || self.stream.unsent() > OUTPUT_TARGET_BYTES {
                        self.count_unsent(session);
                    }
                    self.confirm_written(session, &mut written);
                    // Each byte that the peer accepts restarts the timeout, because the peer is slow but connected.
                    if self.write_stalled_since == 0 || self.stream.unsent() < before {
                        self.write_stalled_since = now.max(1);
                        let timeout_seconds = self.context.node.limits().write_stall_timeout_seconds;
                        let stall = now.saturating_add(timeout_seconds);
                        self.outbox
                            .set_deadline(self.closing_deadline().map_or(stall, |limit| limit.min(stall)));
                    }
                }
            }
            return if taken.closing { self.end_by_server(now) } else { PhaseOutcome::Sleep };
        }
        cx.waker().wake_by_ref();
        PhaseOutcome::Sleep
    }

    /// Keeps the messages that the kernel has not taken, for when it has or the session ends.
    fn retain_unflushed(&self, session: &Arc<Session>, written: &mut WrittenMessages) {
        if self.outbox.retain_unflushed(written) {
            self.context.node.watch_delivery(session);
        }
    }

    /// After a flush: confirms the messages that the kernel has taken, in the order in which they were written, and keeps the
    /// others.
    fn confirm_written(&mut self, session: &Arc<Session>, written: &mut WrittenMessages) {
        let nothing_to_confirm = written.is_empty() && !self.has_unflushed;
        let unflushed = if nothing_to_confirm { 0 } else { self.stream.unflushed() };
        if unflushed == 0 && !self.has_unflushed {
            if self.outbox.confirm_flushed(written) {
                self.context.node.remove_delivered_backups(session);
            }
            return;
        }
        self.retain_unflushed(session, written);
        self.has_unflushed = self.outbox.confirm_sent(unflushed);
        self.context.node.remove_delivered_backups(session);
    }

    /// Confirms the messages that the kernel has taken since they were written: over BOSH, responses are sent after the
    /// flush.
    pub(crate) fn confirm_unflushed(&mut self, session: &Arc<Session>) {
        if self.has_unflushed && self.stream.info().transport == Transport::Bosh {
            self.confirm_written(session, &mut WrittenMessages::default());
        }
    }

    /// Counts in the backlog what waits in the buffer above the usual amount: a stanza may be much larger than that.
    fn count_unsent(&self, session: &Session) {
        let bytes = self.stream.unsent().saturating_sub(OUTPUT_TARGET_BYTES);
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.outbox.set_unsent(bytes, &self.context.node.backlog, session.bare());
    }

    /// Moves part of the outbox into the output; stanzas above that stay in the outbox and count against its limits.
    fn refill_output(
        &mut self,
        session: &Session,
        now: u32,
        written: &mut WrittenMessages,
        cx: &mut Context<'_>,
        scratch: &mut Scratch,
    ) -> DequeueOutcome {
        let managed = session.flags.has(flags::STREAM_MANAGEMENT);
        BATCH.with_borrow_mut(|batch| {
            let taken = self.outbox.dequeue(cx, batch, OUTPUT_TARGET_BYTES as u32, now);
            for item in batch.drain(..) {
                write_item(&mut self.stream, session, &item, scratch);
                if !managed {
                    written.add(&item);
                }
            }
            if batch.spilled() {
                // `dequeue` swaps the vectors: the outbox would get this one's heap memory and hold it while idle.
                *batch = QueuedBatch::new();
            }
            if taken.request_ack
                && let Some(terms) = self.outbox.management_terms()
            {
                self.stream.queue(stream_management::request(terms), scratch);
                let timeout_seconds = self.context.node.limits().ping_timeout_seconds;
                self.outbox.set_deadline(self.outbox.deadline().min(now.saturating_add(timeout_seconds)));
            }
            taken
        })
    }

    /// Writes queued stanzas other than messages, up to this size. True if more are left.
    fn write_non_messages(&mut self, session: &Session, bytes: u32, scratch: &mut Scratch) -> bool {
        let mut batch = QueuedBatch::new();
        let more = self.outbox.take_non_messages(&mut batch, bytes);
        for item in &batch {
            write_item(&mut self.stream, session, item, scratch);
        }
        more
    }

    /// Writes queued stanzas before the stream ends (RFC 6120, section 4.4): replies to what the client sent before its
    /// closing tag, and stanzas before an error. A peer that may be dead gets none; they are rerouted. A peer with
    /// stream management gets no messages: it will not acknowledge them, so they would be delivered twice. Nor does one
    /// whose stream has waited for receipts: it may be gone. Nor does one over BOSH, whose final response is sent after the
    /// session has ended, if at all.
    pub(crate) fn send_final_stanzas(
        &mut self,
        session: &Arc<Session>,
        cx: &mut Context<'_>,
        scratch: &mut Scratch,
    ) {
        let may_read = self.write_stalled_since == 0 && !self.ping_sent;
        if session.flags.has(flags::STREAM_MANAGEMENT)
            || self.unfinished.is_some()
            || self.stream.info().transport == Transport::Bosh
        {
            if may_read {
                self.write_non_messages(session, u32::MAX, scratch);
            }
            return;
        }
        let now = self.context.node.seconds();
        let mut written = WrittenMessages::default();
        while may_read && self.stream.unsent() < OUTPUT_TARGET_BYTES {
            let more = self.refill_output(session, now, &mut written, cx, scratch).more;
            // Without messages there is nothing to confirm.
            if !more && written.is_empty() {
                break;
            }
            let flushed = self.stream.poll_flush(cx, scratch);
            if let Poll::Ready(Err(_)) = flushed {
                self.outbox.retain_unflushed(&mut written);
                break;
            }
            // What is not flushed is sent while the stream closes, if the peer reads it in time; so it is rerouted, too.
            self.confirm_written(session, &mut written);
            if !more || flushed.is_pending() {
                break;
            }
        }
    }

    /// Handles an elapsed deadline of a bound stream: an idle client, or a peer that does not read.
    fn on_deadline(&mut self, session: &Arc<Session>, now: u32) -> Option<PhaseOutcome> {
        if !self.outbox.deadline_elapsed() {
            return None;
        }
        if self.closing_deadline().is_some_and(|limit| limit <= now) {
            tracing::warn!(jid = %session.jid, "a stream ends before all of its stanzas are safe");
            return self.unfinished.as_mut()?.give_up_closing();
        }
        let limits = self.context.node.limits();
        if self.write_stalled_since != 0 {
            if now.saturating_sub(self.write_stalled_since) >= limits.write_stall_timeout_seconds {
                tracing::info!(jid = %session.jid, "stream closed: the client is not reading");
                return Some(PhaseOutcome::PeerUnresponsive(
                    StreamError::new(StreamCondition::ResourceConstraint).text("the client is not reading"),
                ));
            }
            return None;
        }
        if now < self.outbox.deadline() {
            return None;
        }
        // Nothing is read, so silence means nothing.
        if self.unfinished.as_ref().is_some_and(|unfinished| unfinished.is_input_paused()) {
            return None;
        }
        // Nothing is read here either.
        if self.throttled_until != 0 {
            return None;
        }
        if session.flags.has(flags::STREAM_MANAGEMENT)
            && self
                .outbox
                .ack_requested_at()
                .is_some_and(|requested_at| now.saturating_sub(requested_at) >= limits.ping_timeout_seconds)
        {
            return Some(PhaseOutcome::PeerUnresponsive(
                StreamError::new(StreamCondition::ConnectionTimeout)
                    .text("no stream management acknowledgement in time"),
            ));
        }
        if self.outbox.is_ack_stalled() {
            // The following write sends `<r/>` and sets the deadline for the answer; it serves as a keep-alive ping,
            // too.
            self.outbox.retry_ack_request();
            self.outbox.set_deadline(now.saturating_add(limits.idle_ping_seconds));
            return None;
        }
        // A roster prefetched at login that was not requested by now will not be needed.
        session.account.with(|state| drop(state.take_prefetched()));
        session.drop_full_rates(now);
        if self.stream.info().transport == Transport::Bosh {
            // Every HTTP request shows that the client is alive, and a session without requests expires (XEP-0124,
            // section 10). A ping would only wake a radio (XEP-0286, section 4).
            self.outbox.set_deadline(now.saturating_add(limits.idle_ping_seconds));
            return None;
        }
        if self.ping_sent {
            // RFC 6120, section 4.6.1.
            return Some(PhaseOutcome::PeerUnresponsive(
                StreamError::new(StreamCondition::ConnectionTimeout).text("no answer to a keep-alive ping"),
            ));
        }
        let Some(frame) = keep_alive_ping(session) else {
            self.outbox.set_deadline(now.saturating_add(limits.idle_ping_seconds));
            return None;
        };
        self.ping_sent = true;
        self.outbox.set_deadline(now.saturating_add(limits.ping_timeout_seconds));
        self.context.node.enqueue(session, frame, ToRewrite::None);
        None
    }
}

/// The ping of the feature that provides one.
fn keep_alive_ping(session: &Session) -> Option<SharedStanza> {
    let host = session.account.host();
    let KeepAlivePing(build_ping) = host.extensions.get::<KeepAlivePing>()?;
    build_ping(session)
}

/// Result of handling an element of a bound stream.
enum BoundElementOutcome {
    /// The stanza was handled, and is safe when these receipts are fulfilled.
    Done(Receipts),
    /// The stanza must wait for those before it.
    Hold(StanzaTurn),
    /// A nonza that needs no further action.
    Nonza,
    /// An acknowledgement was processed.
    Acknowledged,
    /// A nonza with this reply.
    Reply(Vec<u8>),
    /// The stanza is handled when the future completes; later ones are held until then.
    Wait(BoxFuture<'static, Receipts>),
    /// The input ends.
    End(PhaseOutcome),
}

/// Outcome for a client that sent a stream error: the stream ends (RFC 6120, section 4.9.1.1).
const PEER_ERROR: BoundElementOutcome = BoundElementOutcome::End(PhaseOutcome::EndStream(None));

static CLIENT: NamespaceContext = NamespaceContext::client();

/// Turns a panic into a stream error, so that it ends this stream (RFC 6120, section 4.9.3.8) and no other.
fn catch_panic<T>(session: &Session, work: impl FnOnce() -> T) -> Result<T, StreamError> {
    std::panic::catch_unwind(AssertUnwindSafe(work)).map_err(|_| {
        tracing::error!(jid = %session.jid, "a stanza handler panicked; closing the stream");
        StreamError::new(StreamCondition::InternalServerError)
    })
}

/// Passes one element to the engine, unless it must be held.
fn take_element(
    connection: &C2sConnection,
    session: &Arc<Session>,
    bytes: &[u8],
    hold: HoldRule,
) -> Result<BoundElementOutcome, StreamError> {
    let limits = &connection.context.xml_limits;
    let node = &connection.context.node;
    match Element::read(bytes, &connection.scope, limits)? {
        Element::Stanza(head) => match must_hold(hold, session, bytes, &head) {
            Some(turn) => Ok(BoundElementOutcome::Hold(turn)),
            None => take_stanza(connection, session, bytes, &head),
        },
        Element::NotSelfContained => {
            let mut out = Vec::with_capacity(bytes.len() + 64);
            xml::normalise(bytes, &connection.scope, limits, &mut out)?;
            match Element::read(&out, &CLIENT, limits)? {
                Element::Stanza(head) => match must_hold(hold, session, &out, &head) {
                    Some(turn) => Ok(BoundElementOutcome::Hold(turn)),
                    None => take_stanza(connection, session, &out, &head),
                },
                Element::UnknownType(head) => Ok(reject_unknown_type(node, session, &out, &head)),
                Element::Other { ns: Some(ns @ (Ns::Sm3 | Ns::Sm2)), name, .. } => {
                    take_management(node, session, ns, name, &out, &CLIENT, limits)
                }
                _ => Err(StreamCondition::UnsupportedStanzaType.into()),
            }
        }
        Element::UnknownType(head) => Ok(reject_unknown_type(node, session, bytes, &head)),
        Element::Other { ns: Some(ns @ (Ns::Sm3 | Ns::Sm2)), name, .. } => {
            take_management(node, session, ns, name, bytes, &connection.scope, limits)
        }
        Element::Other { ns, ns_text, name } => {
            match ns.and_then(|ns| handle_nonza(node, session, ns, name, bytes)) {
                Some(done) => done.map(|()| BoundElementOutcome::Nonza),
                None => unknown_element(ns, ns_text, name).map(|()| PEER_ERROR),
            }
        }
    }
}

/// Whether a stanza must be held, and until when.
///
/// An answer that the server itself takes may overtake others: an earlier stanza may wait for it, and it concerns nobody
/// else. So may a ping with stream management; without it, a client treats any answer of the server as proof that the
/// server handled what came before.
fn must_hold(rule: HoldRule, session: &Session, bytes: &[u8], head: &Head) -> Option<StanzaTurn> {
    if rule == HoldRule::None {
        return None;
    }
    let own = |to: &str| to == session.bare().as_str() || to == session.bare().domain();
    let for_server = matches!(head.kind, StanzaKind::Iq(_)) && head.to(bytes).is_none_or(|to| own(&to));
    let managed = session.flags.has(flags::STREAM_MANAGEMENT);
    let is_ping = || {
        head.kind == StanzaKind::Iq(IqType::Get)
            && head.first_child.is_some_and(|child| child.ns == Some(Ns::Ping))
    };
    match rule {
        _ if for_server && !head.kind.is_request() => None,
        _ if for_server && !managed => Some(StanzaTurn::AfterReceipts),
        HoldRule::All if !for_server || !is_ping() => Some(StanzaTurn::AfterHandling),
        _ => None,
    }
}

/// Handles an element of stream management (XEP-0198) on a bound stream.
fn take_management(
    node: &Arc<Node>,
    session: &Arc<Session>,
    ns: Ns,
    name: &str,
    bytes: &[u8],
    scope: &NamespaceContext,
    limits: &xml::Limits,
) -> Result<BoundElementOutcome, StreamError> {
    let managed = session.flags.has(flags::STREAM_MANAGEMENT);
    if !managed && stream_management::config(&session.account.host()).is_none() {
        return unknown_element(Some(ns), ns.as_str(), name).map(|()| PEER_ERROR);
    }
    let tree = Tree::parse(bytes, scope, limits)?;
    match name {
        "r" if managed => Ok(BoundElementOutcome::Reply(stream_management::ack(session))),
        "a" if managed => stream_management::acknowledge(node, session, tree.root())
            .map(|()| BoundElementOutcome::Acknowledged),
        "enable" => Ok(BoundElementOutcome::Reply(stream_management::enable(session, tree.root()))),
        // Resuming after binding is too late (section 5), and nothing is counted before stream management is enabled.
        "resume" | "r" | "a" => Ok(BoundElementOutcome::Reply(stream_management::unexpected(ns))),
        _ => unknown_element(Some(ns), ns.as_str(), name).map(|()| PEER_ERROR),
    }
}

fn take_stanza(
    connection: &C2sConnection,
    session: &Arc<Session>,
    bytes: &[u8],
    head: &Head,
) -> Result<BoundElementOutcome, StreamError> {
    let node = &connection.context.node;
    let counted = session.rates(|rates| rates.charge_stanza(head, bytes, node.seconds()));
    if let Some(Err((class, error))) = counted {
        node.metrics.count_rate_limited(class);
        node.reject_stanza(session, bytes, head, &error);
        return Ok(BoundElementOutcome::Done(Receipts::default()));
    }
    let binds =
        head.kind == StanzaKind::Iq(IqType::Set) && head.first_child.is_some_and(|f| f.ns == Some(Ns::Bind));
    if binds && head.to(bytes).is_none_or(|to| to == session.account.host().domain()) {
        // RFC 6120, section 7.1: a stream has one resource.
        let error = StanzaError::new(StanzaCondition::NotAllowed).text("this stream already has a resource");
        node.reject_stanza(session, bytes, head, &error);
        return Ok(BoundElementOutcome::Done(Receipts::default()));
    }
    match node.ingest(session, bytes, head) {
        IngestOutcome::Done => Ok(BoundElementOutcome::Done(Receipts::default())),
        IngestOutcome::AwaitsReceipts(receipts) => Ok(BoundElementOutcome::Done(receipts)),
        IngestOutcome::Wait(later) => Ok(BoundElementOutcome::Wait(later)),
        IngestOutcome::Fatal(error) => Err(error),
    }
}

/// Handles a first-level element that is not a stanza: `Ok` if it is the client's stream error.
///
/// # Errors
/// Every other element ends the stream: RFC 6120, section 4.8.3 for stanzas of another content namespace, section 4.8.4
/// for the rest.
pub(crate) fn unknown_element(ns: Option<Ns>, ns_text: &str, name: &str) -> Result<(), StreamError> {
    let text = format!("unsupported element <{name}> in namespace \"{ns_text}\"");
    match (ns, name) {
        (Some(Ns::Stream), "error") => Ok(()),
        (Some(Ns::Client), _) => Err(StreamError::new(StreamCondition::UnsupportedStanzaType).text(text)),
        (_, "message" | "presence" | "iq") => {
            Err(StreamError::new(StreamCondition::InvalidNamespace).text(text))
        }
        _ => Err(StreamError::new(StreamCondition::UnsupportedStanzaType).text(text)),
    }
}

fn reject_unknown_type(
    node: &Arc<Node>,
    session: &Arc<Session>,
    bytes: &[u8],
    head: &Head,
) -> BoundElementOutcome {
    let error = StanzaError::new(StanzaCondition::BadRequest).text("invalid stanza type");
    node.reject_stanza(session, bytes, head, &error);
    BoundElementOutcome::Done(Receipts::default())
}

/// Writes one queued stanza, adding the recipient's address as `to` where the sender sent none.
fn write_item(stream: &mut net::Stream, session: &Session, item: &QueuedStanza, scratch: &mut Scratch) {
    let frame: &SharedStanza = &item.stanza;
    let to = match item.to_rewrite {
        ToRewrite::None => return stream.queue(frame.bytes(), scratch),
        ToRewrite::Bare => session.bare(),
        ToRewrite::Full => session.full(),
    };
    let (start, rest) = frame.bytes().split_at(frame.head().attr_insert_offset());
    stream.queue(start, scratch);
    stream.queue(b" to='", scratch);
    let text = to.as_str();
    if text.bytes().any(|b| matches!(b, b'\'' | b'&' | b'<' | b'>' | b'"' | b'\t' | b'\n' | b'\r')) {
        let mut escaped = Vec::with_capacity(text.len() + 16);
        xml::escape::attr(text, &mut escaped);
        stream.queue(&escaped, scratch);
    } else {
        stream.queue(text.as_bytes(), scratch);
    }
    stream.queue(b"'", scratch);
    stream.queue(rest, scratch);
}
