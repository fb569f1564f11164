//! Performs the effects of handlers, and continues where a deferred handler stopped.

use std::sync::Arc;

use arc_swap::Guard;
use jid::Jid;
use smallvec::{SmallVec, smallvec};

use super::lanes::{LaneStage, LaneStanza};
use super::multicast::MAX_GROUP;
use super::push::PushSelection;
use super::{Continuation, LifecycleEvent, ResumedChain, RoutingOutcome, RoutingWork, StanzaOrigin};
use crate::effect::{Effect, Effects};
use crate::hooks::Flow;
use crate::multicast::Multicast;
use crate::node::Node;
use crate::session::ToRewrite;

/// A multicast with those that follow it to the same list of recipients.
fn same_recipients(first: Multicast, effects: &mut std::vec::IntoIter<Effect>) -> SmallVec<[Multicast; 1]> {
    let recipients = first.recipients.clone();
    let mut group = smallvec![first];
    while group.len() < MAX_GROUP
        && let Some(Effect::Multicast(next)) = effects.as_slice().first()
        && next.recipients.is_same(&recipients)
        && let Some(Effect::Multicast(next)) = effects.next()
    {
        group.push(*next);
    }
    group
}

impl Node {
    /// Performs all effects; deferred work is returned as one future.
    pub fn perform_effects(self: &Arc<Self>, mut work: RoutingWork) -> RoutingOutcome {
        self.perform_now(&mut work);
        if work.pending.is_empty() {
            return match work.receipts {
                receipts if receipts.is_empty() => RoutingOutcome::Done,
                receipts => RoutingOutcome::AwaitsReceipts(receipts),
            };
        }
        match work.origin {
            StanzaOrigin::Event => self.metrics.events_blocked_on_store.inc(),
            _ => self.metrics.stanzas_blocked_on_store.inc(),
        };
        let (node, origin) = (self.clone(), work.origin);
        RoutingOutcome::Wait(Box::pin(async move {
            let mut receipts = work.receipts;
            let tracks_delivery = work.tracks_delivery;
            let mut queue = std::collections::VecDeque::from(work.pending);
            while let Some(later) = queue.pop_front() {
                let resumed = later.await;
                let mut work =
                    RoutingWork { effects: resumed.effects, tracks_delivery, ..RoutingWork::of(origin) };
                node.perform_now(&mut work);
                if work.pending.is_empty() {
                    node.resume(resumed.continuation, &mut work);
                    node.perform_now(&mut work);
                } else {
                    work.pending.push(ResumedChain::after_pending(Effects::default(), resumed.continuation));
                }
                receipts.append(std::mem::take(&mut work.receipts));
                // Deferred work of the resumed stanza comes before work that was queued after it.
                for later in work.pending.into_iter().rev() {
                    queue.push_front(later);
                }
            }
            receipts
        }))
    }

    /// Like [`Node::perform_effects`], for work that no session awaits; deferred work is spawned.
    pub fn perform_effects_spawned(self: &Arc<Self>, work: RoutingWork) {
        let name = if work.origin == StanzaOrigin::Event { "event" } else { "routing" };
        if let Some(rest) = self.perform_effects(work).into_future(self) {
            self.spawner.spawn(name, rest);
        }
    }

    /// Performs effects in order. If a routed stanza is deferred, so are all later effects: the stanzas of one
    /// handler to one recipient must arrive in order.
    pub(super) fn perform_now(self: &Arc<Self>, work: &mut RoutingWork) {
        while !work.effects.is_empty() {
            let mut effects = std::mem::take(&mut work.effects).0.into_iter();
            while let Some(effect) = effects.next() {
                let routed = matches!(
                    effect,
                    Effect::Route { .. } | Effect::RouteInLane { .. } | Effect::Multicast(_)
                );
                let waiting = work.pending.len();
                match effect {
                    Effect::Multicast(first) => {
                        let group = same_recipients(*first, &mut effects);
                        self.multicast(group, work);
                    }
                    effect => self.perform_one(effect, work),
                }
                if routed && work.pending.len() > waiting && effects.len() > 0 {
                    work.pending
                        .push(ResumedChain::after_pending(Effects(effects.collect()), Continuation::Nothing));
                    break;
                }
            }
        }
    }

