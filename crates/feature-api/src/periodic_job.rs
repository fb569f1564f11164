//! Periodic jobs of features, such as the removal of expired files.
//!
//! A feature declares a [`PeriodicJobSpec`] and registers a handler with
//! `FeatureBuilder::periodic_job`; `PeriodicJobs` runs it for each domain, with the clock of the node: first
//! at the start, then an interval after each end. Runs of one job never overlap, and a job that fails or panics runs again
//! after the interval.
//!
//! In a cluster a job of [`JobScope::Cluster`] runs on one node: the one that `Cluster::owner` names for the
//! job and the domain. While nodes join or leave, or during a partition, two nodes can consider themselves the owner: a
//! lease ([`store::lease`]) keeps their runs apart, and the run of one counts for both. A run costs three round trips to the database
//! for it, also while this node is the only member: others may be cut off. On a deployment of one node there is no lease.
//!
//! # Pitfalls
//!
//! A job that loses its lease is dropped where it awaits. Statements that it has sent may still be applied: one that must not be
//! needs [`PeriodicJobCtx::fence`] in its condition.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};

use base::lock::LeafMutex;
use base::spawn::{BoxFuture, catch_unwind};
use store::lease::{LEASE_SECONDS, Lease, LeaseAttempt, LeaseSlot, LeaseTerms, ObservedLease};
use throng_core::{Host, Node};

/// Declaration of a job.
#[derive(Debug, PartialEq, Eq)]
pub struct PeriodicJobSpec {
    /// Its name: words joined by `_`. Unique among all features.
    pub name: &'static str,
    /// Seconds from the end of a run to the next one.
    pub interval_seconds: u32,
    /// Which nodes of a cluster run it.
    pub scope: JobScope,
    /// One sentence for the documentation.
    pub doc: &'static str,
}

/// Which nodes of a cluster run a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobScope {
    /// One node for each domain: the job works on shared data of the domain.
    Cluster,
    /// One node for all domains, once: the job works on data that the domains share.
    Deployment,
    /// Every node: the job works on data of the node.
    Node,
}

/// One run of a job.
pub struct PeriodicJobCtx {
    /// The node.
    pub node: Arc<Node>,
    /// The host for which it runs; any one for [`JobScope::Deployment`].
    pub host: Arc<Host>,
    /// Number of the run's lease, greater than those of all earlier runs on any node. `None` without a lease: the job runs on
    /// every node, or there is one node.
    pub fence: Option<u64>,
}

/// Runs a job; implemented by closures of the same signature. An error is written to the log.
pub trait PeriodicJobHandler: Send + Sync {
    /// Runs once.
    fn run(&self, ctx: PeriodicJobCtx) -> BoxFuture<'static, Result<(), String>>;
}

impl<F> PeriodicJobHandler for F
where
    F: Fn(PeriodicJobCtx) -> BoxFuture<'static, Result<(), String>> + Send + Sync,
{
    fn run(&self, ctx: PeriodicJobCtx) -> BoxFuture<'static, Result<(), String>> {
        self(ctx)
    }
}

/// A job of a host.
#[derive(Clone)]
pub struct PeriodicJob {
    /// The feature that provides it.
    pub feature: &'static str,
    /// Its declaration.
    pub spec: &'static PeriodicJobSpec,
    /// Runs it.
    pub handler: Arc<dyn PeriodicJobHandler>,
}

/// Jobs that start in a second: at the start of a node, those of all domains are due. The others start in the next seconds.
const MAX_STARTS_PER_SECOND: usize = 32;

/// State of jobs. The hosts of a node share it, and so do those that a reload builds. Bounded by the domains that were ever
/// served.
#[derive(Default)]
pub(crate) struct PeriodicJobStates {
    schedule: LeafMutex<JobSchedule>,
    /// Leases that other nodes held at the last attempt, by the hash of the job.
    observed: LeafMutex<HashMap<u64, ObservedLease>>,
    /// Tasks that hold a lease and must look at the clock, by the hash of the job.
    holders: LeafMutex<HashMap<u64, Waker>>,
}

