//! What other nodes of the cluster learn about this process: measurements, log and overview.

use std::sync::{Arc, Weak};

use throng_commands::cluster_admin::answer_other_nodes;
use throng_commands::cluster_admin::summary::{NodeProcess, ProcessSummary, provide_process};
use throng_commands::log_buffer::LogBuffer;

use crate::{Api, overview};

/// The process of an API. The node owns it, and the API the node, so it must not own the API.
struct ApiNodeProcess(Weak<Api>);

/// Lets other nodes ask the node of this API.
pub(crate) fn provide(api: &Arc<Api>) {
    answer_other_nodes(&api.node);
    provide_process(&api.node, Arc::new(ApiNodeProcess(Arc::downgrade(api))));
}

impl NodeProcess for ApiNodeProcess {
    fn summary(&self) -> ProcessSummary {
        let Some(api) = self.0.upgrade() else { return ProcessSummary::default() };
        let stats = api.process.node_stats();
        ProcessSummary {
            ready: api.process.ready(),
            started: api.process.started(),
            cpu_seconds: stats.cpu_seconds,
            cpu_percent: api.history.latest("cpu"),
            memory_bytes: stats.memory_bytes,
            unauthenticated_connections: stats.unauthenticated_connections,
            store_in_flight: stats.store_in_flight,
        }
    }

    fn log(&self) -> Arc<LogBuffer> {
        self.0.upgrade().map(|api| api.process.log()).unwrap_or_default()
    }

    fn overview(&self, since: Option<u64>) -> Option<Vec<u8>> {
        let api = self.0.upgrade()?;
        overview::cluster::compress(&overview::overview_here(&api, since))
    }
}
