//! The frozen chain of handlers of one hook point.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use stanza::{StanzaCondition, StanzaError};

use crate::{
    DeferredDecision, DeferredOutcome, Flow, Interest, InterestProbe, OnFailure, Phase, Point, StopReason,
};

/// Handler of one hook point, implemented by closures of the same signature.
pub trait Handler<P: Point>: Send + Sync {
    /// Handles one stanza or event. Must not block.
    fn call(&self, ctx: &mut P::Ctx<'_>) -> Flow<P::Effects>;
}

impl<P: Point, F> Handler<P> for F
where
    F: Fn(&mut P::Ctx<'_>) -> Flow<P::Effects> + Send + Sync,
{
    fn call(&self, ctx: &mut P::Ctx<'_>) -> Flow<P::Effects> {
        self(ctx)
    }
}

/// A registered handler.
pub struct HandlerEntry<P: Point> {
    /// The feature that registered it.
    pub owner: &'static str,
    /// Its phase.
    pub phase: Phase,
    /// The stanzas that it handles.
    pub interest: Interest,
    /// The handler.
    pub run: Arc<dyn Handler<P>>,
}

impl<P: Point> HandlerEntry<P> {
    /// Runs the handler. `None` if it panicked, which is logged.
    fn call(&self, ctx: &mut P::Ctx<'_>) -> Option<Flow<P::Effects>> {
        let flow = catch_unwind(AssertUnwindSafe(|| self.run.call(ctx)));
        if flow.is_err() {
            tracing::error!(feature = self.owner, point = P::NAME, "a handler panicked");
        }
        flow.ok()
    }

    fn defer(&self, later: DeferredOutcome<P::Effects>) -> DeferredDecision<P::Effects> {
        DeferredDecision::new(later, (self.owner, P::NAME), self.phase.on_failure())
    }
}

/// All handlers of one point in execution order.
pub struct Chain<P: Point> {
    entries: Box<[HandlerEntry<P>]>,
    /// Union of the kinds that any handler wants: a chain without interested handlers costs one AND.
    kinds: u32,
}

impl<P: Point> Default for Chain<P> {
    fn default() -> Self {
        Chain { entries: Box::default(), kinds: 0 }
    }
}

/// Result of running a chain.
pub enum ChainResult<E> {
    /// All handlers ran.
    Done,
    /// A handler stopped the chain.
    Stopped(StopReason),
    /// A handler deferred its outcome; continue at `next` when `later` completes.
    Wait {
        /// Index of the handler after the waiting one.
        next: usize,
        /// The deferred outcome.
        later: DeferredDecision<E>,
    },
}

impl<P: Point> Chain<P> {
    /// Builds a chain. Entries are in registry order, which the stable sort by phase preserves.
    pub fn freeze(mut entries: Vec<HandlerEntry<P>>) -> Self {
        entries.sort_by_key(|e| e.phase);
        let kinds = entries.iter().fold(0, |all, e| all | e.interest.kinds.0);
        Chain { entries: entries.into(), kinds }
    }

    /// Whether any handler may want a stanza of this kind.
    pub fn may_want(&self, kind: stanza::StanzaKind) -> bool {
        self.kinds & kind.bit() != 0
    }

    /// Whether any handler wants this stanza.
    pub fn wants(&self, probe: &InterestProbe) -> bool {
        self.kinds & probe.kind != 0 && self.entries.iter().any(|entry| entry.interest.wants(probe))
    }

    /// Runs the handlers from index `at`. The panic of a handler is caught and treated as its phase defines.
    pub fn run(&self, ctx: &mut P::Ctx<'_>, probe: &InterestProbe, at: usize) -> ChainResult<P::Effects> {
        if self.kinds & probe.kind == 0 {
            return ChainResult::Done;
        }
        for (index, entry) in self.entries.iter().enumerate().skip(at) {
            if !entry.interest.wants(probe) {
                continue;
            }
            match entry.call(ctx) {
                Some(Flow::Next) => {}
                Some(Flow::Stop(verdict)) => return ChainResult::Stopped(verdict),
                Some(Flow::Wait(later)) => {
                    return ChainResult::Wait { next: index + 1, later: entry.defer(later) };
                }
                None => {
                    if entry.phase.on_failure() == OnFailure::Closed {
                        return ChainResult::Stopped(StopReason::Refused(StanzaError::new(
                            StanzaCondition::InternalServerError,
                        )));
                    }
                }
            }
        }
        ChainResult::Done
    }

    /// Runs the handlers of an event from index `at`. No handler can stop the others, not even one that panics, because
    /// the event has happened. Returns the index after a handler that waits, and its deferred outcome.
    pub fn run_event(
        &self,
        ctx: &mut P::Ctx<'_>,
        at: usize,
    ) -> Option<(usize, DeferredDecision<P::Effects>)> {
        for (index, entry) in self.entries.iter().enumerate().skip(at) {
            if let Some(Flow::Wait(later)) = entry.call(ctx) {
                return Some((index + 1, entry.defer(later)));
            }
        }
        None
    }

    /// Appends the execution order, one handler a line: `point phase owner`.
    pub fn describe(&self, out: &mut String) {
        for entry in &self.entries {
            out.push_str(P::NAME);
            out.push(' ');
            out.push_str(entry.phase.name());
            out.push(' ');
            out.push_str(entry.owner);
            out.push('\n');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HandlerOutcome;
    use stanza::{MessageType, StanzaKind, StanzaKindSet};

    struct Numbers;
    impl Point for Numbers {
        type Ctx<'a> = Vec<u8>;
        type Effects = ();
        const NAME: &'static str = "numbers";
    }

    fn entry(phase: Phase, kinds: StanzaKindSet, run: fn(&mut Vec<u8>) -> Flow<()>) -> HandlerEntry<Numbers> {
        HandlerEntry { owner: "test", phase, interest: Interest::kinds(kinds), run: Arc::new(run) }
    }

    fn chat() -> InterestProbe {
        InterestProbe {
            kind: StanzaKind::Message(MessageType::Chat).bit(),
            payloads: stanza::PayloadSet::NONE,
            flags: 0,
        }
    }

    #[test]
    fn phases_first_then_registry_order_and_interest_skips() {
        let chain = Chain::freeze(vec![
            entry(Phase::Copy, StanzaKindSet::ALL, |v| {
                v.push(3);
                Flow::Stop(StopReason::Consumed)
            }),
            entry(Phase::Stamp, StanzaKindSet::ALL, |v| {
                v.push(1);
                Flow::Next
            }),
            entry(Phase::Stamp, StanzaKindSet::ALL, |v| {
                v.push(2);
                Flow::Next
            }),
            entry(Phase::Stamp, StanzaKindSet::IQS, |v| {
                v.push(9);
                Flow::Next
            }),
            entry(Phase::Notify, StanzaKindSet::ALL, |v| {
                v.push(4);
                Flow::Next
            }),
        ]);
        let mut seen = Vec::new();
        assert!(matches!(chain.run(&mut seen, &chat(), 0), ChainResult::Stopped(StopReason::Consumed)));
        assert_eq!(seen, [1, 2, 3]);
    }

    #[test]
    fn no_handler_of_an_event_stops_the_others() {
        let chain = Chain::freeze(vec![
            entry(Phase::Police, StanzaKindSet::ALL, |_| panic!("x")),
            entry(Phase::Rewrite, StanzaKindSet::ALL, |v| {
                v.push(1);
                Flow::Stop(StopReason::Consumed)
            }),
            entry(Phase::Archive, StanzaKindSet::ALL, |v| {
                v.push(2);
                Flow::Wait(Box::pin(std::future::ready(HandlerOutcome::next())))
            }),
            entry(Phase::Notify, StanzaKindSet::ALL, |v| {
                v.push(3);
                Flow::Next
            }),
        ]);
        let mut seen = Vec::new();
        let (next, _) = chain.run_event(&mut seen, 0).expect("a handler waits");
        assert_eq!(seen, [1, 2]);
        assert!(chain.run_event(&mut seen, next).is_none());
        assert_eq!(seen, [1, 2, 3]);
    }

    #[test]
    fn a_panic_in_police_refuses_and_in_copy_is_skipped() {
        let closed = Chain::freeze(vec![entry(Phase::Police, StanzaKindSet::ALL, |_| panic!("x"))]);
        assert!(matches!(
            closed.run(&mut Vec::new(), &chat(), 0),
            ChainResult::Stopped(StopReason::Refused(_))
        ));
        let open = Chain::freeze(vec![entry(Phase::Copy, StanzaKindSet::ALL, |_| panic!("x"))]);
        assert!(matches!(open.run(&mut Vec::new(), &chat(), 0), ChainResult::Done));
    }
}
