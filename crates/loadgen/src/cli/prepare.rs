//! `throng load prepare`: in-band creation of a plan's accounts and rosters on any server that allows it.
//!
//! Accounts are registered by XEP-0077 (2.4), section 3.1; rosters are built by subscriptions (RFC 6121, section 3):
//! every user requests its nearest neighbours in a ring and approves every request. There are three runs: register;
//! request and approve; approve requests that arrived after a user had left, which closes the ring and makes up for a
//! slow server.
//!
//! Not implemented: names, groups, removal of what an earlier plan left behind.
//!
//! # Pitfalls
//!
//! Servers limit registrations by address and time, and most have them disabled; then their own tools must create the
//! accounts, and for Throng `--print` gives the command.

use super::plan::ResolvedPlan;
use super::run::{self, execute_run};
use super::{CommandFailure, PrepareArgs, output, plan};
use crate::clock;
use crate::control::interrupt::InterruptCounter;
use crate::control::salts::SaltCache;
use crate::measure::{Counter, Timing};
use crate::plan::{
    AccountSource, ArrivalPhase, Destination, LoadPlan, PlanOptions, PlanStep, Preparation, PresenceKind,
    TestAccounts, TimeSpan, TransportSecurity, UserSession,
};
use crate::report;
use crate::report::model;

/// Accounts per second, unless `--rate` is given.
const RATE: f64 = 100.0;
/// Time for which a user waits for requests of its neighbours, beside the time in which they arrive. Milliseconds.
const STAY_MS: f64 = 3_000.0;

/// Runs `throng load prepare`.
pub(super) fn prepare(args: &PrepareArgs) -> Result<(), CommandFailure> {
    args.run.failures.refuse("prepare")?;
    let mut base = args.run.clone();
    let resolved = plan::read(&base)?;
    let ring = args.ring.or(resolved.preparation.as_ref().map(|wanted| wanted.roster)).unwrap_or(0);
    if args.print {
        let Some(wanted) = &resolved.preparation else {
            return Err(CommandFailure::usage(
                "this plan has a list of accounts; create each with `throng account add`, which reads the \
                 password from standard input",
            ));
        };
        output::line(&bulk(wanted, ring));
        return Ok(());
    }
    let accounts = accounts(&resolved);
    if matches!(accounts.source, AccountSource::Anonymous { .. }) {
        return Err(CommandFailure::usage("the users of this plan are anonymous and need no accounts"));
    }
    let rate = args.run.shape.rate.unwrap_or(RATE);
    run::ensure_token(&mut base)?;
    let interrupts = InterruptCounter::listen()?;
    let directory =
        run::directory(&args.run.output, &format!("prepare-{}", resolved.plan.name), clock::unix_seconds());
    let mut stages = vec![register(&resolved.plan, &accounts, rate)];
    if ring > 0 {
        let around = ring.div_ceil(2);
        stages.push(subscribe(&resolved.plan, &accounts, rate, around));
        stages.push(accept(&resolved.plan, &accounts, rate));
    }
    let salts = SaltCache::default();
    for plan in stages {
        let name = plan.name.clone();
        output::error(&format!("{}: {}", name, plan.title));
        let stage = ResolvedPlan { plan, preparation: None, target: resolved.target.clone() };
        let mut setup = run::setup(&base, stage)?;
        // The third stage has the same accounts as the second.
        let shared = setup.salts.get_or_insert_with(|| salts.clone()).clone();
        let run = execute_run(setup, &base, &interrupts)?;
        run::save_salts(&base, Some(&shared));
        report::write(&directory.join(&name), &run)?;
        summary(&name, &run)?;
        if interrupts.count() > 0 {
            return Err(CommandFailure::Run(anyhow::anyhow!(
                "interrupted; the accounts created so far are kept"
            )));
        }
    }
    Ok(())
}

fn summary(name: &str, run: &model::RunRecord) -> Result<(), CommandFailure> {
    let total = |counter: Counter| run.totals.counters.get(counter.name()).map_or(0, |total| total.total);
    let registered = run.totals.timings.get(Timing::Register.name()).map_or(0, |total| total.summary.count);
    let errors: Vec<String> =
        run.totals.errors.iter().map(|(kind, count)| format!("{} {kind}", count.total)).collect();
    let errors = if errors.is_empty() { "no errors".to_owned() } else { errors.join(", ") };
    output::line(&format!(
        "{name}: {} users, {registered} registered, {} logins, {} presences sent; {errors}",
        total(Counter::UsersStarted),
        total(Counter::Logins),
        total(Counter::PresenceSent)
    ));
    // A refused account will be missing from the plan.
    run::failed(&[], run)
}

/// The equivalent command on Throng, which takes seconds.
fn bulk(wanted: &Preparation, ring: u32) -> String {
    let Preparation { prefix, first, accounts, password, domain, .. } = wanted;
    let roster = if ring > 0 { format!(" --roster ring:{ring}") } else { String::new() };
    format!(
        "throng account bulk --domain {} --prefix {} --from {first} --count {accounts} --password {}{roster}",
        quoted(domain),
        quoted(prefix),
        quoted(password)
    )
}

