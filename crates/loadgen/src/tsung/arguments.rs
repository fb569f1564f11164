//! Assembly of the plan from a Tsung scenario and the command line's values.
//!
//! `--connections N` makes N users arrive in total: the rates of all phases and their `maxnumber` are multiplied, so
//! the shape is unchanged and no user finds all slots taken. The scenario itself is not read here.
//!
//! # Pitfalls
//!
//! The order matters: first connections, then the time scale, then the values of the command line, which are wall-clock
//! times.

use std::net::IpAddr;

use super::dynvars::{SERVER_HOST, SERVER_PORT};
use super::load::TsungLoad;
use super::network::TsungServers;
use super::reader::TsungReader;
use crate::plan::{
    LoadPlan, PlanOptions, PlanOverrides, PlanStep, PlanTarget, PlanTls, TemplatePart, TransportSecurity,
    UserSession, VariableValue, overrides, scale,
};

impl TsungReader<'_> {
    /// Assembles the parts.
    #[expect(clippy::too_many_arguments, reason = "each is one part of the scenario, read by its own module")]
    pub(super) fn assemble(
        &mut self,
        name: &str,
        title: String,
        servers: TsungServers,
        sources: Vec<IpAddr>,
        sessions: Vec<UserSession>,
        load: TsungLoad,
        arguments: &PlanOverrides,
    ) -> Option<LoadPlan> {
        let accounts = self.read_accounts(arguments);
        let users = accounts.count();
        let mut plan = LoadPlan {
            name: name.to_owned(),
            title,
            target: PlanTarget {
                addresses: servers.addresses,
                domain: accounts.domain.clone(),
                security: servers.security,
                tls: self.tls(),
                sources,
                web: servers.web,
            },
            accounts,
            phases: load.phases,
            starts: load.starts,
            sessions,
            transactions: std::mem::take(&mut self.transactions),
            options: PlanOptions {
                duration_ms: load.duration_ms,
                connect_timeout_ms: self.settings.connect_timeout_ms,
                answer_timeout_ms: self.settings.answer_timeout_ms,
                retries: self.settings.retries,
                retry_ms: self.settings.retry_ms,
                seed: self.settings.seed.unwrap_or(PlanOptions::default().seed),
                receive_buffer: self.settings.receive_buffer,
                send_buffer: self.settings.send_buffer,
                pubsub_service: self.settings.pubsub_service.clone(),
                tables: std::mem::take(&mut self.tables),
                ..PlanOptions::default()
            },
        };
        let expected = arrivals(&plan);
        match arguments.connections {
            Some(wanted) => self.connections(&mut plan, wanted, expected),
            None => plan.options.connections = users.min(most(&plan)).max(1),
        }
        self.check_barriers(&plan, arrivals(&plan));
        let changes = |step: &PlanStep| matches!(step, PlanStep::ChangeTarget { .. });
        if plan.target.web.transport.is_web() && plan.sessions.iter().any(|it| it.steps.iter().any(changes)) {
            self.wrong_plan(
                "change_type: this version supports one type of connection per run, and that of the servers \
                 is not TCP",
            );
        }
        secure(&mut plan, arguments.security);
        server_words(&mut plan);
        if arguments.register {
            register(&mut plan);
        }
        scale::scale(&mut plan, arguments.time_scale);
        overrides::apply(&mut plan, &PlanOverrides { register: false, ..arguments.clone() });
        Some(plan)
    }

    fn tls(&self) -> PlanTls {
        let (ca_pem, certificate_pem, key_pem) = self.certificates.first().cloned().unwrap_or_default();
        let settings = &self.settings;
        PlanTls { ca_pem, certificate_pem, key_pem, resume: settings.resume, only_tls12: settings.only_tls12 }
    }

    /// Scales arrivals to this many users.
    fn connections(&mut self, plan: &mut LoadPlan, wanted: u32, expected: f64) {
        let users = plan.accounts.count();
        if wanted > users {
            self.wrong_plan(format!(
                "--connections {wanted}: there are {users} accounts (userid_max or the lines of a file); \
                 set --count to the number of accounts on the server"
            ));
        }
        plan.options.connections = wanted.max(1);
        let starts = plan.starts.len() as f64;
        let factor = (f64::from(wanted) - starts).max(0.0) / (expected - starts);
        if !factor.is_finite() {
            return;
        }
        let (mut before, mut given) = (0.0, 0);
        for phase in &mut plan.phases {
            before += in_phase(phase.rate, phase.duration_ms, phase.max_users) * factor;
            let until = before.round() as u32;
            let share = f64::from(until - given);
            phase.rate *= factor;
            if let Some(seconds) = phase.duration_ms.map(|ms| ms as f64 / 1_000.0).filter(|s| *s > 0.0) {
                // Arrivals are random: slightly faster, so that all arrive before the phase ends.
                phase.rate = phase.rate.max((share + 3.0 * share.sqrt()) / seconds);
            }
            phase.max_users = Some(until - given);
            given = until;
        }
        let expected = expected.round();
        self.note_plan(format!(
            "--connections: {wanted} users arrive instead of about {expected}, with the same profile"
        ));
        if factor < 1.0 {
            let most = self.settings.global_number;
            let fewer = (f64::from(most) * factor).round().max(1.0) as u32;
            each(plan, &mut |step| {
                if let PlanStep::Barrier { users: Some(users), .. } = step {
                    *users = fewer;
                }
            });
        }
    }

    /// Reports a barrier that waits for more users than will arrive.
    fn check_barriers(&mut self, plan: &LoadPlan, expected: f64) {
        let mut wanted = None;
        let mut plan = plan.clone();
        each(&mut plan, &mut |step| {
            if let PlanStep::Barrier { users, .. } = step {
                wanted = *users;
            }
        });
        if let Some(wanted) = wanted.filter(|wanted| f64::from(*wanted) > expected.ceil()) {
            let expected = expected.ceil();
            self.note_plan(format!(
                "global_number is {wanted}, but about {expected} users arrive: ack=\"global\" ends by its time limit only"
            ));
        }
    }
}

