//! Tests of the contract of periodic jobs.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;

use base::spawn::BoxFuture;
use feature_api::feature::{Feature, FeatureBuilder, FeatureOptions};
use feature_api::periodic_job::{JobScope, PeriodicJobCtx, PeriodicJobSpec};
use testkit::{TestNode, TestNodes};
use throng_core::NodeLimits;

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

static LEASED: PeriodicJobSpec =
    PeriodicJobSpec { name: "leased", interval_seconds: 10, scope: JobScope::Deployment, doc: "Waits." };
static WITH_LEASE: Feature = Feature {
    name: "with_lease",
    periodic_jobs: &[&LEASED],
    build: |b| b.periodic_job(&LEASED, run_leased),
    ..Feature::EMPTY
};

thread_local! {
    /// Whether runs of [`LEASED`] end.
    static RELEASED: Cell<bool> = const { Cell::new(false) };
    /// Nodes and fencing numbers of its runs.
    static RUNS: RefCell<Vec<(String, Option<u64>)>> = const { RefCell::new(Vec::new()) };
    /// Runs in progress, and their maximum.
    static RUNNING: Cell<(u32, u32)> = const { Cell::new((0, 0)) };
}

struct Running;

impl Drop for Running {
    fn drop(&mut self) {
        let (running, most) = RUNNING.get();
        RUNNING.set((running - 1, most));
    }
}

fn run_leased(ctx: PeriodicJobCtx) -> BoxFuture<'static, Result<(), String>> {
    let node = ctx.node.cluster.node().as_str().to_owned();
    RUNS.with_borrow_mut(|runs| runs.push((node, ctx.fence)));
    let (running, most) = RUNNING.get();
    RUNNING.set((running + 1, most.max(running + 1)));
    let running = Running;
    Box::pin(async move {
        let _running = running;
        poll_fn(|_| if RELEASED.get() { Poll::Ready(Ok(())) } else { Poll::Pending }).await
    })
}

fn leased_runs(released: bool) {
    RELEASED.set(released);
    RUNS.take();
    RUNNING.set((0, 0));
}

/// Nodes on which the job was started.
fn started() -> Vec<String> {
    RUNS.with_borrow(|runs| runs.iter().map(|(node, _)| node.clone()).collect())
}

#[track_caller]
fn assert_fences_rise() {
    let fences: Vec<u64> = RUNS.with_borrow(|runs| runs.iter().map(|(_, fence)| fence.unwrap()).collect());
    assert!(fences.is_sorted_by(|one, next| one < next), "{fences:?}");
}

fn advance(nodes: &TestNodes, seconds: u32) {
    for _ in 0..seconds {
        nodes.advance(1);
        nodes.settle();
    }
}

/// Two nodes that cannot reach each other, but the database.
fn two_owners() -> TestNodes {
    let nodes = TestNodes::new(2, &[&WITH_LEASE]);
    nodes.cut(0, 1);
    nodes.settle();
    for index in nodes.alive() {
        let cluster = &nodes.node(index).node.cluster;
        assert!((0..16).all(|key| cluster.owner(key) == cluster.node()), "each owns everything");
    }
    nodes
}

fn index_of(nodes: &TestNodes, name: &str) -> usize {
    nodes.alive().into_iter().find(|index| nodes.id(*index).as_str() == name).unwrap()
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
fn two_nodes_that_consider_themselves_the_owner_do_not_run_a_job_at_the_same_time() {
    leased_runs(false);
    let nodes = two_owners();
    advance(&nodes, 100);
    assert_eq!((started().len(), RUNNING.get()), (1, (1, 1)), "it renews its lease");
    RELEASED.set(true);
    advance(&nodes, 100);
    assert_eq!(RUNNING.get(), (0, 1));
    assert!(started().len() > 5, "it runs again: {:?}", started());
    assert_fences_rise();
}

#[test]
fn the_run_of_one_owner_counts_for_the_other() {
    leased_runs(false);
    let nodes = two_owners();
    advance(&nodes, 5);
    let first = started();
    RELEASED.set(true);
    advance(&nodes, 5);
    assert_eq!(started(), first, "the other one has seen that it was running");
}

#[test]
fn the_lease_of_a_node_that_crashed_expires() {
    leased_runs(false);
    let mut nodes = TestNodes::new(2, &[&WITH_LEASE]);
    advance(&nodes, 1);
    let owner = index_of(&nodes, &started()[0]);
    nodes.crash(owner);
    nodes.settle();
    advance(&nodes, 30);
    assert_eq!(started().len(), 1, "its job may still be running");
    RELEASED.set(true);
    advance(&nodes, 35);
    assert!(started().len() > 1 && started()[1] == nodes.id(owner + 1).as_str(), "{:?}", started());
    assert_fences_rise();
}

#[test]
fn a_run_whose_lease_cannot_be_renewed_is_stopped_before_another_node_begins() {
    leased_runs(false);
    let nodes = two_owners();
    advance(&nodes, 1);
    let holder = nodes.node(index_of(&nodes, &started()[0]));
    let failed = || holder.node.metrics.periodic_job_runs.get(["leased", "failed"]);
    holder.set_store_failing(true);
    advance(&nodes, 15);
    assert_eq!((failed(), RUNNING.get()), (0, (1, 1)), "the lease has not expired");
    advance(&nodes, 60);
    assert!(failed() > 0);
    assert_eq!((started().len(), RUNNING.get()), (2, (1, 1)));
    assert_fences_rise();
}

#[test]
fn a_single_node_takes_no_lease() {
    leased_runs(true);
    let engine = TestNode::new(&[&WITH_LEASE]);
    engine.store_calls();
    engine.advance(1);
    assert!(engine.store_calls().is_empty());
    assert_eq!(RUNS.take(), [("test".to_owned(), None)]);
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
