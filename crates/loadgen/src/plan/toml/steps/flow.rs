//! Steps that hold others, and those that set what others use: loops, conditions, rhythms, transactions, variables.

use super::super::super::mistake::nearest;
use super::super::super::{Ack, Activity, Compare, Condition, Step, Text, Time, Value};
use super::super::reader::{Node, Section};
use super::super::values::addresses;
use super::{MOST_ACTIVITIES, inner, value, whole};

pub(super) fn repeat(s: &Section<'_>, depth: usize) -> Option<Step> {
    let times = s.get("times").and_then(|n| n.whole(1, i64::from(u32::MAX))).map(|n| n as u32);
    let counter = s.get("counter").and_then(|n| n.text().map(str::to_owned));
    let first = whole(s, "first", 1, i64::MIN, i64::MAX);
    let increment = whole(s, "by", 1, i64::MIN, i64::MAX);
    Some(Step::Repeat { times, counter, first, increment, steps: inner(s, depth) })
}

pub(super) fn repeat_while(s: &Section<'_>, depth: usize, until: bool) -> Option<Step> {
    let condition = condition(s).map(|c| if until { opposite(c) } else { c });
    let after = s.get("check").and_then(|n| n.word(&[("before", false), ("after", true)]));
    let max = whole(s, "max", 1_000_000, 1, i64::from(u32::MAX)) as u32;
    let steps = inner(s, depth);
    Some(Step::While { condition: condition?, after: after.unwrap_or(until), max, steps })
}

pub(super) fn condition(s: &Section<'_>) -> Option<Condition> {
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

pub(super) fn for_each(s: &Section<'_>, depth: usize) -> Option<Step> {
    let variable = s.need("variable", "variable = \"x\"").and_then(|n| n.text().map(str::to_owned));
    let list = s.need("in", "in = \"names\"").and_then(|n| n.text().map(str::to_owned));
    let steps = inner(s, depth);
    Some(Step::ForEach { variable: variable?, list: list?, steps })
}

pub(super) fn meanwhile(s: &Section<'_>, depth: usize) -> Option<Step> {
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

pub(super) fn transaction(s: &Section<'_>, depth: usize) -> Option<Step> {
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

pub(super) fn set(node: &Node<'_>) -> Option<Step> {
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

pub(super) fn change_target(s: &Section<'_>) -> Option<Step> {
    let security = s.get("security").and_then(|n| n.word(super::super::SECURITIES)).unwrap_or_default();
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
