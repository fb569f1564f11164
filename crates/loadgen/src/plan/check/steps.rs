//! What a session does, in its order: nothing before the login that needs it, no variable that nobody set.
//!
//! Reads like a user who is lucky: what stands inside `if` and loops counts as done. So what is found is wrong for every
//! user; what only some would stumble over is not found.

use super::super::mistake::nearest;
use super::super::{
    AccountSource, Body, Condition, Destination, Mistake, Piece, Plan, Session, Step, Text, Value,
};

/// How far a user has come.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum Stage {
    Away,
    Connected,
    Authenticated,
    Bound,
}

struct Walk<'a> {
    plan: &'a Plan,
    session: &'a Session,
    stage: Stage,
    has_roster: bool,
    variables: Vec<&'a str>,
    mistakes: &'a mut Vec<Mistake>,
}

pub(super) fn check(plan: &Plan, session: &Session, mistakes: &mut Vec<Mistake>) {
    if session.steps.is_empty() {
        let key = format!("session \"{}\"", session.name);
        mistakes.push(Mistake::at(key, "has no steps; give it at least a login"));
        return;
    }
    let mut variables = Vec::new();
    collect(&session.steps, &mut variables);
    let mut walk = Walk { plan, session, stage: Stage::Away, has_roster: false, variables, mistakes };
    walk.steps(&session.steps, "");
}

/// Every variable that is set anywhere in the session.
fn collect<'a>(steps: &'a [Step], variables: &mut Vec<&'a str>) {
    super::visit_steps(steps, &mut |step| match step {
        Step::Set(list) => variables.extend(list.iter().map(|(name, _)| name.as_str())),
        Step::Raw { checks, .. } => variables.extend(checks.captures.iter().map(|(name, _)| name.as_str())),
        Step::Repeat { counter: Some(name), .. } => variables.push(name),
        Step::ForEach { variable, .. } => variables.push(variable),
        _ => {}
    });
}

impl<'a> Walk<'a> {
    fn wrong(&mut self, place: &str, text: impl Into<String>) {
        let key = format!("session \"{}\", step {place}", self.session.name);
        self.mistakes.push(Mistake::at(key, text));
    }

    fn steps(&mut self, steps: &'a [Step], above: &str) {
        for (i, step) in steps.iter().enumerate() {
            let place = format!("{above}{}", i + 1);
            self.step(step, &place);
        }
    }

    /// Notes that a step comes too early, once for each session: what follows would be wrong for the same reason.
    fn need(&mut self, stage: Stage, what: &str, place: &str) {
        if self.stage >= stage {
            return;
        }
        let (before, mend) = match stage {
            Stage::Bound | Stage::Authenticated => ("the login", "put \"login\" before it"),
            _ => ("the connection", "put \"connect\" or \"login\" before it"),
        };
        self.wrong(place, format!("{what} comes before {before}; {mend}"));
        self.stage = stage;
    }

    fn step(&mut self, step: &'a Step, place: &str) {
        match step {
            Step::Connect if self.stage == Stage::Away => self.stage = Stage::Connected,
            Step::StartTls => self.need(Stage::Connected, "starttls", place),
            Step::Register => self.need(Stage::Connected, "register", place),
            Step::Unregister => self.need(Stage::Bound, "unregister", place),
            Step::Authenticate { credentials, .. } => {
                self.need(Stage::Connected, "authenticate", place);
                self.credentials(credentials.as_ref(), place);
                self.stage = self.stage.max_of(Stage::Authenticated);
            }
            Step::LegacyAuthenticate { credentials, resource } => {
                self.need(Stage::Connected, "legacy_authenticate", place);
                self.credentials(credentials.as_ref(), place);
                self.text(resource, place);
                self.stage = Stage::Bound;
            }
            Step::Bind { resource } => {
                self.need(Stage::Authenticated, "bind", place);
                self.maybe(resource.as_ref(), place);
                self.stage = Stage::Bound;
            }
            Step::Login { resource, .. } => {
                if self.stage >= Stage::Authenticated {
                    self.wrong(
                        place,
                        "login comes while the user is logged in; put \"disconnect\" before it",
                    );
                }
                self.maybe(resource.as_ref(), place);
                self.stage = Stage::Bound;
            }
            Step::Disconnect | Step::Cut => {
                self.stage = Stage::Away;
                self.has_roster = false;
            }
            Step::Think(_) | Step::Barrier { .. } | Step::Abort { .. } | Step::ChangeTarget { .. } => {}
            Step::Connect => {}
            _ => self.stanza(step, place),
        }
    }

    fn credentials(&mut self, credentials: Option<&'a (Text, Text)>, place: &str) {
        if let Some((user, password)) = credentials {
            self.text(user, place);
            self.text(password, place);
        }
    }

