//! Sessions of a node: binding, detachment, end.

use std::sync::Arc;

use arc_swap::Guard;
use jid::JidRef;
use stanza::{StanzaCondition, StanzaError, StreamCondition, StreamError};
use store::RosterSnapshot;

use crate::account::Account;
use crate::node::{Node, ROSTER_BITS};
use crate::principal::{Principal, too_many_resources};
use crate::router::{LifecycleEvent, RoutingWork, StanzaOrigin};
use crate::session::stream_management::UndeliveredStanza;
use crate::session::{AdmissionContext, Outbox, Session, flags};
use crate::shared_stanza::SharedStanza;

impl Node {
    /// Binds a resource (RFC 6120, section 7). A connected resource of the same name is closed with `conflict`
    /// (section 7.7.2.2, policy 1). Without a name the server generates one.
    ///
    /// An error drops `principal`: the next attempt loads it again, so that a client without a resource holds
    /// no roster.
    ///
    /// # Errors
    /// `resource-constraint` if the account has too many resources, `bad-request` for an invalid name.
    pub fn bind(
        self: &Arc<Self>,
        principal: Principal,
        resource: Option<&str>,
        outbox: &Arc<Outbox>,
    ) -> Result<Arc<Session>, StanzaError> {
        self.bind_prepared(principal, resource, outbox, 0, &|_| {})
    }

    /// Like [`Node::bind`], for a session that another node has held: `prepare` sets its state before others find it. It is
    /// newer than `after`, in milliseconds since 1970.
    ///
    /// # Errors
    /// As those of [`Node::bind`].
    pub fn bind_prepared(
        self: &Arc<Self>,
        principal: Principal,
        resource: Option<&str>,
        outbox: &Arc<Outbox>,
        after: u64,
        prepare: &dyn Fn(&Session),
    ) -> Result<Arc<Session>, StanzaError> {
        let Principal {
            host,
            jid: bare,
            id,
            roster: items,
            roster_version,
            offline_messages: offline,
            photo,
            blocked,
            epoch,
            revision,
            ephemeral,
        } = principal;
        let jid = self.full_address(bare.as_ref(), resource)?;
        let resource = jid.as_ref().resource().unwrap_or_default().to_owned();
        self.metrics.roster_sizes.record(items.len() as u64);
        let large = store::roster::is_large(&items);
        let current_host = self.domains.current_host(&host);
        let mut snapshot = Some(RosterSnapshot { version: roster_version, items });
        let mut stale = false;
        let limit = usize::from(self.limits().sessions_per_account);
        for _ in 0..8 {
            if let Some(old) = self.routing_table.find(bare.as_ref()).and_then(|a| a.session(&resource)) {
                self.end_with_conflict(&old);
            }
            self.evict_detached_session(bare.as_ref(), limit);
            let bound = self.routing_table.bind(
                bare.as_ref(),
                || Arc::new(Account::new(id, bare.clone(), current_host.clone(), &self.routing_table)),
                |account, fresh| {
                    // Read while the table is locked: either the writer finds this session afterwards, or this
                    // login sees the changed count.
                    let changed = self.epoch(bare.as_ref()) ^ epoch;
                    stale = changed & ROSTER_BITS != 0;
                    let session = account.with(|state| {
                        if state.sessions.iter().any(|s| s.resource() == resource) {
                            return Err(None);
                        }
                        if state.sessions.len() >= limit {
                            return Err(Some(too_many_resources()));
                        }
                        if fresh && let Some(s) = &snapshot {
                            state.replace_roster(&self.routing_table, &self.domains(), &s.items, s.version);
                        }
                        if fresh {
                            account.set_blocked(state, &blocked);
                            account.set_photo(state, photo);
                        }
                        state.may_have_offline_messages |= offline > 0 || changed & !ROSTER_BITS != 0;
                        // A large roster is read again when the client requests it. A client that never does
                        // must not hold it in memory.
                        if !stale
                            && !large
                            && state.roster_version == roster_version
                            && let Some(snapshot) = snapshot.take()
                        {
                            state.set_prefetched(snapshot);
                        }
                        // Later than what it replaces, also if the clock of the other node is ahead.
                        let replaced = state.peers().iter().flat_map(|peer| &peer.sessions);
                        let replaced = replaced.filter(|peer| *peer.resource == *resource);
                        let replaced = replaced.map(|peer| peer.bound_at).max().unwrap_or_default();
                        let bound_at = self.clock.unix_millis().max(replaced.max(after).saturating_add(1));
                        let session =
                            Arc::new(Session::new(account.clone(), outbox.clone(), jid.clone(), bound_at));
                        if ephemeral {
                            session.flags.set(flags::EPHEMERAL);
                        }
                        prepare(&session);
                        if let Some(peers) = self.peers() {
                            peers.note_earlier_claims(self, account, state, &session);
                        }
                        state.sessions.push(session.clone());
                        Ok(session)
                    })?;
                    if let Some(peers) = self.peers().filter(|_| fresh) {
                        peers.claim_account(self, account);
                    }
                    Ok(session)
                },
            );
            match bound {
                Ok(session) => {
                    self.on_session_bound(&session, stale.then_some(revision));
                    return Ok(session);
                }
                Err(Some(error)) => return Err(error),
                Err(None) => {} // another login bound the same resource meanwhile
            }
        }
        Err(StanzaError::new(StanzaCondition::Conflict))
    }

