//! `GET /api/v1/domains/metrics`: sessions and stanzas by served domain, in total and in the last minute.
//!
//! Every ten seconds the totals of all domains are sampled, and a minute of samples is retained: the difference gives
//! the rate per second. A node counts at most `domain_counters::MAX_DOMAINS` domains separately, the rest is one
//! entry.
//!
//! Not implemented: a history for each domain, for which there is `/metrics`.
//!
//! # Pitfalls
//!
//! Totals begin at zero with each process, and a domain that a reload adds is missing from older samples.

use std::collections::VecDeque;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::Method;
use base::lock::LeafMutex;
use serde_json::{Map, Value, json};
use throng_core::Node;
use throng_core::domain_counters::{DomainTotals, MAX_DOMAINS, OTHER_DOMAINS};

use crate::Api;
use crate::auth::TokenScope;
use crate::operation::{Access, ApiOperation, ResponseBody};

/// Microseconds between two samples.
const SAMPLE_INTERVAL_MICROS: u64 = 10_000_000;
/// Number of samples: a minute.
const WINDOW_SAMPLES: usize = 7;

const KINDS: [[&str; 3]; 2] =
    [["messages_in", "presence_in", "iq_in"], ["messages_out", "presence_out", "iq_out"]];

/// Totals of all domains at one moment of the node's clock.
#[derive(Debug)]
struct TrafficSample {
    at: u64,
    domains: Vec<(String, DomainTotals)>,
}

/// The samples of the last minute.
#[derive(Debug, Default)]
pub(crate) struct TrafficWindow(LeafMutex<VecDeque<TrafficSample>>);

impl TrafficWindow {
    /// Takes a sample, if it is due.
    pub(crate) fn sample(&self, node: &Node) {
        let at = node.clock.now_micros();
        let is_due = |samples: &VecDeque<TrafficSample>| {
            samples.back().is_none_or(|last| at.saturating_sub(last.at) >= SAMPLE_INTERVAL_MICROS)
        };
        if !is_due(&self.0.lock()) {
            return;
        }
        // Not under the lock: the totals visit every domain.
        let sample = TrafficSample { at, domains: node.domain_totals() };
        let mut samples = self.0.lock();
        // Another task may have added one meanwhile.
        if !is_due(&samples) {
            return;
        }
        samples.push_back(sample);
        while samples.len() > WINDOW_SAMPLES {
            samples.pop_front();
        }
    }

    /// Current totals and rates, and the seconds that the rates cover.
    fn answer(&self, node: &Node) -> Value {
        let now = TrafficSample { at: node.clock.now_micros(), domains: node.domain_totals() };
        let notes = self.0.lock();
        let then = notes.front();
        let seconds = then.map_or(0.0, |then| now.at.saturating_sub(then.at) as f64 / 1e6);
        let before = |name: &str| {
            let found = then?.domains.iter().find(|(known, _)| known == name);
            Some(found.map(|(_, totals)| *totals).unwrap_or_default())
        };
        let domains =
            now.domains.iter().map(|(name, totals)| domain_json(name, totals, before(name), seconds));
        json!({ "seconds": seconds.round() as u64, "domains": domains.collect::<Vec<_>>() })
    }
}

fn domain_json(name: &str, totals: &DomainTotals, before: Option<DomainTotals>, seconds: f64) -> Value {
    let mut about = Map::new();
    about.insert("name".to_owned(), name.into());
    about.insert("sessions".to_owned(), totals.sessions.into());
    about.insert("sessions_opened".to_owned(), totals.opened.into());
    let mut rates = Map::new();
    // Less than a second is too short for a rate, and a missing rate is not zero.
    let rate = |now: u64, before: Option<u64>| match before {
        Some(before) if seconds >= 1.0 => {
            json!((now.saturating_sub(before) as f64 / seconds * 1e3).round() / 1e3)
        }
        _ => Value::Null,
    };
    rates.insert("sessions_opened".to_owned(), rate(totals.opened, before.map(|b| b.opened)));
    for (direction, names) in KINDS.iter().enumerate() {
        for (kind, name) in names.iter().enumerate() {
            let count = totals.stanzas[direction][kind];
            about.insert((*name).to_owned(), count.into());
            rates.insert((*name).to_owned(), rate(count, before.map(|b| b.stanzas[direction][kind])));
        }
    }
    about.insert("rates".to_owned(), rates.into());
    about.into()
}

