//! The part `presence`: all occupants join at once and receive the presence of all others.
//!
//! Beside it two users who are in no room exchange messages, in a process of their own. The value of the loop is that of
//! a write: a copy of a message, with 10 messages a second in a room of as many occupants.

use anyhow::Result;

use super::super::broadcast::pair;
use super::super::peers::RoomPresence;
use super::super::report::{BenchReport, print_progress};
use super::RoomBench;
use super::large::{check_ratio, report_faults};
use super::plan::{BODY_BYTES, FAULTS, LargeRoomPlan, busy_seconds, set_joins, set_memory};
use super::servers::{RoomServer, RoomServerKind};
use super::table::RoomBenchTable;

/// Budgets: times a write of the loop, milliseconds, bytes beyond the session.
const PRESENCE_BUDGET: f64 = 1.5;
const PAIR_P99_BUDGET_MS: f64 = 20.0;
const OCCUPANT_BUDGET: f64 = 250.0;

/// Measures the joins.
pub(super) fn joins(
    bench: &RoomBench<'_>,
    occupants: usize,
    report: &mut BenchReport,
    failed: &mut Vec<String>,
) -> RoomBenchTable {
    let title = format!("{occupants} occupants join, standard presence");
    let mut table = RoomBenchTable::new(title, &bench.servers);
    bench.for_each_server(failed, |kind| match kind {
        RoomServerKind::Loop => write_of_loop(bench, occupants, &mut table),
        _ => measure_server(bench, kind, occupants, &mut table),
    });
    report_faults(report, "muc.presence.faults", &table);
    let ours = |name: &str| table.value(RoomServerKind::Throng, name);
    check_ratio(report, "muc.presence.ratio".into(), &table, "CPU of a presence, us", PRESENCE_BUDGET);
    if let Some(p99) = ours("others' messages meanwhile, p99, ms") {
        report.check("muc.presence.others.p99", p99, "ms", PAIR_P99_BUDGET_MS);
    }
    if let Some(bytes) = ours("memory of an occupant, B") {
        report.check("muc.presence.memory", bytes, "B/occupant", OCCUPANT_BUDGET);
    }
    table
}

fn write_of_loop(bench: &RoomBench<'_>, occupants: usize, table: &mut RoomBenchTable) -> Result<()> {
    let senders = 10.min(occupants);
    let plan = LargeRoomPlan {
        occupants,
        join_seconds: 5,
        seconds: bench.options.interval(10),
        steps: format!(
            "{{ meanwhile = {{ do = [{{ every = \"1s\", room_message = {{ room = \"large\", size = {BODY_BYTES} }} }}] }} }}"
        ),
        senders,
    };
    let server = RoomServer::start(bench, RoomServerKind::Loop, occupants, RoomPresence::Reduced)?;
    let run = server.clients().start_monitored(&plan.plan(server.clients()))?.finish_with_faults();
    server.end();
    let run = run?;
    let window = run.steady("room_copies")?;
    let cpu = run.cpu_ns(&window.seconds)? / 1e3 / window.count as f64;
    table.set(RoomServerKind::Loop, "CPU of a presence, us", cpu);
    Ok(())
}

fn measure_server(
    bench: &RoomBench<'_>,
    kind: RoomServerKind,
    occupants: usize,
    table: &mut RoomBenchTable,
) -> Result<()> {
    // The accounts of the pair are partners: its first number must be even.
    let first = occupants.next_multiple_of(2);
    let server = RoomServer::start(bench, kind, first + 2, RoomPresence::Standard)?;
    // Presences grow with the square; the slowest server takes some 50 us for each.
    let presences = (occupants * occupants) as u64;
    let join_seconds = 10 + presences / 20_000;
    let plan =
        LargeRoomPlan { occupants, join_seconds, seconds: 10, steps: "\"presence\"".into(), senders: 0 };
    let pair = pair(server.clients(), first, usize::try_from(join_seconds)? + 60)?;
    let run = server.clients().start_monitored(&plan.plan(server.clients()))?.finish_with_faults();
    let pair = pair.stop();
    server.end();
    let (run, pair) = (run?, pair?);
    print_progress(&format!("{}: errors {}", kind.name(), run.errors()));
    let joins = set_joins(table, kind, &run, occupants)?;
    // The last presences arrive after the last self-presence. Those of the logins are before the joins.
    let all = busy_seconds(&run, "presence_received")?;
    let seconds = joins.start..all.end.max(joins.end) + 1;
    let received = run.bursts("presence_received");
    let count: u64 =
        received.iter().filter(|burst| burst.seconds.end > joins.start).map(|burst| burst.count).sum();
    table.set(kind, "presences", count as f64);
    table.set(kind, "CPU of a presence, us", run.cpu_ns(&seconds)? / 1e3 / count.max(1) as f64);
    set_memory(table, kind, &run, &joins, occupants)?;
    let during = pair.highest_ms_during("message", "p99", &run, &seconds);
    table.set(kind, "others' messages meanwhile, p99, ms", during);
    for (name, counter) in FAULTS {
        table.set(kind, name, run.total(counter) as f64);
    }
    Ok(())
}
