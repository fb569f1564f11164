//! Final account of room messages: exact numbers of lost and reordered copies.
//!
//! A message is *accepted* if at least one occupant received it. A copy of it is *lost* if an occupant was in the room
//! when the room handled the message and has not received it. This must be certain:
//!
//! - it was in the room *before* the message, which was sent after its self-presence had arrived, or which follows one of
//!   its copies in the order of the room;
//! - it was in the room *after* the message, which precedes one of its copies, or it stayed until the end of the run.
//!
//! A message follows another one if an occupant received them in succession, or through others
//! ([`super::room_order`]). So messages on their way while an occupant joins or leaves are neither required nor refused.
//!
//! A copy is *reordered* if its occupant received a later message of the room before it. The order of each sender is
//! checked independently: a copy is out of it if its occupant received a later message of the same sender before.
//!
//! # Pitfalls
//!
//! Times of sending are compared with those of joining on one clock only. Between machines, copies that are missing before
//! the first one of an occupant are not counted.

use std::collections::BTreeMap;

use hashbrown::HashMap;

use super::message::FinalReport;
use super::room_order::{RoomMessageKey, RoomOrder, order};
use super::room_report::{RoomReport, RoomStay};

/// Account of all rooms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoomAccount {
    /// Copies of accepted messages that occupants did not receive.
    pub lost: u64,
    /// Copies out of the order of the room.
    pub reordered: u64,
    /// Copies out of the order of their sender.
    pub sender_reordered: u64,
    /// Messages that were not returned and reached nobody.
    pub unreceived: u64,
    /// The account lacks deviations that were too many to be listed.
    pub incomplete: bool,
}

/// Computes it from the last reports, by worker. `clocks` are the clock domains of the workers. Messages of a worker
/// without a report are known from the copies that others received.
pub fn account(reports: &[Option<FinalReport>], clocks: &[u16]) -> RoomAccount {
    account_of(reports, clocks, false)
}

/// The same of all PubSub nodes, whose subscriptions are stays and whose items are messages.
pub fn account_of_nodes(reports: &[Option<FinalReport>], clocks: &[u16]) -> RoomAccount {
    account_of(reports, clocks, true)
}

fn account_of(reports: &[Option<FinalReport>], clocks: &[u16], is_node: bool) -> RoomAccount {
    let mut account = RoomAccount::default();
    let mut rooms: BTreeMap<u64, Vec<(u16, &RoomReport)>> = BTreeMap::new();
    for (worker, report) in (0_u16..).zip(reports) {
        let Some(report) = report else { continue };
        account.incomplete |= report.rooms_incomplete;
        for room in report.rooms.iter().filter(|room| room.is_node == is_node) {
            rooms.entry(room.room).or_default().push((worker, room));
        }
    }
    for logs in rooms.values() {
        RoomComparison::new(logs, clocks).add_to(&mut account);
    }
    account
}

/// Comparison of the occupants of one room.
struct RoomComparison<'r> {
    logs: &'r [(u16, &'r RoomReport)],
    clocks: &'r [u16],
    order: RoomOrder,
    positions: HashMap<RoomMessageKey, usize>,
}

/// First and last position of a stay, and its deviations.
type CopySequence<'r> = (u32, u32, &'r [(u32, u32)]);

/// What occupants with the same sequence of copies have in common.
struct ReceivedCopies {
    count: usize,
    reordered: u64,
    sender_reordered: u64,
}

