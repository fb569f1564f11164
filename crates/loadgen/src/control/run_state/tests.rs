//! Tests of run states, reports in and commands out, without sockets and on a simulated clock.

use super::*;
use crate::report::model::WorkerRun;

const SECOND: u64 = 1_000_000;
/// Start time in these tests.
const START: u64 = 10 * SECOND;

fn gathering(workers: usize) -> RunState {
    gathering_with(workers, false)
}

fn gathering_with(workers: usize, failover: bool) -> RunState {
    let worker = WorkerRun { name: "local".to_owned(), pid: 7, ..WorkerRun::default() };
    let run = RunRecord { workers: vec![worker; workers], ..RunRecord::default() };
    let merger = SnapshotMerger::new(run, Vec::new(), vec!["all".to_owned()]);
    let owners = (0..workers as u16).collect();
    let clocks = vec![0; workers];
    let schedule = RunSchedule { drain_us: 5 * SECOND, start_in_us: SECOND, owners, clocks, failover };
    RunState::new(merger, schedule, START - SECOND)
}

fn running(workers: usize) -> RunState {
    start(gathering(workers), workers)
}

fn start(mut run_state: RunState, workers: usize) -> RunState {
    for worker in 0..workers as u16 {
        assert!(run_state.take_commands().is_empty());
        run_state.report(worker, WorkerReport::Ready { rss: 1_000 }, START - SECOND);
    }
    let start = WorkerCommand::Start { in_us: SECOND, at_us: START };
    let expected: Vec<_> = (0..workers as u16).map(|w| (w, start.clone())).collect();
    assert_eq!(run_state.take_commands(), expected);
    run_state
}

fn gauges(users: i64, under_way: i64) -> Vec<i64> {
    let mut gauges = vec![0; Gauge::ALL.len()];
    gauges[Gauge::Users as usize] = users;
    gauges[Gauge::Online as usize] = users - 1;
    gauges[Gauge::UnderWay as usize] = under_way;
    gauges
}

fn snapshot(second: u32, users: i64, under_way: i64) -> WorkerReport {
    WorkerReport::Snapshot(Box::new(WorkerSnapshot {
        second,
        gauges: gauges(users, under_way),
        ..WorkerSnapshot::default()
    }))
}

fn last(second: u32, sent: &[(u32, u32)], arrived: &[(u32, u32)], steady: &[u32]) -> WorkerReport {
    WorkerReport::Final(Box::new(FinalReport {
        snapshot: WorkerSnapshot { second, ..WorkerSnapshot::default() },
        sent: sent.to_vec(),
        arrived: arrived.to_vec(),
        steady: steady.to_vec(),
        ..FinalReport::default()
    }))
}

fn at(second: u64) -> u64 {
    START + second * SECOND
}

#[test]
fn a_run_from_the_start_to_the_last_report() {
    let mut run_state = running(2);
    run_state.report(0, snapshot(0, 10, 3), at(1));
    run_state.report(1, snapshot(0, 10, -1), at(1));
    run_state.report(0, WorkerReport::Draining, at(2));
    run_state.tick(at(3));
    assert!(run_state.take_commands().is_empty() && !run_state.is_stopping());
    run_state.report(1, WorkerReport::Draining, at(3));
    assert!(run_state.is_stopping());
    // Nothing is in flight, but worker 1 has not reported a whole second of draining.
    run_state.report(0, snapshot(3, 10, 2), at(4));
    run_state.report(1, snapshot(2, 10, -2), at(4));
    run_state.tick(at(4));
    assert!(run_state.take_commands().is_empty());
    run_state.report(1, snapshot(4, 10, -2), at(5));
    assert_eq!(run_state.take_commands(), [(0, WorkerCommand::Close), (1, WorkerCommand::Close)]);
    run_state.report(0, last(5, &[(0, 2), (1, 9)], &[(0, 1)], &[0]), at(6));
    assert!(!run_state.done());
    run_state.report(1, last(5, &[(0, 1)], &[(1, 9)], &[1]), at(6));
    assert!(run_state.done());
    let run = run_state.finish(at(9));
    assert_eq!((run.about.end.as_str(), run.about.length), ("finished", 6.0));
    // Three were sent to user 0, one arrived.
    assert_eq!(run.totals.counters["messages_lost"].total, 2);
    assert_eq!(run.workers[0].rss_empty, 1_000);
    assert_eq!(run.warnings, [""; 0]);
}