    fn perform_one(self: &Arc<Self>, effect: Effect, work: &mut RoutingWork) {
        match effect {
            Effect::Send(session, stanza) => self.push(&session, stanza, ToRewrite::None, work),
            Effect::SendTo(session, stanza) => self.push(&session, stanza, ToRewrite::Bare, work),
            Effect::Route { stanza, from, to } => self.route(stanza, from.as_ref(), to.as_ref(), work),
            Effect::RouteInLane { source, stanza, from, to } if work.origin.is_in_lane() => {
                let (stage, completion) = (LaneStage::Unrouted, None);
                self.enter_lane_now(source, LaneStanza { stanza, from, to, stage, completion }, true);
            }
            Effect::RouteInLane { source, stanza, from, to } => {
                if let Some(room) = self.route_in_lane(source, stanza, from.as_ref(), to.as_ref()) {
                    work.pending.push(Box::pin(async move {
                        room.await;
                        ResumedChain { effects: Effects::default(), continuation: Continuation::Nothing }
                    }));
                }
            }
            Effect::Multicast(multicast) => self.multicast(smallvec![*multicast], work),
            Effect::PushToInterested(account, stanza) => {
                let flags = crate::session::flags::INTERESTED;
                let selection = PushSelection { flags, available: false, to: ToRewrite::Full };
                self.push_to_selected(&account, selection, std::iter::empty(), &stanza, work);
            }
            Effect::ToResources { account, flags, available, stanza } => {
                let selection = PushSelection { flags, available, to: ToRewrite::None };
                self.push_to_selected(&account, selection, std::iter::empty(), &stanza, work);
            }
            Effect::Copy { account, flags, except, except_peers, stanza } => {
                let selection = PushSelection { flags, available: false, to: ToRewrite::Full };
                let except =
                    except.iter().map(|session| session.resource()).chain(except_peers.iter().map(|r| &**r));
                self.push_to_selected(&account, selection, except, &stanza, work);
            }
            Effect::Broadcast { account, stanza, to } => self.broadcast(&account, &stanza, to, work),
            Effect::OtherResources { except, stanza } => {
                let selection = PushSelection { flags: 0, available: true, to: ToRewrite::Bare };
                let own = std::iter::once(except.resource());
                self.push_to_selected(&except.account, selection, own, &stanza, work);
            }
            Effect::FetchPresence { account, contact } => {
                if let Some(peers) = self.peers() {
                    peers.fetch_presence(self, &account, contact.as_ref());
                }
            }
            Effect::PresenceTo { account, to, available, peers } => {
                self.send_presence_to(&account, to.as_ref(), available, work);
                if peers && let Some(others) = self.peers() {
                    others.request_presence_of_peers(self, &account, to.as_ref(), available);
                }
            }
            Effect::Receipt(attached) => {
                let peers = self.peers().filter(|_| work.origin == StanzaOrigin::Stream);
                let attached = match peers {
                    Some(peers) => peers.hold_path(self, attached),
                    None => attached,
                };
                work.receipts.0.push(attached);
            }
            Effect::Close(session, reason) => session.outbox.close(reason),
            Effect::Available(session) => {
                let host = Guard::into_inner(session.account.host());
                if !host.stores_offline_messages {
                    // A reload disabled offline storage meanwhile, so that no feature would clear the flag.
                    session.account.with(|state| state.flushing = false);
                }
                self.run_event(LifecycleEvent::Available(session), host, work);
            }
        }
    }

    fn resume(self: &Arc<Self>, then: Continuation, work: &mut RoutingWork) {
        match then {
            Continuation::Outgoing { session, stanza, to, position, flow } => match flow {
                Flow::Stop(verdict) => {
                    self.apply_outgoing_stop(&session, &stanza, to.as_ref().map(Jid::as_ref), verdict, work)
                }
                _ => {
                    let to = to.as_ref().map(Jid::as_ref);
                    self.outgoing(&position.host, &session, stanza, to, position.index, work);
                }
            },
            Continuation::Incoming { stanza, from, to, position, handed_over, flow } => match flow {
                Flow::Stop(verdict) => self.apply_stop(&stanza, from.as_ref(), to.as_ref(), verdict, work),
                _ => {
                    work.handed_over = handed_over;
                    self.incoming_with_host(
                        Some(&position.host),
                        stanza,
                        from.as_ref(),
                        to.as_ref(),
                        position.index,
                        work,
                    );
                }
            },
            Continuation::OnNewPath { stanza, from, to } => {
                self.incoming(stanza, from.as_ref(), to.as_ref(), 0, work);
            }
            Continuation::Undelivered { stanza, from, to, position, flow } => match flow {
                Flow::Stop(verdict) => self.apply_stop(&stanza, from.as_ref(), to.as_ref(), verdict, work),
                _ => {
                    self.undelivered_with_host(
                        Some(position.host),
                        stanza,
                        from.as_ref(),
                        to.as_ref(),
                        position.index,
                        work,
                    );
                }
            },
            Continuation::Service { stanza, from, to, flow } => {
                self.apply_service_flow(&stanza, from.as_ref(), to.as_ref(), flow, work);
            }
            Continuation::Checked { account, stanza, from, to, trusted } => {
                self.deliver_checked(&account, stanza, from.as_ref(), to.as_ref(), trusted, work);
            }
            Continuation::Event { event, position, waiting } => {
                self.resume_waiting_event(event, position, waiting, work);
            }
            Continuation::Reply { reply, answer } => self.send_iq_reply(reply, answer, work),
            Continuation::Nothing => {}
        }
    }
}
