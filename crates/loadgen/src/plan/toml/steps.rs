//! Steps: what a user does, from `"roster"` or `{ message = { to = "online", size = 100 } }` to the IR.
//!
//! A step is a word, or a table with one key. A value that is not a table stands for the step's most usual option
//! (`{ think = "5s" }` is `{ think = { for = "5s" } }`).

use super::super::mistake::nearest;
use super::super::{
    Ack, Activity, Body, Checks, Compare, Condition, Match, MatchAction, MessageKind, Pattern, PresenceKind,
    RosterChange, Step, Text, Time, Value,
};
use super::reader::{Node, Section};
use super::values::addresses;

/// The names of all steps.
const NAMES: &[&str] = &[
    "login",
    "connect",
    "starttls",
    "register",
    "unregister",
    "authenticate",
    "legacy_authenticate",
    "bind",
    "session",
    "stream_management",
    "roster",
    "roster_set",
    "roster_remove",
    "presence",
    "message",
    "ping",
    "raw",
    "wait_for",
    "think",
    "repeat",
    "while",
    "until",
    "if",
    "for_each",
    "meanwhile",
    "bounce",
    "transaction",
    "set",
    "barrier",
    "change_target",
    "disconnect",
    "cut",
    "abort",
];

/// Things that `meanwhile` may do at one time.
const MOST_ACTIVITIES: usize = 8;
/// Steps inside steps inside steps; deeper is a slip, and readers recurse.
const DEEPEST: usize = 16;
/// Bytes of a message's body at most: what servers refuse is tested with `raw`.
const LARGEST_BODY: i64 = 16 * 1024 * 1024;

/// Reads a list of steps.
pub(super) fn steps(node: &Node<'_>, depth: usize) -> Vec<Step> {
    let Some(list) = node.list() else { return Vec::new() };
    if depth > DEEPEST {
        node.wrong(format!("is nested more than {DEEPEST} deep; use fewer steps inside steps"));
        return Vec::new();
    }
    list.iter().filter_map(|node| one(node, depth)).collect()
}

fn one(node: &Node<'_>, depth: usize) -> Option<Step> {
    if node.is_text() {
        let name = node.text()?;
        return read(name, Section::empty(node.context, &node.path, node.offset()), depth);
    }
    if !node.is_table() {
        return node.none("must be a step such as \"roster\" or { think = \"5s\" }");
    }
    let section = node.section()?;
    let [(name, _, inside)] = section.entries() else {
        let names: Vec<&str> = section.entries().iter().map(|entry| entry.0).collect();
        return node.none(match names.as_slice() {
            [] => "is an empty step; write such as { think = \"5s\" }".to_owned(),
            names => format!(
                "has {} keys ({}) where one step is expected; give each step its own {{ }}",
                names.len(),
                names.join(", ")
            ),
        });
    };
    value(name, inside, depth)
}

/// Reads the step `name` from its value.
fn value(name: &str, inside: &Node<'_>, depth: usize) -> Option<Step> {
    let short = match name {
        "login" | "authenticate" => "mechanisms",
        "bind" | "legacy_authenticate" => "resource",
        "stream_management" => "resume",
        "roster_set" | "roster_remove" | "message" | "ping" => "to",
        "presence" => "kind",
        "raw" => "xml",
        "wait_for" => "stanza",
        "think" => "for",
        "repeat" => "times",
        "bounce" => "in_flight",
        "barrier" => "timeout",
        "change_target" => "address",
        "abort" => "what",
        "set" => return set(inside),
        _ if inside.is_table() || !NAMES.contains(&name) => "",
        _ => return inside.none(format!("\"{name}\" needs a table of options: {name} = {{ … }}")),
    };
    read(name, inside.section_or(short), depth)
}

