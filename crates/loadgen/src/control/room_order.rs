//! Order of a room's messages, from what its occupants at all workers received.
//!
//! Each occupant that received one message directly after another votes for that succession. The order satisfies all
//! successions if they do not contradict each other, as with copies that are lost; where they do, the one with fewer
//! votes yields, so that an occupant with swapped copies deviates from the order and not the others from it.
//!
//! # Pitfalls
//!
//! Messages that nobody received in succession with others have no order between them; the time of sending decides.

use std::collections::BTreeSet;

use hashbrown::HashMap;

use super::room_report::{NONE, RoomReport};

/// Sending worker and number of a message.
pub(crate) type RoomMessageKey = (u16, u32);

/// The messages of a room in their order.
#[derive(Default)]
pub(crate) struct RoomOrder {
    pub(crate) keys: Vec<RoomMessageKey>,
    /// By position: lower positions that an occupant received directly before. Only these prove an order.
    pub(crate) previous: Vec<Vec<usize>>,
}

/// Order of the messages in the logs of one room. `sent_at` is the time at which a message was sent, if it is known.
pub(crate) fn order(logs: &[&RoomReport], sent_at: impl Fn(RoomMessageKey) -> Option<u64>) -> RoomOrder {
    let mut graph = SuccessionGraph::default();
    for report in logs {
        let nodes: Vec<usize> = report.log.iter().map(|it| graph.node((it.worker, it.number))).collect();
        let mut vote = |previous: u32, node: usize, votes: u32| {
            if previous != NONE
                && let Some(previous) = nodes.get(previous as usize)
            {
                graph.vote(*previous, node, votes);
            }
        };
        for (message, node) in report.log.iter().zip(&nodes) {
            vote(message.previous, *node, message.count);
        }
        for (previous, position) in report.stays.iter().flat_map(|stay| &stay.deviations) {
            if let Some(node) = nodes.get(*position as usize) {
                vote(*previous, *node, 1);
            }
        }
    }
    graph.sorted(sent_at)
}

/// Messages and the votes for successions of two.
#[derive(Default)]
struct SuccessionGraph {
    keys: Vec<RoomMessageKey>,
    by_key: HashMap<RoomMessageKey, usize>,
    votes: HashMap<(usize, usize), u32>,
}

/// State of a message while the order is built.
#[derive(Clone, Default)]
struct MessageNode {
    next: Vec<(usize, u32)>,
    /// Predecessors that are not placed yet, and the votes for them.
    open: u32,
    open_votes: u64,
    placed: bool,
}

impl SuccessionGraph {
    fn node(&mut self, key: RoomMessageKey) -> usize {
        let keys = &mut self.keys;
        *self.by_key.entry(key).or_insert_with(|| {
            keys.push(key);
            keys.len() - 1
        })
    }

    fn vote(&mut self, previous: usize, node: usize, votes: u32) {
        if previous != node {
            *self.votes.entry((previous, node)).or_default() += votes;
        }
    }

