//! Last report of a worker: the accounting of all its messages.

use super::event_loop::WorkerEngine;
use crate::control::message::FinalReport;
use crate::control::room_report::RoomReport;

/// Entries of rooms in one part of the report. An entry has about 40 bytes; a frame has at most 64 MB.
const PART: usize = 300_000;
/// Maximum number of entries of one room.
const MAX_ROOM: usize = 1_000_000;
/// Maximum number of entries of all rooms; the connection to the controller buffers twice a frame.
const MAX_ENTRIES: usize = 2_000_000;

/// Takes the rooms out of a report, in parts that fit into frames. Rooms beyond the limits are left out, and the account
/// is marked as incomplete.
pub(super) fn split_rooms(report: &mut FinalReport) -> Vec<Vec<RoomReport>> {
    let mut parts: Vec<Vec<RoomReport>> = Vec::new();
    let (mut all, mut in_part) = (0, PART);
    for room in std::mem::take(&mut report.rooms) {
        let deviations: usize = room.stays.iter().map(|stay| stay.deviations.len()).sum();
        let entries = room.sent.len() + room.log.len() + room.stays.len() + deviations;
        if entries > MAX_ROOM || all + entries > MAX_ENTRIES {
            report.rooms_incomplete = true;
            continue;
        }
        all += entries;
        if in_part + entries > PART {
            parts.push(Vec::new());
            in_part = 0;
        }
        in_part += entries;
        if let Some(part) = parts.last_mut() {
            part.push(room);
        }
    }
    parts
}

impl WorkerEngine<'_> {
    /// Takes the accounting. No user acts afterwards.
    pub(super) fn last_report(&mut self) -> FinalReport {
        for slot in self.users.indices() {
            self.record_not_resent(slot);
            self.end_stays(slot);
        }
        let acknowledgements = self.acknowledgements.take().unwrap_or_default();
        let (missing, complete) = self.accounting.missing();
        let snapshot = self.snapshot();
        let steady = (0_u32..)
            .zip(self.seen.iter().zip(&self.left))
            .filter(|(_, (seen, left))| **seen && !**left)
            .map(|(user, _)| user)
            .collect();
        FinalReport {
            snapshot,
            sent: self.accounting.sent.iter().collect(),
            sent_offline: self.accounting.sent_offline.iter().collect(),
            arrived: self.accounting.arrived.iter().collect(),
            delayed: self.accounting.delayed.iter().collect(),
            refused: self.accounting.refused.iter().collect(),
            steady,
            arrived_gone: self
                .gone
                .iter()
                .filter_map(|worker| self.accounting.arrived_from.get(usize::from(*worker)))
                .flat_map(|counts| counts.iter())
                .collect(),
            unchecked_order: self.accounting.unchecked,
            numbered: self.accounting.numbered().to_vec(),
            missing: if self.plan.options.failover { missing } else { Vec::new() },
            unacknowledged: acknowledgements.unacknowledged,
            refused_numbers: acknowledgements.refused,
            away: acknowledgements.away,
            rooms: self.rooms.reports(),
            rooms_incomplete: self.rooms.incomplete,
            incomplete: acknowledgements.incomplete || !complete,
            salts: std::mem::take(&mut self.salts).into_values().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{FinalReport, PART, RoomReport, split_rooms};
    use crate::control::room_report::SentRoomMessage;

    #[test]
    fn rooms_are_split_into_parts_and_bounded() {
        let room = |room, sent| RoomReport {
            room,
            sent: vec![SentRoomMessage::default(); sent],
            ..RoomReport::default()
        };
        let rooms =
            vec![room(0, 1), room(1, PART - 1), room(2, 1), room(3, 2 * PART), room(4, super::MAX_ROOM + 1)];
        let mut report = FinalReport { rooms, ..FinalReport::default() };
        let parts = split_rooms(&mut report);
        let numbers: Vec<Vec<u64>> =
            parts.iter().map(|part| part.iter().map(|it| it.room).collect()).collect();
        assert_eq!(numbers, [vec![0, 1], vec![2], vec![3]]);
        assert!(report.rooms.is_empty() && report.rooms_incomplete);
        assert_eq!(split_rooms(&mut FinalReport::default()), Vec::<Vec<RoomReport>>::new());
    }
}