fn read(name: &str, section: Section<'_>, depth: usize) -> Option<Step> {
    let s = &section;
    let step = match name {
        "login" => Some(Step::Login {
            mechanisms: mechanisms(s),
            resource: s.get("resource").and_then(|n| n.template()),
        }),
        "connect" => Some(Step::Connect),
        "starttls" => Some(Step::StartTls),
        "register" => Some(Step::Register),
        "unregister" => Some(Step::Unregister),
        "authenticate" => Some(authenticate(s)),
        "bind" => Some(Step::Bind { resource: s.get("resource").and_then(|n| n.template()) }),
        "session" => Some(Step::OpenSession),
        "stream_management" => Some(Step::StreamManagement { resume: truth(s, "resume", false) }),
        "legacy_authenticate" => legacy_authenticate(s),
        "roster" => Some(unless_waiting(s, Step::Roster)),
        "roster_set" => roster_change(s, RosterChange::Set),
        "roster_remove" => roster_change(s, RosterChange::Remove),
        "presence" => Some(presence(s)),
        "message" => message(s),
        "ping" => Some(unless_waiting(s, Step::Ping { to: s.get("to").and_then(|n| n.destination()) })),
        "raw" => raw(s),
        "wait_for" => wait_for(s),
        "think" => s.need("for", "think = \"5s\"").and_then(|n| n.time()).map(Step::Think),
        "repeat" => repeat(s, depth),
        "while" => repeat_while(s, depth, false),
        "until" => repeat_while(s, depth, true),
        "if" => {
            let (condition, steps) = (condition(s), inner(s, depth));
            condition.map(|condition| Step::If { condition, steps })
        }
        "for_each" => for_each(s, depth),
        "meanwhile" => meanwhile(s, depth),
        "bounce" => Some(Step::Bounce {
            in_flight: whole(s, "in_flight", 1, 1, 1_000) as u32,
            duration_ms: s.get("for").and_then(|n| n.span_ms()),
            size: whole(s, "size", 100, 0, LARGEST_BODY) as u32,
        }),
        "transaction" => transaction(s, depth),
        "set" => {
            s.wrong("needs variables, such as { set = { x = \"{n}\" } }");
            None
        }
        "barrier" => {
            let timeout_ms = s.get("timeout").and_then(|n| n.span_ms()).unwrap_or(60_000);
            Some(Step::Barrier { timeout_ms, users: s.get("users").and_then(|n| n.amount()) })
        }
        "change_target" => change_target(s),
        "disconnect" => Some(Step::Disconnect),
        "cut" => Some(Step::Cut),
        "abort" => {
            let run = s.get("what").and_then(|n| n.word(&[("session", false), ("run", true)]));
            Some(Step::Abort { run: run.unwrap_or(false) })
        }
        _ => {
            let near = nearest(name, NAMES.iter().copied());
            let mend = if near.is_empty() { format!("; known are {}", NAMES.join(", ")) } else { near };
            s.wrong(format!("unknown step \"{name}\"{mend}"));
            return None;
        }
    };
    section.finish();
    step
}

fn truth(s: &Section<'_>, key: &'static str, default: bool) -> bool {
    s.get(key).and_then(|n| n.truth()).unwrap_or(default)
}

fn whole(s: &Section<'_>, key: &'static str, default: i64, low: i64, high: i64) -> i64 {
    s.get(key).and_then(|n| n.whole(low, high)).unwrap_or(default)
}

fn inner(s: &Section<'_>, depth: usize) -> Vec<Step> {
    let Some(node) = s.need("steps", "steps = [\"ping\"]") else { return Vec::new() };
    let list = steps(&node, depth + 1);
    if node.list_is_empty() {
        node.wrong("has no steps; give at least one");
    }
    list
}

fn mechanisms(s: &Section<'_>) -> Vec<String> {
    s.get("mechanisms").and_then(|n| n.texts()).unwrap_or_default()
}

/// IQs wait for their answers unless `wait = "none"` says otherwise.
fn unless_waiting(s: &Section<'_>, step: Step) -> Step {
    match s.get("wait").and_then(|n| n.word(&[("answer", true), ("none", false)])) {
        Some(false) => Step::NoWait(Box::new(step)),
        _ => step,
    }
}

