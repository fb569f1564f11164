//! Rules of a BOSH session, without I/O, locks or a clock (XEP-0124, sections 8 to 14).
//!
//! A request with the next id is *accepted*: its payloads go to the stream, and it is *held* until there is a response.
//! A request received too early is *out of order* and waits for its predecessors. Responses are *cached* for clients
//! whose connection broke. Requests are always answered in the order of their ids. A response with a payload is *unsent*
//! until the kernel has taken it or the client has acknowledged it; so long it can be requested again. It is *lost* while
//! no connection has it, and ends the session if the client goes on without it.
//!
//! Not implemented: waking tasks; wakers are collected in [`WakeList`] and woken without the lock.
//!
//! Long because every rule reads and changes the same state.
//!
//! # Pitfalls
//!
//! A request whose connection broke is still held, but its response must stay empty while another request is alive,
//! because the client may never fetch it. [`BoshState::accepts_output`] and [`BoshState::deliver`] count only live
//! requests.

use std::task::Waker;

use base::clock::Millis;
use base::token_bucket::TokenBucket;

use super::key_sequence::KeySequence;
use super::request::{self, BoshRequest, BoshRequestError, MAX_RID, PayloadItem};
use super::response::{self, BodyAttributes, Condition, EMPTY, ExtractedElements, RECOVERABLE};
use super::session_types::{
    BoshRequestOutcome, CachedResponse, EXCESS_REQUEST_MILLIS, HeldRequest, OutOfOrderRequest, PayloadRead,
    RequestControl, SessionParams, SweepOutcome, Termination, UnsentResponse, WakeList,
};
use super::{BoshBody, TerminationReason};

/// Age in milliseconds from which a missed response is reported; before that it may still be under way.
const REPORT_AFTER_MILLIS: u64 = 1000;
/// Bytes of responses from the first unsent one on, above which no more output is accepted. It is what the layer above
/// keeps of its output until the kernel has taken it.
const MAX_UNSENT_BYTES: usize = 32 * 1024;
/// What a response counts for besides its payload: its entries, and the head of its body.
const RESPONSE_OVERHEAD_BYTES: usize = 256;

/// State of a session.
pub(super) struct BoshState {
    /// Highest accepted id.
    last_rid: u64,
    held: Vec<HeldRequest>,
    out_of_order: Vec<OutOfOrderRequest>,
    /// In the order in which they were made.
    unsent: Vec<UnsentResponse>,
    cache: Vec<CachedResponse>,
    inbox: Vec<u8>,
    stream_waker: Option<Waker>,
    /// The stream has output but found no request.
    output_blocked: bool,
    /// The stream waits until the kernel has taken a response.
    awaits_sent: bool,
    /// The session request was answered.
    creation_answered: bool,
    /// The latest request was empty.
    last_request_empty: bool,
    /// The response to the latest request was empty.
    last_answer_empty: bool,
    ticket: u32,
    /// Seconds of the current pause.
    pause: Option<u32>,
    /// Latest time at which a request was answered or its connection broke.
    last_activity: Millis,
    /// Time of the latest new request.
    last_request_at: Millis,
    /// The latest request was empty and too early, and was tolerated.
    early_poll_forgiven: bool,
    /// Response that the client seems to have missed.
    missed_answer: Option<u64>,
    meter: TokenBucket,
    keys: Option<Box<KeySequence>>,
    termination: Termination,
}

impl BoshState {
    /// A session whose first request has this id, and its items for the stream. That request has ticket 0.
    pub(super) fn new(
        rid: u64,
        items: Vec<u8>,
        keys: Option<KeySequence>,
        meter: TokenBucket,
        now: Millis,
    ) -> BoshState {
        BoshState {
            last_rid: rid,
            held: vec![HeldRequest { rid, ticket: 0, since: now, waker: None, connected: true }],
            out_of_order: Vec::new(),
            unsent: Vec::new(),
            cache: Vec::new(),
            inbox: items,
            stream_waker: None,
            output_blocked: false,
            awaits_sent: false,
            creation_answered: false,
            last_request_empty: false,
            last_answer_empty: false,
            ticket: 0,
            pause: None,
            last_activity: now,
            last_request_at: now,
            early_poll_forgiven: false,
            missed_answer: None,
            meter,
            keys: keys.map(Box::new),
            termination: Termination::Running,
        }
    }

