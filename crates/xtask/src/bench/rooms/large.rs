//! The parts with one large room and messages: `large` and `flood`.

use anyhow::Result;

use super::super::peers::RoomPresence;
use super::super::report::{BenchReport, print_progress};
use super::RoomBench;
use super::plan::{BODY_BYTES, FAULTS, LargeRoomPlan, set_copies, set_joins, set_memory};
use super::servers::{RoomServer, RoomServerKind};
use super::table::RoomBenchTable;

/// Users that send the messages of the large room.
const SENDERS: usize = 10;
/// Messages on the way in `flood`.
const IN_FLIGHT: usize = 8;

/// Budgets, of 10 000 occupants: times the loop's.
const COPY_BUDGET: f64 = 1.3;
const P99_BUDGET: f64 = 1.25;
const FLOOD_COPY_BUDGET: f64 = 2.5;
/// Seconds and microseconds.
const JOIN_BUDGET_SECONDS: f64 = 3.0;
const JOIN_BUDGET_US: f64 = 150.0;
/// Bytes beyond the session.
const OCCUPANT_BUDGET: f64 = 250.0;

/// One room with `rate` messages a second.
pub(super) fn messages(
    bench: &RoomBench<'_>,
    occupants: usize,
    rate: usize,
    report: &mut BenchReport,
    failed: &mut Vec<String>,
) -> RoomBenchTable {
    let senders = SENDERS.min(occupants);
    let every_ms = senders * 1_000 / rate;
    let plan = LargeRoomPlan {
        occupants,
        join_seconds: 10 + occupants as u64 / 1_000,
        seconds: bench.options.interval(30),
        steps: format!(
            "{{ meanwhile = {{ do = [{{ every = \"{every_ms}ms\", room_message = {{ room = \"large\", size = {BODY_BYTES} }} }}] }} }}"
        ),
        senders,
    };
    let title = format!("{occupants} occupants, reduced presence, {rate} messages a second");
    let table = measure(bench, title, &plan, failed);
    let name = |figure: &str| format!("muc.large.{rate}-per-second.{figure}");
    report_faults(report, &name("faults"), &table);
    check_ratio(report, name("copy.ratio"), &table, "CPU of a copy, us", COPY_BUDGET);
    check_ratio(report, name("p99.ratio"), &table, "delivery p99, ms", P99_BUDGET);
    let ours = |name: &str| table.value(RoomServerKind::Throng, name);
    if let Some(seconds) = ours("join of all, s") {
        report.check(name("join"), seconds, "s", JOIN_BUDGET_SECONDS);
    }
    if let Some(cpu) = ours("CPU of a join, us") {
        report.check(name("join.cpu"), cpu, "us/join", JOIN_BUDGET_US);
    }
    if let Some(bytes) = ours("memory of an occupant, B") {
        report.check(name("memory"), bytes, "B/occupant", OCCUPANT_BUDGET);
    }
    table
}

/// One room in which eight messages are always on the way.
pub(super) fn flood(
    bench: &RoomBench<'_>,
    occupants: usize,
    report: &mut BenchReport,
    failed: &mut Vec<String>,
) -> RoomBenchTable {
    let plan = LargeRoomPlan {
        occupants,
        join_seconds: 10 + occupants as u64 / 1_000,
        seconds: bench.options.interval(15),
        steps: format!(
            "{{ repeat = {{ steps = [{{ room_message = {{ room = \"large\", size = {BODY_BYTES}, wait = \"delivery\" }} }}] }} }}"
        ),
        senders: IN_FLIGHT,
    };
    let title = format!("{occupants} occupants, reduced presence, {IN_FLIGHT} messages in flight");
    let table = measure(bench, title, &plan, failed);
    report_faults(report, "muc.flood.faults", &table);
    check_ratio(report, "muc.flood.copy.ratio".into(), &table, "CPU of a copy, us", FLOOD_COPY_BUDGET);
    if let Some(rate) = table.value(RoomServerKind::Throng, "copies a second") {
        report.info("muc.flood.rate", rate, "copies/s");
    }
    table
}

fn measure(
    bench: &RoomBench<'_>,
    title: String,
    plan: &LargeRoomPlan,
    failed: &mut Vec<String>,
) -> RoomBenchTable {
    let mut table = RoomBenchTable::new(title, &bench.servers);
    bench.for_each_server(failed, |kind| measure_server(bench, kind, plan, &mut table));
    table
}

fn measure_server(
    bench: &RoomBench<'_>,
    kind: RoomServerKind,
    plan: &LargeRoomPlan,
    table: &mut RoomBenchTable,
) -> Result<()> {
    let server = RoomServer::start(bench, kind, plan.occupants, RoomPresence::Reduced)?;
    let run = server.clients().start_monitored(&plan.plan(server.clients()))?.finish_with_faults();
    server.end();
    let run = run?;
    print_progress(&format!("{}: errors {}", kind.name(), run.errors()));
    let joins = set_joins(table, kind, &run, plan.occupants)?;
    set_memory(table, kind, &run, &joins, plan.occupants)?;
    set_copies(table, kind, &run)
}

/// Reports the sum of Throng's faults, of which there must be none.
pub(super) fn report_faults(report: &mut BenchReport, name: &str, table: &RoomBenchTable) {
    let values: Vec<f64> =
        FAULTS.iter().filter_map(|(row, _)| table.value(RoomServerKind::Throng, row)).collect();
    if !values.is_empty() {
        report.check(name, values.iter().sum(), "", 0.0);
    }
}

/// Reports Throng's value as a multiple of the loop's.
pub(super) fn check_ratio(
    report: &mut BenchReport,
    name: String,
    table: &RoomBenchTable,
    row: &str,
    budget: f64,
) {
    if let Some(ratio) = table.ratio(row) {
        report.check(name, ratio, "x", budget);
    }
}
