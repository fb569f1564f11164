//! The overview of several nodes: their series, aligned by time and summed.
//!
//! Nodes take samples at different moments. A sample belongs to the interval in which it was taken; the summed series end
//! with the last interval for which every node has one. Times (delivery, database, lag) are not summed: the highest of a
//! node is shown.
//!
//! # Pitfalls
//!
//! What a node sends is unpacked up to a limit and may have other series than this version.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::sync::Arc;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde_json::{Map, Value, json};
use throng_commands::cluster_admin::{
    ClusterAnswers, MissingNode, MissingReason, NodeQuery, NodeSelection, collect_answer_octets,
};

use super::{INTERVAL, POINTS, SERIES, overview_here};
use crate::Api;

/// Maximum bytes of an unpacked overview: eight times one of random digits.
const MAX_UNPACKED_BYTES: u64 = 8 << 20;
/// Seconds without a sample after which a node does not hold up the others.
const STALE_SECONDS: u64 = 10;
/// Maximum number of certificates in a response.
const MAX_CERTIFICATES: usize = 10;

/// An overview in the form in which nodes send it.
pub(crate) fn compress(overview: &Value) -> Option<Vec<u8>> {
    let json = serde_json::to_vec(overview).ok()?;
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(&json).ok()?;
    encoder.finish().ok()
}

fn decompress(octets: &[u8]) -> Option<Value> {
    let mut json = Vec::new();
    GzDecoder::new(octets).take(MAX_UNPACKED_BYTES).read_to_end(&mut json).ok()?;
    serde_json::from_slice(&json).ok().filter(Value::is_object)
}

/// The overview of these nodes, with their names and those of missing nodes.
pub(crate) async fn overview(api: &Arc<Api>, nodes: NodeSelection, since: Option<u64>) -> Value {
    let own = api.node.cluster.node();
    let only_own = match nodes {
        NodeSelection::All => api.node.cluster.members().len() <= 1,
        NodeSelection::One(node) => node == own,
    };
    if only_own {
        return named(overview_here(api, since), &[own.to_string()], &[]);
    }
    // Samples of the interval before: nodes count intervals from different seconds.
    let query = NodeQuery::Overview { since: since.map(|since| since.saturating_sub(INTERVAL)) };
    let ClusterAnswers { answers, mut missing } = collect_answer_octets(&api.node, nodes, &query).await;
    let mut found = Vec::with_capacity(answers.len());
    for (name, octets) in answers {
        match decompress(&octets) {
            Some(overview) => found.push((name, overview)),
            None => missing.push(MissingNode { node: name, reason: MissingReason::Unreadable }),
        }
    }
    missing.sort_by(|a, b| a.node.cmp(&b.node));
    let names: Vec<String> = found.iter().map(|(name, _)| name.clone()).collect();
    let overviews: Vec<Value> = found.into_iter().map(|(_, overview)| overview).collect();
    let mut sum = summed_series(&overviews, since);
    match (nodes, &overviews[..]) {
        (NodeSelection::One(_), [one]) => {
            (sum["current"], sum["resources"]) = (one["current"].clone(), one["resources"].clone());
        }
        _ => {
            (sum["current"], sum["resources"]) = (summed_status(&overviews), worst_resources(&overviews));
        }
    }
    named(sum, &names, &missing)
}

fn named(mut overview: Value, nodes: &[String], missing: &[MissingNode]) -> Value {
    overview["nodes"] = json!(nodes);
    overview["missing"] = json!(missing);
    overview
}

/// The second at which the interval of a sample begins.
fn interval_of(second: u64) -> u64 {
    second / INTERVAL * INTERVAL
}

fn summed_series(overviews: &[Value], since: Option<u64>) -> Value {
    let ends: Vec<u64> =
        overviews.iter().map(|one| interval_of(one["now"].as_u64().unwrap_or_default())).collect();
    let newest = ends.iter().copied().max().unwrap_or_default();
    let fresh = ends.iter().copied().filter(|end| *end > 0 && end.saturating_add(STALE_SECONDS) >= newest);
    let end = fresh.min().unwrap_or_default();
    let span = (POINTS as u64) * INTERVAL;
    let since = interval_of(since.unwrap_or_default()).max(end.saturating_sub(span));
    let count = usize::try_from(end.saturating_sub(since) / INTERVAL).unwrap_or(POINTS).min(POINTS);
    let mut series = BTreeMap::new();
    for (name, unit) in SERIES {
        let mut sums: Vec<Option<f64>> = vec![None; count];
        for (one, own_end) in overviews.iter().zip(&ends) {
            let Some(values) = one["series"][name].as_array() else { continue };
            for (back, value) in values.iter().rev().enumerate() {
                // Intervals between the end of the sums and this sample.
                let second = own_end.saturating_sub((back as u64).saturating_mul(INTERVAL));
                let Some(before_end) = end.checked_sub(second) else { continue };
                let distance = usize::try_from(before_end / INTERVAL).unwrap_or(usize::MAX);
                let Some(at) = count.checked_sub(distance.saturating_add(1)) else { break };
                let Some(value) = value.as_f64() else { continue };
                sums[at] = Some(match sums[at] {
                    None => value,
                    Some(before) if unit == "seconds" => before.max(value),
                    Some(before) => before + value,
                });
            }
        }
        let values: Vec<Value> = sums.into_iter().map(|sum| sum.map_or(Value::Null, number)).collect();
        series.insert(name, values);
    }
    json!({ "now": end, "interval": INTERVAL, "series": series })
}

