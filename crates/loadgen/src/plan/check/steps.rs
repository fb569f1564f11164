//! Checks of a session's steps in order: nothing before the login that it needs, no variable that is never set.
//!
//! The checks are optimistic: steps inside `if` and loops count as run. A reported mistake is thus one for every user;
//! mistakes that affect only some users are not found.

use super::super::error::nearest;
use super::super::{
    AccountSource, Destination, LoadPlan, MessageBody, PlanError, PlanStep, TemplatePart, TextTemplate,
    UserSession, VariableCondition, VariableValue,
};

/// Progress of a user.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum SessionStage {
    Away,
    Connected,
    Authenticated,
    Bound,
}

struct SessionCheck<'a> {
    plan: &'a LoadPlan,
    session: &'a UserSession,
    stage: SessionStage,
    has_roster: bool,
    /// Some step requests resumable streams.
    manages: bool,
    variables: Vec<&'a str>,
    mistakes: &'a mut Vec<PlanError>,
}

pub(super) fn check(plan: &LoadPlan, session: &UserSession, mistakes: &mut Vec<PlanError>) {
    if session.steps.is_empty() {
        let key = format!("session \"{}\"", session.name);
        mistakes.push(PlanError::at(key, "has no steps; add at least a login"));
        return;
    }
    let mut variables = Vec::new();
    collect(&session.steps, &mut variables);
    let mut manages = false;
    super::visit_steps(&session.steps, &mut |step| {
        manages |= matches!(
            step,
            PlanStep::StreamManagement { resume: true } | PlanStep::FastLogin { manage: true, .. }
        );
    });
    let mut walk = SessionCheck {
        plan,
        session,
        stage: SessionStage::Away,
        has_roster: false,
        manages,
        variables,
        mistakes,
    };
    walk.steps(&session.steps, "");
}

/// Collects every variable that is set anywhere in the session.
fn collect<'a>(steps: &'a [PlanStep], variables: &mut Vec<&'a str>) {
    super::visit_steps(steps, &mut |step| match step {
        PlanStep::Set(list) => variables.extend(list.iter().map(|(name, _)| name.as_str())),
        PlanStep::Raw { checks, .. } => {
            variables.extend(checks.captures.iter().map(|(name, _)| name.as_str()))
        }
        PlanStep::Repeat { counter: Some(name), .. } => variables.push(name),
        PlanStep::ForEach { variable, .. } => variables.push(variable),
        _ => {}
    });
}

impl<'a> SessionCheck<'a> {
    fn wrong(&mut self, place: &str, text: impl Into<String>) {
        let key = format!("session \"{}\", step {place}", self.session.name);
        self.mistakes.push(PlanError::at(key, text));
    }

    fn steps(&mut self, steps: &'a [PlanStep], above: &str) {
        for (i, step) in steps.iter().enumerate() {
            let place = format!("{above}{}", i + 1);
            self.step(step, &place);
        }
    }

    /// Reports a step that comes too early, once per session: later ones would be wrong for the same reason.
    fn need(&mut self, stage: SessionStage, what: &str, place: &str) {
        if self.stage >= stage {
            return;
        }
        let (before, fix) = match stage {
            SessionStage::Bound | SessionStage::Authenticated => ("the login", "put \"login\" before it"),
            _ => ("the connection", "put \"connect\" or \"login\" before it"),
        };
        self.wrong(place, format!("{what} comes before {before}; {fix}"));
        self.stage = stage;
    }