#[test]
fn the_drain_waits_for_messages_in_flight_up_to_the_configured_time() {
    let mut run_state = running(1);
    run_state.report(0, WorkerReport::Draining, at(1));
    run_state.report(0, snapshot(2, 1, 4), at(3));
    run_state.tick(at(5));
    assert!(run_state.take_commands().is_empty());
    run_state.tick(at(6));
    assert_eq!(run_state.take_commands(), [(0, WorkerCommand::Close)]);
}

#[test]
fn the_drain_waits_while_late_messages_arrive_up_to_a_limit() {
    let delivered = |second, messages| {
        let mut counters = vec![0; Counter::ALL.len()];
        counters[Counter::MessagesDelivered as usize] = messages;
        let gauges = gauges(1, 4);
        WorkerReport::Snapshot(Box::new(WorkerSnapshot {
            second,
            gauges,
            counters,
            ..WorkerSnapshot::default()
        }))
    };
    let mut run_state = running(1);
    run_state.report(0, WorkerReport::Draining, at(1));
    for second in 2..10 {
        run_state.report(0, delivered(second, 1), at(u64::from(second) + 1));
    }
    run_state.report(0, delivered(10, 0), at(11));
    run_state.tick(at(14));
    assert!(run_state.take_commands().is_empty());
    run_state.tick(at(15));
    assert_eq!(run_state.take_commands(), [(0, WorkerCommand::Close)]);

    let mut run_state = running(1);
    run_state.report(0, WorkerReport::Draining, at(1));
    for second in 2..120 {
        run_state.report(0, delivered(second, 1), at(u64::from(second) + 1));
        assert!(run_state.take_commands().is_empty(), "{second}");
    }
    run_state.report(0, delivered(120, 1), at(121));
    assert_eq!(run_state.take_commands(), [(0, WorkerCommand::Close)]);
}

/// Messages that arrived twice hide as many that did not arrive.
#[test]
fn a_run_with_failures_drains_although_nothing_seems_to_be_in_flight() {
    let mut run_state = start(gathering_with(1, true), 1);
    run_state.report(0, WorkerReport::Draining, at(1));
    run_state.report(0, snapshot(2, 1, -3), at(3));
    run_state.tick(at(5));
    assert!(run_state.take_commands().is_empty());
    // A copy that arrives twice shows that the server still delivers.
    let mut twice = snapshot(20, 0, -3);
    if let WorkerReport::Snapshot(snapshot) = &mut twice {
        snapshot.counters.resize(Counter::MessagesDuplicate as usize + 1, 0);
        snapshot.counters[Counter::MessagesDuplicate as usize] = 1;
    }
    run_state.report(0, twice, at(20));
    run_state.tick(at(39));
    assert!(run_state.take_commands().is_empty());
    run_state.tick(at(40));
    assert_eq!(run_state.take_commands(), [(0, WorkerCommand::Close)]);
}

#[test]
fn the_drain_waits_until_no_copy_of_a_room_message_arrives() {
    let with_copies = |second, copies| {
        let mut counters = vec![0; Counter::ALL.len()];
        counters[Counter::RoomCopies as usize] = copies;
        let gauges = gauges(1, 0);
        WorkerReport::Snapshot(Box::new(WorkerSnapshot {
            second,
            gauges,
            counters,
            ..WorkerSnapshot::default()
        }))
    };
    let mut run_state = running(1);
    run_state.report(0, WorkerReport::Draining, at(1));
    run_state.report(0, with_copies(2, 9), at(3));
    assert!(run_state.take_commands().is_empty());
    run_state.report(0, with_copies(3, 0), at(4));
    assert_eq!(run_state.take_commands(), [(0, WorkerCommand::Close)]);
}

#[test]
fn rooms_of_all_workers_are_compared_at_the_end() {
    use crate::control::room_report::{LoggedRoomMessage, NONE, RoomReport, RoomStay, SentRoomMessage};
    let log = |numbers: &[u32]| -> Vec<_> {
        let entry = |(number, at): (&u32, u32)| LoggedRoomMessage {
            worker: 0,
            number: *number,
            previous: at.checked_sub(1).unwrap_or(NONE),
            count: 1,
        };
        numbers.iter().zip(0..).map(entry).collect()
    };
    let stay = |last| RoomStay { joined_at: 1, first: 0, last, to_the_end: true, deviations: Vec::new() };
    let sent = vec![SentRoomMessage { sender: 0, at: 2, refused: false }; 3];
    let first = RoomReport { room: 7, is_node: false, sent, log: log(&[0, 1, 2]), stays: vec![stay(2)] };
    let second = RoomReport { room: 7, log: log(&[0, 2]), stays: vec![stay(1)], ..RoomReport::default() };
    let mut run_state = running(2);
    for (worker, room) in [(0, first), (1, second)] {
        run_state.report(worker, WorkerReport::Draining, at(1));
        run_state.report(worker, WorkerReport::Rooms(vec![room]), at(2));
        run_state.report(worker, last(1, &[], &[], &[]), at(2));
    }
    let run = run_state.finish(at(3));
    assert_eq!(run.totals.counters["room_copies_lost"].total, 1);
    assert!(!run.totals.counters.contains_key("room_copies_reordered"));
}