    /// Steps on a stream, and those that hold others.
    fn stanza(&mut self, step: &'a Step, place: &str) {
        match step {
            Step::OpenSession => self.need(Stage::Bound, "session", place),
            Step::StreamManagement { .. } => self.need(Stage::Bound, "stream_management", place),
            Step::Roster => {
                self.need(Stage::Bound, "roster", place);
                self.has_roster = true;
            }
            Step::RosterSet { to, name, group, .. } => {
                self.need(Stage::Bound, "roster_set", place);
                self.destination(to, place);
                self.maybe(name.as_ref(), place);
                self.maybe(group.as_ref(), place);
            }
            Step::Presence { to, show, status, .. } => {
                self.need(Stage::Bound, "presence", place);
                if let Some(to) = to {
                    self.destination(to, place);
                }
                self.maybe(show.as_ref(), place);
                self.maybe(status.as_ref(), place);
            }
            Step::Message { to, body, .. } => {
                self.need(Stage::Bound, "message", place);
                self.destination(to, place);
                if let Body::Text(text) = body {
                    self.text(text, place);
                }
            }
            Step::Ping { to } => {
                self.need(Stage::Bound, "ping", place);
                if let Some(to) = to {
                    self.destination(to, place);
                }
            }
            Step::Raw { xml, .. } => {
                self.need(Stage::Connected, "raw", place);
                self.text(xml, place);
            }
            Step::NoWait(step) => self.step(step, place),
            Step::WaitFor { .. } => self.need(Stage::Connected, "wait_for", place),
            Step::Meanwhile { activities, .. } => {
                for (i, activity) in activities.iter().enumerate() {
                    self.step(&activity.step, &format!("{place}.{}", i + 1));
                }
            }
            Step::Bounce { .. } => self.bounce(place),
            Step::Set(list) => self.set(list, place),
            _ => self.holder(step, place),
        }
    }

    fn holder(&mut self, step: &'a Step, place: &str) {
        let steps = match step {
            Step::While { condition, steps, .. } | Step::If { condition, steps } => {
                self.condition(condition, place);
                steps
            }
            Step::ForEach { list, steps, .. } => {
                self.variable(list, place);
                steps
            }
            Step::Transaction { index, steps } => {
                if usize::from(*index) >= self.plan.transactions.len() {
                    self.wrong(
                        place,
                        format!("there is no transaction with the number {index}; name it in the plan"),
                    );
                }
                steps
            }
            Step::Repeat { steps, .. } => steps,
            _ => return,
        };
        self.steps(steps, &format!("{place}."));
    }

    fn bounce(&mut self, place: &str) {
        self.need(Stage::Bound, "bounce", place);
        let count = self.plan.accounts.count();
        if self.anonymous() {
            self.wrong(place, "bounce needs users with names; give accounts that are not anonymous");
            return;
        }
        let connections = self.plan.options.connections;
        if !connections.is_multiple_of(2) {
            let even = connections.saturating_add(1);
            let text = format!(
                "bounce needs pairs and {connections} connections are odd; give --connections {even}"
            );
            self.wrong(place, text);
        } else if !count.is_multiple_of(2) {
            let even = count.saturating_add(1);
            let text = format!("bounce needs pairs of accounts and {count} are odd; give --count {even}");
            self.wrong(place, text);
        }
    }

    fn set(&mut self, list: &'a [(String, Value)], place: &str) {
        for (name, value) in list {
            let (table, column) = match value {
                Value::Text(text) => {
                    self.text(text, place);
                    continue;
                }
                Value::Row { table, column, .. } | Value::OwnRow { table, column } => (*table, *column),
                _ => continue,
            };
            let Some(table) = self.plan.options.tables.get(usize::from(table)) else {
                self.wrong(
                    place,
                    format!("the variable \"{name}\" reads a table that is not there; add the table"),
                );
                continue;
            };
            if table.rows.iter().any(|row| row.len() <= usize::from(column)) || table.rows.is_empty() {
                let text = format!(
                    "the variable \"{name}\" reads column {column} of the table \"{}\", which not every line has; columns are counted from 0",
                    table.name
                );
                self.wrong(place, text);
            }
            if matches!(value, Value::OwnRow { .. })
                && (table.rows.len() as u64) < u64::from(self.plan.options.connections)
            {
                let text = format!(
                    "the table \"{}\" has {} lines for {} connections; add lines or give fewer --connections",
                    table.name,
                    table.rows.len(),
                    self.plan.options.connections
                );
                self.wrong(place, text);
            }
        }
    }

    fn anonymous(&self) -> bool {
        matches!(self.plan.accounts.source, AccountSource::Anonymous { .. })
    }

    fn destination(&mut self, to: &'a Destination, place: &str) {
        match to {
            Destination::Contact | Destination::OnlineContact if !self.has_roster => {
                self.wrong(place, "is for a contact and the roster is not fetched; put \"roster\" before it");
                self.has_roster = true;
            }
            Destination::Jid(text) => self.text(text, place),
            Destination::Server | Destination::Myself | Destination::Previous | Destination::LastContact => {}
            _ if self.anonymous() => self.wrong(
                place,
                "is for another user and anonymous users have no names; give accounts, or an address",
            ),
            _ => {}
        }
    }

    fn condition(&mut self, condition: &'a Condition, place: &str) {
        self.variable(&condition.variable, place);
        self.text(&condition.value, place);
    }

    fn maybe(&mut self, text: Option<&'a Text>, place: &str) {
        if let Some(text) = text {
            self.text(text, place);
        }
    }

    fn text(&mut self, text: &'a Text, place: &str) {
        for piece in &text.0 {
            if let Piece::Variable(name) = piece {
                self.variable(name, place);
            }
        }
    }

    fn variable(&mut self, name: &'a str, place: &str) {
        if self.variables.contains(&name) {
            return;
        }
        let near = nearest(name, self.variables.iter().copied());
        let mend = if near.is_empty() { "; set it before, such as with \"set\"".to_owned() } else { near };
        self.wrong(place, format!("the variable \"{name}\" is never set{mend}"));
        self.variables.push(name);
    }
}

impl Stage {
    fn max_of(self, other: Self) -> Self {
        if self >= other { self } else { other }
    }
}