    fn has_live_request(&self) -> bool {
        self.held.iter().any(|held| held.connected) || self.out_of_order.iter().any(|early| early.connected)
    }

    /// Number of requests without a response.
    pub(super) fn waiting_requests(&self) -> usize {
        self.held.iter().filter(|held| held.connected).count()
            + self.out_of_order.iter().filter(|early| early.connected).count()
    }

    fn wake_task(&mut self, wakes: &mut WakeList) {
        self.output_blocked = false;
        wakes.add(self.stream_waker.clone());
    }

    /// Next time at which [`BoshState::sweep`] has work.
    pub(super) fn next_deadline(&self, agreed: &SessionParams) -> Millis {
        let mut due = Millis::NEVER;
        if let Some(held) = self.held.first() {
            due = due.min(held.since.plus(agreed.hold_millis()));
        }
        if self.held.len() > agreed.max_unanswered()
            && let Some(held) = self.held.last()
        {
            due = due.min(held.since.plus(EXCESS_REQUEST_MILLIS));
        }
        for early in &self.out_of_order {
            due = due.min(early.since.plus(agreed.hold_millis()));
        }
        if !self.has_live_request() {
            let seconds = self.pause.unwrap_or(agreed.inactivity);
            due = due.min(self.last_activity.plus(u64::from(seconds) * 1000));
        }
        due
    }

    /// Handles a request for this session as far as its payloads do not matter. `None`: they must be read, and
    /// [`BoshState::request`] follows.
    pub(super) fn begin_request(
        &mut self,
        agreed: &SessionParams,
        request: &BoshRequest<'_>,
        now: Millis,
        wakes: &mut WakeList,
    ) -> Option<BoshRequestOutcome> {
        if self.is_finished() {
            return Some(BoshRequestOutcome::SessionGone);
        }
        if !self.meter.try_take(1, now) {
            return Some(self.fail(TerminationReason::Policy, wakes));
        }
        self.request_id(agreed, request, now, wakes).err()
    }

    /// Counts a request that is refused. It does not end the session.
    pub(super) fn count_refused(&mut self, now: Millis) {
        self.meter.try_take(1, now);
    }

    /// The id of a request with payloads for the session, or what it results in without them.
    fn request_id(
        &mut self,
        agreed: &SessionParams,
        request: &BoshRequest<'_>,
        now: Millis,
        wakes: &mut WakeList,
    ) -> Result<u64, BoshRequestOutcome> {
        if self.is_finished() {
            return Err(BoshRequestOutcome::SessionGone);
        }
        let Some(rid) = request.rid else { return Err(self.fail(TerminationReason::BadRequest, wakes)) };
        if rid <= self.last_rid || self.out_of_order.iter().any(|early| early.rid == rid) {
            return Err(self.replay(rid, request.key, now, wakes));
        }
        if let Termination::StreamEnded(last) = &mut self.termination {
            return Err(last.take().map_or(BoshRequestOutcome::SessionGone, BoshRequestOutcome::FinalBody));
        }
        if rid - self.last_rid > max_requests(agreed, request) as u64 {
            return Err(self.fail(TerminationReason::Sequence, wakes));
        }
        Ok(rid)
    }

