//! Plans of the bench for `throng load`, and the figures that all of them have.

use std::ops::Range;

use anyhow::{Context as _, Result};

use super::super::clients::{BenchPlan, ClientOptions, MeasuredRun};
use super::servers::RoomServerKind;
use super::table::RoomBenchTable;

/// Bytes of a message's body; a copy has some 300.
pub(super) const BODY_BYTES: usize = 100;
/// Whole seconds between the logins and the joins, in which memory is read.
const QUIET_SECONDS: usize = 4;

/// One room of all connections.
pub(super) struct LargeRoomPlan {
    pub(super) occupants: usize,
    /// Seconds for the joins, and then for `steps`.
    pub(super) join_seconds: u64,
    pub(super) seconds: u64,
    /// Steps of occupants below `senders`, as TOML.
    pub(super) steps: String,
    pub(super) senders: usize,
}

impl LargeRoomPlan {
    /// The plan. Its first user creates the room before all others join it at once.
    pub(super) fn plan(&self, clients: &ClientOptions) -> BenchPlan {
        let login = clients.login(clients.usual_mechanism());
        let join = "{ room_join = { room = \"large\", history = 0 } }";
        let barrier = format!(
            "{{ barrier = {{ users = \"connections\", timeout = \"{}s\" }} }}",
            self.join_seconds + 120
        );
        let body = format!(
            "[[phase]]\nname = \"login\"\nconcurrency = 64\nusers = \"connections\"\n\n\
             [[session]]\nname = \"occupant\"\nsteps = [\n  {login},\n  \"presence\",\n  {{ set = {{ number = \"{{n}}\" }} }},\n  \
             {{ if = {{ variable = \"number\", below = 1, steps = [{join}] }} }},\n  {barrier},\n  \
             {{ think = \"{QUIET_SECONDS}s\" }},\n  {{ if = {{ variable = \"number\", at_least = 1, steps = [{join}] }} }},\n  \
             {barrier},\n  {{ think = \"2s\" }},\n  \
             {{ if = {{ variable = \"number\", below = {senders}, steps = [{steps}] }} }},\n  {{ think = \"1000h\" }},\n]\n",
            senders = self.senders,
            steps = self.steps,
        );
        let hold = format!("{}s", QUIET_SECONDS as u64 + 2 + self.join_seconds + self.seconds);
        BenchPlan { connections: self.occupants, first: 0, hold, body }
    }
}

/// Seconds in which a counter grew at once: from the first burst of more than one to the end of the last.
pub(super) fn busy_seconds(run: &MeasuredRun, counter: &str) -> Result<Range<usize>> {
    let bursts = run.bursts(counter);
    let first = bursts.iter().find(|burst| burst.count > 1).with_context(|| format!("no {counter}"))?;
    let last = bursts.last().with_context(|| format!("no {counter}"))?;
    Ok(first.seconds.start..last.seconds.end)
}

/// Sets what a run says about joins: their number, duration and CPU.
pub(super) fn set_joins(
    table: &mut RoomBenchTable,
    kind: RoomServerKind,
    run: &MeasuredRun,
    occupants: usize,
) -> Result<Range<usize>> {
    let seconds = busy_seconds(run, "room_joins")?;
    let joins = run.total("room_joins");
    table.set(kind, "joined", joins as f64);
    table.set(kind, "join of all, s", run.total_ms("room_join", "max") / 1e3);
    // What is sent for the last join counts as well.
    let cpu = run.cpu_ns(&(seconds.start..seconds.end + 1))?;
    table.set(kind, "CPU of a join, us", cpu / 1e3 / occupants as f64);
    Ok(seconds)
}

/// Sets the memory of an occupant: the growth from before the joins to the end.
pub(super) fn set_memory(
    table: &mut RoomBenchTable,
    kind: RoomServerKind,
    run: &MeasuredRun,
    joins: &Range<usize>,
    occupants: usize,
) -> Result<()> {
    let before = run.resident_at(joins.start.saturating_sub(1));
    let after = run.resident_at(run.closing()?.saturating_sub(1));
    let (before, after) = before.zip(after).context("memory was not sampled")?;
    table.set(kind, "memory of an occupant, B", (after - before) / occupants as f64);
    Ok(())
}

/// Sets CPU, times and the exact account of the copies of messages.
pub(super) fn set_copies(table: &mut RoomBenchTable, kind: RoomServerKind, run: &MeasuredRun) -> Result<()> {
    let window = run.steady("room_copies")?;
    table.set(kind, "CPU of a copy, us", run.cpu_ns(&window.seconds)? / 1e3 / window.count as f64);
    table.set(kind, "copies a second", window.rate());
    for (name, statistic) in
        [("delivery p50, ms", "p50"), ("delivery p99, ms", "p99"), ("delivery, longest, ms", "max")]
    {
        table.set(kind, name, run.total_ms("room_message", statistic));
    }
    table.set(kind, "messages", run.total("room_messages_sent") as f64);
    table.set(kind, "messages refused", run.total("room_messages_refused") as f64);
    table.set(kind, "messages that reached nobody", run.total("room_messages_unreceived") as f64);
    table.set(kind, "copies", run.total("room_copies") as f64);
    for (name, counter) in FAULTS {
        table.set(kind, name, run.total(counter) as f64);
    }
    table.set(kind, "the generator late by, p99, ms", run.total_ms("lateness", "p99"));
    Ok(())
}

/// Rows of faults, of which there must be none, and their counters.
pub(super) const FAULTS: [(&str, &str); 5] = [
    ("copies lost", "room_copies_lost"),
    ("copies doubled", "room_copies_duplicate"),
    ("copies out of order", "room_copies_reordered"),
    ("sessions lost", "sessions_lost"),
    ("joins failed", "room_join_errors"),
];
