//! Publish-subscribe: XEP-0060 1.30.0, as a service of its own address, and on accounts ([`pep`], XEP-0163).
//!
//! One task for each node that is in use (`node_task.rs`) owns a state machine without I/O (`node/mod.rs`): a request gives an
//! answer, changes for the store and notices. An event to all subscribers is one multicast. What differs between the nodes of
//! a service and those of an account (XEP-0163) is behind a trait (`pubsub_host.rs`).
//!
//! # Pitfalls
//!
//! Every subscriber must see the same order, so nothing of a node is sent from outside its task.

mod account_removal;
mod affiliation;
mod answers;
mod associated_nodes;
mod bulk_nodes;
mod change_commands;
mod collection_config;
mod commands;
mod delivery;
mod excluded_subscribers;
mod get_pending;
mod graph;
mod graph_changes;
mod graph_lock;
mod node;
mod node_config;
mod node_directory;
mod node_import;
mod node_lists;
mod node_task;
mod online_subscribers;
mod options;
pub mod pep;
mod plain_subscriptions;
mod presence_fan_out;
mod publish_rate;
mod pubsub_error;
mod pubsub_host;
mod pubsub_shared;
mod request;
mod requester_facts;
mod reservations;
mod root_use;
mod service;
mod subscriber_cache;
mod subscriber_filter;
mod subscription;
#[cfg(test)]
mod tests;
mod user_buckets;
mod write_queue;

use std::sync::Arc;

use base::Provided;
use feature_api::disco::DiscoIdentity;
use feature_api::feature::{DiscoFeature, Feature, FeatureBuilder, Spec};
use feature_api::service::ServiceSpec;
use throng_core::feature_notice::NoticeCtx;
use throng_core::hooks::{Flow, Phase, RemovedCtx, StopReason};
use throng_core::iq::{IqKey, IqRequest, IqTarget};
use throng_core::service::ServiceCtx;
use xml::Ns;

pub use self::bulk_nodes::bulk_node;
pub use self::node_import::{
    ImportedFields, ImportedNode, ImportedState, ImportedStateChanges, ImportedSubscription,
};

use self::options::PubSubOptions;
use self::pubsub_host::ServiceHost;
use self::service::PubSubService;

/// Publish-subscribe.
pub static FEATURE: Feature = Feature {
    name: "pubsub",
    summary: "Nodes to which publishers publish items, and of which subscribers receive events.",
    specs: &[
        Spec {
            name: "XEP-0060",
            title: "Publish-Subscribe",
            version: "1.30.0",
            not_implemented: "sections 6.3 and 12.6: digests and message bodies",
        },
        Spec {
            name: "XEP-0248",
            title: "PubSub Collection Nodes",
            version: "0.5.0",
            not_implemented: "section 5.2.2.1: meta-data in notifications of association",
        },
        Spec {
            name: "XEP-0413",
            title: "Order-By",
            version: "0.2.1",
            not_implemented: "section 4.3: archives, which nodes do not have",
        },
    ],
    disco: DISCO,
    service: Some(&ServiceSpec {
        identity: DiscoIdentity { category: "pubsub", kind: "service", name: "Publish-Subscribe" },
    }),
    iq: REQUESTS,
    declarations: commands::COMMANDS,
    options: options::OPTIONS,
    build,
    ..Feature::EMPTY
};