impl<'r> RoomComparison<'r> {
    fn new(logs: &'r [(u16, &'r RoomReport)], clocks: &'r [u16]) -> Self {
        let all: Vec<&RoomReport> = logs.iter().map(|(_, report)| *report).collect();
        let mut comparison = Self { logs, clocks, order: RoomOrder::default(), positions: HashMap::new() };
        let order = order(&all, |key| comparison.sent(key).map(|sent| sent.1));
        comparison.positions = order.keys.iter().zip(0..).map(|(key, position)| (*key, position)).collect();
        comparison.order = order;
        comparison
    }

    /// Sender of a message and the time of sending.
    fn sent(&self, (worker, number): RoomMessageKey) -> Option<(u32, u64)> {
        let (_, report) = self.logs.iter().find(|(sending, _)| *sending == worker)?;
        report.sent.get(number as usize).map(|sent| (sent.sender, sent.at))
    }

    fn add_to(&self, account: &mut RoomAccount) {
        for (worker, report) in self.logs {
            let mut known: HashMap<CopySequence<'_>, ReceivedCopies> = HashMap::new();
            for stay in &report.stays {
                let copies = known
                    .entry((stay.first, stay.last, &stay.deviations))
                    .or_insert_with(|| self.received(report, stay));
                account.reordered += copies.reordered;
                account.sender_reordered += copies.sender_reordered;
                if copies.count < self.order.keys.len() {
                    account.lost += self.lost(*worker, report, stay);
                }
            }
            let received = |number: usize| {
                u32::try_from(number).is_ok_and(|number| self.positions.contains_key(&(*worker, number)))
            };
            let unreceived = report.sent.iter().enumerate();
            account.unreceived +=
                unreceived.filter(|(number, sent)| !sent.refused && !received(*number)).count() as u64;
        }
    }

    fn received(&self, report: &RoomReport, stay: &RoomStay) -> ReceivedCopies {
        let mut copies = ReceivedCopies { count: 0, reordered: 0, sender_reordered: 0 };
        let mut last = None;
        let mut newest: HashMap<(u16, u32), u32> = HashMap::new();
        for at in report.sequence(stay) {
            let message = &report.log[at as usize];
            let key = (message.worker, message.number);
            let Some(position) = self.positions.get(&key).copied() else { continue };
            copies.count += 1;
            copies.reordered += u64::from(Some(position) < last);
            last = last.max(Some(position));
            if let Some((sender, _)) = self.sent(key) {
                let newest = newest.entry((key.0, sender)).or_insert(key.1);
                copies.sender_reordered += u64::from(key.1 < *newest);
                *newest = (*newest).max(key.1);
            }
        }
        copies
    }

    /// Number of messages that were handled while the occupant was in the room and that it has not received.
    fn lost(&self, worker: u16, report: &RoomReport, stay: &RoomStay) -> u64 {
        let RoomOrder { keys, previous } = &self.order;
        let mut received = vec![false; keys.len()];
        for at in report.sequence(stay) {
            let message = &report.log[at as usize];
            if let Some(position) = self.positions.get(&(message.worker, message.number)) {
                received[*position] = true;
            }
        }
        let clock = self.clocks.get(usize::from(worker));
        let sent_later = |key: RoomMessageKey| {
            self.clocks.get(usize::from(key.0)) == clock
                && self.sent(key).is_some_and(|(_, sent_at)| sent_at >= stay.joined_at)
        };
        // Positions that are copies of the occupant, or that are known to follow or precede one.
        let mut follows = received.clone();
        for position in 0..keys.len() {
            follows[position] |= previous[position].iter().any(|before| follows[*before]);
        }
        let mut precedes = received.clone();
        for position in (0..keys.len()).rev().filter(|_| !stay.to_the_end) {
            if precedes[position] {
                previous[position].iter().for_each(|before| precedes[*before] = true);
            }
        }
        let is_lost = |position: &usize| {
            !received[*position]
                && (stay.to_the_end || precedes[*position])
                && (follows[*position] || sent_later(keys[*position]))
        };
        (0..keys.len()).filter(is_lost).count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::{RoomAccount, account};
    use crate::control::message::FinalReport;
    use crate::engine::RoomTable;

    const ROOM: &str = "lobby@conference.load.test";

    /// An occupant: the time of its self-presence, whether it stayed, and the copies that it received.
    struct TestStay<'a>(u64, bool, &'a [(u16, u32)]);

    /// Report of a worker that sent one message at each of these times, of these senders.
    fn worker(sent: &[(u32, u64)], occupants: &[TestStay<'_>]) -> Option<FinalReport> {
        let mut table = RoomTable::new();
        let room = table.room(ROOM);
        for (sender, at) in sent {
            table.number(room, *sender, *at);
        }
        for TestStay(joined_at, to_the_end, copies) in occupants {
            let mut cursor = table.begin(room);
            for (worker, number) in *copies {
                table.arrive(room, &mut cursor, *worker, *number);
            }
            table.end(room, cursor, *joined_at, *to_the_end);
        }
        Some(FinalReport { rooms: table.reports(), ..FinalReport::default() })
    }

    const SENT: &[(u32, u64)] = &[(0, 10), (1, 20), (0, 30), (1, 40)];
    const ALL: &[(u16, u32)] = &[(0, 0), (0, 1), (0, 2), (0, 3)];

    fn alone(occupants: &[TestStay<'_>]) -> RoomAccount {
        account(&[worker(SENT, occupants)], &[0])
    }

    #[test]
    fn copies_between_joining_and_leaving_are_required() {
        let whole = TestStay(5, true, ALL);
        // Joined while the first message was on its way, which came before its self-presence.
        let late = TestStay(15, true, &ALL[1..]);
        // Joined before it was sent, so it lacks it.
        let lost_first = TestStay(5, true, &ALL[1..]);
        // Left: whether the room had handled the last two is unknown.
        let left = TestStay(5, false, &ALL[..2]);
        let lost_last = TestStay(5, true, &ALL[..2]);
        let lost_inside = TestStay(5, false, &[(0, 0), (0, 3)]);
        let nothing = TestStay(25, true, &[]);
        let left_without = TestStay(5, false, &[]);
        for (occupant, lost) in [
            (late, 0),
            (lost_first, 1),
            (left, 0),
            (lost_last, 2),
            (lost_inside, 2),
            (nothing, 2),
            (left_without, 0),
        ] {
            let copies = occupant.2;
            let found = alone(&[TestStay(whole.0, whole.1, whole.2), occupant]);
            assert_eq!(found, RoomAccount { lost, ..RoomAccount::default() }, "{copies:?}");
        }
    }

    #[test]
    fn messages_without_a_known_place_are_not_lost_for_occupants_that_left() {
        // Somebody received the third message alone: it may have come before or after the stay of the others.
        let alone_with = |at: usize| TestStay(5, false, &ALL[at..=at]);
        let around = || TestStay(35, false, &[(0, 1), (0, 3)]);
        assert_eq!(
            alone(&[around(), alone_with(2)]),
            RoomAccount { unreceived: 1, ..RoomAccount::default() }
        );
        // Who stayed to the end and was there when it was sent must have received it.
        let to_the_end = TestStay(25, true, &[(0, 1), (0, 3)]);
        let expected = RoomAccount { lost: 1, unreceived: 1, ..RoomAccount::default() };
        assert_eq!(alone(&[to_the_end, alone_with(2)]), expected);
    }

    #[test]
    fn the_first_reader_may_be_the_one_with_the_fault() {
        let whole = || TestStay(5, true, ALL);
        let dropped = || TestStay(5, true, &[(0, 0), (0, 2), (0, 3)]);
        let swapped = || TestStay(5, true, &[(0, 0), (0, 2), (0, 1), (0, 3)]);
        let one = RoomAccount { lost: 1, ..RoomAccount::default() };
        assert_eq!(alone(&[dropped(), whole()]), one);
        assert_eq!(alone(&[dropped(), whole(), whole()]), one);
        assert_eq!(alone(&[whole(), dropped(), whole()]), one);
        let one = RoomAccount { reordered: 1, ..RoomAccount::default() };
        assert_eq!(alone(&[swapped(), whole(), whole()]), one);
        assert_eq!(alone(&[whole(), whole(), swapped()]), one);
        // The two differ and neither is right; one of them is counted.
        assert_eq!(alone(&[whole(), swapped()]), one);
        assert_eq!(alone(&[swapped(), whole()]), one);
    }

    #[test]
    fn the_order_of_a_sender_is_checked_although_all_occupants_agree() {
        let copies: &[(u16, u32)] = &[(0, 2), (0, 0), (0, 1), (0, 3)];
        let found = alone(&[TestStay(5, true, copies), TestStay(5, true, copies)]);
        assert_eq!(found, RoomAccount { sender_reordered: 2, ..RoomAccount::default() });
    }

    #[test]
    fn messages_that_reach_nobody_are_not_accepted() {
        let found = alone(&[TestStay(5, true, &ALL[..3]), TestStay(5, true, &ALL[1..3])]);
        assert_eq!(found, RoomAccount { lost: 1, unreceived: 1, ..RoomAccount::default() });
    }

    #[test]
    fn occupants_of_different_workers_are_compared() {
        let both: &[(u16, u32)] = &[(0, 0), (1, 0), (0, 1), (1, 1)];
        let other: &[(u16, u32)] = &[(0, 0), (0, 1), (1, 0), (1, 1)];
        let sent = [(0, 10), (0, 20)];
        let many = [TestStay(5, true, both), TestStay(5, true, both)];
        let reports = |copies| [worker(&sent, &many), worker(&sent, &[TestStay(5, true, copies)])];
        assert_eq!(account(&reports(both), &[0, 0]), RoomAccount::default());
        let one = RoomAccount { reordered: 1, ..RoomAccount::default() };
        assert_eq!(account(&reports(other), &[0, 0]), one);
        // The first copy of the other worker's user is missing.
        let one = RoomAccount { lost: 1, ..RoomAccount::default() };
        assert_eq!(account(&reports(&both[1..]), &[0, 0]), one);
        // Its clock is another one, so it may have joined later.
        assert_eq!(account(&reports(&both[1..]), &[0, 1]), RoomAccount::default());
        // A worker that has died leaves the copies of its messages.
        let [first, _] = reports(both);
        assert_eq!(account(&[first, None], &[0, 0]), RoomAccount::default());
    }
}
