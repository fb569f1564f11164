//! The drain of a node: what it owns and the sessions that can be resumed move to the other nodes, and the other streams end, at a rate.
//! XEP-0198 1.6.3, section 5; RFC 6120, section 4.9.3.19.
//!
//! Sessions move first, those without a connection as well. Their streams end with the error of the drain when the other node asks for
//! them, so a client that reconnects to any node at once finds its session. Then everything that is left ends: streams without
//! stream management, anonymous users, sessions that no node has taken in time. Without other nodes all streams end.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use cluster::NodeId;
use peers::session_transfer::offer_session;
use stanza::{StreamCondition, StreamError};
use throng_commands::shutdown::Drain;
use throng_core::Node;
use throng_core::session::Session;

/// Steps in a second.
const STEPS: u32 = 10;
/// Seconds after which an offered session has not moved: more than a transfer may take.
const OFFER_SECONDS: u32 = 8;
/// Maximum number of sessions that are offered and have not moved: other nodes and the transfer itself are bounded, too.
const MAX_OFFERED: usize = 512;

/// Empties the node.
pub(crate) async fn drain(node: &Arc<Node>, drain: &Drain) {
    let reason = match &drain.other_host {
        Some(host) => StreamError::see_other_host(host.as_str()),
        None => StreamError::new(StreamCondition::SystemShutdown),
    }
    .text("the node is being drained");
    node.cluster.begin_drain();
    streams::announce_drain(node, reason.clone());
    let mut pace = Pace::new(drain.streams_per_second);
    let moved = offer_sessions(node, &mut pace).await;
    if moved > 0 {
        tracing::info!(moved, "sessions have moved to other nodes");
    }
    end_streams(node, &mut pace, &reason).await;
}

/// How many streams may end in each step.
struct Pace {
    tick: tokio::time::Interval,
    streams_per_second: u32,
    due: u32,
}

impl Pace {
    fn new(streams_per_second: u32) -> Pace {
        let mut tick = tokio::time::interval(Duration::from_secs(1) / STEPS);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        Pace { tick, streams_per_second, due: 0 }
    }

    async fn next(&mut self) -> usize {
        self.tick.tick().await;
        self.due = self.due.saturating_add(self.streams_per_second);
        let now = self.due / STEPS;
        self.due %= STEPS;
        now as usize
    }
}

/// The members that can take sessions.
fn other_nodes(node: &Node) -> Vec<NodeId> {
    let own = node.cluster.node();
    let members = node.cluster.members().into_iter();
    members.filter(|member| member.node != own && !member.drains).map(|member| member.node).collect()
}

/// Offers all sessions that can be resumed to the other nodes in turn. Returns how many of them have left.
async fn offer_sessions(node: &Arc<Node>, pace: &mut Pace) -> usize {
    let mut left = VecDeque::new();
    node.routing_table.for_each(|account| {
        left.extend(
            account.sessions().into_iter().filter(|session| session.outbox.resumption_point().is_some()),
        );
    });
    let mut offered: Vec<(Arc<Session>, u32)> = Vec::new();
    let (mut turn, mut moved) = (0, 0);
    while !left.is_empty() || !offered.is_empty() {
        let (due, now) = (pace.next().await, node.seconds());
        offered.retain(|(session, deadline)| {
            moved += usize::from(session.is_ended());
            !session.is_ended() && now < *deadline
        });
        let others = other_nodes(node);
        if others.is_empty() {
            return moved;
        }
        let count = due.min(MAX_OFFERED.saturating_sub(offered.len())).min(left.len());
        for session in left.drain(..count) {
            turn = (turn + 1) % others.len();
            if others.get(turn).is_some_and(|to| offer_session(node, &session, *to)) {
                offered.push((session, now.saturating_add(OFFER_SECONDS)));
            }
        }
    }
    moved
}

/// Requests the end of all streams. Clients that log in again reach another node, because this one has no listeners and is not ready.
async fn end_streams(node: &Node, pace: &mut Pace, reason: &StreamError) {
    loop {
        let now = pace.next().await;
        // A connection may have arrived in between, so only an empty step is the end.
        if now > 0 && node.outboxes.close_some(now, reason) == 0 {
            return;
        }
    }
}
