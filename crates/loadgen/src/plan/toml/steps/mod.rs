//! Parser of steps, from `"roster"` or `{ message = { to = "online", size = 100 } }` to [`PlanStep`].
//!
//! A step is a word, or a table with one key. A value that is not a table stands for the step's main option
//! (`{ think = "5s" }` is `{ think = { for = "5s" } }`).

mod flow;
mod pubsub;
mod room;
mod send;

use flow::{change_target, condition, for_each, meanwhile, repeat, repeat_while, set, transaction};
use send::{
    authenticate, legacy_authenticate, login, message, presence, raw, roster_change, unless_waiting, wait_for,
};

use super::super::error::nearest;
use super::super::{Destination, PlanStep, RosterChange};
use super::reader::{TomlNode, TomlSection};

/// Names of all steps.
pub(super) const NAMES: &[&str] = &[
    "login",
    "resume",
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
    "room_join",
    "room_leave",
    "room_message",
    "room_presence",
    "room_nick",
    "pubsub_create",
    "pubsub_delete",
    "pubsub_subscribe",
    "pubsub_unsubscribe",
    "pubsub_listen",
    "pubsub_publish",
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

/// Maximum number of activities of one `meanwhile`.
const MOST_ACTIVITIES: usize = 8;
/// Maximum nesting of steps; deeper is an error, and readers recurse.
const DEEPEST: usize = 16;
/// Maximum message body in bytes: `raw` can test larger ones, which servers refuse.
const LARGEST_BODY: i64 = 16 * 1024 * 1024;

/// Reads a list of steps.
pub(super) fn steps(node: &TomlNode<'_>, depth: usize) -> Vec<PlanStep> {
    let Some(list) = node.list() else { return Vec::new() };
    if depth > DEEPEST {
        node.error(format!("is nested more than {DEEPEST} deep; use fewer steps inside steps"));
        return Vec::new();
    }
    list.iter().filter_map(|node| one(node, depth)).collect()
}

fn one(node: &TomlNode<'_>, depth: usize) -> Option<PlanStep> {
    if node.is_text() {
        let name = node.text()?;
        return read(name, TomlSection::empty(node.context, &node.path, node.offset()), depth);
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

/// Parses the step `name` from its value.
fn value(name: &str, inside: &TomlNode<'_>, depth: usize) -> Option<PlanStep> {
    let short = match name {
        "login" | "authenticate" => "mechanisms",
        "bind" | "legacy_authenticate" => "resource",
        "stream_management" => "resume",
        "roster_set" | "roster_remove" | "message" | "ping" => "to",
        "presence" => "kind",
        "room_join" | "room_leave" | "room_message" | "room_presence" => "room",
        "room_nick" => "nick",
        "pubsub_create" | "pubsub_delete" | "pubsub_subscribe" | "pubsub_unsubscribe" | "pubsub_listen"
        | "pubsub_publish" => "node",
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

fn read(name: &str, section: TomlSection<'_>, depth: usize) -> Option<PlanStep> {
    let s = &section;
    let step = match name {
        "login" => login(s),
        "resume" => Some(PlanStep::Resume),
        "connect" => Some(PlanStep::Connect),
        "starttls" => Some(PlanStep::StartTls),
        "register" => Some(PlanStep::Register),
        "unregister" => Some(PlanStep::Unregister),
        "authenticate" => Some(authenticate(s)),
        "bind" => Some(PlanStep::Bind { resource: s.get("resource").and_then(|n| n.template()) }),
        "session" => Some(PlanStep::OpenSession),
        "stream_management" => Some(PlanStep::StreamManagement { resume: boolean(s, "resume", false) }),
        "legacy_authenticate" => legacy_authenticate(s),
        "roster" => Some(unless_waiting(s, PlanStep::Roster)),
        "roster_set" => roster_change(s, RosterChange::Set),
        "roster_remove" => roster_change(s, RosterChange::Remove),
        "presence" => Some(presence(s)),
        "message" => message(s),
        "room_join" => room::join(s).map(PlanStep::Room),
        "room_leave" => room::leave(s).map(PlanStep::Room),
        "room_message" => room::message(s).map(PlanStep::Room),
        "room_presence" => room::presence(s).map(PlanStep::Room),
        "room_nick" => room::nick(s).map(PlanStep::Room),
        "pubsub_create" => pubsub::create(s).map(PlanStep::PubSub),
        "pubsub_delete" => pubsub::delete(s).map(PlanStep::PubSub),
        "pubsub_subscribe" => pubsub::subscribe(s).map(PlanStep::PubSub),
        "pubsub_unsubscribe" => pubsub::unsubscribe(s).map(PlanStep::PubSub),
        "pubsub_listen" => pubsub::listen(s).map(PlanStep::PubSub),
        "pubsub_publish" => pubsub::publish(s).map(PlanStep::PubSub),
        "ping" => Some(unless_waiting(s, PlanStep::Ping { to: s.get("to").and_then(|n| n.destination()) })),
        "raw" => raw(s),
        "wait_for" => wait_for(s),
        "think" => s.need("for", "think = \"5s\"").and_then(|n| n.time()).map(PlanStep::Think),
        "repeat" => repeat(s, depth),
        "while" => repeat_while(s, depth, false),
        "until" => repeat_while(s, depth, true),
        "if" => {
            let (condition, steps) = (condition(s), inner(s, depth));
            condition.map(|condition| PlanStep::If { condition, steps })
        }
        "for_each" => for_each(s, depth),
        "meanwhile" => meanwhile(s, depth),
        "bounce" => Some(PlanStep::Bounce {
            in_flight: whole(s, "in_flight", 1, 1, 1_000) as u32,
            duration_ms: s.get("for").and_then(|n| n.span_ms()),
            size: whole(s, "size", 100, 0, LARGEST_BODY) as u32,
            one_sided: s
                .get("start")
                .and_then(|n| n.word(&[("both", false), ("even", true)]))
                .unwrap_or(false),
            to: match s.get("resource").and_then(|n| n.template()) {
                Some(resource) => Destination::Full(Box::new(Destination::Partner), resource),
                None => Destination::Partner,
            },
        }),
        "transaction" => transaction(s, depth),
        "set" => {
            s.error("needs variables, such as { set = { x = \"{n}\" } }");
            None
        }
        "barrier" => {
            let timeout_ms = s.get("timeout").and_then(|n| n.span_ms()).unwrap_or(60_000);
            Some(PlanStep::Barrier { timeout_ms, users: s.get("users").and_then(|n| n.amount()) })
        }
        "change_target" => change_target(s),
        "disconnect" => Some(PlanStep::Disconnect),
        "cut" => Some(PlanStep::Cut),
        "abort" => {
            let run = s.get("what").and_then(|n| n.word(&[("session", false), ("run", true)]));
            Some(PlanStep::Abort { run: run.unwrap_or(false) })
        }
        _ => {
            let near = nearest(name, NAMES.iter().copied());
            let fix = if near.is_empty() { format!("; known are {}", NAMES.join(", ")) } else { near };
            s.error(format!("unknown step \"{name}\"{fix}"));
            return None;
        }
    };
    section.finish();
    step
}

fn boolean(s: &TomlSection<'_>, key: &'static str, default: bool) -> bool {
    s.get(key).and_then(|n| n.boolean()).unwrap_or(default)
}

fn whole(s: &TomlSection<'_>, key: &'static str, default: i64, low: i64, high: i64) -> i64 {
    s.get(key).and_then(|n| n.whole(low, high)).unwrap_or(default)
}

fn inner(s: &TomlSection<'_>, depth: usize) -> Vec<PlanStep> {
    let Some(node) = s.need("steps", "steps = [\"ping\"]") else { return Vec::new() };
    let list = steps(&node, depth + 1);
    if node.list_is_empty() {
        node.error("has no steps; add at least one");
    }
    list
}
