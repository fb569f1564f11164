//! Events of sessions and accounts: a resource is bound or available, a session ends, an account is created or removed.
//! RFC 6121, sections 4.2 to 4.5.
//!
//! Every handler of an event runs, in order. The cause of an event does not wait for its handlers: deferred handlers, and
//! those after them, run in a spawned task or before the next stanza of the session.
//!
//! Events of one session are ordered: an event starts when all handlers of the one before have run, and `closing` is the
//! last. The events of an account are not.
//!
//! # Pitfalls
//!
//! After a handler of `closing` or of an event before it has waited, the session is no longer in the routing table, and
//! its resource may be bound again. If that session is available, presence from the ended session is dropped, because
//! it would show the other one as unavailable.

use std::collections::VecDeque;
use std::sync::Arc;

use base::Extension;
use jid::Jid;
use stanza::StanzaKind;
use store::RosterItem;

use super::{ChainPosition, Continuation, ResumedChain, RoutingWork, StanzaOrigin};
use crate::effect::{Effect, Effects};
use crate::hooks::{AvailableCtx, ClosingCtx, CreatedCtx, OpenedCtx, RemovedCtx};
use crate::host::Host;
use crate::node::Node;
use crate::session::{Session, flags};

/// An event with everything that its handlers need, owned, so that it outlives a handler that waits.
pub enum LifecycleEvent {
    /// A resource was bound.
    Opened(Arc<Session>),
    /// A resource became available or changed its priority.
    Available(Arc<Session>),
    /// A session ends.
    Closing(Arc<Session>),
    /// An account was created. The address is bare.
    Created(Jid),
    /// An account was removed.
    Removed {
        /// Its bare address.
        jid: Jid,
        /// Contacts with a subscription in either direction.
        contacts: Vec<RosterItem>,
    },
}

impl LifecycleEvent {
    fn session(&self) -> Option<&Arc<Session>> {
        match self {
            LifecycleEvent::Opened(session)
            | LifecycleEvent::Available(session)
            | LifecycleEvent::Closing(session) => Some(session),
            LifecycleEvent::Created(_) | LifecycleEvent::Removed { .. } => None,
        }
    }
}

/// Events that start when all handlers of an earlier event of the session have run. At most one of each kind: handlers of
/// `available` read the present state, so one run serves several changes.
#[derive(Default)]
struct QueuedEvents(VecDeque<(LifecycleEvent, Arc<Host>)>);

impl Extension for QueuedEvents {}

/// Marks an event as running. Returns it unless an earlier one of the same session is running; it is then queued.
fn start(event: LifecycleEvent, host: &Arc<Host>) -> Option<LifecycleEvent> {
    let Some(session) = event.session().cloned() else { return Some(event) };
    session.with(|state| {
        if !session.flags.has(flags::EVENT_RUNNING) {
            session.flags.set(flags::EVENT_RUNNING);
            return Some(event);
        }
        if state.extensions.get::<QueuedEvents>().is_none() {
            state.extensions.insert(QueuedEvents::default());
        }
        if let Some(QueuedEvents(queue)) = state.extensions.get() {
            let kind = std::mem::discriminant(&event);
            if !queue.iter().any(|(queued, _)| std::mem::discriminant(queued) == kind) {
                queue.push_back((event, host.clone()));
            }
        }
        None
    })
}

/// The event that starts after one of this session has ended.
fn next_event(session: &Session) -> Option<(LifecycleEvent, Arc<Host>)> {
    session.with(|state| {
        let next = state.extensions.get::<QueuedEvents>().and_then(|QueuedEvents(queue)| queue.pop_front());
        if next.is_none() {
            state.extensions.remove::<QueuedEvents>();
            session.flags.clear(flags::EVENT_RUNNING);
        }
        next
    })
}

/// An event of a session with a handler that waits. If the task is dropped, the next event starts all the same.
pub(crate) struct WaitingEvent {
    node: Arc<Node>,
    session: Option<Arc<Session>>,
}

impl Drop for WaitingEvent {
    fn drop(&mut self) {
        if let Some(session) = self.session.take()
            && let Some((event, host)) = next_event(&session)
        {
            let mut work = RoutingWork::of(StanzaOrigin::Event);
            self.node.resume_event(event, ChainPosition { host, index: 0 }, &mut work);
            self.node.perform_effects_spawned(work);
        }
    }
}

impl Node {
    /// Runs the handlers of an event, or queues it. What waits is appended to `work`. True if all handlers of `closing` have
    /// run: the caller frees the session's state after the effects.
    pub(crate) fn run_event(
        self: &Arc<Self>,
        event: LifecycleEvent,
        host: Arc<Host>,
        work: &mut RoutingWork,
    ) -> bool {
        match start(event, &host) {
            Some(event) => self.continue_event(event, ChainPosition { host, index: 0 }, work),
            None => false,
        }
    }

