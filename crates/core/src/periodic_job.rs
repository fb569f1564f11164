//! Periodic jobs of features, such as the removal of expired files.
//!
//! A feature declares a [`PeriodicJobSpec`] and registers a handler with
//! `FeatureBuilder::periodic_job`; the engine runs it for each domain, with the clock of the node: first
//! at the start, then an interval after each end. Runs of one job never overlap, and a job that fails or panics runs again
//! after the interval.
//!
//! In a cluster a job of [`JobScope::Cluster`] runs on one node: the one that [`cluster::Cluster::owner`] names for the
//! job and the domain.
//!
//! Not implemented: a lease in the database, for which [`store::ServerKv`] would need a conditional write. Rendezvous hashing
//! needs no round trip, and the nodes agree on an owner as soon as they agree on who is a member.
//!
//! # Pitfalls
//!
//! When nodes join or leave, or while a partition lasts, two nodes may run a job at the same time: a job must tolerate that.
//! One that must not needs a condition in its own statements.

use std::collections::HashMap;
use std::sync::Arc;

use base::lock::LeafMutex;
use base::spawn::BoxFuture;

use crate::host::Host;
use crate::node::Node;

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

/// When jobs run next: by name and domain, so that a reload changes nothing. Bounded by the domains that were ever served.
#[derive(Default)]
pub(crate) struct PeriodicJobs(LeafMutex<HashMap<&'static str, HashMap<Box<str>, JobState>>>);

enum JobState {
    Running,
    /// Second of the node's clock at which it is due.
    Due(u32),
}

impl PeriodicJobs {
    /// Whether a job is due. A job that is new is due.
    fn is_due(&self, host: &Host, spec: &PeriodicJobSpec, now: u32) -> bool {
        let all = self.0.lock();
        match all.get(spec.name).and_then(|domains| domains.get(spec.domain(host))) {
            None => true,
            Some(JobState::Running) => false,
            Some(JobState::Due(due)) => *due <= now,
        }
    }

    fn set(&self, host: &Host, spec: &PeriodicJobSpec, state: JobState) {
        self.0.lock().entry(spec.name).or_default().insert(spec.domain(host).into(), state);
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
}

/// Results of runs, as the label `outcome` of the metric.
pub(crate) const OUTCOMES: [&str; 3] = ["done", "failed", "panicked"];

/// Marks the end of a run, also of one that panicked.
struct RunningJob {
    node: Arc<Node>,
    host: Arc<Host>,
    spec: &'static PeriodicJobSpec,
    outcome: &'static str,
}

impl Drop for RunningJob {
    fn drop(&mut self) {
        let due = self.node.clock.now_seconds().saturating_add(self.spec.interval_seconds);
        self.node.periodic_jobs.set(&self.host, self.spec, JobState::Due(due));
        self.node.metrics.periodic_job_runs.inc([self.spec.name, self.outcome]);
    }
}

impl Node {
    /// Starts the jobs that are due.
    pub(crate) fn start_due_jobs(self: &Arc<Self>, now: u32) {
        let mut started = 0;
        for host in self.hosts() {
            for job in &host.periodic_jobs {
                if !self.periodic_jobs.is_due(&host, job.spec, now) {
                    continue;
                }
                if started == MAX_STARTS_PER_SECOND {
                    return;
                }
                if self.owns_job(&host, job.spec) {
                    started += 1;
                    self.periodic_jobs.set(&host, job.spec, JobState::Running);
                    self.spawn_job(&host, job);
                } else {
                    let due = now.saturating_add(job.spec.interval_seconds);
                    self.periodic_jobs.set(&host, job.spec, JobState::Due(due));
                }
            }
        }
    }

    fn owns_job(&self, host: &Host, spec: &PeriodicJobSpec) -> bool {
        match spec.scope {
            JobScope::Node => true,
            JobScope::Cluster | JobScope::Deployment => {
                let name = format!("{} {}", spec.name, spec.domain(host));
                let owner = self.cluster.owner(self.routing_table.hash_name(&name));
                owner == self.cluster.node()
            }
        }
    }

    fn spawn_job(self: &Arc<Self>, host: &Arc<Host>, job: &PeriodicJob) {
        let PeriodicJob { feature, spec, handler } = job.clone();
        let [done, failed, panicked] = OUTCOMES;
        let running = RunningJob { node: self.clone(), host: host.clone(), spec, outcome: panicked };
        let task = async move {
            let mut running = running;
            let ctx = PeriodicJobCtx { node: running.node.clone(), host: running.host.clone() };
            running.outcome = match handler.run(ctx).await {
                Ok(()) => done,
                Err(error) => {
                    let domain = running.host.domain();
                    tracing::warn!(job = spec.name, feature, domain, error, "a periodic job failed");
                    failed
                }
            };
        };
        self.spawner.spawn(spec.name, Box::pin(task));
    }
}
