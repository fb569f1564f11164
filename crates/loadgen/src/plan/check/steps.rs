//! Checks of a session's steps in order: nothing before the login that it needs, no variable that is never set.
//!
//! The checks are optimistic: steps inside `if` and loops count as run. A reported error is thus one for every user;
//! errors that affect only some users are not found.

use super::super::error::nearest;
use super::super::{
    AccountSource, Destination, LoadPlan, MessageBody, PlanError, PlanStep, PubSubNodeSelection, PubSubStep,
    RoomSelection, RoomStep, TemplatePart, TextTemplate, UserSession, VariableCondition, VariableValue,
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
    has_room: bool,
    /// A subscription comes before.
    has_node: bool,
    /// Some step requests resumable streams.
    manages: bool,
    variables: Vec<&'a str>,
    errors: &'a mut Vec<PlanError>,
}

pub(super) fn check(plan: &LoadPlan, session: &UserSession, errors: &mut Vec<PlanError>) {
    if session.steps.is_empty() {
        let key = format!("session \"{}\"", session.name);
        errors.push(PlanError::at(key, "has no steps; add at least a login"));
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
        has_room: false,
        has_node: false,
        manages,
        variables,
        errors,
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
    fn error(&mut self, path: &str, text: impl Into<String>) {
        let key = format!("session \"{}\", step {path}", self.session.name);
        self.errors.push(PlanError::at(key, text));
    }

    fn steps(&mut self, steps: &'a [PlanStep], above: &str) {
        for (i, step) in steps.iter().enumerate() {
            let path = format!("{above}{}", i + 1);
            self.step(step, &path);
        }
    }

    /// Reports a step that comes too early, once per session: later ones would be wrong for the same reason.
    fn require(&mut self, stage: SessionStage, what: &str, path: &str) {
        if self.stage >= stage {
            return;
        }
        let (before, fix) = match stage {
            SessionStage::Bound | SessionStage::Authenticated => ("the login", "put \"login\" before it"),
            _ => ("the connection", "put \"connect\" or \"login\" before it"),
        };
        self.error(path, format!("{what} comes before {before}; {fix}"));
        self.stage = stage;
    }

    fn step(&mut self, step: &'a PlanStep, path: &str) {
        match step {
            PlanStep::Connect if self.stage == SessionStage::Away => self.stage = SessionStage::Connected,
            PlanStep::StartTls => self.require(SessionStage::Connected, "starttls", path),
            PlanStep::Register => self.require(SessionStage::Connected, "register", path),
            PlanStep::Unregister => self.require(SessionStage::Bound, "unregister", path),
            PlanStep::Authenticate { credentials, .. } => {
                self.require(SessionStage::Connected, "authenticate", path);
                self.credentials(credentials.as_ref(), path);
                self.stage = self.stage.max_of(SessionStage::Authenticated);
            }
            PlanStep::LegacyAuthenticate { credentials, resource } => {
                self.require(SessionStage::Connected, "legacy_authenticate", path);
                self.credentials(credentials.as_ref(), path);
                self.text(resource, path);
                self.stage = SessionStage::Bound;
            }
            PlanStep::Bind { resource } => {
                self.require(SessionStage::Authenticated, "bind", path);
                self.optional_text(resource.as_ref(), path);
                self.stage = SessionStage::Bound;
            }
            PlanStep::Login { resource, .. } => {
                if self.stage >= SessionStage::Authenticated {
                    self.error(path, "login comes while the user is logged in; put \"disconnect\" before it");
                }
                self.optional_text(resource.as_ref(), path);
                self.stage = SessionStage::Bound;
            }
            PlanStep::FastLogin { .. } => {
                if self.stage >= SessionStage::Authenticated {
                    self.error(path, "login comes while the user is logged in; put \"disconnect\" before it");
                }
                self.stage = SessionStage::Bound;
            }
            PlanStep::Resume => {
                if self.stage != SessionStage::Away || !self.manages {
                    self.error(
                        path,
                        "resume requires a resumable stream that was cut; put \"stream_management\" with \
                         resume = true and \"cut\" before it",
                    );
                }
                self.stage = SessionStage::Bound;
            }
            PlanStep::Disconnect | PlanStep::Cut => {
                self.stage = SessionStage::Away;
                self.has_roster = false;
                let stays = matches!(step, PlanStep::Cut) && self.manages;
                self.has_room &= stays;
                self.has_node &= stays;
            }
            PlanStep::Think(_)
            | PlanStep::Barrier { .. }
            | PlanStep::Abort { .. }
            | PlanStep::ChangeTarget { .. } => {}
            PlanStep::Connect => {}
            _ => self.stanza(step, path),
        }
    }

    fn credentials(&mut self, credentials: Option<&'a (TextTemplate, TextTemplate)>, path: &str) {
        if let Some((user, password)) = credentials {
            self.text(user, path);
            self.text(password, path);
        }
    }

    /// Checks steps on a stream, and those that contain others.
    fn stanza(&mut self, step: &'a PlanStep, path: &str) {
        match step {
            PlanStep::OpenSession => self.require(SessionStage::Bound, "session", path),
            PlanStep::StreamManagement { .. } => self.require(SessionStage::Bound, "stream_management", path),
            PlanStep::Roster => {
                self.require(SessionStage::Bound, "roster", path);
                self.has_roster = true;
            }
            PlanStep::RosterSet { to, name, group, .. } => {
                self.require(SessionStage::Bound, "roster_set", path);
                self.destination(to, path);
                self.optional_text(name.as_ref(), path);
                self.optional_text(group.as_ref(), path);
            }
            PlanStep::Presence { to, show, status, .. } => {
                self.require(SessionStage::Bound, "presence", path);
                if let Some(to) = to {
                    self.destination(to, path);
                }
                self.optional_text(show.as_ref(), path);
                self.optional_text(status.as_ref(), path);
            }
            PlanStep::Message { to, body, .. } => {
                self.require(SessionStage::Bound, "message", path);
                self.destination(to, path);
                if let MessageBody::Text(text) = body {
                    self.text(text, path);
                }
            }
            PlanStep::Ping { to } => {
                self.require(SessionStage::Bound, "ping", path);
                if let Some(to) = to {
                    self.destination(to, path);
                }
            }
            PlanStep::Room(step) => self.room(step, path),
            PlanStep::PubSub(step) => self.pubsub(step, path),
            PlanStep::Raw { xml, .. } => {
                self.require(SessionStage::Connected, "raw", path);
                self.text(xml, path);
            }
            PlanStep::NoWait(step) | PlanStep::Delivered { presence: step, .. } => self.step(step, path),
            PlanStep::WaitFor { .. } => self.require(SessionStage::Connected, "wait_for", path),
            PlanStep::Meanwhile { activities, .. } => {
                for (i, activity) in activities.iter().enumerate() {
                    self.step(&activity.step, &format!("{path}.{}", i + 1));
                }
            }
            PlanStep::Bounce { .. } => self.bounce(path),
            PlanStep::Set(list) => self.set(list, path),
            _ => self.block(step, path),
        }
    }

    /// Checks a step in rooms.
    fn room(&mut self, step: &'a RoomStep, path: &str) {
        self.require(SessionStage::Bound, step.name(), path);
        if self.anonymous() && matches!(step.room(), RoomSelection::Ring { .. }) {
            self.error(
                path,
                "chooses a room by the user's number, which anonymous users do not have; name a room",
            );
        }
        if let RoomSelection::Named(room) = step.room() {
            self.text(room, path);
        }
        if !matches!(step, RoomStep::Join { .. }) && !self.has_room {
            self.error(path, format!("{} comes before a join; put \"room_join\" before it", step.name()));
            self.has_room = true;
        }
        match step {
            RoomStep::Join { nick, .. } => {
                self.has_room = true;
                self.text(nick, path);
            }
            RoomStep::Nick { nick, .. } => self.text(nick, path),
            RoomStep::Message { body: MessageBody::Text(text), .. } => self.text(text, path),
            RoomStep::Presence { show, status, .. } => {
                self.optional_text(show.as_ref(), path);
                self.optional_text(status.as_ref(), path);
            }
            RoomStep::Message { .. } | RoomStep::Leave { .. } => {}
        }
    }

    /// Checks a step at PubSub nodes.
    fn pubsub(&mut self, step: &'a PubSubStep, path: &str) {
        self.require(SessionStage::Bound, step.name(), path);
        if self.anonymous() && matches!(step.node(), PubSubNodeSelection::Ring { .. }) {
            self.error(
                path,
                "chooses a node by the user's number, which anonymous users do not have; name a node",
            );
        }
        match step.node() {
            PubSubNodeSelection::Named(node) => self.text(node, path),
            PubSubNodeSelection::Subscribed | PubSubNodeSelection::All if !self.has_node => {
                let text = "comes before a subscription; name a node, or put \"pubsub_subscribe\" before it";
                self.error(path, format!("{} {text}", step.name()));
                self.has_node = true;
            }
            _ => {}
        }
        match step {
            PubSubStep::Subscribe { .. } | PubSubStep::Listen { .. } => self.has_node = true,
            PubSubStep::Publish { body: MessageBody::Text(text), .. } => self.text(text, path),
            PubSubStep::Unsubscribe { subid, .. } => self.optional_text(subid.as_ref(), path),
            _ => {}
        }
    }

    fn block(&mut self, step: &'a PlanStep, path: &str) {
        let steps = match step {
            PlanStep::While { condition, steps, .. } | PlanStep::If { condition, steps } => {
                self.condition(condition, path);
                steps
            }
            PlanStep::ForEach { list, steps, .. } => {
                self.variable(list, path);
                steps
            }
            PlanStep::Transaction { index, steps } => {
                if usize::from(*index) >= self.plan.transactions.len() {
                    self.error(
                        path,
                        format!("there is no transaction with the number {index}; name it in the plan"),
                    );
                }
                steps
            }
            PlanStep::Repeat { steps, .. } => steps,
            _ => return,
        };
        self.steps(steps, &format!("{path}."));
    }

    fn bounce(&mut self, path: &str) {
        self.require(SessionStage::Bound, "bounce", path);
        let count = self.plan.accounts.count();
        if self.anonymous() {
            self.error(path, "bounce requires users with names; give accounts that are not anonymous");
            return;
        }
        let connections = self.plan.options.connections;
        if !connections.is_multiple_of(2) {
            let even = connections.saturating_add(1);
            let text = format!(
                "bounce requires pairs and {connections} connections is odd; give --connections {even}"
            );
            self.error(path, text);
        } else if !count.is_multiple_of(2) {
            let even = count.saturating_add(1);
            let text = format!("bounce requires pairs of accounts and {count} is odd; give --count {even}");
            self.error(path, text);
        }
    }

    fn set(&mut self, list: &'a [(String, VariableValue)], path: &str) {
        for (name, value) in list {
            let (table, column) = match value {
                VariableValue::Text(text) => {
                    self.text(text, path);
                    continue;
                }
                VariableValue::Row { table, column, .. } | VariableValue::OwnRow { table, column } => {
                    (*table, *column)
                }
                _ => continue,
            };
            let Some(table) = self.plan.options.tables.get(usize::from(table)) else {
                self.error(
                    path,
                    format!("the variable \"{name}\" reads a table that does not exist; add the table"),
                );
                continue;
            };
            if table.rows.iter().any(|row| row.len() <= usize::from(column)) || table.rows.is_empty() {
                let text = format!(
                    "the variable \"{name}\" reads column {column} of the table \"{}\", which not every line has; columns are counted from 0",
                    table.name
                );
                self.error(path, text);
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
                self.error(path, text);
            }
        }
    }

    fn anonymous(&self) -> bool {
        matches!(self.plan.accounts.source, AccountSource::Anonymous { .. })
    }

    fn destination(&mut self, to: &'a Destination, path: &str) {
        match to {
            Destination::Contact | Destination::OnlineContact if !self.has_roster => {
                self.error(path, "is for a contact, but the roster is not fetched; put \"roster\" before it");
                self.has_roster = true;
            }
            Destination::Full(to, text) => {
                self.destination(to, path);
                self.text(text, path);
            }
            Destination::Jid(text) => self.text(text, path),
            Destination::Server | Destination::Myself | Destination::Previous | Destination::LastContact => {}
            _ if self.anonymous() => self.error(
                path,
                "is for another user, but anonymous users have no names; give accounts or an address",
            ),
            _ => {}
        }
    }

    fn condition(&mut self, condition: &'a VariableCondition, path: &str) {
        self.variable(&condition.variable, path);
        self.text(&condition.value, path);
    }

    fn optional_text(&mut self, text: Option<&'a TextTemplate>, path: &str) {
        if let Some(text) = text {
            self.text(text, path);
        }
    }

    fn text(&mut self, text: &'a TextTemplate, path: &str) {
        for piece in &text.0 {
            if let TemplatePart::Variable(name) = piece {
                self.variable(name, path);
            }
        }
    }

    fn variable(&mut self, name: &'a str, path: &str) {
        if self.variables.contains(&name) {
            return;
        }
        let near = nearest(name, self.variables.iter().copied());
        let fix = if near.is_empty() { "; set it before, such as with \"set\"".to_owned() } else { near };
        self.error(path, format!("the variable \"{name}\" is never set{fix}"));
        self.variables.push(name);
    }
}

impl SessionStage {
    fn max_of(self, other: Self) -> Self {
        if self >= other { self } else { other }
    }
}
