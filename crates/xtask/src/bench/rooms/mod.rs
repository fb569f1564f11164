//! `bench muc`: rooms (XEP-0045) of Throng, ejabberd and Prosody, beside a loop that writes the same bytes to the same
//! sockets.
//!
//! Each server alone and fresh, on plain TCP over loopback; the clients share its cores. The loop is the gathering
//! relay (`relay_rooms.rs`): one thread that parses nothing and writes 300 bytes to each socket, one write each; what is
//! read in one wake-up is written together. Parts, each alone with `--part`:
//!
//! * `large`: all occupants join one room at once; then it has a message a second, and in another run ten. Presence is
//!   reduced to the own one. CPU and duration of the joins, CPU and delivery times of copies, memory of an occupant.
//! * `flood`: a room in which eight occupants send, each as soon as its last message has arrived: copies in a second.
//! * `presence`: all occupants join at once and receive everybody's presence. CPU of a presence beside that of a write of
//!   the loop, memory of an occupant once it is quiet, and what two users with a conversation notice.
//! * `many`: as many rooms as users, 20 occupants in each. CPU of a copy beside that of a chat message of the same
//!   server, memory of a room.
//!
//! Lost, duplicate and reordered copies are those of the generator's account (`loadgen/src/control/room_accounting.rs`).
//!
//! Not measured: TLS, several nodes, history, rooms from the database.
//!
//! # Pitfalls
//!
//! Memory is the difference of the resident memory before the joins and at the end, and so includes what queues of the
//! joins have left behind in the allocator. A process may often open 20 000 files only: more occupants need more.

mod large;
mod many;
mod plan;
mod presence;
mod servers;
mod table;

use std::path::PathBuf;

use anyhow::{Result, ensure};

use super::report::{BenchReport, print_progress, print_result};
use super::server_under_test::{BenchOptions, server_program};

pub(super) use self::servers::{RoomServer, RoomServerKind, install};
pub(super) use self::table::RoomBenchTable;

/// The flags of `bench muc`.
#[derive(clap::Args, Clone)]
pub(crate) struct RoomBenchArgs {
    #[command(flatten)]
    pub(crate) options: BenchOptions,
    /// These parts only.
    #[arg(long, value_enum, value_delimiter = ',')]
    part: Vec<RoomPart>,
    /// These servers only.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<RoomServerKind>,
    /// Occupants of the room. Default: 10 000, and 1 000 for `flood` and `presence`.
    #[arg(long)]
    occupants: Option<usize>,
    /// Messages a second of `large`, a run each.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 10])]
    rates: Vec<usize>,
    /// Users and rooms of `many`.
    #[arg(long, default_value_t = 15_000)]
    users: usize,
    /// Messages a second of `many`.
    #[arg(long, default_value_t = 2_000)]
    rate: usize,
}

/// A part of the bench.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum RoomPart {
    Large,
    Flood,
    Presence,
    Many,
}

impl RoomPart {
    const ALL: [RoomPart; 4] = [RoomPart::Large, RoomPart::Flood, RoomPart::Presence, RoomPart::Many];
}

/// What all parts need.
struct RoomBench<'a> {
    options: &'a BenchOptions,
    program: PathBuf,
    servers: Vec<RoomServerKind>,
}

impl RoomBench<'_> {
    /// Measures each server. One that cannot be measured must not lose the results of the others.
    fn for_each_server(
        &self,
        failed: &mut Vec<String>,
        mut measure: impl FnMut(RoomServerKind) -> Result<()>,
    ) {
        for kind in &self.servers {
            if let Err(error) = measure(*kind) {
                print_progress(&format!("{}: {error:#}", kind.name()));
                failed.push(format!("{}: {error:#}", kind.name()));
            }
        }
    }
}

/// Measures, prints a table for each part, and reports Throng's budgets.
pub(crate) fn run(args: &RoomBenchArgs, report: &mut BenchReport) -> Result<()> {
    let options = &args.options;
    ensure!(options.target.is_none(), "bench muc starts the servers itself: leave --target out");
    ensure!(args.occupants.is_none_or(|it| it >= 20), "--occupants must be at least 20");
    ensure!(
        args.users >= 20 && args.users.is_multiple_of(2),
        "--users must be an even number of at least 20"
    );
    ensure!(args.rate > 0 && args.rates.iter().all(|rate| *rate > 0), "rates must be at least 1");
    let wanted = |kind: &RoomServerKind| args.only.is_empty() || args.only.contains(kind);
    let servers: Vec<RoomServerKind> = RoomServerKind::ALL.into_iter().filter(wanted).collect();
    servers::install(&servers)?;
    let bench = RoomBench { options, program: server_program(options)?, servers };
    let mut failed = Vec::new();
    for part in RoomPart::ALL {
        if !args.part.is_empty() && !args.part.contains(&part) {
            continue;
        }
        let mut tables = Vec::new();
        match part {
            RoomPart::Large => {
                for rate in &args.rates {
                    let occupants = args.occupants.unwrap_or(10_000);
                    tables.push(large::messages(&bench, occupants, *rate, report, &mut failed));
                }
            }
            RoomPart::Flood => {
                tables.push(large::flood(&bench, args.occupants.unwrap_or(1_000), report, &mut failed));
            }
            RoomPart::Presence => {
                tables.push(presence::joins(&bench, args.occupants.unwrap_or(1_000), report, &mut failed));
            }
            RoomPart::Many => tables.push(many::messages(&bench, args, report, &mut failed)),
        }
        for table in &tables {
            print_result(&RoomBenchTable::markdown(table));
        }
    }
    ensure!(failed.is_empty(), "{}", failed.join("; "));
    Ok(())
}
