//! Stanzas to services: see [`crate::service`].
//!
//! # Pitfalls
//!
//! An error is never answered with an error: two services that refuse each other's stanzas would do so permanently.

use std::sync::Arc;

use jid::JidRef;
use stanza::{PresenceType, StanzaCondition, StanzaError, StanzaKind};

use super::iq_dispatch::RoutedIq;
use super::{Continuation, ResumedChain, RoutingWork, StanzaOrigin};
use crate::effect::Effects;
use crate::hooks::{DeferredDecision, Flow, OnFailure, StopReason};
use crate::host::Host;
use crate::iq::IqTarget;
use crate::metrics::{StanzaSource, kind_name};
use crate::node::Node;
use crate::service::{Service, ServiceCtx};
use crate::shared_stanza::SharedStanza;

impl Node {
    /// Handles a stanza to the address of a service or of one of its items. In a cluster, the node that owns the item does.
    pub fn handle_service_stanza(
        self: &Arc<Self>,
        (host, service): (&Arc<Host>, &Arc<Service>),
        stanza: SharedStanza,
        from: JidRef<'_>,
        to: JidRef<'_>,
        work: &mut RoutingWork,
    ) {
        let kind = stanza.kind();
        self.metrics.service_stanzas.inc([service.feature, kind_name(kind)]);
        let target = Service::target(to);
        // Who leaves must not stay in sight, and an answer is not its sender's idea: others could use up the rate with requests.
        let is_free = matches!(kind, StanzaKind::Presence(PresenceType::Unavailable))
            || matches!(kind, StanzaKind::Iq(_)) && !kind.is_request();
        if !is_free && !service.try_take_rate(self, from) {
            self.metrics.service_stanzas_limited.inc([service.feature, kind_name(kind)]);
            if !matches!(kind, StanzaKind::Presence(_)) {
                let error =
                    StanzaError::new(StanzaCondition::ResourceConstraint).text("too many stanzas; wait");
                self.bounce(&stanza, from, to, &error, work);
            }
            return;
        }
        // What another node has passed on is handled here, also if this one sees another owner.
        let peers = self.peers().filter(|_| work.origin != StanzaOrigin::Peer);
        let owner = peers.and_then(|peers| Some((peers, service.owner_hash(self, &stanza, to)?)));
        if owner.is_some_and(|(peers, hash)| peers.forward_service_stanza(self, &stanza, to, hash, work)) {
            return;
        }
        let is_relayed = target == IqTarget::ServiceItemResource || !kind.is_request();
        let handler = match kind {
            StanzaKind::Iq(_) if is_relayed && service.relayed_iq.is_some() => &service.relayed_iq,
            StanzaKind::Iq(_) => {
                // A response answers no request: services without relayed ones do not send any.
                if kind.is_request() {
                    let request = RoutedIq::of_stanza((host, Some(service)), target, &stanza, (from, to));
                    self.dispatch_iq(&request, work);
                }
                return;
            }
            StanzaKind::Message(_) => &service.message,
            StanzaKind::Presence(_) => &service.presence,
        };
        let Some(handler) = handler else {
            if matches!(kind, StanzaKind::Message(_)) {
                self.bounce(&stanza, from, to, &StanzaError::new(service.unhandled(target)), work);
            }
            return;
        };
        let mut effects = Effects::default();
        let may_wait = !work.origin.is_in_lane();
        let mut ctx = ServiceCtx {
            node: self,
            host,
            service,
            stanza: &stanza,
            from,
            to,
            may_wait,
            effects: &mut effects,
        };
        let flow = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| handler.handle(&mut ctx)));
        let flow = flow.unwrap_or_else(|_| {
            tracing::error!(service = service.feature, "a handler of a service panicked");
            Flow::Stop(StopReason::Refused(StanzaCondition::InternalServerError.into()))
        });
        work.effects.0.extend(effects.in_lanes(StanzaSource::Service).0);
        match flow {
            Flow::Wait(later) => {
                let later = DeferredDecision::new(later, (service.feature, "service"), OnFailure::Closed);
                let (from, to) = (from.to_jid(), to.to_jid());
                work.pending.push(Box::pin(async move {
                    let outcome = later.outcome().await;
                    let continuation = Continuation::Service { stanza, from, to, flow: outcome.flow };
                    ResumedChain { effects: outcome.effects.in_lanes(StanzaSource::Service), continuation }
                }));
            }
            flow => self.apply_service_flow(&stanza, from, to, flow, work),
        }
    }

    /// Returns a stanza that a service refused.
    pub(super) fn apply_service_flow(
        self: &Arc<Self>,
        stanza: &SharedStanza,
        from: JidRef<'_>,
        to: JidRef<'_>,
        flow: Flow,
        work: &mut RoutingWork,
    ) {
        if let Flow::Stop(StopReason::Refused(error)) = flow {
            self.bounce(stanza, from, to, &error, work);
        }
    }
}