fn number(value: f64) -> Value {
    let rounded = (value * 1e6).round() / 1e6;
    if rounded.fract() == 0.0 && rounded.abs() < 9e15 { json!(rounded as i64) } else { json!(rounded) }
}

/// Values of `current` that have a sum.
const SUMMED: [&str; 4] = ["connections", "unauthenticated_connections", "sessions", "accounts_online"];

/// The status of several nodes: sums, the versions, the time since the last start, and whether all are ready.
fn summed_status(overviews: &[Value]) -> Value {
    let all = || overviews.iter().map(|one| &one["current"]);
    let mut status = Map::new();
    for name in SUMMED {
        status.insert(name.to_owned(), json!(all().filter_map(|one| one[name].as_u64()).sum::<u64>()));
    }
    let versions: BTreeSet<&str> = all().filter_map(|one| one["version"].as_str()).collect();
    status.insert("version".to_owned(), json!(versions.into_iter().collect::<Vec<_>>().join(", ")));
    status.insert("up_seconds".to_owned(), json!(all().filter_map(|one| one["up_seconds"].as_u64()).min()));
    status.insert("ready".to_owned(), json!(all().all(|one| one["ready"] == true)));
    status.insert("nodes".to_owned(), json!(overviews.len()));
    Value::Object(status)
}

/// Of each resource, that of the node on which it ends first.
fn worst_resources(overviews: &[Value]) -> Value {
    let all = || overviews.iter().map(|one| &one["resources"]);
    let disk =
        all().filter(|one| one["disk_free_bytes"].is_u64()).min_by_key(|one| one["disk_free_bytes"].as_u64());
    let mut certificates: Vec<Value> = Vec::new();
    for one in all().filter_map(|one| one["certificates"].as_array()).flatten() {
        if !certificates.contains(one) {
            certificates.push(one.clone());
        }
    }
    certificates.sort_by_key(|one| one["not_after"].as_u64());
    certificates.truncate(MAX_CERTIFICATES);
    json!({
        "disk_free_bytes": disk.map(|one| one["disk_free_bytes"].clone()),
        "disk_size_bytes": disk.map(|one| one["disk_size_bytes"].clone()),
        "database_bytes": all().filter_map(|one| one["database_bytes"].as_u64()).max(),
        "certificates": certificates,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(now: u64, sessions: &[u64], lag: f64) -> Value {
        json!({
            "now": now,
            "series": { "sessions": sessions, "lag": vec![lag; sessions.len()] },
            "current": { "version": "1", "up_seconds": now, "sessions": sessions.last(), "ready": true },
            "resources": {
                "disk_free_bytes": now, "disk_size_bytes": 9000, "database_bytes": null,
                "certificates": [{ "names": ["example.com"], "not_after": 5 }],
            },
        })
    }

    #[test]
    fn series_are_summed_by_interval_and_times_are_the_highest() {
        // The first node has sampled once more.
        let all = [node(1_003, &[1, 2, 3], 0.5), node(1_000, &[10, 20], 0.25)];
        let sum = summed_series(&all, None);
        assert_eq!(sum["now"], 1_000);
        let sessions = sum["series"]["sessions"].as_array().unwrap();
        assert_eq!(sessions.len(), 500, "from the start of time, at most an hour");
        assert_eq!(sessions[498..], [json!(11), json!(22)]);
        assert_eq!(sum["series"]["lag"][499], 0.5);
        assert_eq!(sum["series"]["memory"][499], Value::Null, "no node has it");
        let later = summed_series(&all, Some(998));
        assert_eq!(later["series"]["sessions"], json!([22]));
        assert_eq!(summed_series(&all, Some(1_000))["series"]["sessions"], json!([]));
    }

    #[test]
    fn a_node_without_samples_does_not_hold_up_the_others() {
        let all = [node(0, &[], 0.0), node(900, &[7, 7], 0.0), node(1_000, &[1, 1], 0.0)];
        let sum = summed_series(&all, Some(990));
        assert_eq!(
            (&sum["now"], &sum["series"]["sessions"]),
            (&json!(1_000), &json!([null, null, null, 1, 1]))
        );
        let none = summed_series(&[node(0, &[], 0.0)], None);
        assert_eq!((&none["now"], &none["series"]["sessions"]), (&json!(0), &json!([])));
    }

    #[test]
    fn status_and_resources_are_those_of_all_nodes() {
        let all = [node(1_003, &[3], 0.0), node(1_000, &[20], 0.0)];
        let status = summed_status(&all);
        assert_eq!((&status["sessions"], &status["up_seconds"]), (&json!(23), &json!(1_000)));
        assert_eq!((&status["version"], &status["ready"]), (&json!("1"), &json!(true)));
        let resources = worst_resources(&all);
        assert_eq!(resources["disk_free_bytes"], 1_000);
        assert_eq!(resources["certificates"].as_array().map(Vec::len), Some(1));
    }

    #[test]
    fn what_is_no_overview_and_what_is_too_large_is_not_read() {
        let packed = compress(&node(2, &[1], 0.0)).unwrap();
        assert_eq!(decompress(&packed).unwrap()["now"], 2);
        assert_eq!(decompress(b"nothing"), None);
        assert_eq!(decompress(&packed[..packed.len() / 2]), None);
        let bomb = json!({ "series": " ".repeat(2 * MAX_UNPACKED_BYTES as usize) });
        assert_eq!(decompress(&compress(&bomb).unwrap()), None);
    }
}
