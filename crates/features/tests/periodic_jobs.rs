//! Tests of the contract of periodic jobs.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use base::spawn::BoxFuture;
use feature_api::feature::{Feature, FeatureBuilder, FeatureOptions};
use testkit::{TestNode, TestNodes};
use throng_core::NodeLimits;
use throng_core::periodic_job::{JobScope, PeriodicJobCtx, PeriodicJobSpec};

/// Runs of a job in a domain.
#[derive(Default)]
struct Runs {
    started: AtomicU32,
    /// The run in progress waits while this is set.
    blocked: AtomicU32,
}

static EVERY_TEN: PeriodicJobSpec =
    PeriodicJobSpec { name: "every_ten", interval_seconds: 10, scope: JobScope::Node, doc: "Counts." };
static ON_ONE_NODE: PeriodicJobSpec =
    PeriodicJobSpec { name: "on_one_node", interval_seconds: 10, scope: JobScope::Cluster, doc: "Counts." };
static PANICS: PeriodicJobSpec =
    PeriodicJobSpec { name: "panics", interval_seconds: 10, scope: JobScope::Node, doc: "Fails." };

static FOR_ALL_DOMAINS: PeriodicJobSpec = PeriodicJobSpec {
    name: "for_all_domains",
    interval_seconds: 10,
    scope: JobScope::Deployment,
    doc: "Counts.",
};

static COUNTS: Feature = Feature {
    name: "counts",
    periodic_jobs: &[&EVERY_TEN],
    build: |b| build(b, &EVERY_TEN),
    ..Feature::EMPTY
};
static ONE_NODE: Feature = Feature {
    name: "one_node",
    periodic_jobs: &[&ON_ONE_NODE],
    build: |b| build(b, &ON_ONE_NODE),
    ..Feature::EMPTY
};
static ALL_DOMAINS: Feature = Feature {
    name: "all_domains",
    periodic_jobs: &[&FOR_ALL_DOMAINS],
    build: build_for_all_domains,
    ..Feature::EMPTY
};
static FAILS: Feature =
    Feature { name: "fails", periodic_jobs: &[&PANICS], build: build_failing, ..Feature::EMPTY };

fn build(builder: &mut FeatureBuilder<'_>, spec: &'static PeriodicJobSpec) {
    let runs = builder.shared_state(Runs::default);
    // The tests find it there.
    builder.periodic_job(spec, move |ctx: PeriodicJobCtx| -> BoxFuture<'static, Result<(), String>> {
        if ctx.host.domain() == "example.com" {
            ctx.node.extensions.insert(runs.clone());
        }
        runs.started.fetch_add(1, Ordering::Relaxed);
        let runs = runs.clone();
        Box::pin(std::future::poll_fn(move |_| {
            if runs.blocked.load(Ordering::Relaxed) == 0 {
                std::task::Poll::Ready(Ok(()))
            } else {
                std::task::Poll::Pending
            }
        }))
    });
}

/// Runs in all domains.
#[derive(Default)]
struct AllRuns(AtomicU32);

fn build_for_all_domains(builder: &mut FeatureBuilder<'_>) {
    builder.periodic_job(&FOR_ALL_DOMAINS, |ctx: PeriodicJobCtx| -> BoxFuture<'static, Result<(), String>> {
        ctx.node.extensions.get_or_default::<AllRuns>().0.fetch_add(1, Ordering::Relaxed);
        Box::pin(async { Ok(()) })
    });
}

fn build_failing(builder: &mut FeatureBuilder<'_>) {
    let runs = builder.shared_state(Runs::default);
    builder.periodic_job(&PANICS, move |ctx: PeriodicJobCtx| -> BoxFuture<'static, Result<(), String>> {
        ctx.node.extensions.insert(runs.clone());
        runs.started.fetch_add(1, Ordering::Relaxed);
        Box::pin(async { Err("as it should".to_owned()) })
    });
}

fn runs(node: &TestNode) -> u32 {
    let runs = node.node.extensions.get::<Arc<Runs>>();
    runs.map_or(0, |runs| runs.started.load(Ordering::Relaxed))
}

#[test]
fn a_job_runs_at_the_start_and_then_after_each_interval() {
    let engine = TestNode::new(&[&COUNTS]);
    engine.advance(1);
    assert_eq!(runs(&engine), 1);
    for (seconds, want) in [(9, 1), (1, 2), (10, 3), (100, 4)] {
        // A clock that jumps, as after a suspension, makes it run once.
        engine.clock.advance(seconds * 1000 - 1000);
        engine.advance(1);
        assert_eq!(runs(&engine), want, "after {seconds} s");
    }
}

#[test]
fn runs_of_a_job_do_not_overlap_and_the_interval_begins_at_the_end() {
    let nodes = TestNodes::new(1, &[&COUNTS]);
    nodes.advance(1);
    nodes.settle();
    let runs = nodes.node(0).node.extensions.get::<Arc<Runs>>().unwrap();
    let started = || runs.started.load(Ordering::Relaxed);
    runs.blocked.store(1, Ordering::Relaxed);
    nodes.advance(10);
    nodes.settle();
    assert_eq!(started(), 2);
    nodes.advance(60);
    nodes.settle();
    assert_eq!(started(), 2, "the second run has not ended");
    runs.blocked.store(0, Ordering::Relaxed);
    nodes.settle();
    nodes.advance(9);
    nodes.settle();
    assert_eq!(started(), 2);
    nodes.advance(1);
    nodes.settle();
    assert_eq!(started(), 3);
}