#[test]
fn online_users_are_reported_to_the_other_workers() {
    let mut run_state = running(3);
    let online = vec![(4, true), (1, false)];
    let snapshot = WorkerSnapshot { online: online.clone(), ..WorkerSnapshot::default() };
    run_state.report(1, WorkerReport::Snapshot(Box::new(snapshot)), at(1));
    assert_eq!(
        run_state.take_commands(),
        [(0, WorkerCommand::Online(online.clone())), (2, WorkerCommand::Online(online))]
    );
}

#[test]
fn a_dead_worker_is_reported_and_counted_and_the_run_continues() {
    let mut run_state = running(3);
    run_state.report(1, snapshot(1, 40, 0), at(2));
    run_state.worker_lost(1, "its connection ended", at(3));
    assert_eq!(run_state.take_commands(), [(0, WorkerCommand::Gone(1)), (2, WorkerCommand::Gone(1))]);
    // Its later reports are ignored.
    run_state.report(1, snapshot(3, 99, 0), at(3));
    run_state.worker_lost(1, "again", at(3));
    assert!(run_state.take_commands().is_empty() && !run_state.is_stopping());
    for worker in [0, 2] {
        run_state.report(worker, WorkerReport::Draining, at(4));
    }
    for worker in [0, 2] {
        run_state.report(worker, snapshot(5, 1, 0), at(6));
    }
    assert_eq!(run_state.take_commands(), [(0, WorkerCommand::Close), (2, WorkerCommand::Close)]);
    // User 1 is worker 1's; it sent two of the three that user 2 received.
    run_state.report(0, last(6, &[(1, 5), (2, 1)], &[], &[0]), at(7));
    let WorkerReport::Final(mut from_two) = last(6, &[], &[(2, 3)], &[2]) else { unreachable!() };
    from_two.arrived_gone = vec![(2, 2)];
    run_state.report(2, WorkerReport::Final(from_two), at(7));
    let run = run_state.finish(at(7));
    assert_eq!(run.about.end, "finished");
    assert_eq!(run.workers[1].died, Some((3, 40)));
    assert_eq!(run.totals.counters["sessions_lost"].total, 39);
    assert!(!run.totals.counters.contains_key("messages_lost"));
    assert!(
        run.warnings[0].starts_with("worker 1 (local, process 7) died in second 3"),
        "{:?}",
        run.warnings
    );
    assert!(
        run.warnings[1].starts_with(
            "5 messages to users of workers that ended early are excluded from the accounting, and so are 2"
        ),
        "{:?}",
        run.warnings
    );
}

#[test]
fn the_last_worker_that_dies_ends_the_run_with_a_report() {
    let mut run_state = running(1);
    run_state.worker_lost(0, "its connection ended", at(2));
    assert!(run_state.done());
    let run = run_state.finish(at(2));
    assert_eq!(run.about.end, "all workers have ended");
    assert_eq!(run.workers[0].died, Some((2, 0)));
}

#[test]
fn a_silent_worker_counts_as_dead() {
    let mut run_state = running(2);
    run_state.report(0, snapshot(0, 1, 0), at(25));
    run_state.tick(at(30));
    assert!(run_state.take_commands().is_empty());
    run_state.tick(at(31));
    assert_eq!(run_state.take_commands(), [(0, WorkerCommand::Gone(1))]);
}

#[test]
fn a_worker_that_reports_a_future_second_is_dropped() {
    let mut run_state = running(2);
    run_state.report(0, snapshot(u32::MAX, 1, 0), at(1));
    assert_eq!(run_state.take_commands(), [(1, WorkerCommand::Gone(0))]);
}

#[test]
fn the_run_does_not_begin_before_all_workers_are_ready() {
    let mut run_state = gathering(2);
    run_state.report(0, WorkerReport::Ready { rss: 0 }, 1);
    run_state.worker_lost(1, "its connection ended", 2);
    assert!(run_state.done() && !run_state.started());
    assert!(run_state.failed().unwrap().contains("ended before the run began: its connection ended"));
    let mut run_state = gathering(2);
    run_state.report(0, WorkerReport::Refused("no memory for it".to_owned()), 1);
    assert!(run_state.done() && !run_state.started());
    assert_eq!(run_state.failed(), Some("no memory for it"));
}

