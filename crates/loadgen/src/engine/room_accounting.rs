//! Accounting of room messages at one worker: which copies its users received, and in which order.
//!
//! Each room has a log of its messages in the order in which the first occupant received each, with the message that
//! came before it. A copy that continues an occupant's sequence as the log does costs two comparisons and a count;
//! any other is a deviation, which is listed. The controller compares all occupants at the end
//! ([`crate::control::room_accounting`]).
//!
//! Memory: 16 bytes for each message and worker, 24 for each one sent, 20 for each occupant, 12 for each deviation.
//!
//! # Pitfalls
//!
//! The log is not the order of the room: if its first reader missed a message, the others deviate from it. Losses can be
//! counted only when all logs are known.

use hashbrown::HashMap;

use super::room_message_id::room_hash;
use crate::control::room_report::{LoggedRoomMessage, NONE, RoomReport, RoomStay, SentRoomMessage};

/// Numbers that a message may be ahead of those seen before.
const MAX_NUMBERS_AHEAD: u32 = 1 << 20;
/// Maximum number of deviations and missing copies that are listed; beyond it the account is incomplete.
const MAX_DEVIATIONS: usize = 2_000_000;

/// Position of a room in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RoomIndex(u32);

/// Classification of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyKind {
    /// The occupant's first copy of the message.
    New,
    /// A further one.
    Duplicate,
    /// Impossible number; not counted.
    Invalid,
}

/// Progress of one occupant in a room's log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StayCursor {
    /// Number of the stay in its room.
    stay: u32,
    /// Position of the first received message, and of the last.
    first: u32,
    last: u32,
    /// Lowest and highest received position.
    low: u32,
    high: u32,
}

impl StayCursor {
    /// Cursor of an occupant that has not joined.
    pub(crate) const EMPTY: Self = Self { stay: NONE, first: NONE, last: NONE, low: NONE, high: NONE };
}

#[derive(Default)]
struct RoomLog {
    address: Box<str>,
    hash: u64,
    is_node: bool,
    sent: Vec<SentRoomMessage>,
    log: Vec<LoggedRoomMessage>,
    /// Position in the log, by sending worker and number; [`NONE`] if it has not arrived.
    positions: Vec<Vec<u32>>,
    /// Ended stays, with their numbers.
    stays: Vec<(u32, RoomStay)>,
    next_stay: u32,
    /// Stay, position of the previous message, position.
    deviations: Vec<(u32, u32, u32)>,
    /// By stay: positions between the lowest and the highest that the occupant has not received.
    missing: HashMap<u32, Vec<u32>>,
}

/// All rooms of a worker.
pub(crate) struct RoomTable {
    rooms: Vec<RoomLog>,
    by_hash: HashMap<u64, RoomIndex>,
    deviations: usize,
    /// A bound was reached.
    pub(crate) incomplete: bool,
}

impl RoomTable {
    pub(crate) fn new() -> Self {
        Self { rooms: Vec::new(), by_hash: HashMap::new(), deviations: 0, incomplete: false }
    }

    /// The room with this bare address, in lower case.
    pub(crate) fn room(&mut self, address: &str) -> RoomIndex {
        let hash = room_hash(address);
        let rooms = &mut self.rooms;
        *self.by_hash.entry(hash).or_insert_with(|| {
            rooms.push(RoomLog { address: address.into(), hash, ..RoomLog::default() });
            RoomIndex(rooms.len() as u32 - 1)
        })
    }

    /// The PubSub node with this address: the service, with the node's name as resource.
    pub(crate) fn node(&mut self, address: &str) -> RoomIndex {
        let node = self.room(address);
        self.rooms[node.0 as usize].is_node = true;
        node
    }

    /// Address of a room.
    pub(crate) fn address(&self, room: RoomIndex) -> &str {
        &self.rooms[room.0 as usize].address
    }

    /// Hash of a room's address.
    pub(crate) fn hash(&self, room: RoomIndex) -> u64 {
        self.rooms[room.0 as usize].hash
    }

    /// Assigns the number of a message of `sender`, sent at `at`.
    pub(crate) fn number(&mut self, room: RoomIndex, sender: u32, at: u64) -> u32 {
        let sent = &mut self.rooms[room.0 as usize].sent;
        sent.push(SentRoomMessage { sender, at, refused: false });
        sent.len() as u32 - 1
    }

    /// Records that the room returned a message. False if it has been returned before, or was never sent.
    pub(crate) fn refuse(&mut self, hash: u64, number: u32) -> bool {
        let Some(room) = self.by_hash.get(&hash) else { return false };
        let message = self.rooms[room.0 as usize].sent.get_mut(number as usize);
        message.is_some_and(|message| !std::mem::replace(&mut message.refused, true))
    }