    /// Handles a request whose payloads have been read.
    pub(super) fn request(
        &mut self,
        agreed: &SessionParams,
        mut request: BoshRequest<'_>,
        now: Millis,
        wakes: &mut WakeList,
    ) -> BoshRequestOutcome {
        // The same request may have arrived meanwhile on another connection.
        let rid = match self.request_id(agreed, &request, now, wakes) {
            Ok(rid) => rid,
            Err(outcome) => return outcome,
        };
        let requests = max_requests(agreed, &request);
        if self.overactive(agreed, &request, rid, requests, now) {
            return self.fail(TerminationReason::Policy, wakes);
        }
        if self.goes_on_without_lost_response(agreed, rid, request.ack) {
            return self.fail(TerminationReason::Sequence, wakes);
        }
        let empty = request.is_empty();
        let rest =
            RequestControl { ack: request.ack, pause: request.pause, empty: empty && !request.terminate };
        let mut items = match std::mem::replace(&mut request.items, Ok(Vec::new())) {
            Ok(items) if self.unread_bytes() + items.len() > agreed.max_unread_bytes => {
                return self.fail(TerminationReason::Policy, wakes);
            }
            Ok(items) => items,
            Err(BoshRequestError::Malformed) => return self.fail(TerminationReason::BadRequest, wakes),
            Err(BoshRequestError::TooLarge) => return self.fail(TerminationReason::Policy, wakes),
        };
        if request.restart {
            request::push_item(&mut items, PayloadItem::Open, &request.stream_header(agreed.to.as_deref()));
        }
        if request.terminate {
            request::push_item(&mut items, PayloadItem::Close, b"");
        }
        self.last_request_at = now;
        self.last_request_empty = rest.empty;
        self.last_answer_empty = false;
        self.pause = None;
        self.ticket = self.ticket.wrapping_add(1);
        let ticket = self.ticket;
        if rid != self.last_rid + 1 {
            let own = |text: Option<&str>| text.map(Into::into);
            let (key, newkey) = (own(request.key), own(request.newkey));
            let early = OutOfOrderRequest {
                rid,
                ticket,
                since: now,
                waker: None,
                connected: true,
                items,
                control: rest,
                key,
                newkey,
            };
            self.out_of_order.push(early);
            return BoshRequestOutcome::OutOfOrder(ticket);
        }
        if !self.is_key_valid(agreed, rid, request.key, request.newkey) {
            return self.fail(TerminationReason::Sequence, wakes);
        }
        let held = HeldRequest { rid, ticket, since: now, waker: None, connected: true };
        self.accept(agreed, held, items, rest, now, wakes);
        while let Some(at) = self.out_of_order.iter().position(|early| early.rid == self.last_rid + 1) {
            let mut early = self.out_of_order.remove(at);
            let (key, newkey) = (early.key.take(), early.newkey.take());
            if !self.is_key_valid(agreed, early.rid, key.as_deref(), newkey.as_deref()) {
                // Stored with the other requests that are out of order.
                self.out_of_order.push(early);
                return self.fail(TerminationReason::Sequence, wakes);
            }
            let OutOfOrderRequest {
                rid, ticket, since, waker, connected: live, items, control: rest, ..
            } = early;
            self.accept(
                agreed,
                HeldRequest { rid, ticket, since, waker, connected: live },
                items,
                rest,
                now,
                wakes,
            );
        }
        if self.output_blocked || !self.inbox.is_empty() {
            self.wake_task(wakes);
        } else {
            self.answer_excess_requests(agreed, now, wakes);
        }
        BoshRequestOutcome::Held(ticket)
    }

    fn unread_bytes(&self) -> usize {
        self.inbox.len() + self.out_of_order.iter().map(|early| early.items.len()).sum::<usize>()
    }

    /// Sections 11 and 12: too many concurrent requests, or empty ones too early. An early one is tolerated while
    /// another one is held: a reloaded page sends it before the server knows that the old page is gone.
    fn overactive(
        &mut self,
        agreed: &SessionParams,
        request: &BoshRequest<'_>,
        rid: u64,
        requests: usize,
        now: Millis,
    ) -> bool {
        if self.held.len() + self.out_of_order.len() + 1 > requests {
            return true;
        }
        let soon = now.since(self.last_request_at) < u64::from(agreed.polling) * 1000;
        let forgiven = std::mem::take(&mut self.early_poll_forgiven);
        if !soon || !request.is_empty() || request.pause.is_some() || request.terminate {
            return false;
        }
        if agreed.is_polling() {
            return self.last_request_empty && self.last_answer_empty && self.held.is_empty();
        }
        // A request overtaken by a newer one was sent when nothing was held; only the last one can violate the rule.
        if self.out_of_order.iter().any(|early| early.rid > rid) {
            return false;
        }
        // The client no longer waits for a request whose connection broke.
        self.early_poll_forgiven = self.waiting_requests() + 1 == usize::from(agreed.requests);
        self.early_poll_forgiven && forgiven
    }