fn authenticate(s: &Section<'_>) -> Step {
    Step::Authenticate { mechanisms: mechanisms(s), credentials: credentials(s) }
}

fn legacy_authenticate(s: &Section<'_>) -> Option<Step> {
    let credentials = credentials(s);
    let resource = s.need("resource", "resource = \"load\"").and_then(|n| n.template());
    Some(Step::LegacyAuthenticate { resource: resource?, credentials })
}

/// `user` and `password`, if they are not those of the account.
fn credentials(s: &Section<'_>) -> Option<(Text, Text)> {
    let user = s.get("user").and_then(|n| n.template());
    let password = s.get("password").and_then(|n| n.template());
    match (user, password) {
        (Some(user), Some(password)) => Some((user, password)),
        (None, None) => None,
        _ => {
            s.wrong("needs both \"user\" and \"password\", or neither for those of the account");
            None
        }
    }
}

fn roster_change(s: &Section<'_>, change: RosterChange) -> Option<Step> {
    let to = s.need("to", "to = \"ring+1\"").and_then(|n| n.destination());
    let text = |key| s.get(key).and_then(|n| n.template());
    let (name, group) = match change {
        RosterChange::Set => (text("name"), text("group")),
        RosterChange::Remove => (None, None),
    };
    Some(unless_waiting(s, Step::RosterSet { change, to: to?, name, group }))
}

fn presence(s: &Section<'_>) -> Step {
    let kinds = [
        ("available", PresenceKind::Available),
        ("unavailable", PresenceKind::Unavailable),
        ("subscribe", PresenceKind::Subscribe),
        ("subscribed", PresenceKind::Subscribed),
        ("unsubscribe", PresenceKind::Unsubscribe),
        ("probe", PresenceKind::Probe),
    ];
    let kind = s.get("kind").and_then(|n| n.word(&kinds)).unwrap_or(PresenceKind::Available);
    let to = s.get("to").and_then(|n| n.destination());
    if to.is_none() && !matches!(kind, PresenceKind::Available | PresenceKind::Unavailable) {
        s.wrong("of this kind needs \"to\", such as to = \"ring+1\"");
    }
    let show = s.get("show").and_then(|n| n.template());
    Step::Presence { kind, to, show, status: s.get("status").and_then(|n| n.template()) }
}

fn message(s: &Section<'_>) -> Option<Step> {
    let to = s.need("to", "to = \"online\"").and_then(|n| n.destination());
    let kinds =
        [("chat", MessageKind::Chat), ("normal", MessageKind::Normal), ("headline", MessageKind::Headline)];
    let kind = s.get("kind").and_then(|n| n.word(&kinds)).unwrap_or_default();
    let ack = ack(s);
    let size = s.get("size");
    let text = s.get("text");
    if let (Some(_), Some(text)) = (&size, &text) {
        text.wrong("cannot stand beside \"size\"; keep one of the two");
    }
    let body = match text {
        Some(text) => Body::Text(text.template()?),
        None => Body::Size(size.and_then(|n| n.whole(0, LARGEST_BODY)).unwrap_or(100) as u32),
    };
    Some(Step::Message { to: to?, body, kind, ack })
}

fn ack(s: &Section<'_>) -> Ack {
    let Some(node) = s.get("wait") else { return Ack::None };
    if node.is_table() {
        let pattern = node.section().and_then(|section| {
            let pattern = pattern(&section);
            section.finish();
            pattern
        });
        return pattern.map_or(Ack::None, Ack::Match);
    }
    let words = [("none", 0), ("any", 1), ("answer", 2), ("delivery", 3), ("all", 4)];
    match node.word(&words) {
        Some(1) => Ack::Any,
        Some(2) => Ack::Answer,
        Some(3) => Ack::Delivery,
        Some(4) => Ack::All,
        _ => Ack::None,
    }
}

