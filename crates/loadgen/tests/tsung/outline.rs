//! Textual outline of a plan for golden files: one line per step, nested steps indented.
//!
//! Not implemented: options with default values, which are omitted.
//!
//! # Pitfalls
//!
//! The outline is derived from the JSON of the plan, so a new field appears automatically.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};
use throng_loadgen::plan::{LoadPlan, PlanOptions};

pub(super) fn of(plan: &LoadPlan) -> String {
    let mut out = String::new();
    let mut value = serde_json::to_value(plan).unwrap();
    let target = value["target"].as_object_mut().unwrap();
    if target["web"]["transport"] == "tcp" {
        target.remove("web");
    }
    for key in ["title", "target", "accounts", "transactions"] {
        let _ = writeln!(out, "{key} {}", short(&value[key]));
    }
    for key in ["phases", "starts"] {
        for item in value[key].as_array().unwrap() {
            let _ = writeln!(out, "{key} {}", short(item));
        }
    }
    let usual = serde_json::to_value(PlanOptions::default()).unwrap();
    for (key, option) in value["options"].as_object().unwrap() {
        if *option != usual[key] {
            let _ = writeln!(out, "option {key} {}", short(option));
        }
    }
    for session in value["sessions"].as_array().unwrap() {
        let mut head = session.as_object().unwrap().clone();
        let inner = head.remove("steps").unwrap();
        let _ = writeln!(out, "session {}", short(&Value::Object(head)));
        steps(&inner, 1, &mut out);
    }
    out
}

fn steps(list: &Value, depth: usize, out: &mut String) {
    for step in list.as_array().unwrap() {
        let _ = write!(out, "{}", "  ".repeat(depth));
        match step {
            Value::Object(step) => {
                for (name, fields) in step {
                    let (fields, inner) = match fields {
                        Value::Object(fields) if fields.contains_key("steps") => {
                            let mut fields = fields.clone();
                            let inner = fields.remove("steps");
                            (Value::Object(fields), inner)
                        }
                        other => (other.clone(), None),
                    };
                    let _ = writeln!(out, "{name} {}", short(&fields));
                    if let Some(inner) = inner {
                        steps(&inner, depth + 1, out);
                    }
                }
            }
            other => {
                let _ = writeln!(out, "{}", short(other));
            }
        }
    }
}

/// A value without empty parts, and with variables of texts in braces.
fn short(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Object(fields) => {
            let parts: Vec<String> = fields
                .iter()
                .filter(|(k, v)| k.starts_with(char::is_uppercase) || !empty(v))
                .map(|(k, v)| format!("{k}={}", short(v)))
                .collect();
            format!("{{{}}}", parts.join(" "))
        }
        Value::Array(items) if !items.is_empty() && items.iter().all(is_piece) => {
            let text: String = items.iter().map(piece).collect();
            json!(text).to_string()
        }
        Value::Array(items) => {
            let parts: Vec<String> = items.iter().map(short).collect();
            format!("[{}]", parts.join(", "))
        }
        other => other.to_string(),
    }
}

fn empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        // The name of a variant is printed even without fields.
        Value::Object(fields) => {
            fields.iter().all(|(key, value)| !key.starts_with(char::is_uppercase) && empty(value))
        }
        _ => false,
    }
}

const WORDS: [&str; 7] = ["User", "Number", "Password", "Domain", "Jid", "Unique", "Destination"];

fn is_piece(value: &Value) -> bool {
    let named = |fields: &Map<String, Value>| {
        fields.len() == 1 && (fields.contains_key("Literal") || fields.contains_key("Variable"))
    };
    value.as_object().is_some_and(named) || value.as_str().is_some_and(|word| WORDS.contains(&word))
}

fn piece(value: &Value) -> String {
    match value {
        Value::String(word) => format!("{{{word}}}"),
        value => match (value["Literal"].as_str(), value["Variable"].as_str()) {
            (Some(text), _) => text.to_owned(),
            (_, name) => format!("{{{}}}", name.unwrap_or_default()),
        },
    }
}