    /// Starts a stay.
    pub(crate) fn begin(&mut self, room: RoomIndex) -> StayCursor {
        let record = &mut self.rooms[room.0 as usize];
        let stay = record.next_stay;
        record.next_stay += 1;
        StayCursor { stay, ..StayCursor::EMPTY }
    }

    /// Ends a stay that began at `joined_at`.
    pub(crate) fn end(&mut self, room: RoomIndex, cursor: StayCursor, joined_at: u64, to_the_end: bool) {
        let record = &mut self.rooms[room.0 as usize];
        record.missing.remove(&cursor.stay);
        let StayCursor { stay, first, last, .. } = cursor;
        let ended = RoomStay { joined_at, first, last, to_the_end, deviations: Vec::new() };
        record.stays.push((stay, ended));
    }

    /// Records a copy for an occupant.
    #[inline]
    pub(crate) fn arrive(
        &mut self,
        room: RoomIndex,
        cursor: &mut StayCursor,
        worker: u16,
        number: u32,
    ) -> CopyKind {
        let record = &mut self.rooms[room.0 as usize];
        let next = if cursor.high == NONE { NONE } else { cursor.high + 1 };
        let is_next =
            record.log.get(next as usize).is_some_and(|it| it.worker == worker && it.number == number);
        let at = if is_next { next } else { record.position(worker, number) };
        if at == NONE {
            return CopyKind::Invalid;
        }
        if cursor.first == NONE {
            *cursor = StayCursor { first: at, last: at, low: at, high: at, ..*cursor };
            return CopyKind::New;
        }
        let mut deviations = self.deviations;
        if at > cursor.high {
            deviations += record.skip(cursor.stay, cursor.high + 1, at);
            cursor.high = at;
        } else if at < cursor.low {
            deviations += record.skip(cursor.stay, at + 1, cursor.low);
            cursor.low = at;
        } else if !record.fill(cursor.stay, at) {
            return CopyKind::Duplicate;
        }
        let message = &mut record.log[at as usize];
        if message.previous == cursor.last {
            message.count += 1;
        } else if message.previous == NONE {
            (message.previous, message.count) = (cursor.last, 1);
        } else if deviations < MAX_DEVIATIONS {
            record.deviations.push((cursor.stay, cursor.last, at));
            deviations += 1;
        }
        cursor.last = at;
        self.deviations = deviations;
        self.incomplete |= deviations >= MAX_DEVIATIONS;
        CopyKind::New
    }

    /// Takes the account of all rooms with messages. Stays must have ended.
    pub(crate) fn reports(&mut self) -> Vec<RoomReport> {
        std::mem::take(&mut self.rooms).into_iter().filter_map(RoomLog::report).collect()
    }
}

impl RoomLog {
    /// Position of a message in the log, where it is added if it is not there yet. [`NONE`] for an impossible number.
    fn position(&mut self, worker: u16, number: u32) -> u32 {
        let worker_index = usize::from(worker);
        if self.positions.len() <= worker_index {
            self.positions.resize(worker_index + 1, Vec::new());
        }
        let positions = &mut self.positions[worker_index];
        let index = number as usize;
        if index >= positions.len() {
            // A room cannot be so far ahead of itself; the number is forged.
            if index - positions.len() > MAX_NUMBERS_AHEAD as usize {
                return NONE;
            }
            positions.resize(index + 1, NONE);
        }
        if positions[index] == NONE {
            positions[index] = self.log.len() as u32;
            self.log.push(LoggedRoomMessage { worker, number, previous: NONE, count: 0 });
        }
        positions[index]
    }

    /// Records that a stay has not received `from .. to`. Returns their number.
    fn skip(&mut self, stay: u32, from: u32, to: u32) -> usize {
        if from < to {
            self.missing.entry(stay).or_default().extend(from..to);
        }
        (to - from) as usize
    }

    /// Records that a stay has received a missing position. False if it is not missing.
    fn fill(&mut self, stay: u32, at: u32) -> bool {
        let Some(missing) = self.missing.get_mut(&stay) else { return false };
        let Some(found) = missing.iter().position(|position| *position == at) else { return false };
        missing.swap_remove(found);
        true
    }