#[derive(Default)]
struct JobSchedule {
    /// When jobs run next: by name and domain, so that a reload changes nothing.
    states: HashMap<&'static str, HashMap<Box<str>, JobState>>,
    /// The second of the last sweep, and the number of jobs that it has started.
    started: (u32, usize),
}

enum JobState {
    Running,
    /// Second of the node's clock at which it is due.
    Due(u32),
}

impl PeriodicJobStates {
    /// Whether a job is due. A job that is new is due.
    fn is_due(&self, host: &Host, spec: &PeriodicJobSpec, now: u32) -> bool {
        let all = self.schedule.lock();
        match all.states.get(spec.name).and_then(|domains| domains.get(spec.domain(host))) {
            None => true,
            Some(JobState::Running) => false,
            Some(JobState::Due(due)) => *due <= now,
        }
    }

    /// The sweep of this second has reached another host.
    fn sweep(&self, now: u32) {
        {
            let mut schedule = self.schedule.lock();
            if schedule.started.0 == now {
                return;
            }
            schedule.started = (now, 0);
        }
        let holders = std::mem::take(&mut *self.holders.lock());
        holders.into_values().for_each(Waker::wake);
    }

    /// Whether one more job may start in this second. It counts as started then.
    fn try_start(&self) -> bool {
        let (_, started) = &mut self.schedule.lock().started;
        let may_start = *started < MAX_STARTS_PER_SECOND;
        *started += usize::from(may_start);
        may_start
    }

    fn set(&self, host: &Host, spec: &PeriodicJobSpec, state: JobState) {
        self.schedule.lock().states.entry(spec.name).or_default().insert(spec.domain(host).into(), state);
    }
}

impl PeriodicJobSpec {
    /// The domain for which it runs, or an empty text.
    fn domain<'a>(&self, host: &'a Host) -> &'a str {
        match self.scope {
            JobScope::Deployment => "",
            JobScope::Cluster | JobScope::Node => host.domain(),
        }
    }

    /// Keyed hash of the job and its domain; the same on all nodes.
    fn hash(&self, node: &Node, host: &Host) -> u64 {
        node.routing_table.hash_name(&format!("{} {}", self.name, self.domain(host)))
    }
}

/// Results of runs, as the label `outcome` of the metric.
pub(crate) const OUTCOMES: [&str; 3] = ["done", "failed", "panicked"];

/// How a run has ended.
enum JobEnd {
    Ended(Result<(), String>),
    Panicked,
    /// Another node has its lease. It is due again after this number of seconds.
    NotRun(u32),
}

/// Marks the end of a run, also of one that panicked.
struct RunningJob {
    shared: Arc<PeriodicJobStates>,
    node: Arc<Node>,
    host: Arc<Host>,
    job: PeriodicJob,
    end: JobEnd,
}

impl RunningJob {
    fn ctx(&self, fence: Option<u64>) -> PeriodicJobCtx {
        PeriodicJobCtx { node: self.node.clone(), host: self.host.clone(), fence }
    }

    /// Runs the job while this node holds its lease.
    async fn run_with_lease(&self, key: u64) -> JobEnd {
        let (node, shared, spec) = (&self.node, &self.shared, self.job.spec);
        let slot = LeaseSlot {
            store: node.stores.server_kv.clone(),
            clock: node.clock.clone(),
            key: format!("periodic-job {key:016x}"),
            node: node.cluster.node().as_str().into(),
            terms: LeaseTerms::DEFAULT,
        };
        let observed = shared.observed.lock().get(&key).cloned();
        let taken = match Lease::take(slot, observed).await {
            Ok(taken) => taken,
            Err(error) => return JobEnd::Ended(Err(format!("its lease cannot be taken: {error}"))),
        };
        let mut lease = match taken {
            LeaseAttempt::Held(observed) => {
                shared.observed.lock().insert(key, observed);
                return JobEnd::NotRun(spec.interval_seconds.min(LEASE_SECONDS + 1));
            }
            LeaseAttempt::Released => {
                shared.observed.lock().remove(&key);
                return JobEnd::NotRun(spec.interval_seconds);
            }
            LeaseAttempt::Taken(lease) => lease,
        };
        shared.observed.lock().remove(&key);
        let (handler, ctx) = (self.job.handler.clone(), self.ctx(Some(lease.fence())));
        let mut run = Box::pin(catch_unwind(Box::pin(async move { handler.run(ctx).await })));
        let ended = poll_fn(|cx| {
            shared.holders.lock().insert(key, cx.waker().clone());
            match lease.poll_lost(cx) {
                Poll::Ready(loss) => Poll::Ready(Err(loss)),
                Poll::Pending => run.as_mut().poll(cx).map(Ok),
            }
        })
        .await;
        drop(run);
        shared.holders.lock().remove(&key);
        let ended = match ended {
            Ok(ended) => ended,
            Err(loss) => {
                return JobEnd::Ended(Err(format!("it was stopped because it lost its lease: {loss}")));
            }
        };
        if let Err(error) = lease.release().await {
            tracing::debug!(job = spec.name, %error, "the lease of a periodic job is not released and will expire");
        }
        ended.map_or(JobEnd::Panicked, JobEnd::Ended)
    }
}