    fn sorted(self, sent_at: impl Fn(RoomMessageKey) -> Option<u64>) -> RoomOrder {
        let mut nodes = vec![MessageNode::default(); self.keys.len()];
        for ((previous, node), votes) in &self.votes {
            nodes[*previous].next.push((*node, *votes));
            nodes[*node].open += 1;
            nodes[*node].open_votes += u64::from(*votes);
        }
        let rank = |node: usize| (sent_at(self.keys[node]).unwrap_or(0), self.keys[node], node);
        let mut ready: BTreeSet<_> =
            (0..nodes.len()).filter(|node| nodes[*node].open == 0).map(rank).collect();
        // Not ready, but with a placed predecessor: candidates where successions contradict each other.
        let mut begun = BTreeSet::new();
        let mut left: BTreeSet<usize> = (0..nodes.len()).collect();
        let mut order = Vec::with_capacity(nodes.len());
        while order.len() < nodes.len() {
            let least = |node: &usize| (nodes[*node].open_votes, rank(*node));
            let candidate = ready.pop_first().map(|(.., node)| node);
            let Some(node) = candidate
                .or_else(|| begun.iter().copied().min_by_key(least))
                .or_else(|| left.iter().copied().min_by_key(least))
            else {
                break;
            };
            begun.remove(&node);
            left.remove(&node);
            nodes[node].placed = true;
            order.push(node);
            for (next, votes) in std::mem::take(&mut nodes[node].next) {
                let follower = &mut nodes[next];
                if follower.placed {
                    continue;
                }
                follower.open -= 1;
                follower.open_votes -= u64::from(votes);
                if follower.open == 0 {
                    begun.remove(&next);
                    ready.insert(rank(next));
                } else {
                    begun.insert(next);
                }
            }
        }
        let mut positions = vec![0; order.len()];
        for (position, node) in order.iter().enumerate() {
            positions[*node] = position;
        }
        let mut previous = vec![Vec::new(); order.len()];
        for (before, after) in
            self.votes.keys().map(|(before, after)| (positions[*before], positions[*after]))
        {
            if before < after {
                previous[after].push(before);
            }
        }
        RoomOrder { keys: order.into_iter().map(|node| self.keys[node]).collect(), previous }
    }
}

#[cfg(test)]
mod tests {
    use super::order;
    use crate::control::room_report::{LoggedRoomMessage, NONE, RoomReport, RoomStay};

    /// Log with these messages of worker 0, in this order, each seen `count` times after the one before it.
    fn report(numbers: &[u32], count: u32, deviations: &[(u32, u32)]) -> RoomReport {
        let log = numbers.iter().zip(0_u32..).map(|(number, at)| LoggedRoomMessage {
            worker: 0,
            number: *number,
            previous: at.checked_sub(1).unwrap_or(NONE),
            count,
        });
        let stay =
            RoomStay { joined_at: 0, first: 0, last: 0, to_the_end: true, deviations: deviations.to_vec() };
        RoomReport { log: log.collect(), stays: vec![stay], ..RoomReport::default() }
    }

    fn numbers(reports: &[RoomReport]) -> Vec<u32> {
        let reports: Vec<&RoomReport> = reports.iter().collect();
        let order = order(&reports, |(_, number)| Some(u64::from(number)));
        order.keys.into_iter().map(|(_, number)| number).collect()
    }

    #[test]
    fn messages_that_one_worker_did_not_receive_are_placed_by_the_other() {
        let all = [report(&[5, 1, 3, 2], 9, &[]), report(&[5, 3, 2, 4], 20, &[])];
        assert_eq!(numbers(&all), [5, 1, 3, 2, 4]);
        assert_eq!(numbers(&[]), [0_u32; 0]);
    }

    #[test]
    fn the_majority_decides_between_contradictions() {
        // Of the second worker's users all received 2 before 1; there are fewer of them.
        let all = [report(&[0, 1, 2, 3], 9, &[]), report(&[0, 2, 1, 3], 4, &[])];
        assert_eq!(numbers(&all), [0, 1, 2, 3]);
        let all = [report(&[0, 1, 2, 3], 9, &[]), report(&[0, 2, 1, 3], 40, &[])];
        assert_eq!(numbers(&all), [0, 2, 1, 3]);
        // One user with swapped copies: 2 after 0, 1 after 2, 3 after 1.
        assert_eq!(numbers(&[report(&[0, 1, 2, 3], 2, &[(0, 2), (2, 1), (1, 3)])]), [0, 1, 2, 3]);
    }

    #[test]
    fn contradictions_without_a_beginning_end_as_well() {
        let mut circle = report(&[0, 1, 2], 1, &[(2, 0)]);
        circle.log[0].previous = 2;
        let mut found = numbers(&[circle]);
        found.sort_unstable();
        assert_eq!(found, [0, 1, 2]);
    }
}