/// Expected number of arrivals.
fn arrivals(plan: &LoadPlan) -> f64 {
    let phases: f64 =
        plan.phases.iter().map(|phase| in_phase(phase.rate, phase.duration_ms, phase.max_users)).sum();
    phases + plan.starts.len() as f64
}

/// Maximum number of arrivals. Arrivals are random, so slightly more than expected may come.
fn most(plan: &LoadPlan) -> u32 {
    let phases: f64 = plan
        .phases
        .iter()
        .map(|phase| {
            let usual = in_phase(phase.rate, phase.duration_ms, None);
            let many = usual + 4.0 * usual.sqrt();
            phase.max_users.map_or(many, |max| many.min(f64::from(max)))
        })
        .sum();
    (phases + plan.starts.len() as f64).ceil() as u32
}

fn in_phase(rate: f64, duration_ms: Option<u64>, max_users: Option<u32>) -> f64 {
    let by_rate = duration_ms.map_or(f64::INFINITY, |ms| rate * ms as f64 / 1_000.0);
    by_rate.min(max_users.map_or(f64::INFINITY, f64::from))
}

/// Adapts the steps to the transport security that the command line requests, and records it in the plan.
fn secure(plan: &mut LoadPlan, wanted: Option<TransportSecurity>) {
    match wanted {
        // Sessions without a step for it use STARTTLS if the server offers it.
        None | Some(TransportSecurity::Auto) => {
            let all =
                plan.sessions.iter().all(|session| has(&session.steps, &|step| *step == PlanStep::StartTls));
            if all && plan.target.security == TransportSecurity::Auto {
                plan.target.security = TransportSecurity::Starttls;
            }
        }
        Some(TransportSecurity::Starttls) => {
            for session in &mut plan.sessions {
                if !has(&session.steps, &|step| *step == PlanStep::StartTls) {
                    lists(&mut session.steps, &mut after_connect);
                }
            }
        }
        Some(_) => {
            for session in &mut plan.sessions {
                lists(&mut session.steps, &mut |steps| steps.retain(|step| *step != PlanStep::StartTls));
            }
        }
    }
}

fn after_connect(steps: &mut Vec<PlanStep>) {
    let mut at = 0;
    while at < steps.len() {
        if steps[at] == PlanStep::Connect {
            steps.insert(at + 1, PlanStep::StartTls);
        }
        at += 1;
    }
}

/// Creates the account of each user on a separate connection, if the session does not do it.
fn register(plan: &mut LoadPlan) {
    let tls = plan.target.security == TransportSecurity::Starttls;
    for session in &mut plan.sessions {
        let logs_in = |step: &PlanStep| {
            matches!(step, PlanStep::Authenticate { .. } | PlanStep::LegacyAuthenticate { .. })
        };
        if has(&session.steps, &logs_in) && !has(&session.steps, &|step| *step == PlanStep::Register) {
            let mut before = vec![PlanStep::Connect];
            before.extend(tls.then_some(PlanStep::StartTls));
            before.extend([PlanStep::Register, PlanStep::Disconnect]);
            session.steps.splice(0..0, before);
        }
    }
}

/// Substitutes host and port of the server in variables that use them.
fn server_words(plan: &mut LoadPlan) {
    let Some(address) = plan.target.addresses.first().copied() else { return };
    each(plan, &mut |step| {
        let PlanStep::Set(values) = step else { return };
        for (_, value) in values {
            let VariableValue::Text(text) = value else { continue };
            for piece in &mut text.0 {
                match piece {
                    TemplatePart::Literal(word) if word == SERVER_HOST => *word = address.ip().to_string(),
                    TemplatePart::Literal(word) if word == SERVER_PORT => *word = address.port().to_string(),
                    _ => {}
                }
            }
        }
    });
}

/// Whether a step satisfies the predicate.
fn has(steps: &[PlanStep], predicate: &dyn Fn(&PlanStep) -> bool) -> bool {
    steps.iter().any(|step| predicate(step) || inner(step).is_some_and(|steps| has(steps, predicate)))
}

/// Applies a function to each step of a plan.
fn each(plan: &mut LoadPlan, act: &mut dyn FnMut(&mut PlanStep)) {
    for session in &mut plan.sessions {
        lists(&mut session.steps, &mut |steps| steps.iter_mut().for_each(&mut *act));
    }
}

/// Applies a function to each list of steps.
fn lists(steps: &mut Vec<PlanStep>, act: &mut dyn FnMut(&mut Vec<PlanStep>)) {
    act(steps);
    for step in steps {
        if let Some(steps) = inner_mut(step) {
            lists(steps, act);
        }
    }
}

fn inner(step: &PlanStep) -> Option<&Vec<PlanStep>> {
    match step {
        PlanStep::Repeat { steps, .. }
        | PlanStep::While { steps, .. }
        | PlanStep::If { steps, .. }
        | PlanStep::ForEach { steps, .. }
        | PlanStep::Transaction { steps, .. } => Some(steps),
        _ => None,
    }
}

fn inner_mut(step: &mut PlanStep) -> Option<&mut Vec<PlanStep>> {
    match step {
        PlanStep::Repeat { steps, .. }
        | PlanStep::While { steps, .. }
        | PlanStep::If { steps, .. }
        | PlanStep::ForEach { steps, .. }
        | PlanStep::Transaction { steps, .. } => Some(steps),
        _ => None,
    }
}
