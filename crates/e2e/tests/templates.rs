//! Runs the scenarios that `cargo xtask new-feature` copies, with the features that it copies, beside all others: on one node,
//! and with the clients spread over two and three.
#![allow(
    clippy::panic,
    unreachable_pub,
    reason = "helpers of tests fail by panicking; the templates are modules of a library"
)]

#[path = "../../features/templates/message.rs"]
mod message;
#[path = "../../features/templates/request.rs"]
mod request;
#[path = "../../features/templates/service.rs"]
mod service;
#[path = "../../features/templates/storage.rs"]
mod storage;

use feature_api::Feature;
use features::registry::ALL;
use testkit::scenario::{ScenarioTarget, parse, run};
use testkit::server::TestServerConfig;

#[test]
fn the_scenario_of_a_new_feature_passes_on_one_two_and_three_nodes() {
    let templates: [(&str, &'static Feature, &str); 4] = [
        ("message", &message::FEATURE, include_str!("../../features/templates/message.scenario")),
        ("request", &request::FEATURE, include_str!("../../features/templates/request.scenario")),
        ("service", &service::FEATURE, include_str!("../../features/templates/service.scenario")),
        ("storage", &storage::FEATURE, include_str!("../../features/templates/storage.scenario")),
    ];
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.unwrap_or_else(|error| panic!("{error}"));
    for (name, feature, text) in templates {
        let scenario = parse(name, text).unwrap_or_else(|error| panic!("{error}"));
        for nodes in 1..=3 {
            let features = ALL.iter().copied().chain([feature]).collect();
            let config = TestServerConfig { features, ..TestServerConfig::default() };
            let outcome = runtime.block_on(async {
                let target = match nodes {
                    1 => ScenarioTarget::Memory(Box::new(config.start())),
                    _ => ScenarioTarget::Cluster(config.start_cluster(nodes)),
                };
                run(&scenario, &target).await
            });
            if let Err(error) = outcome {
                panic!("{name} on {nodes} nodes: {error}");
            }
        }
    }
}