impl Drop for RunningJob {
    fn drop(&mut self) {
        let PeriodicJob { spec, feature, .. } = self.job;
        let [done, failed, panicked] = OUTCOMES;
        let (outcome, seconds) = match &self.end {
            JobEnd::Ended(Ok(())) => (Some(done), spec.interval_seconds),
            JobEnd::Ended(Err(error)) => {
                let domain = self.host.domain();
                tracing::warn!(job = spec.name, feature, domain, error, "a periodic job failed");
                (Some(failed), spec.interval_seconds)
            }
            JobEnd::Panicked => (Some(panicked), spec.interval_seconds),
            JobEnd::NotRun(seconds) => (None, *seconds),
        };
        let due = self.node.clock.now_seconds().saturating_add(seconds);
        self.shared.set(&self.host, spec, JobState::Due(due));
        if let Some(outcome) = outcome {
            self.node.metrics.periodic_job_runs.inc([spec.name, outcome]);
        }
    }
}

/// The jobs of a host.
pub(crate) struct PeriodicJobs {
    pub(crate) jobs: Vec<PeriodicJob>,
    pub(crate) shared: Arc<PeriodicJobStates>,
}

impl PeriodicJobs {
    /// Starts the jobs that are due.
    pub(crate) fn start_due(&self, node: &Arc<Node>, host: &Arc<Host>, now: u32) {
        let shared = &self.shared;
        shared.sweep(now);
        for job in &self.jobs {
            if !shared.is_due(host, job.spec, now) {
                continue;
            }
            if !owns_job(node, host, job.spec) {
                // It may own the job much later, when a lease that it saw is no reason to skip a run.
                shared.observed.lock().remove(&job.spec.hash(node, host));
                let due = now.saturating_add(job.spec.interval_seconds);
                shared.set(host, job.spec, JobState::Due(due));
            } else if shared.try_start() {
                shared.set(host, job.spec, JobState::Running);
                self.spawn(node, host, job);
            } else {
                return;
            }
        }
    }

    fn spawn(&self, node: &Arc<Node>, host: &Arc<Host>, job: &PeriodicJob) {
        let spec = job.spec;
        let lease = (spec.scope != JobScope::Node && !node.is_single()).then(|| spec.hash(node, host));
        let running = RunningJob {
            shared: self.shared.clone(),
            node: node.clone(),
            host: host.clone(),
            job: job.clone(),
            // Until it has ended otherwise.
            end: JobEnd::Panicked,
        };
        let task = async move {
            let mut running = running;
            running.end = match lease {
                Some(key) => running.run_with_lease(key).await,
                None => JobEnd::Ended(running.job.handler.run(running.ctx(None)).await),
            };
        };
        node.spawner.spawn(spec.name, Box::pin(task));
    }
}

fn owns_job(node: &Node, host: &Host, spec: &PeriodicJobSpec) -> bool {
    match spec.scope {
        JobScope::Node => true,
        JobScope::Cluster | JobScope::Deployment => {
            node.cluster.owner(spec.hash(node, host)) == node.cluster.node()
        }
    }
}
