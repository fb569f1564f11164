//! `bench presence`: what a presence delivered costs, when one user with 150 online contacts changes state.
//!
//! All are online; the one toggles between two states with a status text, the next when all contacts have the last.
//! Beside it the relay: the same bytes that a contact got (`from`, `to` and all) written to as many sockets, asked for by one input.
//!
//! Not measured: probes and initial presence, several resources, contacts on other nodes, presence under load.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use memchr::memmem;

use super::clock::now;
use super::driver::Driver;
use super::negotiate::Security;
use super::process::CpuMeter;
use super::report::{BenchReport, median, print_progress};
use super::server_under_test::{BenchOptions, ServerRequirements, ServerUnderTest};
use super::talk::unhex;

/// The flags of `bench presence`.
#[derive(clap::Args, Clone)]
pub(crate) struct PresenceBenchArgs {
    #[command(flatten)]
    pub(crate) options: BenchOptions,
    /// Online contacts of the one.
    #[arg(long, default_value_t = 150)]
    contacts: usize,
}

impl PresenceBenchArgs {
    /// The usual sizes, for `bench all`.
    pub(crate) fn usual(options: &BenchOptions) -> Self {
        Self { options: options.clone(), contacts: 150 }
    }
}

const RATIO_BUDGET: f64 = 1.5;
const STATUS: &[u8] = b"<status>";

/// Measures and reports.
pub(crate) fn run(args: &PresenceBenchArgs, report: &mut BenchReport) -> Result<()> {
    let options = &args.options;
    let accounts = args.contacts + 1;
    let need = ServerRequirements { accounts, contacts_per_account: args.contacts, security: Security::None };
    let server = ServerUnderTest::server(options, &need)?;
    let relay = ServerUnderTest::relay(options)?;
    let (mut floor, mut side) = (relay.driver()?, server.driver()?);
    floor.login(0, accounts, 16)?;
    side.login(0, accounts, 16)?;
    side.quiet(Duration::from_secs(1), Duration::from_secs(60))?;
    let (mut floor_cpu, mut side_cpu) = (relay.cpu()?, server.cpu()?);
    let mut toggles = PresenceToggles { contacts: args.contacts, count: 0, sample: Vec::new() };
    let length = options.interval(3.0);
    // Warms up and takes the bytes that a contact sees.
    let plain = |state: u64, stamp: &str| {
        let show = if state.is_multiple_of(2) { "away" } else { "dnd" };
        format!("<presence><show>{show}</show><status>{stamp} back soon</status></presence>").into_bytes()
    };
    toggles.run(&mut side, &mut side_cpu, length / 4, plain)?;
    let sample = std::mem::take(&mut toggles.sample);
    let at = memmem::find(&sample, STATUS).context("the contacts see no status")? + STATUS.len();
    let seen = |_: u64, stamp: &str| {
        let mut bytes = sample.clone();
        bytes[at..at + stamp.len()].copy_from_slice(stamp.as_bytes());
        bytes
    };
    toggles.run(&mut floor, &mut floor_cpu, length / 4, seen)?;
    let (mut under, mut over, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..options.rounds(5) {
        let low = toggles.run(&mut floor, &mut floor_cpu, length, seen)?;
        let high = toggles.run(&mut side, &mut side_cpu, length, plain)?;
        print_progress(&format!("round {round}: relay {low:.2}, server {high:.2} us a presence"));
        under.push(low);
        over.push(high);
        ratios.push(high / low);
    }
    report.info("presence.bytes", sample.len() as f64, "B");
    report.info("presence.relay.cpu", median(under), "us/presence");
    report.info("presence.server.cpu", median(over), "us/presence");
    report.check("presence.ratio", median(ratios), "x", RATIO_BUDGET);
    floor.close_all()?;
    side.close_all()
}

struct PresenceToggles {
    contacts: usize,
    count: u64,
    /// The newest presence as a contact saw it.
    sample: Vec<u8>,
}

impl PresenceToggles {
    /// Toggles slot 0 for `length`. Returns microseconds of the server's CPU a presence delivered to a contact.
    fn run<F>(&mut self, driver: &mut Driver, cpu: &mut CpuMeter, length: Duration, bytes: F) -> Result<f64>
    where
        F: Fn(u64, &str) -> Vec<u8>,
    {
        let begun = now();
        let mut toggles = 0_u64;
        cpu.elapsed()?;
        while begun.elapsed() < length {
            self.count += 1;
            let stamp = format!("{:016x}", self.count);
            driver.outs.to(0).extend_from_slice(&bytes(self.count, &stamp));
            let (mut got, asked) = (0, now());
            while got < self.contacts {
                let (count, sample) = (self.count, &mut self.sample);
                driver.turn(Some(Duration::from_secs(1)), |_, slot, element| {
                    if slot != 0 && stamp_of(element) == Some(count) {
                        got += 1;
                        if got == 1 {
                            sample.clear();
                            sample.extend_from_slice(element);
                        }
                    }
                })?;
                if asked.elapsed() > Duration::from_secs(10) {
                    bail!("a presence reached {got} of {} contacts", self.contacts);
                }
            }
            toggles += 1;
        }
        Ok(cpu.elapsed()? as f64 / 1e3 / (toggles * self.contacts as u64) as f64)
    }
}

pub(super) fn stamp_of(element: &[u8]) -> Option<u64> {
    if !element.starts_with(b"<presence") {
        return None;
    }
    let at = memmem::find(element, STATUS)? + STATUS.len();
    unhex(element.get(at..at + 16)?)
}