/// The operations of this file.
pub(crate) fn operations() -> Vec<ApiOperation> {
    vec![
        ApiOperation::new(
            Method::GET,
            "/domains/metrics",
            "domainMetrics",
            Access::Scoped(TokenScope::Read),
            metrics,
        )
        .summary("Sessions and stanzas by domain: totals since the start and rates of the last minute.")
        .response(200, ResponseBody::Json("DomainMetrics"), "The metrics."),
    ]
}

/// The schemas of this file.
pub(crate) fn schemas() -> Vec<(&'static str, Value)> {
    let names = || KINDS.into_iter().flatten();
    let count = json!({ "type": "integer", "minimum": 0 });
    let rate = json!({ "type": ["number", "null"] });
    let mut counts: Map<String, Value> = names().map(|name| (name.to_owned(), count.clone())).collect();
    let mut rates: Map<String, Value> = names().map(|name| (name.to_owned(), rate.clone())).collect();
    let mut needed: Vec<&str> = names().collect();
    rates.insert("sessions_opened".to_owned(), rate);
    for name in ["sessions", "sessions_opened"] {
        counts.insert(name.to_owned(), count.clone());
        needed.push(name);
    }
    let about = format!("The domain; `{OTHER_DOMAINS}` combines all domains after the first {MAX_DOMAINS}.");
    counts.insert("name".to_owned(), json!({ "type": "string", "description": about }));
    counts.insert(
        "rates".to_owned(),
        json!({
            "type": "object",
            "description": "Average rates per second; null until there are two samples.",
            "required": rates.keys().cloned().collect::<Vec<_>>(),
            "properties": rates,
        }),
    );
    needed.extend(["name", "rates"]);
    let domain = json!({ "type": "object", "required": needed, "properties": counts });
    vec![(
        "DomainMetrics",
        json!({
            "type": "object",
            "required": ["seconds", "domains"],
            "properties": {
                "seconds": { "type": "integer", "minimum": 0, "description": "Period of the rates in \
                 seconds; about a minute." },
                "domains": { "type": "array", "items": domain },
            },
        }),
    )]
}

async fn metrics(State(api): State<Arc<Api>>) -> Json<Value> {
    Json(api.traffic.answer(&api.node))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domains_are_counted_apart_and_rates_are_those_of_the_last_minute() {
        let engine = testkit::TestNode::new(&[]);
        engine.create_user("romeo");
        let romeo = engine.connect("romeo", "orchard");
        let notes = TrafficWindow::default();
        let first = notes.answer(&engine.node);
        let of = |answer: &Value, name: &str| {
            answer["domains"].as_array().unwrap().iter().find(|d| d["name"] == name).unwrap().clone()
        };
        assert_eq!(
            (&first["seconds"], &of(&first, "example.com")["rates"]["messages_in"]),
            (&json!(0), &Value::Null)
        );
        notes.sample(&engine.node);
        for _ in 0..30 {
            romeo.send("<message to='romeo@example.com/orchard'><body>O</body></message>");
        }
        assert_eq!(romeo.recv().len(), 30);
        engine.advance(10);
        let answer = notes.answer(&engine.node);
        let domain = of(&answer, "example.com");
        assert_eq!((&domain["sessions"], &domain["sessions_opened"]), (&json!(1), &json!(1)));
        assert_eq!((&domain["messages_in"], &domain["messages_out"]), (&json!(30), &json!(30)));
        assert_eq!((&answer["seconds"], &domain["rates"]["messages_out"]), (&json!(10), &json!(3.0)));
        // After a minute none of it is left in the rates.
        for _ in 0..WINDOW_SAMPLES + 1 {
            engine.advance(10);
            notes.sample(&engine.node);
            notes.sample(&engine.node);
        }
        assert_eq!(notes.0.lock().len(), WINDOW_SAMPLES);
        romeo.close();
        engine.run_tasks();
        let answer = notes.answer(&engine.node);
        let domain = of(&answer, "example.com");
        assert_eq!((&domain["rates"]["messages_out"], &domain["messages_out"]), (&json!(0.0), &json!(30)));
        assert_eq!((&answer["seconds"], &domain["sessions"]), (&json!(60), &json!(0)));
    }
}
