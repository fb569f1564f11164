//! `sessions` of Tsung scenarios: user behaviour, element by element.
//!
//! Not implemented: sessions of other protocols (refused), and `interaction` (ignored, but reported).
//!
//! # Pitfalls
//!
//! The iterations of `for` and `repeat` are those of Tsung's client: the body runs before the first comparison, and
//! `max_repeat` counts the jumps back, so the body runs once more than that.

use super::accounts::own_rows;
use super::load::TsungLoad;
use super::names::{self, FLOW};
use super::options::ThinkTimeDistribution;
use super::reader::{TsungReader, XmlNode, attribute, elements};
use super::session_flow::{SessionFlow, StreamKnowledge};
use super::text::USER_ID;
use crate::plan::{
    ComparisonOperator, PlanStep, TemplatePart, TextTemplate, TimeSpan, UserSession, VariableCondition,
    VariableValue,
};

/// Sessions from which phases choose.
#[derive(Debug, Default)]
pub(super) struct SessionChoice {
    pub(super) names: Vec<String>,
    pub(super) weights: Vec<f64>,
    /// Weights are percentages and must sum to 100.
    pub(super) percent: bool,
    /// Skipped sessions; their share goes to the others.
    pub(super) left_out: Vec<bool>,
}

impl SessionChoice {
    /// Removes the skipped sessions from the plan's parts, which refer to sessions by number.
    pub(super) fn leave_out(&self, sessions: &mut Vec<UserSession>, load: &mut TsungLoad) -> usize {
        let stays = |index: usize| !self.left_out.get(index).copied().unwrap_or(false);
        let mut numbers: Vec<Option<u16>> = Vec::new();
        let mut next = 0_u16;
        for index in 0..sessions.len() {
            numbers.push(stays(index).then_some(next));
            next = next.saturating_add(u16::from(stays(index)));
        }
        let mut index = 0;
        sessions.retain(|_| {
            index += 1;
            stays(index - 1)
        });
        for weights in load.phases.iter_mut().filter_map(|phase| phase.weights.as_mut()) {
            let mut index = 0;
            weights.retain(|_| {
                index += 1;
                stays(index - 1)
            });
        }
        let before = load.starts.len();
        load.starts.retain_mut(|start| match numbers.get(usize::from(start.session)) {
            Some(Some(number)) => {
                start.session = *number;
                true
            }
            _ => false,
        });
        before - load.starts.len()
    }
}