#[test]
fn a_worker_that_refuses_during_the_run_ends_it_gracefully_for_all() {
    let mut run_state = running(2);
    run_state.report(0, WorkerReport::Refused("the first login failed".to_owned()), at(1));
    assert_eq!(run_state.take_commands(), [(1, WorkerCommand::Gone(0)), (1, WorkerCommand::Stop)]);
    // The connection ends too, which does not count as a death.
    run_state.worker_lost(0, "its connection ended", at(1));
    run_state.report(1, WorkerReport::Draining, at(2));
    run_state.report(1, snapshot(3, 0, 0), at(4));
    assert_eq!(run_state.take_commands(), [(1, WorkerCommand::Close)]);
    run_state.report(1, last(4, &[], &[], &[]), at(5));
    let run = run_state.finish(at(5));
    assert_eq!(run.about.end, "the first login failed");
    assert_eq!(run.workers[0].died, None);
}

#[test]
fn the_first_interrupt_ends_gracefully_and_the_second_immediately() {
    let mut run_state = running(2);
    run_state.interrupt(at(3));
    assert_eq!(run_state.take_commands(), [(0, WorkerCommand::Stop), (1, WorkerCommand::Stop)]);
    run_state.interrupt(at(3));
    assert!(run_state.take_commands().is_empty() && !run_state.done());
    for worker in 0..2 {
        run_state.report(worker, WorkerReport::Draining, at(3));
        run_state.report(worker, snapshot(4, 0, 0), at(5));
    }
    assert_eq!(run_state.take_commands(), [(0, WorkerCommand::Close), (1, WorkerCommand::Close)]);
    run_state.report(0, last(5, &[(0, 4)], &[(0, 4)], &[0]), at(5));
    run_state.abort(at(6));
    assert!(run_state.done());
    let run = run_state.finish(at(6));
    assert_eq!(run.about.end, "interrupted");
    assert!(run.warnings[0].contains("before 1 workers had sent their final report"), "{:?}", run.warnings);
}

#[test]
fn workers_that_do_not_stop_or_close_are_dropped() {
    let mut run_state = running(2);
    run_state.interrupt(at(1));
    run_state.report(0, WorkerReport::Draining, at(1));
    // Both still report, but worker 1 keeps sending.
    for second in 1..40 {
        run_state.report(0, snapshot(second, 0, 0), at(u64::from(second) + 1));
        run_state.report(1, snapshot(second, 0, 9), at(u64::from(second) + 1));
        run_state.tick(at(u64::from(second) + 1));
    }
    let commands = run_state.take_commands();
    assert!(
        commands.contains(&(0, WorkerCommand::Gone(1))) && commands.contains(&(0, WorkerCommand::Close)),
        "{commands:?}"
    );
    // Nor does worker 0 send its last report.
    run_state.tick(at(80));
    assert!(run_state.done());
    assert!(run_state.finish(at(80)).workers.iter().all(|worker| worker.died.is_some()));
}

#[test]
fn a_run_with_failures_tells_acknowledged_losses_apart() {
    let report = |incomplete| {
        WorkerReport::Final(Box::new(FinalReport {
            snapshot: WorkerSnapshot { second: 3, ..WorkerSnapshot::default() },
            numbered: vec![10],
            missing: vec![vec![(2, 5), (10, u32::MAX)]],
            unacknowledged: vec![(0, 4)],
            away: 1,
            incomplete,
            ..FinalReport::default()
        }))
    };
    for failover in [false, true] {
        let mut run_state = start(gathering_with(1, failover), 1);
        run_state.report(0, WorkerReport::Draining, at(2));
        run_state.tick(at(9));
        run_state.report(0, report(failover), at(10));
        let run = run_state.finish(at(10));
        let total = |counter: Counter| run.totals.counters.get(counter.name()).map_or(0, |count| count.total);
        let expected = if failover { (2, 1, 1) } else { (0, 0, 0) };
        let found =
            (total(Counter::AcknowledgedLost), total(Counter::UnacknowledgedLost), total(Counter::UsersAway));
        assert_eq!(found, expected);
        let incomplete =
            run.warnings.iter().any(|warning| warning.contains("account of acknowledged messages"));
        assert_eq!(incomplete, failover);
    }
}
