//! The plan as a whole, with what the command line says about it.
//!
//! `--connections N` lets N users arrive in all: the rates of all phases and their `maxnumber` are multiplied, so the shape
//! stays and nobody finds all places taken. Left out: nothing of the scenario is read here.
//!
//! Trap: the order matters. First connections, then the time scale, then the values of the command line, which are times of
//! the wall.

use std::net::IpAddr;

use super::dynvars::{SERVER_HOST, SERVER_PORT};
use super::load::Load;
use super::network::Servers;
use super::reader::Reader;
use crate::plan::{
    Arguments, Options, Piece, Plan, Security, Session, Step, Target, Tls, Value, overrides, scale,
};

impl Reader<'_> {
    /// Puts the parts together.
    #[expect(clippy::too_many_arguments, reason = "each is one part of the scenario, read by its own module")]
    pub(super) fn assemble(
        &mut self,
        name: &str,
        title: String,
        servers: Servers,
        sources: Vec<IpAddr>,
        sessions: Vec<Session>,
        load: Load,
        arguments: &Arguments,
    ) -> Option<Plan> {
        let accounts = self.read_accounts(arguments);
        let users = accounts.count();
        let mut plan = Plan {
            name: name.to_owned(),
            title,
            target: Target {
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
            options: Options {
                duration_ms: load.duration_ms,
                connect_timeout_ms: self.settings.connect_timeout_ms,
                answer_timeout_ms: self.settings.answer_timeout_ms,
                retries: self.settings.retries,
                retry_ms: self.settings.retry_ms,
                seed: self.settings.seed.unwrap_or(Options::default().seed),
                receive_buffer: self.settings.receive_buffer,
                send_buffer: self.settings.send_buffer,
                tables: std::mem::take(&mut self.tables),
                ..Options::default()
            },
        };
        let expected = arrivals(&plan);
        match arguments.connections {
            Some(wanted) => self.connections(&mut plan, wanted, expected),
            None => plan.options.connections = users.min(most(&plan)).max(1),
        }
        self.check_barriers(&plan, arrivals(&plan));
        let changes = |step: &Step| matches!(step, Step::ChangeTarget { .. });
        if plan.target.web.transport.is_web() && plan.sessions.iter().any(|it| it.steps.iter().any(changes)) {
            self.wrong_plan(
                "change_type: this version keeps to one kind of connection, and the servers' is not TCP",
            );
        }
        secure(&mut plan, arguments.security);
        server_words(&mut plan);
        if arguments.register {
            register(&mut plan);
        }
        scale::scale(&mut plan, arguments.time_scale);
        overrides::apply(&mut plan, &Arguments { register: false, ..arguments.clone() });
        Some(plan)
    }

    fn tls(&self) -> Tls {
        let (ca_pem, certificate_pem, key_pem) = self.certificates.first().cloned().unwrap_or_default();
        let settings = &self.settings;
        Tls { ca_pem, certificate_pem, key_pem, resume: settings.resume, only_tls12: settings.only_tls12 }
    }

    /// Lets so many users arrive.
    fn connections(&mut self, plan: &mut Plan, wanted: u32, expected: f64) {
        let users = plan.accounts.count();
        if wanted > users {
            self.wrong_plan(format!(
                "--connections {wanted}: there are {users} accounts (userid_max or the lines of a file); --count says \
                 how many the server has"
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
                // Arrivals are random: a little faster, so that all come before the phase ends.
                phase.rate = phase.rate.max((share + 3.0 * share.sqrt()) / seconds);
            }
            phase.max_users = Some(until - given);
            given = until;
        }
        let expected = expected.round();
        self.note_plan(format!(
            "--connections: {wanted} users arrive in place of about {expected}, with the same shape"
        ));
        if factor < 1.0 {
            let most = self.settings.global_number;
            let fewer = (f64::from(most) * factor).round().max(1.0) as u32;
            each(plan, &mut |step| {
                if let Step::Barrier { users: Some(users), .. } = step {
                    *users = fewer;
                }
            });
        }
    }

    /// Says if somebody waits for more users than there will be.
    fn check_barriers(&mut self, plan: &Plan, expected: f64) {
        let mut wanted = None;
        let mut plan = plan.clone();
        each(&mut plan, &mut |step| {
            if let Step::Barrier { users, .. } = step {
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

/// Users that arrive in all, on average.
fn arrivals(plan: &Plan) -> f64 {
    let phases: f64 =
        plan.phases.iter().map(|phase| in_phase(phase.rate, phase.duration_ms, phase.max_users)).sum();
    phases + plan.starts.len() as f64
}

/// Users that may arrive in all. Arrivals are random, so a few more than on average may come.
fn most(plan: &Plan) -> u32 {
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

/// Brings the steps in line with the protection that the command line asks for, and says which one the plan has.
fn secure(plan: &mut Plan, wanted: Option<Security>) {
    match wanted {
        // Sessions without a step for it use STARTTLS where the server offers it.
        None | Some(Security::Auto) => {
            let all =
                plan.sessions.iter().all(|session| has(&session.steps, &|step| *step == Step::StartTls));
            if all && plan.target.security == Security::Auto {
                plan.target.security = Security::Starttls;
            }
        }
        Some(Security::Starttls) => {
            for session in &mut plan.sessions {
                if !has(&session.steps, &|step| *step == Step::StartTls) {
                    lists(&mut session.steps, &mut after_connect);
                }
            }
        }
        Some(_) => {
            for session in &mut plan.sessions {
                lists(&mut session.steps, &mut |steps| steps.retain(|step| *step != Step::StartTls));
            }
        }
    }
}

fn after_connect(steps: &mut Vec<Step>) {
    let mut at = 0;
    while at < steps.len() {
        if steps[at] == Step::Connect {
            steps.insert(at + 1, Step::StartTls);
        }
        at += 1;
    }
}

/// Creates the account of each user on a connection of its own, where the session does not do it.
fn register(plan: &mut Plan) {
    let tls = plan.target.security == Security::Starttls;
    for session in &mut plan.sessions {
        let logs_in =
            |step: &Step| matches!(step, Step::Authenticate { .. } | Step::LegacyAuthenticate { .. });
        if has(&session.steps, &logs_in) && !has(&session.steps, &|step| *step == Step::Register) {
            let mut before = vec![Step::Connect];
            before.extend(tls.then_some(Step::StartTls));
            before.extend([Step::Register, Step::Disconnect]);
            session.steps.splice(0..0, before);
        }
    }
}

/// Puts host and port of the server into variables that asked for them.
fn server_words(plan: &mut Plan) {
    let Some(address) = plan.target.addresses.first().copied() else { return };
    each(plan, &mut |step| {
        let Step::Set(values) = step else { return };
        for (_, value) in values {
            let Value::Text(text) = value else { continue };
            for piece in &mut text.0 {
                match piece {
                    Piece::Literal(word) if word == SERVER_HOST => *word = address.ip().to_string(),
                    Piece::Literal(word) if word == SERVER_PORT => *word = address.port().to_string(),
                    _ => {}
                }
            }
        }
    });
}

/// Whether one of the steps is such a one.
fn has(steps: &[Step], such: &dyn Fn(&Step) -> bool) -> bool {
    steps.iter().any(|step| such(step) || inner(step).is_some_and(|steps| has(steps, such)))
}

/// Does something to each step of a plan.
fn each(plan: &mut Plan, act: &mut dyn FnMut(&mut Step)) {
    for session in &mut plan.sessions {
        lists(&mut session.steps, &mut |steps| steps.iter_mut().for_each(&mut *act));
    }
}

/// Does something to each list of steps.
fn lists(steps: &mut Vec<Step>, act: &mut dyn FnMut(&mut Vec<Step>)) {
    act(steps);
    for step in steps {
        if let Some(steps) = inner_mut(step) {
            lists(steps, act);
        }
    }
}

fn inner(step: &Step) -> Option<&Vec<Step>> {
    match step {
        Step::Repeat { steps, .. }
        | Step::While { steps, .. }
        | Step::If { steps, .. }
        | Step::ForEach { steps, .. }
        | Step::Transaction { steps, .. } => Some(steps),
        _ => None,
    }
}

fn inner_mut(step: &mut Step) -> Option<&mut Vec<Step>> {
    match step {
        Step::Repeat { steps, .. }
        | Step::While { steps, .. }
        | Step::If { steps, .. }
        | Step::ForEach { steps, .. }
        | Step::Transaction { steps, .. } => Some(steps),
        _ => None,
    }
}
