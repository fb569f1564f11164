//! `throng pubsub bulk`: PubSub nodes and subscriptions, made directly in the database of a stopped node, for load tests.
//!
//! # Pitfalls
//!
//! The numbers of the subscribers' addresses must follow each other, as those of accounts do that one `account bulk` has added.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use jid::Jid;
use store::subscription_bulk::{BulkProgress, BulkSubscriptions, add_bulk};
use store::{NodeNumber, PubSubChange, Stores, SubscriptionSide};

use crate::accounts::OfflineDatabase;
use crate::cli::{PubSubBulkArgs, PubSubCommand};
use crate::config::NodeConfig;
use crate::{admin, output, runtime};

/// Nodes that are created at the same time: several transactions.
const NODES_AT_ONCE: u32 = 512;
/// Addresses that are looked up at the same time.
const ADDRESSES_AT_ONCE: u32 = 5_000;
/// Memory of the subscriptions besides what is being written.
const BULK_MEMORY: usize = 128 << 20;
/// Time between two lines about the progress.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// Runs a command.
pub(crate) fn command(command: PubSubCommand) -> Result<()> {
    let PubSubCommand::Bulk(args) = command;
    let config = NodeConfig::load(args.file.config.as_deref())?;
    runtime::start()?.block_on(run(&config, &args))
}

async fn run(config: &NodeConfig, args: &PubSubBulkArgs) -> Result<()> {
    if admin::connect(&config.socket()).await.is_some() {
        bail!("a node is running; stop it first, since it would not see what is written to its database");
    }
    if args.each > args.subscribers {
        bail!("--each {} requires at least as many --subscribers", args.each);
    }
    let database = OfflineDatabase::open(config, args.create).await?;
    let done = create(config, args, &database.databases.stores()).await;
    database.databases.close().await;
    output::line(&done?);
    Ok(())
}

/// Reports progress from time to time.
struct ProgressReport {
    begun: Instant,
    reported: Instant,
}

#[allow(clippy::disallowed_methods, reason = "the time for which a person waits")]
fn now() -> Instant {
    Instant::now()
}

impl ProgressReport {
    fn new() -> ProgressReport {
        ProgressReport { begun: now(), reported: now() }
    }

    fn report(&mut self, what: &str, done: u32, total: u32) {
        if now().duration_since(self.reported) >= REPORT_INTERVAL {
            self.reported = now();
            let seconds = now().duration_since(self.begun).as_secs();
            output::error(&format!("{done} of {total} {what} after {seconds} s"));
        }
    }
}

async fn create(config: &NodeConfig, args: &PubSubBulkArgs, stores: &Stores) -> Result<String> {
    let domain = args.domain.clone().unwrap_or_else(|| config.domain().to_owned());
    let service = args.service.clone().unwrap_or_else(|| format!("pubsub.{domain}"));
    let service =
        Jid::parse(&service).map_err(|error| anyhow!("\"{service}\" is not an address: {error}"))?;
    let owner = args.owner.clone().unwrap_or_else(|| format!("admin@{domain}"));
    let owner = Jid::parse(&owner).map_err(|error| anyhow!("\"{owner}\" is not an address: {error}"))?;
    let mut progress = ProgressReport::new();
    let first_node = create_nodes(args, stores, &service, &owner, &mut progress).await?;
    if args.each == 0 || args.nodes == 0 {
        return Ok(format!("created {} nodes", args.nodes));
    }
    let first_subscriber = find_subscribers(args, stores, &domain, &mut progress).await?;
    let bulk = BulkSubscriptions {
        first_node: first_node.0,
        nodes: args.nodes,
        first_subscriber,
        subscribers: args.subscribers,
        each: args.each,
    };
    let mut report = |BulkProgress { side, done, total }: BulkProgress| match side {
        SubscriptionSide::Subscribers => progress.report("nodes with subscribers", done, total),
        SubscriptionSide::Nodes => progress.report("subscribers with nodes", done, total),
    };
    let total =
        add_bulk(stores, &bulk, BULK_MEMORY, &mut report).await.map_err(|error| anyhow!("{error}"))?;
    Ok(format!("created {} nodes and {total} subscriptions", args.nodes))
}

/// Creates the nodes; returns the number of the first. Nodes that exist are configured again.
async fn create_nodes(
    args: &PubSubBulkArgs,
    stores: &Stores,
    service: &Jid,
    owner: &Jid,
    progress: &mut ProgressReport,
) -> Result<NodeNumber> {
    let mut fields = Vec::new();
    for field in &args.field {
        let pair = field.split_once('=').with_context(|| format!("--field \"{field}\" is not VAR=VALUE"))?;
        fields.push((pair.0.to_owned(), pair.1.to_owned()));
    }
    let created = base::Clock::unix_millis(&base::SystemClock::new());
    let changes = pubsub::bulk_node(owner, created, &fields).map_err(|error| anyhow!(error))?;
    let address = |number: u32| {
        let name = format!("{}{number}", args.prefix);
        service.as_ref().with_resource(&name).map_err(|error| anyhow!("\"{name}\" cannot be a node: {error}"))
    };
    for begin in (0..args.nodes).step_by(NODES_AT_ONCE as usize) {
        let end = args.nodes.min(begin.saturating_add(NODES_AT_ONCE));
        let nodes = (begin..end).map(address).collect::<Result<Vec<Jid>>>()?;
        let of_node = |node: &Jid| {
            let changes: Vec<PubSubChange> = changes.clone();
            stores.pubsub.apply(node.as_ref(), changes)
        };
        for written in base::spawn::join_all(nodes.iter().map(of_node).collect()).await {
            written.map_err(|error| anyhow!("{error}"))?;
        }
        progress.report("nodes", end, args.nodes);
    }
    let mut ends = Vec::new();
    for number in [0, args.nodes.saturating_sub(1)] {
        let found =
            stores.pubsub.number(address(number)?.as_ref()).await.map_err(|error| anyhow!("{error}"))?;
        ends.push(found.unwrap_or_default());
    }
    match ends.as_slice() {
        [first, last] if last.checked_sub(*first) == args.nodes.checked_sub(1) => Ok(NodeNumber(*first)),
        _ if args.nodes == 0 => Ok(NodeNumber(0)),
        _ => bail!(
            "some of these nodes existed before, so their numbers do not follow each other; use another --prefix"
        ),
    }
}

/// The number of the first subscriber's address.
async fn find_subscribers(
    args: &PubSubBulkArgs,
    stores: &Stores,
    domain: &str,
    progress: &mut ProgressReport,
) -> Result<u32> {
    let mut first: Option<u32> = None;
    for begin in (0..args.subscribers).step_by(ADDRESSES_AT_ONCE as usize) {
        let end = args.subscribers.min(begin.saturating_add(ADDRESSES_AT_ONCE));
        let address = |number: u32| {
            let name = format!("{}{number}", args.subscriber_prefix);
            Jid::from_parts(Some(&name), domain, None)
                .map_err(|error| anyhow!("\"{name}@{domain}\" is not an address: {error}"))
        };
        let addresses = (begin..end).map(address).collect::<Result<Vec<Jid>>>()?;
        let ids = stores.addresses.intern_many(&addresses).await.map_err(|error| anyhow!("{error}"))?;
        for (at, id) in (begin..).zip(ids) {
            let start = *first.get_or_insert(id.get());
            if id.get().checked_sub(start) != Some(at) {
                bail!(
                    "the numbers of these addresses do not follow each other; use accounts that one account bulk has \
                     added to a new database"
                );
            }
        }
        progress.report("addresses", end, args.subscribers);
    }
    Ok(first.unwrap_or(1))
}