    /// Whether this request shows that the client will not request a lost response again. It may not know of the loss, so
    /// some requests after it show nothing. The end of the session returns the messages in the response.
    fn goes_on_without_lost_response(&self, agreed: &SessionParams, rid: u64, ack: Option<u64>) -> bool {
        let last_shown = 2 * u64::from(agreed.requests);
        let acknowledged = if agreed.acks { ack.unwrap_or(rid - 1) } else { 0 };
        let is_lost = |unsent: &UnsentResponse| unsent.is_awaited() && unsent.connections == 0;
        self.unsent.iter().any(|unsent| {
            is_lost(unsent) && unsent.rid > acknowledged && rid > unsent.lost_after_rid + last_shown
        })
    }

    /// Section 15: whether the key of the next request is valid, if keys are in use.
    fn is_key_valid(
        &mut self,
        agreed: &SessionParams,
        rid: u64,
        key: Option<&str>,
        newkey: Option<&str>,
    ) -> bool {
        let keep = usize::from(agreed.requests) + 1;
        self.keys.as_mut().is_none_or(|keys| keys.accept(rid, key, newkey, keep))
    }

    /// Accepts the next request in order.
    fn accept(
        &mut self,
        agreed: &SessionParams,
        held: HeldRequest,
        items: Vec<u8>,
        rest: RequestControl,
        now: Millis,
        wakes: &mut WakeList,
    ) {
        let rid = held.rid;
        self.last_rid = rid;
        self.held.push(held);
        if self.inbox.is_empty() {
            self.inbox = items;
        } else {
            self.inbox.extend_from_slice(&items);
        }
        if agreed.acks {
            self.acknowledge(rest.ack, rid, now, wakes);
        }
        if let Some(pause) = rest.pause
            && pause <= agreed.max_pause_seconds
        {
            // Section 10: all requests are answered immediately, without payloads.
            while !self.held.is_empty() {
                self.answer_oldest_empty(agreed, now, wakes);
            }
            self.pause = Some(pause);
        } else if let Some(missed) = self.missed_answer.take() {
            self.report_missed(agreed, missed, now, wakes);
        }
    }

    /// Section 8.2: drops responses that the client has, and notes one that it seems to have missed, to report it.
    fn acknowledge(&mut self, ack: Option<u64>, rid: u64, now: Millis, wakes: &mut WakeList) {
        // Without the attribute the client has all responses to earlier requests.
        let ack = ack.unwrap_or(rid - 1);
        self.cache.retain(|cached| cached.rid > ack);
        self.unsent.iter_mut().for_each(|unsent| unsent.sent |= unsent.rid <= ack);
        self.forget_sent(wakes);
        let missed = self.cache.iter().find(|cached| cached.rid == ack + 1);
        self.missed_answer =
            missed.filter(|cached| now.since(cached.at) >= REPORT_AFTER_MILLIS).map(|cached| cached.rid);
    }

    fn report_missed(&mut self, agreed: &SessionParams, rid: u64, now: Millis, wakes: &mut WakeList) {
        let Some(at) = self.cache.iter().find(|cached| cached.rid == rid).map(|cached| cached.at) else {
            return;
        };
        let Some(held) = self.held.first() else { return };
        let head =
            BodyAttributes { report: Some((rid, now.since(at))), ..self.body_attributes(agreed, held.rid) };
        let body = response::write_body(&head, b"");
        self.answer_oldest(agreed, body, 0, true, now, wakes);
    }

