//! `bench presence`: cost of a presence delivered, when one user with 150 online contacts changes state.
//!
//! All are online; the one alternates between two states with a status text, the next when all contacts have the last.
//! Beside it the relay: as many bytes as a contact receives (with `from` and `to`), written to as many sockets for one
//! input.
//!
//! Not measured: probes and initial presence, several resources, contacts on other nodes, presence under load.

use anyhow::{Result, ensure};

use super::clients::{BenchPlan, ClientOptions, ClientSecurity};
use super::report::{BenchReport, median, print_progress};
use super::server_under_test::{BenchOptions, ServerRequirements, ServerUnderTest};

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

/// Measures and reports.
pub(crate) fn run(args: &PresenceBenchArgs, report: &mut BenchReport) -> Result<()> {
    let options = &args.options;
    let accounts = args.contacts + 1;
    let need =
        ServerRequirements { accounts, contacts_per_account: args.contacts, security: ClientSecurity::None };
    let server = ServerUnderTest::server(options, &need)?;
    let relay = ServerUnderTest::relay(options)?;
    let seconds = options.interval(3);
    // The first account changes state: it is the neighbour of all others in a ring of so few.
    let changes =
        |clients| PresenceChanges { clients, before: 0, senders: 1, contacts: args.contacts, seconds };
    let (mut low, mut high, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..options.rounds(5) {
        let relay_cost = changes(&relay.clients).cpu_us()?;
        let measured = changes(&server.clients).cpu_us()?;
        print_progress(&format!(
            "round {round}: relay {relay_cost:.2}, server {measured:.2} us per presence"
        ));
        low.push(relay_cost);
        high.push(measured);
        ratios.push(measured / relay_cost);
    }
    report.info("presence.relay.cpu", median(low), "us/presence");
    report.info("presence.server.cpu", median(high), "us/presence");
    report.check("presence.ratio", median(ratios), "x", RATIO_BUDGET);
    Ok(())
}

/// Users who change state again and again, each as soon as all its contacts have the last change.
pub(crate) struct PresenceChanges<'a> {
    pub(crate) clients: &'a ClientOptions,
    /// Connected accounts before those that change state, and as many after them beside one of several senders.
    pub(crate) before: usize,
    /// Accounts that change state.
    pub(crate) senders: usize,
    /// Online contacts of each.
    pub(crate) contacts: usize,
    /// Whole seconds that are measured.
    pub(crate) seconds: u64,
}

impl PresenceChanges<'_> {
    /// Connected accounts: all contacts of the senders are among them.
    pub(crate) fn connections(&self) -> usize {
        if self.before == 0 { self.senders + self.contacts } else { 2 * self.before + self.senders }
    }

    /// Microseconds of the server's CPU for each presence delivered to a contact.
    pub(crate) fn cpu_us(&self) -> Result<f64> {
        let (connections, hold) = (self.connections(), format!("{}s", self.seconds + 4));
        let run = self.clients.run(&BenchPlan { connections, first: 0, hold, body: self.body() })?;
        let window = run.steady("timing:presence")?;
        ensure!(window.count > 0, "no presence was delivered");
        Ok(run.cpu_ns(&window.seconds)? / 1e3 / window.count as f64)
    }

    fn body(&self) -> String {
        let login = self.clients.login(self.clients.usual_mechanism());
        let all = "{ barrier = { users = \"connections\", timeout = \"2m\" } }";
        let start = format!("{login}, \"roster\", \"presence\", {all}");
        // The relay adds no addresses: the status makes up for them.
        let addresses = format!(" from='u0@{0}/bench' to='u100@{0}/bench'", self.clients.domain).len();
        let filling = if self.clients.relay { ".".repeat(addresses) } else { String::new() };
        let change = |show: &str| {
            format!(
                "{{ presence = {{ show = \"{show}\", status = \"{{unique}} back soon{filling}\", \
                 deliveries = {} }} }}",
                self.contacts
            )
        };
        let after = self.connections() - self.before - self.senders;
        let phase = |users: usize, sender: u8| {
            if users == 0 {
                return String::new();
            }
            format!(
                "[[phase]]\nconcurrency = 16\nusers = {users}\nweights = {{ sender = {sender}, contact = {} }}\n\n",
                1 - sender
            )
        };
        format!(
            "{}{}{}\
             [[session]]\nname = \"sender\"\nsteps = [{start}, {{ think = \"2s\" }}, {{ repeat = {{ steps = [{}, {}] }} }}]\n\n\
             [[session]]\nname = \"contact\"\nsteps = [{start}, {{ think = \"1000h\" }}]\n",
            phase(self.before, 0),
            phase(self.senders, 1),
            phase(after, 0),
            change("away"),
            change("dnd"),
        )
    }
}