    /// `stale`: the revision that was authenticated, if a write may have overtaken the login.
    fn on_session_bound(self: &Arc<Self>, session: &Arc<Session>, stale: Option<u64>) {
        self.metrics.sessions_opened.inc();
        self.report_sessions(&session.account);
        session.account.host().domain_counters.session_opened();
        if let Some(revision) = stale.filter(|_| !session.flags.has(flags::EPHEMERAL)) {
            self.account_views().recheck_login(self, session.clone(), revision);
        }
        self.run_event_spawned(
            LifecycleEvent::Opened(session.clone()),
            Guard::into_inner(session.account.host()),
        );
        // The domain was removed after the stream header, and `set_hosts` has not seen this session.
        if self.host(session.account.jid.domain()).is_none() {
            close_for_removed_host(session);
        }
    }

    /// Ends the oldest detached session of an account that has reached its session limit.
    fn evict_detached_session(self: &Arc<Self>, bare: JidRef<'_>, limit: usize) {
        let Some(account) = self.routing_table.find(bare) else { return };
        let sessions = account.sessions();
        if sessions.len() >= limit
            && let Some(oldest) = sessions.iter().find(|s| s.outbox.is_detached())
        {
            self.end_with_conflict(oldest);
        }
    }

    /// Detaches a session whose connection was lost. True if it may be resumed; see [`Outbox::detach`].
    pub fn detach_session(self: &Arc<Self>, session: &Session) -> bool {
        self.keep_detached_rates(session);
        let limits = self.limits().outbox();
        let room = AdmissionContext {
            limits: &limits,
            backlog: Some((&self.backlog, session.bare())),
            bypass_budgets: false,
        };
        let is_resumable = session.outbox.detach(self.seconds(), Some(&room));
        is_resumable.then(|| self.report_sessions(&session.account)).is_some()
    }

    /// Must be called when everything that was dequeued from an outbox is written.
    pub fn record_delivery(&self, outbox: &Outbox) {
        if let Some((class, micros)) = outbox.take_delivery_latency(&*self.clock)
            && let Some(histogram) = self.metrics.delivery.get(class.index())
        {
            histogram.record(micros);
        }
    }

    /// Counts stanzas of a session's client that are safe (XEP-0198, section 4). Its stream may have ended: a client that
    /// resumes too late gets the count all the same.
    pub fn count_handled(&self, session: &Session, count: u32) {
        if count == 0 {
            return;
        }
        session.outbox.count_handled(count);
        if session.is_ended()
            && let Some(record) = session.outbox.resumption_record()
        {
            self.ended_streams.insert(session.account.hash, record);
        }
    }