fn raw(s: &Section<'_>) -> Option<Step> {
    let xml = s.need("xml", "xml = \"<presence/>\"").and_then(|n| n.template());
    let ack = ack(s);
    let mut checks = Checks::default();
    for node in s.get("check").and_then(|n| n.list()).unwrap_or_default() {
        checks.matches.extend(node.section().and_then(check));
    }
    if let Some(section) = s.get("keep").and_then(|n| n.section()) {
        for (variable, _, node) in section.entries() {
            checks.captures.extend(node.text().map(|regex| ((*variable).to_owned(), regex.to_owned())));
        }
    }
    if ack == Ack::None && (!checks.matches.is_empty() || !checks.captures.is_empty()) {
        s.wrong("checks an answer and does not wait for one; add wait = \"answer\" or wait = \"any\"");
    }
    Some(Step::Raw { xml: xml?, ack, checks })
}

fn check(s: Section<'_>) -> Option<Match> {
    let regex = s.need("regex", "regex = \"type='error'\"").and_then(|n| n.text().map(str::to_owned));
    let when = s.get("when").and_then(|n| n.word(&[("found", true), ("missing", false)])).unwrap_or(true);
    let actions = [
        ("continue", MatchAction::Continue),
        ("log", MatchAction::Log),
        ("loop", MatchAction::Loop),
        ("abort", MatchAction::Abort),
        ("abort_run", MatchAction::AbortRun),
        ("restart", MatchAction::Restart),
    ];
    let action = s.need("then", "then = \"abort\"").and_then(|n| n.word(&actions));
    let max = whole(&s, "max", 20, 1, i64::from(u32::MAX)) as u32;
    let pause_ms = s.get("pause").and_then(|n| n.span_ms()).unwrap_or(0);
    let name = s.get("name").and_then(|n| n.text().map(str::to_owned));
    s.finish();
    Some(Match { regex: regex?, when, action: action?, max, pause_ms, name })
}

/// `stanza`, `type` and `namespace`; or `contains`; or `regex`.
fn pattern(s: &Section<'_>) -> Option<Pattern> {
    let contains = s.get("contains");
    let regex = s.get("regex");
    let text = |key| s.get(key).and_then(|n| n.text().map(str::to_owned));
    let (name, kind, namespace) = (text("stanza"), text("type"), text("namespace"));
    let stanza = name.is_some() || kind.is_some() || namespace.is_some();
    match (contains, regex, stanza) {
        (Some(text), None, false) => text.template().map(Pattern::Contains),
        (None, Some(regex), false) => regex.text().map(|r| Pattern::Regex(r.to_owned())),
        (None, None, true) => Some(Pattern::Stanza { name, kind, namespace }),
        _ => {
            s.wrong(
                "needs what to look for: \"stanza\" (with \"type\" and \"namespace\"), or \"contains\", or \"regex\"",
            );
            None
        }
    }
}

fn wait_for(s: &Section<'_>) -> Option<Step> {
    let timeout_ms = s.get("timeout").and_then(|n| n.span_ms()).unwrap_or(60_000);
    Some(Step::WaitFor { what: pattern(s)?, timeout_ms })
}

fn repeat(s: &Section<'_>, depth: usize) -> Option<Step> {
    let times = s.get("times").and_then(|n| n.whole(1, i64::from(u32::MAX))).map(|n| n as u32);
    let counter = s.get("counter").and_then(|n| n.text().map(str::to_owned));
    let first = whole(s, "first", 1, i64::MIN, i64::MAX);
    let increment = whole(s, "by", 1, i64::MIN, i64::MAX);
    Some(Step::Repeat { times, counter, first, increment, steps: inner(s, depth) })
}

fn repeat_while(s: &Section<'_>, depth: usize, until: bool) -> Option<Step> {
    let condition = condition(s).map(|c| if until { opposite(c) } else { c });
    let after = s.get("check").and_then(|n| n.word(&[("before", false), ("after", true)]));
    let max = whole(s, "max", 1_000_000, 1, i64::from(u32::MAX)) as u32;
    let steps = inner(s, depth);
    Some(Step::While { condition: condition?, after: after.unwrap_or(until), max, steps })
}

