//! `bench resume`: cost of a storm of resumptions, all at once, as after a network outage.
//!
//! Clients log in with tokens (XEP-0484) and stream management (XEP-0198), lose their connections without closing the
//! stream, and all come back in the same moment: one flight with token and `<resume/>`, up to `<resumed/>`. Beside it
//! the same storm of logins that bind a new session. The CPU of a resumption is held against the budget of a login.
//!
//! Not measured: TLS, stanzas that are sent again.

use anyhow::{Result, ensure};

use super::clients::{BenchPlan, ClientSecurity};
use super::logins::{FAST_LOGIN, LOGIN_CPU_BUDGET_MS};
use super::report::{BenchReport, median, print_progress};
use super::server_under_test::{BenchOptions, ServerRequirements, ServerUnderTest};

/// The flags of `bench resume`.
#[derive(clap::Args, Clone)]
pub(crate) struct ResumeBenchArgs {
    #[command(flatten)]
    pub(crate) options: BenchOptions,
    /// Sessions that are lost and come back at once.
    #[arg(long, default_value_t = 15_000)]
    sessions: usize,
}

/// Measures and reports.
pub(crate) fn run(args: &ResumeBenchArgs, report: &mut BenchReport) -> Result<()> {
    let options = &args.options;
    let sessions = if options.quick { args.sessions / 10 } else { args.sessions }.max(10);
    let need =
        ServerRequirements { accounts: sessions, contacts_per_account: 3, security: ClientSecurity::None };
    let server = ServerUnderTest::server(options, &need)?;
    let (mut resumed, mut bound, mut rates) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..options.rounds(3) {
        let plan = BenchPlan { connections: sessions, first: 0, hold: "15s".into(), body: body() };
        let run = server.clients.run(&plan)?;
        let storms = run.bursts("sessions_resumed");
        let logins = run.bursts("logins");
        let (Some(storm), [.., anew, _]) = (storms.last(), logins.as_slice()) else {
            anyhow::bail!("there was no storm: {} sessions were resumed", run.total("sessions_resumed"));
        };
        ensure!(
            storm.count == sessions as u64 && anew.count == sessions as u64,
            "{} sessions were resumed and {} bound anew, of {sessions}; the server was too slow",
            storm.count,
            anew.count
        );
        let cost = run.cpu_ns(&storm.seconds)? / 1e6 / sessions as f64;
        let new = run.cpu_ns(&anew.seconds)? / 1e6 / sessions as f64;
        print_progress(&format!("round {round}: {cost:.3} ms per resumption, {new:.3} ms per new session"));
        resumed.push(cost);
        bound.push(new);
        // All are due at the same moment, so the last one took the whole storm.
        rates.push(sessions as f64 * 1e3 / run.total_ms("sm_resume", "max"));
    }
    report.info("resume.sessions", sessions as f64, "at once");
    report.check("resume.cpu", median(resumed), "ms/resumption", LOGIN_CPU_BUDGET_MS);
    report.info("resume.new-session.cpu", median(bound), "ms/login");
    report.info("resume.rate", median(rates), "resumption/s");
    Ok(())
}

/// Two waves for the tokens, both of which write; a storm of new sessions; sessions that are cut and resumed in a
/// storm. Silence separates them.
fn body() -> String {
    let phase = |concurrency: &str, session: &str| {
        let weight = |name: &str| u8::from(name == session);
        format!(
            "[[phase]]\nconcurrency = {concurrency}\nusers = \"connections\"\nwait_all_end = {}\n\
             weights = {{ visit = {}, anew = {}, resumed = {} }}\n\n[[phase]]\nduration = \"3s\"\n\n",
            session != "resumed",
            weight("visit"),
            weight("anew"),
            weight("resumed")
        )
    };
    let all = "{ barrier = { users = \"connections\", timeout = \"2m\" } }";
    format!(
        "{}{}{}{}\
         [[session]]\nname = \"visit\"\nsteps = [{FAST_LOGIN}, \"disconnect\"]\n\n\
         [[session]]\nname = \"anew\"\nsteps = [{FAST_LOGIN}, {all}, {{ think = \"3s\" }}, \"disconnect\"]\n\n\
         [[session]]\nname = \"resumed\"\nsteps = [\n  \
         {{ login = {{ fast = true, mechanisms = \"SCRAM-SHA-1\", stream_management = true }} }},\n  {all},\n  \
         \"cut\", {{ think = \"4s\" }}, \"resume\", {{ think = \"1000h\" }},\n]\n",
        phase("64", "visit"),
        phase("64", "visit"),
        phase("\"connections\"", "anew"),
        phase("64", "resumed"),
    )
}