    fn step(&mut self, step: &'a PlanStep, place: &str) {
        match step {
            PlanStep::Connect if self.stage == SessionStage::Away => self.stage = SessionStage::Connected,
            PlanStep::StartTls => self.need(SessionStage::Connected, "starttls", place),
            PlanStep::Register => self.need(SessionStage::Connected, "register", place),
            PlanStep::Unregister => self.need(SessionStage::Bound, "unregister", place),
            PlanStep::Authenticate { credentials, .. } => {
                self.need(SessionStage::Connected, "authenticate", place);
                self.credentials(credentials.as_ref(), place);
                self.stage = self.stage.max_of(SessionStage::Authenticated);
            }
            PlanStep::LegacyAuthenticate { credentials, resource } => {
                self.need(SessionStage::Connected, "legacy_authenticate", place);
                self.credentials(credentials.as_ref(), place);
                self.text(resource, place);
                self.stage = SessionStage::Bound;
            }
            PlanStep::Bind { resource } => {
                self.need(SessionStage::Authenticated, "bind", place);
                self.maybe(resource.as_ref(), place);
                self.stage = SessionStage::Bound;
            }
            PlanStep::Login { resource, .. } => {
                if self.stage >= SessionStage::Authenticated {
                    self.wrong(
                        place,
                        "login comes while the user is logged in; put \"disconnect\" before it",
                    );
                }
                self.maybe(resource.as_ref(), place);
                self.stage = SessionStage::Bound;
            }
            PlanStep::FastLogin { .. } => {
                if self.stage >= SessionStage::Authenticated {
                    self.wrong(
                        place,
                        "login comes while the user is logged in; put \"disconnect\" before it",
                    );
                }
                self.stage = SessionStage::Bound;
            }
            PlanStep::Resume => {
                if self.stage != SessionStage::Away || !self.manages {
                    self.wrong(
                        place,
                        "resume requires a resumable stream that was cut; put \"stream_management\" with \
                         resume = true and \"cut\" before it",
                    );
                }
                self.stage = SessionStage::Bound;
            }
            PlanStep::Disconnect | PlanStep::Cut => {
                self.stage = SessionStage::Away;
                self.has_roster = false;
            }
            PlanStep::Think(_)
            | PlanStep::Barrier { .. }
            | PlanStep::Abort { .. }
            | PlanStep::ChangeTarget { .. } => {}
            PlanStep::Connect => {}
            _ => self.stanza(step, place),
        }
    }

    fn credentials(&mut self, credentials: Option<&'a (TextTemplate, TextTemplate)>, place: &str) {
        if let Some((user, password)) = credentials {
            self.text(user, place);
            self.text(password, place);
        }
    }

    /// Checks steps on a stream, and those that contain others.
    fn stanza(&mut self, step: &'a PlanStep, place: &str) {
        match step {
            PlanStep::OpenSession => self.need(SessionStage::Bound, "session", place),
            PlanStep::StreamManagement { .. } => self.need(SessionStage::Bound, "stream_management", place),
            PlanStep::Roster => {
                self.need(SessionStage::Bound, "roster", place);
                self.has_roster = true;
            }
            PlanStep::RosterSet { to, name, group, .. } => {
                self.need(SessionStage::Bound, "roster_set", place);
                self.destination(to, place);
                self.maybe(name.as_ref(), place);
                self.maybe(group.as_ref(), place);
            }
            PlanStep::Presence { to, show, status, .. } => {
                self.need(SessionStage::Bound, "presence", place);
                if let Some(to) = to {
                    self.destination(to, place);
                }
                self.maybe(show.as_ref(), place);
                self.maybe(status.as_ref(), place);
            }
            PlanStep::Message { to, body, .. } => {
                self.need(SessionStage::Bound, "message", place);
                self.destination(to, place);
                if let MessageBody::Text(text) = body {
                    self.text(text, place);
                }
            }
            PlanStep::Ping { to } => {
                self.need(SessionStage::Bound, "ping", place);
                if let Some(to) = to {
                    self.destination(to, place);
                }
            }
            PlanStep::Raw { xml, .. } => {
                self.need(SessionStage::Connected, "raw", place);
                self.text(xml, place);
            }
            PlanStep::NoWait(step) | PlanStep::Delivered { presence: step, .. } => self.step(step, place),
            PlanStep::WaitFor { .. } => self.need(SessionStage::Connected, "wait_for", place),
            PlanStep::Meanwhile { activities, .. } => {
                for (i, activity) in activities.iter().enumerate() {
                    self.step(&activity.step, &format!("{place}.{}", i + 1));
                }
            }
            PlanStep::Bounce { .. } => self.bounce(place),
            PlanStep::Set(list) => self.set(list, place),
            _ => self.holder(step, place),
        }
    }

