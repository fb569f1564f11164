//! What a host does besides handling stanzas: it starts periodic jobs, and its counters are printed from the start.

use std::sync::Arc;

use throng_core::host::HostBackground;
use throng_core::metrics::{KINDS, Metrics};
use throng_core::{Host, Node};

use crate::http_route::HttpRoutes;
use crate::periodic_job::{OUTCOMES, PeriodicJobs};

impl HostBackground for PeriodicJobs {
    /// Services, jobs and routes, so that their first increase is visible.
    fn register_metrics(&self, host: &Host, metrics: &Metrics) {
        for service in &host.services {
            for family in [&metrics.service_stanzas, &metrics.service_stanzas_limited] {
                KINDS.iter().for_each(|kind| family.add([service.feature, kind], 0));
            }
        }
        for job in &self.jobs {
            for outcome in OUTCOMES {
                metrics.periodic_job_runs.add([job.spec.name, outcome], 0);
            }
        }
        let routes = host.extensions.get::<HttpRoutes>();
        for route in routes.iter().flat_map(|routes| &routes.0).map(|route| route.spec) {
            for direction in ["in", "out"] {
                metrics.http_route_bytes.add([route.prefix, direction], 0);
            }
            for method in route.methods {
                metrics.http_route_requests.add([route.prefix, method, "2xx"], 0);
            }
        }
    }

    fn sweep(&self, node: &Arc<Node>, host: &Arc<Host>, now: u32) {
        self.start_due(node, host, now);
    }
}