/// Quotes an argument for a shell.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.@:".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Accounts that the plan expects on the server, which may be more than it uses.
fn accounts(resolved: &ResolvedPlan) -> TestAccounts {
    let Some(wanted) = &resolved.preparation else { return resolved.plan.accounts.clone() };
    TestAccounts {
        source: AccountSource::Pattern {
            prefix: wanted.prefix.clone(),
            first: wanted.first,
            count: u32::try_from(wanted.accounts).unwrap_or(u32::MAX),
            stride: 1,
            password: wanted.password.clone(),
        },
        domain: wanted.domain.clone(),
    }
}

/// A run with one session per account, in the order of their numbers.
fn stage(
    plan: &LoadPlan,
    accounts: &TestAccounts,
    rate: f64,
    name: &str,
    title: String,
    steps: Vec<PlanStep>,
) -> LoadPlan {
    let count = accounts.count();
    let phase = ArrivalPhase {
        name: name.to_owned(),
        duration_ms: None,
        rate,
        batch: 1,
        poisson: false,
        max_users: Some(count),
        weights: None,
        wait_all_end: true,
        concurrency: None,
    };
    let session = UserSession { name: name.to_owned(), weight: 1.0, accept_subscriptions: true, steps };
    LoadPlan {
        name: name.to_owned(),
        title,
        target: plan.target.clone(),
        accounts: accounts.clone(),
        phases: vec![phase],
        starts: Vec::new(),
        sessions: vec![session],
        transactions: Vec::new(),
        options: PlanOptions {
            connections: count.min(plan.options.connections.max(1_000)),
            drain_ms: 1_000,
            // An existing account must not stop the creation of the others.
            keep_going: true,
            seed: plan.options.seed,
            ..PlanOptions::default()
        },
    }
}

fn register(plan: &LoadPlan, accounts: &TestAccounts, rate: f64) -> LoadPlan {
    let mut steps = vec![PlanStep::Connect];
    if plan.target.security == TransportSecurity::Starttls {
        steps.push(PlanStep::StartTls);
    }
    steps.extend([PlanStep::Register, PlanStep::Disconnect]);
    let title = format!("creates {} accounts, {rate} per second", accounts.count());
    stage(plan, accounts, rate, "register", title, steps)
}

fn login() -> [PlanStep; 2] {
    let available = PlanStep::Presence { kind: PresenceKind::Available, to: None, show: None, status: None };
    [PlanStep::Login { mechanisms: Vec::new(), resource: None }, available]
}

fn subscribe(plan: &LoadPlan, accounts: &TestAccounts, rate: f64, around: u32) -> LoadPlan {
    let mut steps = login().to_vec();
    // In a small ring the same neighbour would be on both sides.
    let around = around.min(accounts.count().saturating_sub(1) / 2).max(1);
    for distance in 1..=i32::try_from(around).unwrap_or(i32::MAX) {
        for distance in [distance, -distance] {
            steps.push(PlanStep::Presence {
                kind: PresenceKind::Subscribe,
                to: Some(Destination::Ring(distance)),
                show: None,
                status: None,
            });
        }
    }
    // Long enough for the higher neighbours to arrive, send their requests and receive ours.
    let arriving = f64::from(around) / rate * 1_000.0;
    steps.extend([PlanStep::Think(TimeSpan::Fixed(STAY_MS + 2.0 * arriving)), PlanStep::Disconnect]);
    let title =
        format!("adds {} contacts to each account by subscription requests and approvals", 2 * around);
    stage(plan, accounts, rate, "contacts", title, steps)
}

fn accept(plan: &LoadPlan, accounts: &TestAccounts, rate: f64) -> LoadPlan {
    let mut steps = login().to_vec();
    steps.extend([PlanStep::Think(TimeSpan::Fixed(STAY_MS)), PlanStep::Disconnect]);
    let title = "approves the requests that arrived after the recipients had logged out".to_owned();
    stage(plan, accounts, rate, "acceptance", title, steps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{PlanOverrides, check, named};

    #[test]
    fn the_printed_command_is_quoted_for_a_shell() {
        let wanted = Preparation {
            prefix: "user".to_owned(),
            first: 3,
            accounts: 10,
            password: "it's".to_owned(),
            domain: "example.org".to_owned(),
            roster: 4,
        };
        assert_eq!(
            bulk(&wanted, 4),
            r"throng account bulk --domain example.org --prefix user --from 3 --count 10 --password 'it'\''s' --roster ring:4"
        );
        assert!(!bulk(&wanted, 0).contains("--roster"));
    }

    #[test]
    fn stages_are_valid_plans() {
        let arguments = PlanOverrides { connections: Some(500), ..PlanOverrides::default() };
        let (plan, preparation) = named("tigase-roster-10", &arguments).unwrap();
        let resolved = ResolvedPlan { plan, preparation, target: String::new() };
        let accounts = accounts(&resolved);
        let machine = crate::plan::MachineCapacity {
            files: 20_000,
            cores: 2,
            memory: 1 << 34,
            ports: (32_768, 60_999),
            server_here: true,
        };
        for stage in [
            register(&resolved.plan, &accounts, 100.0),
            subscribe(&resolved.plan, &accounts, 100.0, 5),
            accept(&resolved.plan, &accounts, 100.0),
        ] {
            assert_eq!(check(&stage, &machine), [], "{}", stage.name);
        }
        let stage = subscribe(&resolved.plan, &accounts, 100.0, 5);
        let requested = stage.sessions[0]
            .steps
            .iter()
            .filter(|step| matches!(step, PlanStep::Presence { to: Some(_), .. }));
        assert_eq!(requested.count(), 10);
    }
}
