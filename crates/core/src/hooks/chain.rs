//! A frozen list of handlers for one point.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use stanza::{StanzaCondition, StanzaError};

use super::{DeferredOutcome, Flow, Interest, InterestProbe, OnFailure, Phase, Point, StopReason};

/// A handler for one point. A closure of the right type is one.
pub trait Handler<P: Point>: Send + Sync {
    /// Sees one stanza or event. Must not block.
    fn call(&self, ctx: &mut P::Ctx<'_>) -> Flow;
}

impl<P: Point, F> Handler<P> for F
where
    F: Fn(&mut P::Ctx<'_>) -> Flow + Send + Sync,
{
    fn call(&self, ctx: &mut P::Ctx<'_>) -> Flow {
        self(ctx)
    }
}

/// A registered handler.
pub struct HandlerEntry<P: Point> {
    /// The feature that registered it.
    pub owner: &'static str,
    /// Its phase.
    pub phase: Phase,
    /// What it wants to see.
    pub interest: Interest,
    /// The handler.
    pub run: Arc<dyn Handler<P>>,
}

/// All handlers of one point in their final order.
pub struct Chain<P: Point> {
    entries: Box<[HandlerEntry<P>]>,
    /// Union of the kinds that anyone wants: a chain nobody listens to costs one AND.
    kinds: u32,
}

impl<P: Point> Default for Chain<P> {
    fn default() -> Self {
        Chain { entries: Box::default(), kinds: 0 }
    }
}

/// How far a run came.
pub enum ChainResult {
    /// Every handler saw it.
    Done,
    /// A handler ended the chain.
    Stopped(StopReason),
    /// A handler waits; go on at `next` when `later` is there.
    Wait {
        /// Index of the handler behind the waiting one.
        next: usize,
        /// The slow answer.
        later: DeferredOutcome,
    },
}

impl<P: Point> Chain<P> {
    /// Freezes the handlers. They come in registry order; the sort by phase is stable.
    pub fn freeze(mut entries: Vec<HandlerEntry<P>>) -> Self {
        entries.sort_by_key(|e| e.phase);
        let kinds = entries.iter().fold(0, |all, e| all | e.interest.kinds.0);
        Chain { entries: entries.into(), kinds }
    }

    /// Whether any handler could want a stanza of this kind.
    pub fn may_want(&self, kind: stanza::StanzaKind) -> bool {
        self.kinds & kind.bit() != 0
    }

    /// Whether any handler wants this one.
    pub fn wants(&self, probe: &InterestProbe) -> bool {
        self.kinds & probe.kind != 0 && self.entries.iter().any(|entry| entry.interest.wants(probe))
    }

    /// Runs the handlers from index `at` on. A panic is caught here, once a handler, and treated as the phase says.
    pub fn run(&self, ctx: &mut P::Ctx<'_>, probe: &InterestProbe, at: usize) -> ChainResult {
        if self.kinds & probe.kind == 0 {
            return ChainResult::Done;
        }
        for (index, entry) in self.entries.iter().enumerate().skip(at) {
            if !entry.interest.wants(probe) {
                continue;
            }
            match catch_unwind(AssertUnwindSafe(|| entry.run.call(ctx))) {
                Ok(Flow::Next) => {}
                Ok(Flow::Stop(verdict)) => return ChainResult::Stopped(verdict),
                Ok(Flow::Wait(later)) => return ChainResult::Wait { next: index + 1, later },
                Err(_) => {
                    tracing::error!(feature = entry.owner, point = P::NAME, "a handler panicked");
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

    pub(super) fn describe(&self, out: &mut String) {
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
    use stanza::{MessageType, StanzaKind, StanzaKindSet};

    struct Numbers;
    impl Point for Numbers {
        type Ctx<'a> = Vec<u8>;
        const NAME: &'static str = "numbers";
    }

    fn entry(phase: Phase, kinds: StanzaKindSet, run: fn(&mut Vec<u8>) -> Flow) -> HandlerEntry<Numbers> {
        HandlerEntry { owner: "test", phase, interest: Interest::kinds(kinds), run: Arc::new(run) }
    }
    fn chat() -> InterestProbe {
        InterestProbe { kind: StanzaKind::Message(MessageType::Chat).bit(), payloads: 0, flags: 0 }
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
