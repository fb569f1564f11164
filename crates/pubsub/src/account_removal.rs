//! Removal of an account: its own nodes, and what it has at nodes of all services and accounts, of all domains of the server.
//!
//! What the account has is read once on each node of the cluster, which changes the nodes that it owns.

use std::sync::Arc;

use hashbrown::HashMap;
use jid::Jid;
use store::StoreError;
use throng_core::Node;
use throng_core::hooks::RemovedCtx;

use crate::node_directory::is_owned_elsewhere;
use crate::pep::PepOfHost;
use crate::pubsub_shared::UserChange;
use crate::service::PubSubService;
use crate::{FEATURE, ServiceOfHost};

/// Nodes that are read at once.
const PAGE: u32 = 100;

/// The account of a context was removed: tells the other nodes of the cluster by a notice of this name.
pub(crate) fn remove_everywhere(ctx: &RemovedCtx<'_>, service: &PubSubService, notice: &'static str) {
    let user = ctx.jid.bare().to_jid();
    service.report_change(notice, ctx.node, ctx.host, (&user, &user), UserChange::Removed);
    remove_here(ctx.node, &user);
}

/// Passes the removal on to the nodes that this node of the cluster owns.
pub(crate) fn remove_here(node: &Arc<Node>, user: &Jid) {
    let (of_task, user) = (node.clone(), user.clone());
    let task = async move {
        if let Err(error) = visit_nodes(&of_task, &user).await {
            tracing::error!(%user, %error, "the nodes of a user were not notified of the removal of its account");
        }
    };
    node.spawner.spawn("pubsub-user", Box::pin(task));
}

/// The services of all hosts by their addresses, and those of accounts by the domain.
struct AllServices {
    services: HashMap<Jid, ServiceOfHost>,
    accounts: HashMap<String, PepOfHost>,
}

impl AllServices {
    fn new(node: &Arc<Node>) -> AllServices {
        let mut all = AllServices { services: HashMap::new(), accounts: HashMap::new() };
        for host in node.hosts() {
            let own = host.services.iter().find(|service| service.feature == FEATURE.name);
            if let Some((own, service)) = own.zip(host.extensions.get::<ServiceOfHost>()) {
                all.services.insert(own.jid.clone(), service.clone());
            }
            if let Some(pep) = host.extensions.get::<PepOfHost>() {
                all.accounts.insert(host.domain().to_owned(), pep.clone());
            }
        }
        all
    }

    /// The service with a node.
    fn of_node(&self, key: &Jid) -> Option<&PubSubService> {
        match key.local() {
            Some(_) => self.accounts.get(key.domain()).map(|PepOfHost(pep)| &pep.service),
            None => self.services.get(key.bare().as_str()).map(|ServiceOfHost(service)| &**service),
        }
    }
}

async fn visit_nodes(node: &Arc<Node>, user: &Jid) -> Result<(), StoreError> {
    let services = AllServices::new(node);
    let mut after = 0;
    loop {
        let page = node.stores.pubsub.nodes_of_entity(user.as_ref(), after, PAGE).await?;
        for (_, key) in page.iter().filter(|(_, key)| !is_owned_elsewhere(node, key)) {
            if let Some(service) = services.of_node(key) {
                service.send_removed(node, key.clone(), user).await;
            }
        }
        match page.last() {
            Some((last, _)) => after = *last,
            None => break,
        }
    }
    let Some(service) = services.of_node(user) else { return Ok(()) };
    // The page after a node that is removed would be empty, so they are removed at the end.
    let (mut own, mut after) = (Vec::new(), None);
    loop {
        let page = node.stores.pubsub.list_all(user.as_ref(), after, PAGE).await?;
        after = page.last().map(|one| one.jid.clone());
        own.extend(page.into_iter().map(|one| one.jid).filter(|key| !is_owned_elsewhere(node, key)));
        if after.is_none() {
            break;
        }
    }
    for key in own {
        service.send_removed(node, key, user).await;
    }
    Ok(())
}