    /// Section 14.3: a retransmitted request.
    fn replay(
        &mut self,
        rid: u64,
        key: Option<&str>,
        now: Millis,
        wakes: &mut WakeList,
    ) -> BoshRequestOutcome {
        self.ticket = self.ticket.wrapping_add(1);
        let ticket = self.ticket;
        if let Some(early) = self.out_of_order.iter_mut().find(|early| early.rid == rid) {
            if early.key.as_deref() != key {
                return self.fail(TerminationReason::Sequence, wakes);
            }
            let before = std::mem::replace(&mut early.ticket, ticket);
            (early.since, early.connected) = (now, true);
            let waker = early.waker.take();
            self.hand_out(before, RECOVERABLE, waker, wakes);
            return BoshRequestOutcome::Retransmitted(ticket);
        }
        if self.keys.as_ref().is_some_and(|keys| !keys.is_repeat(rid, key)) {
            return self.fail(TerminationReason::Sequence, wakes);
        }
        if let Some(held) = self.held.iter_mut().find(|held| held.rid == rid) {
            let before = std::mem::replace(&mut held.ticket, ticket);
            let was_live = std::mem::replace(&mut held.connected, true);
            held.since = now;
            let waker = held.waker.take();
            if was_live {
                self.hand_out(before, RECOVERABLE, waker, wakes);
            }
            if self.output_blocked {
                self.wake_task(wakes);
            }
            return BoshRequestOutcome::Retransmitted(ticket);
        }
        match self.cache.iter().find(|cached| cached.rid == rid) {
            Some(cached) => {
                self.last_activity = now;
                let unsent = self.unsent.iter_mut().find(|unsent| unsent.rid == rid);
                let ticket = unsent.map(|unsent| {
                    unsent.connections = unsent.connections.saturating_add(1);
                    unsent.ticket
                });
                BoshRequestOutcome::AlreadyAnswered(cached.body.clone(), ticket)
            }
            None => match &mut self.termination {
                Termination::StreamEnded(last @ Some(_)) => {
                    last.take().map_or(BoshRequestOutcome::SessionGone, BoshRequestOutcome::FinalBody)
                }
                _ => self.fail(TerminationReason::Sequence, wakes),
            },
        }
    }

    /// Delivers a response without a payload to the holder of a ticket.
    fn hand_out(&mut self, ticket: u32, body: BoshBody, waker: Option<Waker>, wakes: &mut WakeList) {
        self.unsent.push(UnsentResponse::new(0, ticket, 0, body));
        wakes.add(waker);
    }

