//! Parser of steps that contain or configure others: loops, conditions, activities, transactions, variables.

use super::super::super::error::nearest;
use super::super::super::{
    AckMode, Activity, ComparisonOperator, PlanStep, PubSubStep, RoomStep, TextTemplate, TimeSpan,
    VariableCondition, VariableValue,
};
use super::super::reader::{TomlNode, TomlSection};
use super::super::values::addresses;
use super::{MOST_ACTIVITIES, inner, read, value, whole};

pub(super) fn repeat(s: &TomlSection<'_>, depth: usize) -> Option<PlanStep> {
    let times = s.get("times").and_then(|n| n.whole(1, i64::from(u32::MAX))).map(|n| n as u32);
    let counter = s.get("counter").and_then(|n| n.text().map(str::to_owned));
    let first = whole(s, "first", 1, i64::MIN, i64::MAX);
    let increment = whole(s, "by", 1, i64::MIN, i64::MAX);
    Some(PlanStep::Repeat { times, counter, first, increment, steps: inner(s, depth) })
}

pub(super) fn repeat_while(s: &TomlSection<'_>, depth: usize, until: bool) -> Option<PlanStep> {
    let condition = condition(s).map(|c| if until { opposite(c) } else { c });
    let after = s.get("check").and_then(|n| n.word(&[("before", false), ("after", true)]));
    let max = whole(s, "max", 1_000_000, 1, i64::from(u32::MAX)) as u32;
    let steps = inner(s, depth);
    Some(PlanStep::While { condition: condition?, after: after.unwrap_or(until), max, steps })
}

pub(super) fn condition(s: &TomlSection<'_>) -> Option<VariableCondition> {
    let variable = s.need("variable", "variable = \"x\"").and_then(|n| n.text().map(str::to_owned));
    let forms = [
        ("equals", ComparisonOperator::Equal),
        ("not", ComparisonOperator::NotEqual),
        ("below", ComparisonOperator::Less),
        ("at_most", ComparisonOperator::LessOrEqual),
        ("above", ComparisonOperator::Greater),
        ("at_least", ComparisonOperator::GreaterOrEqual),
    ];
    let mut found = Vec::new();
    for (key, compare) in forms {
        if let Some(node) = s.get(key) {
            let value = match node.integer() {
                Some(number) => Some(TextTemplate::literal(number.to_string())),
                None => node.template(),
            };
            found.push((compare, value));
        }
    }
    if found.len() != 1 {
        s.error("needs one of \"equals\", \"not\", \"below\", \"at_most\", \"above\" and \"at_least\"");
        return None;
    }
    let (compare, value) = found.pop()?;
    Some(VariableCondition { variable: variable?, compare, value: value? })
}

fn opposite(condition: VariableCondition) -> VariableCondition {
    let compare = match condition.compare {
        ComparisonOperator::Equal => ComparisonOperator::NotEqual,
        ComparisonOperator::NotEqual => ComparisonOperator::Equal,
        ComparisonOperator::Less => ComparisonOperator::GreaterOrEqual,
        ComparisonOperator::GreaterOrEqual => ComparisonOperator::Less,
        ComparisonOperator::Greater => ComparisonOperator::LessOrEqual,
        ComparisonOperator::LessOrEqual => ComparisonOperator::Greater,
    };
    VariableCondition { compare, ..condition }
}

pub(super) fn for_each(s: &TomlSection<'_>, depth: usize) -> Option<PlanStep> {
    let variable = s.need("variable", "variable = \"x\"").and_then(|n| n.text().map(str::to_owned));
    let list = s.need("in", "in = \"names\"").and_then(|n| n.text().map(str::to_owned));
    let steps = inner(s, depth);
    Some(PlanStep::ForEach { variable: variable?, list: list?, steps })
}

pub(super) fn meanwhile(s: &TomlSection<'_>, depth: usize) -> Option<PlanStep> {
    let duration = s.get("for").and_then(|n| n.time());
    let node = s.need("do", "do = [{ every = \"5s\", message = { to = \"online\" } }]")?;
    let list = node.list()?;
    if list.is_empty() {
        return node.none(
            "has no activities; give at least one, such as { every = \"5s\", message = { to = \"online\" } }",
        );
    }
    if list.len() > MOST_ACTIVITIES {
        return node.none(format!("has {} activities; at most {MOST_ACTIVITIES} are supported", list.len()));
    }
    let activities = list.iter().filter_map(|node| activity(node, depth)).collect();
    Some(PlanStep::Meanwhile { duration, activities })
}

