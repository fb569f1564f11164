//! Events of sessions and accounts: a resource is bound or available, a session ends, an account is created or removed.
//!
//! Every handler of an event runs, in order. A handler that waits does not hold up who caused the event; the others continue
//! after it.
//!
//! # Pitfalls
//!
//! After a handler of `closing` has waited, the session is no longer in the routing table, and its resource may be bound
//! again.

use std::sync::Arc;

use jid::Jid;
use store::RosterItem;

use super::{ChainPosition, Continuation, ResumedChain, RoutingWork};
use crate::hooks::{AvailableCtx, ClosingCtx, CreatedCtx, OpenedCtx, RemovedCtx};
use crate::host::Host;
use crate::node::Node;
use crate::session::Session;

/// An event with everything that its handlers need, owned, so that it outlives a handler that waits.
pub(crate) enum LifecycleEvent {
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
        contacts: Box<[RosterItem]>,
    },
}

impl Node {
    /// Runs the handlers of an event. What waits is appended to `work`. Returns the event when all handlers have run.
    pub(crate) fn run_event(
        self: &Arc<Self>,
        event: LifecycleEvent,
        position: ChainPosition,
        work: &mut RoutingWork,
    ) -> Option<LifecycleEvent> {
        let ChainPosition { host, index: at } = position;
        let (node, effects, hooks) = (self, &mut work.effects, &host.hooks);
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
        let Some((next, later)) = waiting else { return Some(event) };
        work.pending.push(Box::pin(async move {
            let outcome = later.await;
            let continuation = Continuation::Event { event, position: ChainPosition { host, index: next } };
            ResumedChain { effects: outcome.effects, continuation }
        }));
        None
    }

    /// Like [`Node::run_event`], from the first handler; nobody waits for those that wait.
    pub(crate) fn run_event_spawned(self: &Arc<Self>, event: LifecycleEvent, host: Arc<Host>) {
        let mut work = RoutingWork::default();
        self.run_event(event, ChainPosition { host, index: 0 }, &mut work);
        self.run_effects_spawned(work);
    }

    /// Continues an event after a handler that has waited.
    pub(super) fn resume_event(
        self: &Arc<Self>,
        event: LifecycleEvent,
        position: ChainPosition,
        work: &mut RoutingWork,
    ) {
        if let Some(LifecycleEvent::Closing(session)) = self.run_event(event, position, work) {
            session.clear_state();
        }
    }
}