fn condition(s: &Section<'_>) -> Option<Condition> {
    let variable = s.need("variable", "variable = \"x\"").and_then(|n| n.text().map(str::to_owned));
    let forms = [
        ("equals", Compare::Equal),
        ("not", Compare::NotEqual),
        ("below", Compare::Less),
        ("at_most", Compare::LessOrEqual),
        ("above", Compare::Greater),
        ("at_least", Compare::GreaterOrEqual),
    ];
    let mut found = Vec::new();
    for (key, compare) in forms {
        if let Some(node) = s.get(key) {
            let value = match node.integer() {
                Some(number) => Some(Text::literal(number.to_string())),
                None => node.template(),
            };
            found.push((compare, value));
        }
    }
    if found.len() != 1 {
        s.wrong("needs one of \"equals\", \"not\", \"below\", \"at_most\", \"above\" and \"at_least\"");
        return None;
    }
    let (compare, value) = found.pop()?;
    Some(Condition { variable: variable?, compare, value: value? })
}

fn opposite(condition: Condition) -> Condition {
    let compare = match condition.compare {
        Compare::Equal => Compare::NotEqual,
        Compare::NotEqual => Compare::Equal,
        Compare::Less => Compare::GreaterOrEqual,
        Compare::GreaterOrEqual => Compare::Less,
        Compare::Greater => Compare::LessOrEqual,
        Compare::LessOrEqual => Compare::Greater,
    };
    Condition { compare, ..condition }
}

fn for_each(s: &Section<'_>, depth: usize) -> Option<Step> {
    let variable = s.need("variable", "variable = \"x\"").and_then(|n| n.text().map(str::to_owned));
    let list = s.need("in", "in = \"names\"").and_then(|n| n.text().map(str::to_owned));
    let steps = inner(s, depth);
    Some(Step::ForEach { variable: variable?, list: list?, steps })
}

fn meanwhile(s: &Section<'_>, depth: usize) -> Option<Step> {
    let duration = s.get("for").and_then(|n| n.time());
    let node = s.need("do", "do = [{ every = \"5s\", message = { to = \"online\" } }]")?;
    let list = node.list()?;
    if list.is_empty() {
        return node.none(
            "has nothing to do; give at least one, such as { every = \"5s\", message = { to = \"online\" } }",
        );
    }
    if list.len() > MOST_ACTIVITIES {
        return node.none(format!("has {} things to do; at most {MOST_ACTIVITIES} fit", list.len()));
    }
    let activities = list.iter().filter_map(|node| activity(node, depth)).collect();
    Some(Step::Meanwhile { duration, activities })
}

fn activity(node: &Node<'_>, depth: usize) -> Option<Activity> {
    let section = node.section()?;
    let every = section.need("every", "every = \"5s\"").and_then(|n| {
        let every = n.time()?;
        let longest = match every {
            Time::Fixed(ms) | Time::Exponential(ms) | Time::Uniform(_, ms) => ms,
        };
        if longest > 0.0 { Some(every) } else { n.none("must be more than 0") }
    });
    let others: Vec<_> = section.entries().iter().filter(|entry| entry.0 != "every").collect();
    let [(name, _, inside)] = others.as_slice() else {
        return node.none("needs \"every\" and one of message, presence, ping, raw and roster");
    };
    let step = if *name == "roster" && inside.truth_quiet() == Some(true) {
        Some(Step::Roster)
    } else if *name == "ping" && inside.truth_quiet() == Some(true) {
        Some(Step::Ping { to: None })
    } else {
        value(name, inside, depth)
    };
    match step? {
        step @ (Step::Message { ack: Ack::None, .. }
        | Step::Presence { .. }
        | Step::Ping { .. }
        | Step::Raw { ack: Ack::None, .. }
        | Step::Roster) => Some(Activity { every: every?, step }),
        Step::Message { .. } | Step::Raw { .. } => {
            inside.none("cannot wait inside \"meanwhile\", where things are due by the clock; take \"wait\" out")
        }
        _ => inside.none(format!(
            "\"{name}\" cannot be done inside \"meanwhile\"; possible are message, presence, ping, raw and roster"
        )),
    }
}