fn activity(node: &TomlNode<'_>, depth: usize) -> Option<Activity> {
    let section = node.section()?;
    let every = section.need("every", "every = \"5s\"").and_then(|n| {
        let every = n.time()?;
        let longest = match every {
            TimeSpan::Fixed(ms) | TimeSpan::Exponential(ms) | TimeSpan::Uniform(_, ms) => ms,
        };
        if longest > 0.0 { Some(every) } else { n.none("must be more than 0") }
    });
    let batch = whole(&section, "batch", 1, 1, 1_000) as u32;
    let others: Vec<_> =
        section.entries().iter().filter(|entry| entry.0 != "every" && entry.0 != "batch").collect();
    let [(name, _, inside)] = others.as_slice() else {
        return node.none("needs \"every\" and one of message, presence, ping, raw, roster, room_message, room_presence, room_nick, pubsub_publish, pubsub_subscribe and pubsub_unsubscribe");
    };
    let step = if *name == "roster" && inside.truth_quiet() == Some(true) {
        Some(PlanStep::Roster)
    } else if inside.truth_quiet() == Some(true)
        && matches!(*name, "room_message" | "room_presence" | "pubsub_publish")
    {
        read(name, TomlSection::empty(inside.context, &inside.path, inside.offset()), depth)
    } else if *name == "ping" && inside.truth_quiet() == Some(true) {
        Some(PlanStep::Ping { to: None })
    } else {
        value(name, inside, depth)
    };
    match step? {
        step @ (PlanStep::Message { ack: AckMode::None, .. }
        | PlanStep::Presence { .. }
        | PlanStep::Ping { .. }
        | PlanStep::Raw { ack: AckMode::None, .. }
        | PlanStep::Room(
            RoomStep::Message { ack: AckMode::None, .. }
            | RoomStep::Presence { .. }
            | RoomStep::Nick { wait: false, .. },
        )
        | PlanStep::PubSub(
            PubSubStep::Publish { wait: false, .. }
            | PubSubStep::Subscribe { wait: false, .. }
            | PubSubStep::Unsubscribe { wait: false, .. },
        )
        | PlanStep::Roster) => Some(Activity { every: every?, batch, step }),
        PlanStep::Room(RoomStep::Nick { .. })
        | PlanStep::PubSub(
            PubSubStep::Publish { .. } | PubSubStep::Subscribe { .. } | PubSubStep::Unsubscribe { .. },
        ) => inside.none("cannot wait inside \"meanwhile\"; add wait = \"none\""),
        PlanStep::Message { .. } | PlanStep::Raw { .. } | PlanStep::Room(RoomStep::Message { .. }) => inside
            .none("cannot wait inside \"meanwhile\", where activities follow the clock; remove \"wait\""),
        _ => inside.none(format!(
            "\"{name}\" is not allowed inside \"meanwhile\"; use message, presence, ping, raw, roster, \
             room_message, room_presence, room_nick, pubsub_publish, pubsub_subscribe or pubsub_unsubscribe"
        )),
    }
}

pub(super) fn transaction(s: &TomlSection<'_>, depth: usize) -> Option<PlanStep> {
    let name = s.need("name", "name = \"search\"").and_then(|n| n.text());
    let steps = inner(s, depth);
    let name = name?;
    let mut names = s.context.transactions.borrow_mut();
    let index = names.iter().position(|known| known == name).unwrap_or_else(|| {
        names.push(name.to_owned());
        names.len() - 1
    });
    Some(PlanStep::Transaction { index: u16::try_from(index).ok()?, steps })
}

pub(super) fn set(node: &TomlNode<'_>) -> Option<PlanStep> {
    let section = node.section()?;
    let mut list = Vec::new();
    for (name, _, node) in section.entries() {
        list.extend(set_value(node).map(|value| ((*name).to_owned(), value)));
    }
    if section.entries().is_empty() {
        return node.none("needs variables, such as set = { x = \"{n}\" }");
    }
    Some(PlanStep::Set(list))
}

fn set_value(node: &TomlNode<'_>) -> Option<VariableValue> {
    if let Some(number) = node.integer() {
        return Some(VariableValue::Text(TextTemplate::literal(number.to_string())));
    }
    if !node.is_table() {
        return node.template().map(VariableValue::Text);
    }
    let section = node.section()?;
    let value = if let Some(letters) = section.get("random_string") {
        letters.whole(1, 65_536).map(|n| VariableValue::RandomString(n as u32))
    } else if let Some(range) = section.get("random_number") {
        let numbers: Vec<i64> = range.list()?.iter().filter_map(TomlNode::integer).collect();
        match numbers.as_slice() {
            [low, high] if low <= high => Some(VariableValue::RandomNumber(*low, *high)),
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

fn row(section: &TomlSection<'_>, table: &TomlNode<'_>) -> Option<VariableValue> {
    let column = whole(section, "column", 0, 0, 65_535);
    let lines = [("next", (false, false)), ("random", (true, false)), ("own", (false, true))];
    let (random, own) = section.get("line").and_then(|n| n.word(&lines)).unwrap_or_default();
    let name = table.text()?;
    let tables = &section.context.tables;
    let Some(index) = tables.iter().position(|known| known.name == name) else {
        let near = nearest(name, tables.iter().map(|known| known.name.as_str()));
        let fix = if near.is_empty() { "; add it under [tables]".to_owned() } else { near };
        return table.none(format!("there is no table \"{name}\"{fix}"));
    };
    let columns = tables.get(index).and_then(|t| t.rows.iter().map(Vec::len).min()).unwrap_or(0);
    if column as usize >= columns {
        return table.none(format!(
            "the table \"{name}\" has {columns} columns and none with the number {column}, counted from 0"
        ));
    }
    let (table, column) = (u16::try_from(index).ok()?, u16::try_from(column).ok()?);
    Some(if own {
        VariableValue::OwnRow { table, column }
    } else {
        VariableValue::Row { table, column, random }
    })
}

pub(super) fn change_target(s: &TomlSection<'_>) -> Option<PlanStep> {
    let security = s.get("security").and_then(|n| n.word(super::super::SECURITIES)).unwrap_or_default();
    let node = s.need("address", "address = \"127.0.0.1:5223\"")?;
    let mut list = Vec::new();
    for text in node.texts()? {
        match addresses(&text) {
            Ok(found) => list.extend(found),
            Err(what) => node.error(what),
        }
    }
    Some(PlanStep::ChangeTarget { addresses: list, security })
}