    fn holder(&mut self, step: &'a PlanStep, place: &str) {
        let steps = match step {
            PlanStep::While { condition, steps, .. } | PlanStep::If { condition, steps } => {
                self.condition(condition, place);
                steps
            }
            PlanStep::ForEach { list, steps, .. } => {
                self.variable(list, place);
                steps
            }
            PlanStep::Transaction { index, steps } => {
                if usize::from(*index) >= self.plan.transactions.len() {
                    self.wrong(
                        place,
                        format!("there is no transaction with the number {index}; name it in the plan"),
                    );
                }
                steps
            }
            PlanStep::Repeat { steps, .. } => steps,
            _ => return,
        };
        self.steps(steps, &format!("{place}."));
    }

    fn bounce(&mut self, place: &str) {
        self.need(SessionStage::Bound, "bounce", place);
        let count = self.plan.accounts.count();
        if self.anonymous() {
            self.wrong(place, "bounce requires users with names; give accounts that are not anonymous");
            return;
        }
        let connections = self.plan.options.connections;
        if !connections.is_multiple_of(2) {
            let even = connections.saturating_add(1);
            let text = format!(
                "bounce requires pairs and {connections} connections is odd; give --connections {even}"
            );
            self.wrong(place, text);
        } else if !count.is_multiple_of(2) {
            let even = count.saturating_add(1);
            let text = format!("bounce requires pairs of accounts and {count} is odd; give --count {even}");
            self.wrong(place, text);
        }
    }

    fn set(&mut self, list: &'a [(String, VariableValue)], place: &str) {
        for (name, value) in list {
            let (table, column) = match value {
                VariableValue::Text(text) => {
                    self.text(text, place);
                    continue;
                }
                VariableValue::Row { table, column, .. } | VariableValue::OwnRow { table, column } => {
                    (*table, *column)
                }
                _ => continue,
            };
            let Some(table) = self.plan.options.tables.get(usize::from(table)) else {
                self.wrong(
                    place,
                    format!("the variable \"{name}\" reads a table that does not exist; add the table"),
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
            if matches!(value, VariableValue::OwnRow { .. })
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
                self.wrong(
                    place,
                    "is for a contact, but the roster is not fetched; put \"roster\" before it",
                );
                self.has_roster = true;
            }
            Destination::Full(to, text) => {
                self.destination(to, place);
                self.text(text, place);
            }
            Destination::Jid(text) => self.text(text, place),
            Destination::Server | Destination::Myself | Destination::Previous | Destination::LastContact => {}
            _ if self.anonymous() => self.wrong(
                place,
                "is for another user, but anonymous users have no names; give accounts or an address",
            ),
            _ => {}
        }
    }

    fn condition(&mut self, condition: &'a VariableCondition, place: &str) {
        self.variable(&condition.variable, place);
        self.text(&condition.value, place);
    }

    fn maybe(&mut self, text: Option<&'a TextTemplate>, place: &str) {
        if let Some(text) = text {
            self.text(text, place);
        }
    }

    fn text(&mut self, text: &'a TextTemplate, place: &str) {
        for piece in &text.0 {
            if let TemplatePart::Variable(name) = piece {
                self.variable(name, place);
            }
        }
    }

    fn variable(&mut self, name: &'a str, place: &str) {
        if self.variables.contains(&name) {
            return;
        }
        let near = nearest(name, self.variables.iter().copied());
        let fix = if near.is_empty() { "; set it before, such as with \"set\"".to_owned() } else { near };
        self.wrong(place, format!("the variable \"{name}\" is never set{fix}"));
        self.variables.push(name);
    }
}

impl SessionStage {
    fn max_of(self, other: Self) -> Self {
        if self >= other { self } else { other }
    }
}
