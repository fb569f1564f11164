//! Feature of tests that records where the recipient's chain begins for a message, and lets some messages wait in it.
//!
//! The records are those of the thread, since a test with [`testkit::TestNodes`] has only one.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::task::Poll;

use base::TimeOrderedId;
use cluster::NodeId;
use feature_api::feature::{Feature, FeatureBuilder};
use features::registry::ALL;
use stanza::{MessageType, StanzaKind, StanzaKindSet};
use throng_core::hooks::{Flow, HandlerOutcome, IncomingCtx, Interest, Phase};

/// End of the ids of messages that wait.
pub const SLOW: &str = "-slow";
/// Polls after which a message has waited long enough.
const POLLS: u32 = 3;

/// The feature.
pub static CHAIN_OBSERVER: Feature = Feature { name: "chain_observer", build, ..Feature::EMPTY };

/// A run of the recipient's chain.
#[derive(Debug, PartialEq, Eq)]
pub struct ChainRun {
    /// Where it ran.
    pub node: NodeId,
    /// The id that the node which handed the message over has given it.
    pub given_id: Option<TimeOrderedId>,
}

/// Every feature, after the one that counts runs of the recipient's chain.
pub fn observed_features() -> Vec<&'static Feature> {
    std::iter::once(&CHAIN_OBSERVER).chain(ALL.iter().copied()).collect()
}

/// Runs by the message's id.
pub type ChainRuns = BTreeMap<String, Vec<ChainRun>>;

thread_local! {
    static RUNS: RefCell<ChainRuns> = const { RefCell::new(BTreeMap::new()) };
}

/// Returns and clears the runs; those of errors are not recorded.
pub fn take_runs() -> ChainRuns {
    RUNS.take()
}

fn id(ctx: &IncomingCtx<'_>) -> Option<String> {
    let is_error = ctx.stanza.kind() == StanzaKind::Message(MessageType::Error);
    let id = ctx.stanza.head().id(ctx.stanza.bytes()).map(|id| id.to_string());
    id.filter(|_| !is_error)
}

fn build(b: &mut FeatureBuilder<'_>) {
    let messages = Interest::kinds(StanzaKindSet::MESSAGES);
    b.incoming(Phase::Stamp, messages, |ctx: &mut IncomingCtx<'_>| {
        if let Some(id) = id(ctx) {
            let run = ChainRun { node: ctx.node.cluster.node(), given_id: ctx.stanza_id };
            RUNS.with_borrow_mut(|runs| runs.entry(id).or_default().push(run));
        }
        Flow::Next
    });
    b.incoming(Phase::Rewrite, messages, |ctx: &mut IncomingCtx<'_>| {
        if !id(ctx).is_some_and(|id| id.ends_with(SLOW)) {
            return Flow::Next;
        }
        let mut polls = 0;
        Flow::Wait(Box::pin(async move {
            std::future::poll_fn(|_| {
                polls += 1;
                if polls == POLLS { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            HandlerOutcome::next()
        }))
    });
}
