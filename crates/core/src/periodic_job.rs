//! Periodic jobs of features, such as the removal of expired files.
//!
//! A feature declares a [`PeriodicJobSpec`] and registers a handler with
//! [`crate::feature::FeatureBuilder::periodic_job`]; the engine runs it for each domain, with the clock of the node: first
//! at the start, then an interval after each end. Runs of one job never overlap, and a job that fails or panics runs again
//! after the interval.
//!
//! In a cluster a job of [`JobScope::Cluster`] runs on one node: the one that [`cluster::Cluster::owner`] names for the
//! job and the domain.
//!
//! Not implemented: a lease in the database.
//!
//! # Pitfalls
//!
//! When nodes join or leave, the earlier owner may still run while the next one begins: a job must tolerate that.

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
    /// One node: the job works on shared data.
    Cluster,
    /// Every node: the job works on data of the node.
    Node,
}

/// One run of a job.
pub struct PeriodicJobCtx {
    /// The node.
    pub node: Arc<Node>,
    /// The host for which it runs.
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
    pub(crate) handler: Arc<dyn PeriodicJobHandler>,
}

/// When jobs run next: by domain and name, so that a reload changes nothing. Bounded by the domains that were ever served.
#[derive(Default)]
pub(crate) struct PeriodicJobs(LeafMutex<HashMap<(Box<str>, &'static str), JobState>>);

enum JobState {
    Running,
    /// Second of the node's clock at which it is due.
    Due(u32),
}

impl PeriodicJobs {
    /// Whether a job is due. A job that is new is due.
    fn is_due(&self, host: &Host, spec: &PeriodicJobSpec, now: u32) -> bool {
        let mut all = self.0.lock();
        let state = all.entry((host.domain().into(), spec.name)).or_insert(JobState::Due(now));
        matches!(state, JobState::Due(due) if *due <= now)
    }

    fn set(&self, host: &Host, spec: &PeriodicJobSpec, state: JobState) {
        self.0.lock().insert((host.domain().into(), spec.name), state);
    }
}

/// Marks the end of a run, also of one that panicked.
struct RunningJob {
    node: Arc<Node>,
    host: Arc<Host>,
    spec: &'static PeriodicJobSpec,
}

impl Drop for RunningJob {
    fn drop(&mut self) {
        let due = self.node.clock.now_seconds().saturating_add(self.spec.interval_seconds);
        self.node.periodic_jobs.set(&self.host, self.spec, JobState::Due(due));
    }
}

impl Node {
    /// Starts the jobs that are due.
    pub(crate) fn start_due_jobs(self: &Arc<Self>, now: u32) {
        for host in self.hosts() {
            for job in &host.periodic_jobs {
                if !self.periodic_jobs.is_due(&host, job.spec, now) {
                    continue;
                }
                if self.owns_job(&host, job.spec) {
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
            JobScope::Cluster => {
                let owner = self.cluster.owner(&format!("{} {}", spec.name, host.domain()));
                owner == self.cluster.node()
            }
        }
    }

    fn spawn_job(self: &Arc<Self>, host: &Arc<Host>, job: &PeriodicJob) {
        let PeriodicJob { feature, spec, handler } = job.clone();
        let running = RunningJob { node: self.clone(), host: host.clone(), spec };
        let task = async move {
            let ctx = PeriodicJobCtx { node: running.node.clone(), host: running.host.clone() };
            if let Err(error) = handler.run(ctx).await {
                let domain = running.host.domain();
                tracing::warn!(job = spec.name, feature, domain, error, "a periodic job failed");
            }
        };
        self.spawner.spawn(spec.name, Box::pin(task));
    }
}