/// Why a session is skipped: the unsupported part, in words.
fn left_out(node: XmlNode<'_>) -> Option<&'static str> {
    let kinds = node.descendants().filter(|inner| inner.tag_name().name() == "jabber");
    let mut kinds = kinds.filter_map(|inner| attribute(inner, "type"));
    kinds.find_map(|kind| names::LEFT_OUT.iter().find(|(name, _)| *name == kind).map(|(_, what)| *what))
}

/// Maximum nesting of elements.
const MAX_DEPTH: usize = 40;
/// Maximum number of sessions of a scenario, limited by the index in a step.
const MAX_SESSIONS: usize = 10_000;
const RELATIONS: [(&str, ComparisonOperator); 6] = [
    ("eq", ComparisonOperator::Equal),
    ("neq", ComparisonOperator::NotEqual),
    ("gt", ComparisonOperator::Greater),
    ("gte", ComparisonOperator::GreaterOrEqual),
    ("lt", ComparisonOperator::Less),
    ("lte", ComparisonOperator::LessOrEqual),
];

impl TsungReader<'_> {
    pub(super) fn read_sessions(
        &mut self,
        root: XmlNode<'_>,
        node: Option<XmlNode<'_>>,
    ) -> (Vec<UserSession>, SessionChoice) {
        let mut sessions: Vec<UserSession> = Vec::new();
        let mut weighted: Option<bool> = None;
        let mut out: Vec<bool> = Vec::new();
        // If nothing else remains, the scenario is refused with the unsupported requests.
        let remain = node.into_iter().flat_map(elements).any(|node| left_out(node).is_none());
        for node in node.into_iter().flat_map(elements) {
            if node.tag_name().name() != "session" {
                self.unknown(node, ["session"]);
                continue;
            }
            self.known_attributes(node);
            let name = self.needed(node, "name").unwrap_or("").to_owned();
            if sessions.iter().any(|session| session.name == name) {
                self.error(node, "session", format!("there are two sessions {name}"));
            }
            let weight = self.session_weight(node, &mut weighted);
            let bidi = self.flag(node, "bidi", false);
            if attribute(node, "persistent").is_some_and(|value| value != "true") {
                self.note(
                    node,
                    "persistent is ignored: a connection that the server closes is a lost session",
                );
            }
            if sessions.len() == MAX_SESSIONS {
                self.error(node, "session", format!("more than {MAX_SESSIONS} sessions"));
                break;
            }
            let kind = self.needed(node, "type");
            let reason = left_out(node).filter(|_| remain && kind == Some("ts_jabber"));
            out.push(reason.is_some());
            let steps = match kind {
                Some("ts_jabber") if reason.is_some() => {
                    let text = format!(
                        "session {name} is skipped: this version does not run {}; its users are distributed \
                         over the other sessions",
                        reason.unwrap_or_default()
                    );
                    self.note(node, text);
                    Vec::new()
                }
                Some("ts_jabber") => self.session(node, &name),
                Some(other) => {
                    let protocol = other.strip_prefix("ts_").unwrap_or(other);
                    let reason = names::refused_protocol(protocol)
                        .unwrap_or_else(|| "unknown type of session".to_owned());
                    self.error(node, &format!("session {name}"), format!("{other}: {reason}"));
                    Vec::new()
                }
                None => Vec::new(),
            };
            sessions.push(UserSession { name, weight, accept_subscriptions: bidi, steps });
        }
        if sessions.is_empty() {
            self.error(node.unwrap_or(root), "sessions", "no session is defined");
        }
        let choice = SessionChoice {
            names: sessions.iter().map(|session| session.name.clone()).collect(),
            weights: sessions.iter().map(|session| session.weight).collect(),
            percent: weighted == Some(false),
            left_out: out,
        };
        (sessions, choice)
    }

    fn session_weight(&mut self, node: XmlNode<'_>, weighted: &mut Option<bool>) -> f64 {
        let given = (attribute(node, "probability").is_some(), attribute(node, "weight").is_some());
        let (is_weight, name) = match given {
            (true, false) => (false, "probability"),
            (false, true) => (true, "weight"),
            (true, true) => {
                self.error(node, "session", "has both probability and weight; keep one of them");
                return 0.0;
            }
            (false, false) => {
                self.error(node, "session", "requires probability or weight");
                return 0.0;
            }
        };
        if weighted.is_some_and(|other| other != is_weight) {
            self.error(node, "session", "sessions cannot mix probability and weight");
        }
        *weighted = Some(is_weight);
        self.number(node, name).unwrap_or(0.0)
    }

    /// Checks weights: percentages sum to 100, others to more than 0.
    pub(super) fn check_weights(&mut self, node: XmlNode<'_>, key: &str, weights: &[f64], percent: bool) {
        if weights.is_empty() {
            return;
        }
        let sum: f64 = weights.iter().sum();
        if percent && (sum - 100.0).abs() >= 0.05 {
            self.error(node, key, format!("the probabilities of the sessions add up to {sum}, not to 100"));
        } else if sum <= 0.0 {
            self.error(node, key, "the weights of the sessions add up to 0");
        }
    }

    fn session(&mut self, node: XmlNode<'_>, name: &str) -> Vec<PlanStep> {
        let mut flow = SessionFlow::default();
        let mut steps = self.steps(node, &mut flow);
        if let Some((table, variable)) = &flow.account_row {
            own_rows(&mut steps, *table, variable);
        }
        self.numbered(&flow, self.line(node));
        let mut first = Vec::new();
        for (variable, line) in &flow.early {
            let value = if variable == USER_ID {
                TemplatePart::Number
            } else {
                TemplatePart::Literal("undefined".to_owned())
            };
            if variable != USER_ID && !flow.set.contains(variable) {
                let text = format!(
                    "nothing sets the variable {variable} in this session; it is \"undefined\", as in Tsung"
                );
                self.note_line(*line, text);
            }
            first.push((variable.clone(), VariableValue::Text(TextTemplate(vec![value]))));
        }
        if !first.is_empty() {
            steps.insert(0, PlanStep::Set(first));
        }
        if elements(node).next().is_none() {
            self.error(node, &format!("session {name}"), "does nothing");
        }
        steps
    }

    /// Reads the steps of the child elements.
    pub(super) fn steps(&mut self, parent: XmlNode<'_>, flow: &mut SessionFlow) -> Vec<PlanStep> {
        let mut steps = Vec::new();
        if flow.depth == MAX_DEPTH {
            self.error(
                parent,
                parent.tag_name().name(),
                format!("more than {MAX_DEPTH} elements within elements"),
            );
            return steps;
        }
        flow.depth += 1;
        for node in elements(parent) {
            self.known_attributes(node);
            match node.tag_name().name() {
                "request" => self.request(node, flow, &mut steps),
                "thinktime" => self.thinktime(node, &mut steps),
                "transaction" => self.transaction(node, flow, &mut steps),
                "setdynvars" => self.set_variables(node, flow, &mut steps),
                "for" => self.for_loop(node, flow, &mut steps),
                "repeat" => self.repeat(node, flow, &mut steps),
                "foreach" => self.for_each(node, flow, &mut steps),
                "if" => self.condition(node, flow, &mut steps),
                "change_type" => self.change_type(node, flow, &mut steps),
                "set_option" => self.set_option(node),
                "interaction" => {
                    self.note(
                        node,
                        "interaction is ignored: this version measures messages from end to end instead",
                    );
                }
                "abort" => {
                    let run = self.choice(node, "type", &["session", "all"]) == Some("all");
                    steps.push(PlanStep::Abort { run });
                }
                "while" | "until" if parent.tag_name().name() == "repeat" => {}
                "var" | "match" | "dyn_variable" => {
                    let name = node.tag_name().name();
                    let place = if name == "var" { "setdynvars" } else { "request" };
                    self.error(node, name, format!("occurs outside a {place}"));
                }
                _ => self.unknown(node, FLOW),
            }
        }
        flow.depth -= 1;
        steps
    }

    fn thinktime(&mut self, node: XmlNode<'_>, steps: &mut Vec<PlanStep>) {
        let value = attribute(node, "value");
        match value {
            Some("wait_global") => {
                steps.push(self.barrier());
                return;
            }
            Some("wait_bidi") => {
                self.note(node, "thinktime wait_bidi is ignored: starttls waits for its response itself");
                return;
            }
            Some(value) if value.starts_with("%%") => {
                self.error(
                    node,
                    "thinktime",
                    "this version does not support variables in thinktime; use min and max for a random time",
                );
                return;
            }
            _ => {}
        }
        let settings = &self.settings;
        let default = (settings.thinktime, settings.chance);
        let (seconds, chance) = if settings.override_thinktime {
            default
        } else {
            let range = (self.number(node, "min"), self.number(node, "max"));
            let chance = match (self.choice(node, "random", &["true", "false"]), default.1) {
                (Some("true"), ThinkTimeDistribution::Fixed) => ThinkTimeDistribution::Exponential,
                (Some("false"), _) => ThinkTimeDistribution::Fixed,
                (_, chance) => chance,
            };
            match (range, value) {
                ((Some(min), Some(max)), None) if min <= max => (0.0, ThinkTimeDistribution::Range(min, max)),
                ((None, None), None) => (default.0, chance),
                ((None, None), Some(_)) => (self.number(node, "value").unwrap_or(0.0), chance),
                _ => {
                    self.error(
                        node,
                        "thinktime",
                        "requires either value, or min and max with min not above max",
                    );
                    return;
                }
            }
        };
        steps.push(PlanStep::Think(match chance {
            ThinkTimeDistribution::Fixed => TimeSpan::Fixed(seconds * 1_000.0),
            ThinkTimeDistribution::Exponential => TimeSpan::Exponential(seconds * 1_000.0),
            ThinkTimeDistribution::Range(min, max) => TimeSpan::Uniform(min * 1_000.0, max * 1_000.0),
        }));
    }

    /// Waits for the other users, as many as `global_number` requires.
    pub(super) fn barrier(&self) -> PlanStep {
        PlanStep::Barrier {
            timeout_ms: self.settings.global_timeout_ms,
            users: Some(self.settings.global_number),
        }
    }

    fn transaction(&mut self, node: XmlNode<'_>, flow: &mut SessionFlow, steps: &mut Vec<PlanStep>) {
        let name = self.needed(node, "name").unwrap_or("").to_owned();
        let index = self.transactions.iter().position(|other| *other == name).unwrap_or_else(|| {
            self.transactions.push(name);
            self.transactions.len() - 1
        });
        let inner = self.steps(node, flow);
        match u16::try_from(index) {
            Ok(index) => steps.push(PlanStep::Transaction { index, steps: inner }),
            Err(_) => self.error(node, "transaction", "more than 65 536 names of transactions"),
        }
    }

    fn for_loop(&mut self, node: XmlNode<'_>, flow: &mut SessionFlow, steps: &mut Vec<PlanStep>) {
        let counter = self.needed(node, "var").map(str::to_owned);
        for name in ["from", "to"] {
            if attribute(node, name).is_some_and(|value| value.starts_with("%%")) {
                self.error(node, "for", format!("this version does not support variables in {name}"));
                return;
            }
        }
        let limit = i64::from(i32::MAX);
        let from = self.needed(node, "from").and_then(|_| self.whole(node, "from", -limit, limit));
        let to = self.needed(node, "to").and_then(|_| self.whole(node, "to", -limit, limit));
        let increment = self.whole(node, "incr", -limit, limit).unwrap_or(1);
        if let Some(counter) = &counter {
            flow.set.insert(counter.clone());
        }
        let inner = self.steps(node, flow);
        let (Some(from), Some(to)) = (from, to) else { return };
        let times = if from >= to {
            1
        } else if increment > 0 {
            1 + (to - from).unsigned_abs().div_ceil(increment.unsigned_abs())
        } else {
            self.error(
                node,
                "for",
                format!("never ends: incr=\"{increment}\" does not reach {to} from {from}"),
            );
            return;
        };
        let times = Some(u32::try_from(times).unwrap_or(u32::MAX));
        steps.push(PlanStep::Repeat { times, counter, first: from, increment, steps: inner });
    }

    fn repeat(&mut self, node: XmlNode<'_>, flow: &mut SessionFlow, steps: &mut Vec<PlanStep>) {
        self.needed(node, "name");
        let max = self.count(node, "max_repeat").unwrap_or(20);
        let Some(last) =
            elements(node).last().filter(|last| ["while", "until"].contains(&last.tag_name().name()))
        else {
            self.error(node, "repeat", "the last element must be while or until");
            return;
        };
        self.known_attributes(last);
        let inner = self.steps(node, flow);
        let Some(mut condition) = self.comparison(last, flow, false) else { return };
        if last.tag_name().name() == "until" {
            condition.compare = opposite(condition.compare);
        }
        steps.push(PlanStep::While { condition, after: true, max: max.saturating_add(1), steps: inner });
    }

    fn for_each(&mut self, node: XmlNode<'_>, flow: &mut SessionFlow, steps: &mut Vec<PlanStep>) {
        for name in ["include", "exclude"] {
            if attribute(node, name).is_some() {
                self.error(node, "foreach", format!("this version does not support {name}"));
            }
        }
        let variable = self.needed(node, "name").unwrap_or("").to_owned();
        let list = self.needed(node, "in").unwrap_or("").to_owned();
        let line = self.line(node);
        flow.uses(&list, line);
        flow.set.insert(variable.clone());
        let before = flow.stream;
        let inner = self.steps(node, flow);
        flow.joins(before);
        steps.push(PlanStep::ForEach { variable, list, steps: inner });
    }

    fn condition(&mut self, node: XmlNode<'_>, flow: &mut SessionFlow, steps: &mut Vec<PlanStep>) {
        let condition = self.comparison(node, flow, true);
        let before = flow.stream;
        let inner = self.steps(node, flow);
        flow.joins(before);
        if let Some(condition) = condition {
            steps.push(PlanStep::If { condition, steps: inner });
        }
    }

    /// Comparison of `if`, `while` and `until`.
    fn comparison(
        &mut self,
        node: XmlNode<'_>,
        flow: &mut SessionFlow,
        subst: bool,
    ) -> Option<VariableCondition> {
        let key = node.tag_name().name();
        let variable = self.needed(node, "var")?.to_owned();
        if variable.ends_with(']') {
            self.error(node, key, format!("{variable}: this version does not support elements of lists"));
            return None;
        }
        let line = self.line(node);
        flow.uses(&variable, line);
        let mut given =
            RELATIONS.iter().filter_map(|(name, compare)| Some((*compare, node.attribute(*name)?)));
        let (Some((compare, value)), None) = (given.next(), given.next()) else {
            self.error(node, key, "requires exactly one of eq, neq, gt, gte, lt and lte");
            return None;
        };
        let value = self.text(node, flow, value, subst && value.contains("%%"));
        Some(VariableCondition { variable, compare, value })
    }

    fn change_type(&mut self, node: XmlNode<'_>, flow: &mut SessionFlow, steps: &mut Vec<PlanStep>) {
        match self.needed(node, "new_type") {
            None => return,
            Some("ts_jabber") => {}
            Some(other) => {
                let protocol = other.strip_prefix("ts_").unwrap_or(other);
                let reason =
                    names::refused_protocol(protocol).unwrap_or_else(|| "unknown type of session".to_owned());
                self.error(node, "change_type", format!("{other}: {reason}"));
                return;
            }
        }
        for name in ["store", "restore"] {
            if self.flag(node, name, false) {
                let text = format!("{name}: this version supports only one connection per user");
                self.error(node, "change_type", text);
            }
        }
        if attribute(node, "bidi").is_some() {
            self.note(node, "change_type: bidi is ignored: the setting of the session applies");
        }
        let kind = self.server_type(node, "server_type");
        let (Some(host), Some(port)) = (self.needed(node, "host"), self.needed(node, "port")) else { return };
        if host.contains("%%") || port.contains("%%") {
            self.error(node, "change_type", "this version does not support variables in host and port");
            return;
        }
        let (Some((transport, security, six)), Some(port)) = (kind, self.whole(node, "port", 1, 65_535))
        else {
            return;
        };
        if transport.is_web() {
            let text = "this version supports one type of connection per run; BOSH and WebSocket are \
             selected by the servers";
            self.error(node, "change_type", text);
            return;
        }
        let Some(address) = self.resolved(node, host, port, six) else { return };
        if flow.stream != StreamKnowledge::Closed {
            steps.push(PlanStep::Disconnect);
        }
        flow.stream = StreamKnowledge::Closed;
        steps.push(PlanStep::ChangeTarget { addresses: vec![address], security });
    }

    fn set_option(&mut self, node: XmlNode<'_>) {
        match (attribute(node, "type"), self.needed(node, "name")) {
            (None, Some("certificate")) => {
                match elements(node).find(|inner| inner.tag_name().name() == "certificate") {
                    Some(inner) => {
                        self.known_attributes(inner);
                        self.certificate(inner);
                    }
                    None => self.error(node, "set_option", "certificate: requires the element certificate"),
                }
            }
            (None, Some("connect_timeout")) => {
                if let Some(ms) = self.whole(node, "value", 1, i64::from(u32::MAX)) {
                    self.settings.connect_timeout_ms =
                        self.settings.connect_timeout_ms.max(ms.unsigned_abs());
                    self.note(
                        node,
                        "set_option connect_timeout applies to all sessions; the longest is used",
                    );
                }
            }
            (_, Some(name)) => self.note(node, format!("set_option {name} is ignored")),
            (_, None) => {}
        }
    }

    /// Certificate files, from `set_option` or `starttls`.
    pub(super) fn certificate(&mut self, node: XmlNode<'_>) {
        let key = node.tag_name().name();
        if attribute(node, "keypass").is_some() {
            self.error(node, key, "keypass: this version supports only keys without a password");
            return;
        }
        let mut read = |name: &str| {
            let path = attribute(node, name)?;
            if path.contains("%%") {
                self.error(
                    node,
                    key,
                    format!("{name}: this version supports one certificate for all users, without variables"),
                );
                return None;
            }
            self.file(node, path)
        };
        let files = (read("cacertfile"), read("certfile"), read("keyfile"));
        if files != (None, None, None) && !self.certificates.contains(&files) {
            self.certificates.push(files);
            if self.certificates.len() == 2 {
                self.error(
                    node,
                    key,
                    "this version supports one certificate for all users, and this is a different one",
                );
            }
        }
    }
}

impl SessionFlow {
    /// Merges the knowledge of steps that may or may not have run.
    fn joins(&mut self, before: StreamKnowledge) {
        if self.stream != before {
            self.stream = StreamKnowledge::Unknown;
        }
    }
}

fn opposite(compare: ComparisonOperator) -> ComparisonOperator {
    match compare {
        ComparisonOperator::Equal => ComparisonOperator::NotEqual,
        ComparisonOperator::NotEqual => ComparisonOperator::Equal,
        ComparisonOperator::Less => ComparisonOperator::GreaterOrEqual,
        ComparisonOperator::LessOrEqual => ComparisonOperator::Greater,
        ComparisonOperator::Greater => ComparisonOperator::LessOrEqual,
        ComparisonOperator::GreaterOrEqual => ComparisonOperator::Less,
    }
}
