//! The part `many`: as many rooms as users, 20 occupants in each, and the same number of chat messages for comparison.

use anyhow::{Context as _, Result};

use super::super::clients::BenchPlan;
use super::super::peers::RoomPresence;
use super::super::report::{BenchReport, print_progress};
use super::super::route::PairChat;
use super::large::report_faults;
use super::plan::{BODY_BYTES, busy_seconds, set_copies};
use super::servers::{RoomServer, RoomServerKind};
use super::table::RoomBenchTable;
use super::{RoomBench, RoomBenchArgs};

/// Occupants of a room, and rooms of a user.
const OCCUPANTS: usize = 20;
/// Users that join their rooms in a second.
const USERS_PER_SECOND: usize = 100;

/// Budgets: times a chat message, milliseconds, bytes.
const COPY_BUDGET: f64 = 1.5;
const P99_BUDGET_MS: f64 = 5.0;
/// Of a room with its occupants: 1 500 bytes, and 250 for each of 20 occupants.
const ROOM_BUDGET: f64 = 6_500.0;

/// Measures the rooms.
pub(super) fn messages(
    bench: &RoomBench<'_>,
    args: &RoomBenchArgs,
    report: &mut BenchReport,
    failed: &mut Vec<String>,
) -> RoomBenchTable {
    let title = format!(
        "{} users, each in {OCCUPANTS} rooms of {OCCUPANTS}, {} messages a second",
        args.users, args.rate
    );
    let mut table = RoomBenchTable::new(title, &bench.servers);
    bench.for_each_server(failed, |kind| measure_server(bench, kind, args, &mut table));
    report_faults(report, "muc.many.faults", &table);
    let ours = |name: &str| table.value(RoomServerKind::Throng, name);
    if let Some((copy, chat)) = ours("CPU of a copy, us").zip(ours("CPU of a chat message, us")) {
        report.check("muc.many.copy.ratio", copy / chat, "x", COPY_BUDGET);
    }
    if let Some(p99) = ours("delivery p99, ms") {
        report.check("muc.many.p99", p99, "ms", P99_BUDGET_MS);
    }
    if let Some(bytes) = ours("memory of a room, B") {
        report.check("muc.many.memory", bytes, "B/room", ROOM_BUDGET);
    }
    table
}

fn measure_server(
    bench: &RoomBench<'_>,
    kind: RoomServerKind,
    args: &RoomBenchArgs,
    table: &mut RoomBenchTable,
) -> Result<()> {
    let (users, seconds) = (args.users, bench.options.interval(30));
    let server = RoomServer::start(bench, kind, users, RoomPresence::Standard)?;
    let chat = PairChat { clients: server.clients(), connections: users, seconds };
    let chat = chat.open(args.rate as f64, 1).map(|sample| sample.cpu_us);
    let run = chat.and_then(|chat| {
        table.set(kind, "CPU of a chat message, us", chat);
        let plan = plan(args, &server, seconds);
        server.clients().start_monitored(&plan)?.finish_with_faults()
    });
    server.end();
    let run = run?;
    print_progress(&format!("{}: errors {}", kind.name(), run.errors()));
    let joins = busy_seconds(&run, "room_joins")?;
    table.set(kind, "rooms joined", run.total("room_joins") as f64);
    let cpu = run.cpu_ns(&(joins.start..joins.end + 1))?;
    table.set(kind, "CPU of a join, us", cpu / 1e3 / run.total("room_joins").max(1) as f64);
    let (before, after) = run
        .resident_at(joins.start.saturating_sub(1))
        .zip(run.resident_at(joins.end + 2))
        .context("memory was not sampled")?;
    table.set(kind, "memory of a room, B", (after - before) / users as f64);
    set_copies(table, kind, &run)
}

fn plan(args: &RoomBenchArgs, server: &RoomServer, seconds: u64) -> BenchPlan {
    let clients = server.clients();
    let login = clients.login(clients.usual_mechanism());
    let joining = args.users.div_ceil(USERS_PER_SECOND);
    let every_ms = args.users as f64 * 1e3 / args.rate as f64;
    let body = format!(
        "[[phase]]\nname = \"login\"\nconcurrency = 64\nusers = \"connections\"\n\n\
         [[session]]\nname = \"occupant\"\nsteps = [\n  {login},\n  \"presence\",\n  \
         {{ barrier = {{ users = \"connections\", timeout = \"3m\" }} }},\n  {{ think = \"4s\" }},\n  {{ think = \"0s..{joining}s\" }},\n  \
         {{ room_join = {{ room = \"ring\", count = {OCCUPANTS}, rooms = \"connections\", history = 0 }} }},\n  \
         {{ barrier = {{ users = \"connections\", timeout = \"{}s\" }} }},\n  {{ think = \"5s\" }},\n  \
         {{ meanwhile = {{ do = [{{ every = \"{every_ms:.3}ms\", room_message = {{ room = \"joined\", size = {BODY_BYTES} }} }}] }} }},\n]\n",
        2 * joining + 60
    );
    let hold = format!("{}s", 4 + joining as u64 + 12 + seconds);
    BenchPlan { connections: args.users, first: 0, hold, body }
}