    /// Ends a session whose resource was bound by a newer one.
    pub fn end_with_conflict(self: &Arc<Self>, session: &Arc<Session>) {
        session.outbox.close(
            StreamError::new(StreamCondition::Conflict)
                .text("another client connected with the same resource"),
        );
        self.end_session(session);
    }

    /// Ends a session: reroutes its queue, runs the closing chain, then removes it from the routing table. A
    /// second call has no effect.
    ///
    /// The order matters: the session accepts stanzas until its queue is empty, so that none overtakes a queued
    /// one.
    pub fn end_session(self: &Arc<Self>, session: &Arc<Session>) {
        if session.end() {
            self.reroute_pending(session);
            self.finish_session(session);
        }
    }

    /// Removes a session whose outbox is empty, and runs the handlers of its end. For the caller of [`Session::end`].
    pub fn finish_session(self: &Arc<Self>, session: &Arc<Session>) {
        self.metrics.sessions_closed.inc();
        session.account.host().domain_counters.session_closed();
        self.keep_rates(session);
        let mut work = RoutingWork::of(StanzaOrigin::Event);
        let host = Guard::into_inner(session.account.host());
        let closed = self.run_event(LifecycleEvent::Closing(session.clone()), host, &mut work);
        let mut was_last = false;
        self.routing_table.unbind(session, |account, last| {
            was_last = last;
            self.announce_readiness(account);
        });
        self.perform_effects_spawned(work);
        // After `unavailable`: if this node is lost before other nodes receive that, they send it for its claims.
        // Claims are counted, so another session may have begun.
        if was_last && let Some(peers) = self.peers() {
            peers.release_account(self, &session.account);
        }
        if closed {
            session.clear_state();
        }
    }

    /// Reroutes the stanzas that a session still holds, unacknowledged ones first: messages go to other
    /// resources or to the store, in order.
    fn reroute_pending(self: &Arc<Self>, session: &Arc<Session>) {
        if let Some(record) = session.outbox.resumption_record() {
            self.ended_streams.insert(session.account.hash, record);
        }
        loop {
            let items = session.outbox.drain_for_close();
            if items.is_empty() {
                return;
            }
            self.reroute(session, items);
        }
    }

    /// Reroutes stanzas that a session will not deliver, in order.
    pub fn reroute(self: &Arc<Self>, session: &Arc<Session>, items: Vec<UndeliveredStanza>) {
        let unsettled = items.iter().map(|left| &left.item.stanza);
        let unsettled: Vec<SharedStanza> =
            unsettled.filter(|stanza| stanza.is_delivery_unsettled()).cloned().collect();
        let mut work = RoutingWork { tracks_delivery: !unsettled.is_empty(), ..RoutingWork::default() };
        for left in items {
            self.reroute_undelivered(session, left, &mut work);
        }
        self.settle_after(work, unsettled);
    }

    /// Performs the effects of messages that were rerouted, and settles the messages when they are safe: their senders wait
    /// for them, and not for what replaces them.
    fn settle_after(self: &Arc<Self>, work: RoutingWork, rerouted: Vec<SharedStanza>) {
        // A backup settles its message, and another session may have a message or will reroute it.
        let settle = |rerouted: Vec<SharedStanza>| {
            let replaced = rerouted.iter().filter(|message| !message.is_backed_up() && !message.is_shared());
            replaced.for_each(SharedStanza::settle_delivery);
        };
        match self.perform_effects(work).into_future(self) {
            None => settle(rerouted),
            Some(rest) if rerouted.is_empty() => self.spawner.spawn("routing", rest),
            Some(rest) => self.spawner.spawn(
                "routing",
                Box::pin(async move {
                    rest.await;
                    settle(rerouted);
                }),
            ),
        }
    }
}

/// The connection's task ends the session after it has sent the queued stanzas.
pub(crate) fn close_for_removed_host(session: &Session) {
    let text = format!("{} is no longer served here", session.account.jid.domain());
    session.outbox.close(StreamError::new(StreamCondition::HostGone).text(text));
}