    fn report(mut self) -> Option<RoomReport> {
        if self.log.is_empty() && self.sent.is_empty() {
            return None;
        }
        let mut stays = std::mem::take(&mut self.stays);
        stays.sort_unstable_by_key(|(number, _)| *number);
        for (stay, previous, at) in std::mem::take(&mut self.deviations) {
            if let Ok(index) = stays.binary_search_by_key(&stay, |(number, _)| *number) {
                stays[index].1.deviations.push((previous, at));
            }
        }
        let stays = stays.into_iter().map(|(_, stay)| stay).collect();
        let RoomLog { hash, is_node, sent, log, .. } = self;
        Some(RoomReport { room: hash, is_node, sent, log, stays })
    }
}

#[cfg(test)]
mod tests {
    use super::{CopyKind, RoomTable};
    use crate::control::room_report::{NONE, RoomReport};

    /// Report of a room whose occupants receive these numbers, in turn.
    fn report(occupants: &[&[u32]]) -> (RoomReport, Vec<Vec<CopyKind>>) {
        let mut table = RoomTable::new();
        let room = table.room("lobby@conference.load.test");
        let mut kinds = Vec::new();
        for copies in occupants {
            let mut cursor = table.begin(room);
            kinds.push(copies.iter().map(|number| table.arrive(room, &mut cursor, 0, *number)).collect());
            table.end(room, cursor, 0, true);
        }
        assert!(!table.incomplete);
        (table.reports().remove(0), kinds)
    }

    fn sequences(report: &RoomReport) -> Vec<Vec<u32>> {
        let numbers = |position: &u32| report.log[*position as usize].number;
        report.stays.iter().map(|stay| report.sequence(stay).iter().map(numbers).collect()).collect()
    }

    #[test]
    fn occupants_that_agree_have_no_deviations() {
        let (report, kinds) = report(&[&[3, 1, 2], &[3, 1, 2], &[1, 2], &[3], &[]]);
        assert!(kinds.iter().flatten().all(|kind| *kind == CopyKind::New));
        assert!(report.stays.iter().all(|stay| stay.deviations.is_empty()));
        let log: Vec<_> = report.log.iter().map(|it| (it.number, it.previous, it.count)).collect();
        assert_eq!(log, [(3, NONE, 0), (1, 0, 2), (2, 1, 3)]);
        assert_eq!(sequences(&report), [vec![3, 1, 2], vec![3, 1, 2], vec![1, 2], vec![3], vec![]]);
    }

    #[test]
    fn sequences_with_faults_are_kept_exactly() {
        let all: [&[u32]; 6] =
            [&[0, 2, 3], &[0, 1, 2, 3], &[0, 2, 1, 3], &[3, 0, 1, 2], &[1, 0], &[0, 1, 2, 3]];
        let (report, kinds) = report(&all);
        assert!(kinds.iter().flatten().all(|kind| *kind == CopyKind::New));
        assert_eq!(sequences(&report), all);
    }

    #[test]
    fn every_further_copy_is_a_duplicate() {
        let all: [&[u32]; 4] = [&[0, 2, 3, 2, 0, 3], &[0, 1, 1, 2, 0, 3], &[0, 2, 1, 1, 2, 3], &[1, 0, 1, 0]];
        let (report, kinds) = report(&all);
        assert_eq!(sequences(&report), [vec![0, 2, 3], vec![0, 1, 2, 3], vec![0, 2, 1, 3], vec![1, 0]]);
        for (copies, kinds) in all.iter().zip(kinds) {
            for (at, kind) in kinds.iter().enumerate() {
                let again = copies[..at].contains(&copies[at]);
                assert_eq!(*kind == CopyKind::Duplicate, again, "{copies:?} {at}");
            }
        }
    }

    #[test]
    fn forged_numbers_are_invalid() {
        let (report, kinds) = report(&[&[0, u32::MAX, 1]]);
        assert_eq!(kinds[0], [CopyKind::New, CopyKind::Invalid, CopyKind::New]);
        assert_eq!(report.log.len(), 2);
    }

    #[test]
    fn messages_are_numbered_and_refused_once() {
        let mut table = RoomTable::new();
        let room = table.room("lobby@conference.load.test");
        assert_eq!(room, table.room("lobby@conference.load.test"));
        assert_eq!((table.number(room, 7, 100), table.number(room, 8, 200)), (0, 1));
        let hash = table.hash(room);
        assert_eq!(
            (table.refuse(hash, 1), table.refuse(hash, 1), table.refuse(hash, 2)),
            (true, false, false)
        );
        let report = table.reports().remove(0);
        let sent: Vec<_> = report.sent.iter().map(|it| (it.sender, it.at, it.refused)).collect();
        assert_eq!(sent, [(7, 100, false), (8, 200, true)]);
    }
}