#[test]
fn a_job_that_fails_runs_again() {
    let engine = TestNode::new(&[&FAILS]);
    engine.advance(1);
    let first = runs(&engine);
    engine.advance(10);
    assert_eq!(runs(&engine), first + 1);
    let outcomes = ["done", "failed", "panicked"];
    let domains = testkit::engine::DOMAINS.len() as u64;
    let counted = outcomes.map(|outcome| engine.node.metrics.periodic_job_runs.get(["panics", outcome]));
    assert_eq!(counted, [0, 2 * domains, 0]);
}

#[test]
fn a_job_for_all_domains_runs_once() {
    let engine = TestNode::new(&[&ALL_DOMAINS]);
    let runs =
        |engine: &TestNode| engine.node.extensions.get_or_default::<AllRuns>().0.load(Ordering::Relaxed);
    engine.advance(1);
    assert_eq!(runs(&engine), 1);
    engine.advance(9);
    assert_eq!(runs(&engine), 1);
    engine.advance(1);
    assert_eq!(runs(&engine), 2);
}

/// With thousands of domains, all of them would otherwise read the disk or the database in the first second.
#[test]
fn first_runs_are_spread_over_seconds() {
    static IN_EACH_DOMAIN: PeriodicJobSpec = PeriodicJobSpec {
        name: "in_each_domain",
        interval_seconds: 60,
        scope: JobScope::Node,
        doc: "Counts.",
    };
    static EACH_DOMAIN: Feature = Feature {
        name: "each_domain",
        periodic_jobs: &[&IN_EACH_DOMAIN],
        build: |builder| {
            builder.periodic_job(
                &IN_EACH_DOMAIN,
                |ctx: PeriodicJobCtx| -> BoxFuture<'static, Result<(), String>> {
                    ctx.node.extensions.get_or_default::<AllRuns>().0.fetch_add(1, Ordering::Relaxed);
                    Box::pin(async { Ok(()) })
                },
            );
        },
        ..Feature::EMPTY
    };
    let engine = TestNode::new(&[&EACH_DOMAIN]);
    let domains: Vec<String> = (0..100).map(|number| format!("d{number}.example.org")).collect();
    let domains: Vec<&str> = domains.iter().map(String::as_str).collect();
    let enabled = [feature_api::EnabledFeature { feature: &EACH_DOMAIN, options: FeatureOptions::default() }];
    engine.reload(&domains, &enabled);
    let runs = || engine.node.extensions.get_or_default::<AllRuns>().0.load(Ordering::Relaxed);
    let runs_after_each_second = [(); 5].map(|()| {
        engine.advance(1);
        runs()
    });
    assert_eq!(runs_after_each_second, [32, 64, 96, 100, 100]);
    engine.advance(55);
    engine.advance(1);
    assert!(runs() > 100, "they run again");
}

#[test]
fn a_reload_does_not_run_a_job_earlier() {
    let engine = TestNode::new(&[&COUNTS]);
    engine.advance(1);
    engine.advance(4);
    let enabled = [feature_api::EnabledFeature { feature: &COUNTS, options: FeatureOptions::default() }];
    engine.reload(&testkit::engine::DOMAINS, &enabled);
    engine.advance(5);
    assert_eq!(runs(&engine), 1);
    engine.advance(1);
    assert_eq!(runs(&engine), 2);
}

#[test]
fn a_job_of_the_cluster_runs_on_one_node_and_on_another_when_that_one_is_gone() {
    let mut nodes = TestNodes::new(3, &[&ONE_NODE]);
    nodes.advance(1);
    nodes.settle();
    let by_node = |nodes: &TestNodes| nodes.alive().iter().map(|n| runs(nodes.node(*n))).collect::<Vec<_>>();
    assert_eq!(by_node(&nodes).iter().sum::<u32>(), 1);
    let owner = by_node(&nodes).iter().position(|count| *count == 1).unwrap();
    nodes.advance(20);
    nodes.settle();
    assert!(runs(nodes.node(owner)) >= 2);
    assert_eq!(by_node(&nodes).iter().filter(|count| **count > 0).count(), 1);
    nodes.crash(owner);
    nodes.settle();
    nodes.advance(11);
    nodes.settle();
    assert_eq!(by_node(&nodes).iter().filter(|count| **count > 0).count(), 1, "the next owner");
}

#[test]
fn jobs_and_routes_must_be_declared_and_unique() {
    static SILENT: Feature = Feature { name: "silent", periodic_jobs: &[&EVERY_TEN], ..Feature::EMPTY };
    static UNDECLARED: Feature =
        Feature { name: "undeclared", build: |b| build(b, &EVERY_TEN), ..Feature::EMPTY };
    static SECOND: Feature = Feature {
        name: "second",
        periodic_jobs: &[&EVERY_TEN],
        build: |b| build(b, &EVERY_TEN),
        ..Feature::EMPTY
    };
    let error = |features: &[&'static Feature]| {
        let enabled: Vec<_> = features
            .iter()
            .map(|feature| feature_api::EnabledFeature { feature, options: FeatureOptions::default() })
            .collect();
        feature_api::build_host("example.com", &enabled, &NodeLimits::default()).unwrap_err().to_string()
    };
    assert_eq!(
        error(&[&SILENT]),
        "the feature silent declares the periodic job every_ten; register it in `build`"
    );
    assert_eq!(
        error(&[&UNDECLARED]),
        "the feature undeclared registers the periodic job every_ten; add it to `periodic_jobs` of the declaration"
    );
    assert_eq!(
        error(&[&COUNTS, &SECOND]),
        "counts and second both provide the periodic job every_ten; disable one of them under [modules]"
    );
}