    /// Runs the handlers of an event from a position, then those of the session's queued events.
    fn continue_event(
        self: &Arc<Self>,
        event: LifecycleEvent,
        position: ChainPosition,
        work: &mut RoutingWork,
    ) -> bool {
        let mut next = Some((event, position));
        let mut closed = false;
        while let Some((event, position)) = next.take() {
            let Some(event) = self.run_handlers(event, position, work) else { return closed };
            if let Some(session) = event.session() {
                closed |= matches!(event, LifecycleEvent::Closing(_));
                next = next_event(session).map(|(event, host)| (event, ChainPosition { host, index: 0 }));
            }
        }
        closed
    }

    /// Returns the event when all its handlers have run.
    fn run_handlers(
        self: &Arc<Self>,
        event: LifecycleEvent,
        position: ChainPosition,
        work: &mut RoutingWork,
    ) -> Option<LifecycleEvent> {
        let ChainPosition { host, index: at } = position;
        let mut effects = Effects::default();
        let (node, effects, hooks) = (self, &mut effects, &host.hooks);
        let waiting = match &event {
            LifecycleEvent::Opened(session) => {
                hooks.opened.run_event(&mut OpenedCtx { node, session, effects }, at)
            }
            LifecycleEvent::Available(session) => {
                hooks.available.run_event(&mut AvailableCtx { node, session, effects }, at)
            }
            LifecycleEvent::Closing(session) => {
                hooks.closing.run_event(&mut ClosingCtx { node, session, effects }, at)
            }
            LifecycleEvent::Created(jid) => {
                let mut ctx = CreatedCtx { node, host: &host, jid: jid.as_ref(), effects };
                hooks.created.run_event(&mut ctx, at)
            }
            LifecycleEvent::Removed { jid, contacts } => {
                let mut ctx = RemovedCtx { node, host: &host, jid: jid.as_ref(), contacts, effects };
                hooks.removed.run_event(&mut ctx, at)
            }
        };
        self.drop_presence_of_replaced(&event, effects);
        work.effects.0.append(&mut effects.0);
        let Some((next, later)) = waiting else { return Some(event) };
        let waiting = WaitingEvent { node: self.clone(), session: event.session().cloned() };
        work.pending.push(Box::pin(async move {
            let mut outcome = later.outcome().await;
            waiting.node.drop_presence_of_replaced(&event, &mut outcome.effects);
            let position = ChainPosition { host, index: next };
            let continuation = Continuation::Event { event, position, waiting };
            ResumedChain { effects: outcome.effects, continuation }
        }));
        None
    }

    /// Like [`Node::run_event`]; deferred handlers continue in a spawned task.
    pub fn run_event_spawned(self: &Arc<Self>, event: LifecycleEvent, host: Arc<Host>) {
        let mut work = RoutingWork::of(StanzaOrigin::Event);
        self.run_event(event, host, &mut work);
        self.perform_effects_spawned(work);
    }

    /// Continues an event after a handler that has waited.
    pub(super) fn resume_waiting_event(
        self: &Arc<Self>,
        event: LifecycleEvent,
        position: ChainPosition,
        mut waiting: WaitingEvent,
        work: &mut RoutingWork,
    ) {
        waiting.session = None;
        self.resume_event(event, position, work);
    }

    fn resume_event(
        self: &Arc<Self>,
        event: LifecycleEvent,
        position: ChainPosition,
        work: &mut RoutingWork,
    ) {
        let session = event.session().cloned();
        if self.continue_event(event, position, work)
            && let Some(session) = session
        {
            session.clear_state();
        }
    }

    /// Removes presence from the address of a session that has ended, if an available session has the address.
    fn drop_presence_of_replaced(&self, event: &LifecycleEvent, effects: &mut Effects) {
        let Some(session) = event.session().filter(|session| session.is_ended() && !effects.is_empty())
        else {
            return;
        };
        let replaces = |other: &Arc<Session>| {
            !Arc::ptr_eq(other, session) && other.resource() == session.resource() && other.is_available()
        };
        let account = self.routing_table.find(session.bare());
        if account.is_some_and(|account| account.sessions().iter().any(replaces)) {
            effects.0.retain(|effect| match effect {
                Effect::Route { stanza, .. }
                | Effect::Broadcast { stanza, .. }
                | Effect::OtherResources { stanza, .. } => {
                    !matches!(stanza.kind(), StanzaKind::Presence(_))
                        || stanza.head().from(stanza.bytes()).as_deref() != Some(session.full().as_str())
                }
                _ => true,
            });
        }
    }
}