fn transaction(s: &Section<'_>, depth: usize) -> Option<Step> {
    let name = s.need("name", "name = \"search\"").and_then(|n| n.text());
    let steps = inner(s, depth);
    let name = name?;
    let mut names = s.context.transactions.borrow_mut();
    let index = names.iter().position(|known| known == name).unwrap_or_else(|| {
        names.push(name.to_owned());
        names.len() - 1
    });
    Some(Step::Transaction { index: u16::try_from(index).ok()?, steps })
}

fn set(node: &Node<'_>) -> Option<Step> {
    let section = node.section()?;
    let mut list = Vec::new();
    for (name, _, node) in section.entries() {
        list.extend(set_value(node).map(|value| ((*name).to_owned(), value)));
    }
    if section.entries().is_empty() {
        return node.none("needs variables, such as set = { x = \"{n}\" }");
    }
    Some(Step::Set(list))
}

fn set_value(node: &Node<'_>) -> Option<Value> {
    if let Some(number) = node.integer() {
        return Some(Value::Text(Text::literal(number.to_string())));
    }
    if !node.is_table() {
        return node.template().map(Value::Text);
    }
    let section = node.section()?;
    let value = if let Some(letters) = section.get("random_string") {
        letters.whole(1, 65_536).map(|n| Value::RandomString(n as u32))
    } else if let Some(range) = section.get("random_number") {
        let numbers: Vec<i64> = range.list()?.iter().filter_map(Node::integer).collect();
        match numbers.as_slice() {
            [low, high] if low <= high => Some(Value::RandomNumber(*low, *high)),
            _ => range.none("must be the smallest and the largest number, such as [1, 6]"),
        }
    } else if let Some(table) = section.get("table") {
        row(&section, &table)
    } else {
        node.none("must be text, a number, { random_string = 8 }, { random_number = [1, 6] } or { table = \"…\", column = 0 }")
    };
    section.finish();
    value
}

fn row(section: &Section<'_>, table: &Node<'_>) -> Option<Value> {
    let column = whole(section, "column", 0, 0, 65_535);
    let lines = [("next", (false, false)), ("random", (true, false)), ("own", (false, true))];
    let (random, own) = section.get("line").and_then(|n| n.word(&lines)).unwrap_or_default();
    let name = table.text()?;
    let tables = &section.context.tables;
    let Some(index) = tables.iter().position(|known| known.name == name) else {
        let near = nearest(name, tables.iter().map(|known| known.name.as_str()));
        let mend = if near.is_empty() { "; add it under [tables]".to_owned() } else { near };
        return table.none(format!("there is no table \"{name}\"{mend}"));
    };
    let columns = tables.get(index).and_then(|t| t.rows.iter().map(Vec::len).min()).unwrap_or(0);
    if column as usize >= columns {
        return table.none(format!(
            "the table \"{name}\" has {columns} columns and none with the number {column}, counted from 0"
        ));
    }
    let (table, column) = (u16::try_from(index).ok()?, u16::try_from(column).ok()?);
    Some(if own { Value::OwnRow { table, column } } else { Value::Row { table, column, random } })
}

fn change_target(s: &Section<'_>) -> Option<Step> {
    let security = s.get("security").and_then(|n| n.word(super::SECURITIES)).unwrap_or_default();
    let node = s.need("address", "address = \"127.0.0.1:5223\"")?;
    let mut list = Vec::new();
    for text in node.texts()? {
        match addresses(&text) {
            Ok(found) => list.extend(found),
            Err(what) => node.wrong(what),
        }
    }
    Some(Step::ChangeTarget { addresses: list, security })
}