/// Section 10.
const DISCO: &[DiscoFeature] = &[
    DiscoFeature::Service(Ns::Pubsub.as_str()),
    DiscoFeature::Service("http://jabber.org/protocol/pubsub#access-open"),
    DiscoFeature::Service("http://jabber.org/protocol/pubsub#collections"),
    DiscoFeature::Service("http://jabber.org/protocol/pubsub#config-node"),
    DiscoFeature::Service("http://jabber.org/protocol/pubsub#create-and-configure"),
    DiscoFeature::Service("http://jabber.org/protocol/pubsub#create-nodes"),
    DiscoFeature::Service("http://jabber.org/protocol/pubsub#config-node-max"),
    DiscoFeature::Service("http://jabber.org/protocol/pubsub#delete-items"),
    DiscoFeature::Service("http://jabber.org/protocol/pubsub#delete-nodes"),
    DiscoFeature::Service("http://jabber.org/protocol/pubsub#get-pending"),
    DiscoFeature::Service("http://jabber.org/protocol/pubsub#instant-nodes"),
    DiscoFeature::Service("http://jabber.org/protocol/pubsub#item-ids"),
    DiscoFeature::Service("http://jabber.org/protocol/pubsub#last-published"),
    DiscoFeature::Service("http://jabber.org/protocol/pubsub#leased-subscription"),
    DiscoFeature::Service("http://jabber.org/protocol/pubsub#manage-subscriptions"),
    DiscoFeature::Service("http://jabber.org/protocol/pubsub#member-affiliation"),
    DiscoFeature::Service("http://jabber.org/protocol/pubsub#meta-data"),
    DiscoFeature::Service("http://jabber.org/protocol/pubsub#modify-affiliations"),
    DiscoFeature::Service("http://jabber.org/protocol/pubsub#multi-collections"),
    DiscoFeature::Service("http://jabber.org/protocol/pubsub#multi-items"),
    DiscoFeature::Service("http://jabber.org/protocol/pubsub#multi-subscribe"),
    DiscoFeature::Service("http://jabber.org/protocol/pubsub#outcast-affiliation"),
    DiscoFeature::Service("http://jabber.org/protocol/pubsub#persistent-items"),
    DiscoFeature::Service("http://jabber.org/protocol/pubsub#presence-notifications"),
    DiscoFeature::Service("http://jabber.org/protocol/pubsub#publish"),
    DiscoFeature::Service("http://jabber.org/protocol/pubsub#publish-node-full"),
    DiscoFeature::Service("http://jabber.org/protocol/pubsub#publish-only-affiliation"),
    DiscoFeature::Service("http://jabber.org/protocol/pubsub#publish-options"),
    DiscoFeature::Service("http://jabber.org/protocol/pubsub#publisher-affiliation"),
    DiscoFeature::Service("http://jabber.org/protocol/pubsub#purge-nodes"),
    DiscoFeature::Service("http://jabber.org/protocol/pubsub#retract-items"),
    DiscoFeature::Service("http://jabber.org/protocol/pubsub#retrieve-affiliations"),
    DiscoFeature::Service("http://jabber.org/protocol/pubsub#retrieve-default"),
    DiscoFeature::Service("http://jabber.org/protocol/pubsub#retrieve-default-sub"),
    DiscoFeature::Service("http://jabber.org/protocol/pubsub#retrieve-items"),
    DiscoFeature::Service("http://jabber.org/protocol/pubsub#retrieve-subscriptions"),
    DiscoFeature::Service("http://jabber.org/protocol/pubsub#rsm"),
    DiscoFeature::Service("http://jabber.org/protocol/pubsub#subscribe"),
    DiscoFeature::Service("http://jabber.org/protocol/pubsub#subscription-notifications"),
    DiscoFeature::Service("http://jabber.org/protocol/pubsub#subscription-options"),
    DiscoFeature::Service("urn:xmpp:order-by:1"),
    DiscoFeature::Service("urn:xmpp:order-by:1@http://jabber.org/protocol/pubsub"),
    DiscoFeature::Service(Ns::Commands.as_str()),
    DiscoFeature::Service(Ns::Rsm.as_str()),
];

const COMMAND: IqKey = IqKey::set(IqTarget::Service, Ns::Commands, "command");
const REQUESTS: &[IqKey] = &[
    IqKey::get(IqTarget::Service, Ns::DiscoInfo, "query"),
    IqKey::get(IqTarget::Service, Ns::DiscoItems, "query"),
    IqKey::get(IqTarget::Service, Ns::Pubsub, "pubsub"),
    IqKey::set(IqTarget::Service, Ns::Pubsub, "pubsub"),
    IqKey::get(IqTarget::Service, Ns::PubsubOwner, "pubsub"),
    IqKey::set(IqTarget::Service, Ns::PubsubOwner, "pubsub"),
    COMMAND,
];

/// The service of a host, which is notified of accounts of other domains that are removed.
#[derive(Clone)]
struct ServiceOfHost(Arc<PubSubService>);

impl Provided for ServiceOfHost {
    const NAME: &'static str = "the service of publish-subscribe";
}

fn build(builder: &mut FeatureBuilder<'_>) {
    let options = match PubSubOptions::read(builder.options) {
        Ok(options) => options,
        Err((key, problem)) => return builder.refuse_option(key, problem),
    };
    let domain = builder.domain.to_owned();
    let service =
        builder.shared_state(|| PubSubService::new(Box::new(ServiceHost { domain }), options.clone()));
    service.shared.set_options(options);
    for key in REQUESTS {
        let service = service.clone();
        builder.iq(*key, move |request: &mut IqRequest<'_>| match *key {
            COMMAND => service.handle_command(request),
            key => service.handle_request(request, key.set),
        });
    }
    commands::build(builder, &service);
    builder.service_item_name(service::item_name);
    let of_messages = service.clone();
    builder.service_message(move |ctx: &mut ServiceCtx<'_>| of_messages.handle_message(ctx));
    let of_presence = service.clone();
    builder.service_presence(move |ctx: &mut ServiceCtx<'_>| {
        of_presence.handle_presence(ctx);
        Flow::Stop(StopReason::Consumed)
    });
    builder.provide(ServiceOfHost(service.clone()));
    builder.removed(Phase::Archive, account_removed);
    let of_graph = service.clone();
    builder.notice(delivery::GRAPH_NOTICE, move |ctx: &NoticeCtx<'_>| of_graph.handle_graph_notice(ctx));
    builder.notice(service::USER_NOTICE, move |ctx: &NoticeCtx<'_>| service.handle_notice(ctx));
}

/// Removes the nodes of an account, and what it has at nodes of all domains.
fn account_removed(ctx: &mut RemovedCtx<'_>) -> Flow {
    if let Some(ServiceOfHost(service)) = ctx.host.extensions.get() {
        account_removal::remove_everywhere(ctx, service, service::USER_NOTICE);
    }
    Flow::Next
}