    fn body_attributes(&self, agreed: &SessionParams, rid: u64) -> BodyAttributes<'static> {
        BodyAttributes {
            created: (!self.creation_answered).then(|| agreed.creation_attributes(rid)),
            ack: (agreed.acks && self.last_rid != rid).then_some(self.last_rid),
            ..BodyAttributes::default()
        }
    }

    /// Answers the oldest request.
    fn answer_oldest(
        &mut self,
        agreed: &SessionParams,
        body: BoshBody,
        payload_bytes: usize,
        blank: bool,
        now: Millis,
        wakes: &mut WakeList,
    ) {
        if self.held.is_empty() {
            return;
        }
        let held = self.held.remove(0);
        self.creation_answered = true;
        self.last_answer_empty |= blank && held.rid == self.last_rid;
        if held.connected {
            self.last_activity = now;
        }
        self.evict_sent_responses(agreed);
        let HeldRequest { rid, ticket, .. } = held;
        self.cache.push(CachedResponse { rid, at: now, body: body.clone() });
        if held.connected {
            self.unsent.push(UnsentResponse::new(rid, ticket, payload_bytes, body));
            wakes.add(held.waker);
        }
    }

    /// Section 14.3: makes room for a response in the cache. Unsent ones stay, because the client can go on with its other
    /// connections while one of them is stalled, and request that response again when it breaks.
    fn evict_sent_responses(&mut self, agreed: &SessionParams) {
        let unsent = &self.unsent;
        let is_awaited = |rid: u64| unsent.iter().any(|unsent| unsent.rid == rid && unsent.is_awaited());
        let sent = self.cache.iter().filter(|cached| !is_awaited(cached.rid)).count();
        let mut excess = (sent + 1).saturating_sub(usize::from(agreed.requests));
        self.cache.retain(|cached| {
            let is_evicted = excess > 0 && !is_awaited(cached.rid);
            excess -= usize::from(is_evicted);
            !is_evicted
        });
    }

    fn answer_oldest_empty(&mut self, agreed: &SessionParams, now: Millis, wakes: &mut WakeList) {
        let Some(held) = self.held.first() else { return };
        let head = self.body_attributes(agreed, held.rid);
        let body = if head.created.is_none() && head.ack.is_none() {
            EMPTY
        } else {
            response::write_body(&head, b"")
        };
        self.answer_oldest(agreed, body, 0, true, now, wakes);
    }

    /// Answers requests above the hold limit, once the stream has read all their payloads.
    pub(super) fn answer_excess_requests(
        &mut self,
        agreed: &SessionParams,
        now: Millis,
        wakes: &mut WakeList,
    ) {
        if self.inbox.is_empty() && matches!(self.termination, Termination::Running) {
            while self.held.len() > agreed.max_unanswered() {
                self.answer_oldest_empty(agreed, now, wakes);
            }
        }
    }

    /// Ends the session because of a request or inactivity. The stream can still read what was accepted before.
    pub(super) fn fail(&mut self, end: TerminationReason, wakes: &mut WakeList) -> BoshRequestOutcome {
        let others = if end == TerminationReason::Shutdown {
            Condition::SystemShutdown
        } else {
            Condition::OtherRequest
        };
        for held in std::mem::take(&mut self.held).into_iter().filter(|held| held.connected) {
            self.hand_out(held.ticket, others.body(), held.waker, wakes);
        }
        for early in std::mem::take(&mut self.out_of_order).into_iter().filter(|early| early.connected) {
            self.hand_out(early.ticket, others.body(), early.waker, wakes);
        }
        self.cache = Vec::new();
        self.termination = Termination::Failed;
        wakes.add(self.stream_waker.take());
        BoshRequestOutcome::Failed(end)
    }

    /// Whether the session can be removed.
    pub(super) fn is_finished(&self) -> bool {
        matches!(self.termination, Termination::Failed | Termination::StreamEnded(None))
    }

    /// Whether the stream is open.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.termination, Termination::Running)
    }

    /// Response for the request with this ticket, and whether it must be reported when the response was sent. If there is
    /// none yet, the waker is stored.
    pub(super) fn poll(&mut self, ticket: u32, waker: &Waker) -> Option<(BoshBody, bool)> {
        if let Some(at) = self.unsent.iter().position(|unsent| unsent.ticket == ticket)
            && let Some(body) = self.unsent[at].body.take()
        {
            let has_payload = self.unsent[at].payload_bytes > 0;
            if !has_payload {
                self.unsent.remove(at);
                self.free_unsent();
            }
            return Some((body, has_payload));
        }
        let held = self.held.iter_mut().map(|held| (held.ticket, &mut held.waker));
        let early = self.out_of_order.iter_mut().map(|early| (early.ticket, &mut early.waker));
        let Some((_, waker_slot)) = held.chain(early).find(|(found, _)| *found == ticket) else {
            return Some((Condition::ItemNotFound.body(), false));
        };
        if !waker_slot.as_ref().is_some_and(|old| old.will_wake(waker)) {
            *waker_slot = Some(waker.clone());
        }
        None
    }

    /// The kernel has taken the response with this ticket. Returns the stream's task if it waits for that.
    pub(super) fn response_sent(&mut self, ticket: u32) -> Option<Waker> {
        let response = self.unsent.iter_mut().find(|unsent| unsent.ticket == ticket)?;
        response.sent = true;
        response.release_connection(self.last_rid);
        self.forget_sent_responses().then(|| self.stream_waker.clone()).flatten()
    }

    /// Forgets responses that were sent. The stream is woken if it waits for that.
    fn forget_sent(&mut self, wakes: &mut WakeList) {
        if self.forget_sent_responses() {
            wakes.add(self.stream_waker.clone());
        }
    }

    /// Forgets responses that were sent, except those after one that was not, because the stream confirms its output in
    /// order. True if it waits for that.
    fn forget_sent_responses(&mut self) -> bool {
        let (mut all_sent, mut forgotten) = (true, false);
        self.unsent.retain(|unsent| {
            all_sent &= !unsent.is_awaited();
            let has_payload = unsent.payload_bytes > 0;
            let is_over = unsent.body.is_none() && (all_sent || !has_payload);
            forgotten |= is_over && has_payload;
            !is_over
        });
        self.free_unsent();
        forgotten && std::mem::take(&mut self.awaits_sent)
    }

    fn free_unsent(&mut self) {
        if self.unsent.is_empty() {
            self.unsent = Vec::new();
        }
    }

    /// Bytes of the payloads from the first response on that the kernel has not taken. If there are any, the stream is
    /// woken when they become fewer.
    pub(super) fn unsent_bytes(&mut self) -> usize {
        let bytes = self.unsent.iter().map(|unsent| unsent.payload_bytes).sum();
        self.awaits_sent = bytes > 0;
        bytes
    }

    /// The connection of the request with this ticket broke.
    pub(super) fn request_dropped(&mut self, ticket: u32, now: Millis, wakes: &mut WakeList) {
        if let Some(unsent) = self.unsent.iter_mut().find(|unsent| unsent.ticket == ticket) {
            unsent.release_connection(self.last_rid);
            return self.forget_sent(wakes);
        }
        let held = self.held.iter_mut().find(|held| held.ticket == ticket);
        if let Some(held) = held {
            (held.connected, held.waker) = (false, None);
            self.last_activity = now;
        } else if let Some(early) = self.out_of_order.iter_mut().find(|early| early.ticket == ticket) {
            (early.connected, early.waker) = (false, None);
            self.last_activity = now;
        }
    }

    /// Handles timeouts.
    pub(super) fn sweep(
        &mut self,
        agreed: &SessionParams,
        now: Millis,
        wakes: &mut WakeList,
    ) -> SweepOutcome {
        let late = |since: Millis| since.plus(agreed.hold_millis()) <= now;
        while self.held.first().is_some_and(|held| late(held.since)) {
            self.answer_oldest_empty(agreed, now, wakes);
        }
        if self.held.last().is_some_and(|held| held.since.plus(EXCESS_REQUEST_MILLIS) <= now) {
            while self.held.len() > agreed.max_unanswered() {
                self.answer_oldest_empty(agreed, now, wakes);
            }
        }
        while let Some(at) = self.out_of_order.iter().position(|early| late(early.since)) {
            // The requests before it are missing; the client must send all of them again.
            let early = self.out_of_order.remove(at);
            if early.connected {
                self.last_activity = now;
                self.hand_out(early.ticket, RECOVERABLE, early.waker, wakes);
            }
        }
        let seconds = self.pause.unwrap_or(agreed.inactivity);
        if !self.has_live_request() && self.last_activity.plus(u64::from(seconds) * 1000) <= now {
            if self.is_open() {
                self.fail(TerminationReason::Inactivity, wakes);
            } else {
                self.termination = Termination::StreamEnded(None);
            }
            return SweepOutcome::TimedOut;
        }
        SweepOutcome::Alive
    }

    /// Reads items for the stream.
    pub(super) fn read(&mut self, waker: &Waker) -> PayloadRead {
        if !self.inbox.is_empty() {
            return PayloadRead::Items(std::mem::take(&mut self.inbox));
        }
        if !self.is_open() {
            return PayloadRead::End;
        }
        self.register(waker);
        PayloadRead::Nothing
    }

    fn register(&mut self, waker: &Waker) {
        if !self.stream_waker.as_ref().is_some_and(|old| old.will_wake(waker)) {
            self.stream_waker = Some(waker.clone());
        }
    }

    /// Whether a request waits for output, and responses with earlier output are sent or few. If not, the stream is woken
    /// by the next request and when a response was sent.
    pub(super) fn accepts_output(&mut self, waker: Option<&Waker>) -> bool {
        let with_payload = self.unsent.iter().filter(|unsent| unsent.payload_bytes > 0);
        let unsent_bytes: usize =
            with_payload.map(|unsent| unsent.payload_bytes + RESPONSE_OVERHEAD_BYTES).sum();
        let has_room = unsent_bytes < MAX_UNSENT_BYTES;
        self.awaits_sent |= !has_room;
        let ready = self.is_open() && has_room && self.held.iter().any(|held| held.connected);
        if let Some(waker) = waker {
            self.register(waker);
        }
        self.output_blocked = !ready;
        ready
    }

    /// Puts elements into the response of the oldest live request. False: there is none.
    pub(super) fn deliver(
        &mut self,
        agreed: &SessionParams,
        cut: &ExtractedElements,
        payload: &[u8],
        now: Millis,
        wakes: &mut WakeList,
    ) -> bool {
        if !self.is_open() {
            return false;
        }
        if !self.answer_broken(agreed, now, wakes) {
            // The connection has broken since the stream found it; the next request must wake the stream.
            self.output_blocked = true;
            return false;
        }
        let Some(held) = self.held.first() else { return false };
        let mut head = self.body_attributes(agreed, held.rid);
        head.uses_stream_prefix = cut.uses_stream_prefix;
        if let Some(created) = &mut head.created {
            created.opened = cut.opened.as_ref();
        }
        let blank = payload.is_empty() && head.created.is_none();
        let body = if blank && head.ack.is_none() { EMPTY } else { response::write_body(&head, payload) };
        self.answer_oldest(agreed, body, payload.len(), blank, now, wakes);
        true
    }

    /// Answers broken requests before the first live one, if there is one.
    fn answer_broken(&mut self, agreed: &SessionParams, now: Millis, wakes: &mut WakeList) -> bool {
        if !self.held.iter().any(|held| held.connected) {
            return false;
        }
        while self.held.first().is_some_and(|held| !held.connected) {
            self.answer_oldest_empty(agreed, now, wakes);
        }
        true
    }

    /// Ends the stream with final output. Section 13: it goes to the oldest request; all others are answered.
    pub(super) fn finish(
        &mut self,
        agreed: &SessionParams,
        cut: &ExtractedElements,
        payload: &[u8],
        now: Millis,
        wakes: &mut WakeList,
    ) {
        if !self.is_open() {
            return;
        }
        let condition = match cut {
            ExtractedElements { closed: false, .. } => Some(Condition::RemoteConnectionFailed),
            cut => cut.error,
        };
        let head = BodyAttributes {
            terminate: Some(condition),
            uses_stream_prefix: cut.uses_stream_prefix,
            ..BodyAttributes::default()
        };
        let body = response::write_body(&head, payload);
        self.stream_waker = None;
        self.inbox = Vec::new();
        if !self.answer_broken(agreed, now, wakes) {
            self.held = Vec::new();
            self.termination = Termination::StreamEnded(Some(body));
            return;
        }
        self.answer_oldest(agreed, body, payload.len(), false, now, wakes);
        while !self.held.is_empty() {
            self.answer_oldest(agreed, EMPTY, 0, true, now, wakes);
        }
        for early in std::mem::take(&mut self.out_of_order).into_iter().filter(|early| early.connected) {
            self.hand_out(early.ticket, EMPTY, early.waker, wakes);
        }
        self.termination = Termination::StreamEnded(None);
    }
}

/// Section 11: maximum number of requests under way, with this one.
fn max_requests(agreed: &SessionParams, request: &BoshRequest<'_>) -> usize {
    usize::from(agreed.requests) + usize::from(request.pause.is_some() || request.terminate)
}

/// Whether an id may begin a session: further ids must follow.
pub(super) fn is_valid_first_rid(rid: u64) -> bool {
    rid < MAX_RID
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::task::Wake;

    const NOW: Millis = Millis(0);

    struct WokenFlag(AtomicBool);

    impl Wake for WokenFlag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Relaxed);
        }
    }

    /// The connection is served by another thread than the stream, so it can break between the check and the output.
    #[test]
    fn a_request_wakes_the_stream_whose_output_found_only_a_broken_connection() {
        let agreed = SessionParams {
            sid: 1,
            wait: 60,
            hold: 1,
            requests: 2,
            inactivity: 60,
            polling: 0,
            max_pause_seconds: 0,
            version: None,
            acks: false,
            secure: false,
            max_unread_bytes: 1000,
            content_type: None,
            to: None,
        };
        let mut state = BoshState::new(1, Vec::new(), None, TokenBucket::unlimited(), NOW);
        let flag = Arc::new(WokenFlag(AtomicBool::new(false)));
        assert!(state.accepts_output(Some(&Waker::from(flag.clone()))));
        state.request_dropped(0, NOW, &mut WakeList::default());
        let delivered =
            state.deliver(&agreed, &ExtractedElements::default(), b"<a/>", NOW, &mut WakeList::default());
        assert!(!delivered);
        let body = b"<body rid='2' sid='00000000000000000000000000000001' xmlns='http://jabber.org/protocol/httpbind'/>";
        let Ok(request) = BoshRequest::read_head(body, &xml::Limits::CEILING) else { panic!("a request") };
        let mut wakes = WakeList::default();
        state.request(&agreed, request, NOW, &mut wakes);
        wakes.wake();
        assert!(flag.0.load(Relaxed));
    }
}
