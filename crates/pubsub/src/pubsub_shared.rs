//! What the tasks of a domain's nodes share, and their inputs.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use base::lock::LeafRwLock;
use jid::Jid;
use queues::answer_channel::AnswerSender;
use queues::semaphore::Semaphore;
use queues::serial_task::SerialTasks;
use throng_core::Node;
use throng_core::iq::IqAnswer;

use crate::graph::GraphInput;
use crate::graph_lock::{GraphGuard, GraphLock};
use crate::node_directory::{NodeDirectory, NodeShutdown, NodeSweep};
use crate::node_task::NodeTask;
use crate::options::PubSubOptions;
use crate::presence_fan_out::PresenceFanOuts;
use crate::publish_rate::PublishRate;
use crate::pubsub_host::PubSubHost;
use crate::request::{Approval, NodeRequest};
use crate::reservations::Reservations;
use crate::root_use::RootUse;
use crate::subscriber_filter::ContactCache;
use crate::user_buckets::UserBuckets;

/// Affiliations and subscriptions of others that a user changes, each second and at once: each can be a message to somebody.
const CHANGES_PER_SECOND: u32 = 10;
const CHANGES_AT_ONCE: u32 = 1_000;

/// Retrievals of the items of collections at the same time, each of which reads several nodes, and those that wait.
const MAX_RETRIEVALS: usize = 4;
const MAX_WAITING_RETRIEVALS: usize = 256;

/// The tasks of a domain's nodes, by address: the service, with the node's name as resource.
pub(crate) type NodeTasks = SerialTasks<Jid, NodeTask>;

/// What the tasks of a domain share.
pub(crate) struct PubSubShared {
    pub(crate) host: Box<dyn PubSubHost>,
    options: LeafRwLock<Arc<PubSubOptions>>,
    pub(crate) directory: NodeDirectory,
    pub(crate) presence: Arc<PresenceFanOuts>,
    /// Contacts of owners, for events to many subscribers.
    pub(crate) contacts: ContactCache,
    /// Changes of affiliations and subscriptions of others that a user makes.
    pub(crate) changes_of_others: UserBuckets,
    /// Nodes that users are creating, and subscriptions that they are making.
    pub(crate) new_nodes: Arc<Reservations>,
    pub(crate) new_subscriptions: Arc<Reservations>,
    /// Bytes that wait to be stored, of all nodes.
    pub(crate) unwritten: Arc<AtomicUsize>,
    pub(crate) graph_lock: GraphLock,
    pub(crate) root: RootUse,
    /// Retrievals of the items of collections.
    pub(crate) retrievals: Semaphore,
    pub(crate) publications: PublishRate,
    tasks: OnceLock<Weak<NodeTasks>>,
    is_swept: AtomicBool,
    /// The node of the cluster stops: no PubSub node stays in memory.
    is_stopping: AtomicBool,
}

/// An input of a node.
pub(crate) struct NodeMessage {
    pub(crate) node: Arc<Node>,
    pub(crate) input: NodeInput,
}

/// What happened to a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UserChange {
    /// A session has sent available presence to the service.
    Available,
    /// A session has sent unavailable presence to the service.
    Unavailable,
    /// The account was removed.
    Removed,
}

impl UserChange {
    const ALL: [(UserChange, char); 3] =
        [(UserChange::Available, 'a'), (UserChange::Unavailable, 'u'), (UserChange::Removed, 'r')];

    /// Its letter in notices to other nodes of a cluster.
    pub(crate) fn letter(self) -> char {
        UserChange::ALL.iter().find(|(change, _)| *change == self).map_or(' ', |(_, letter)| *letter)
    }

    /// The change with this letter.
    pub(crate) fn from_letter(letter: char) -> Option<UserChange> {
        UserChange::ALL.iter().find(|(_, one)| *one == letter).map(|(change, _)| *change)
    }
}

/// What a node handles.
pub(crate) enum NodeInput {
    /// A request, the way of its answer, and the bytes that both hold. One that adds edges to the graph of collections comes
    /// again with the lock.
    Request {
        request: NodeRequest,
        from: Jid,
        reply: AnswerSender<IqAnswer>,
        bytes: usize,
        guard: Option<Arc<GraphGuard>>,
    },
    /// A request of a conversion, on behalf of the account with the node (XEP-0398, XEP-0411). `last_item` is the number of the last
    /// item that the conversion knows: what a client has published since must not be overwritten.
    Conversion { request: NodeRequest, account: Jid, last_item: Option<u64>, reply: AnswerSender<IqAnswer> },
    /// From another node of the service.
    Graph { input: GraphInput, guard: Option<Arc<GraphGuard>> },
    /// A request of an operator, on behalf of this user.
    Command { request: NodeRequest, user: Jid, reply: AnswerSender<IqAnswer> },
    /// An owner answers a request for approval.
    Approval { approval: Approval, from: Jid },
    /// An owner wants all requests for approval again (section 8.7).
    AskAgain { from: Jid, reply: AnswerSender<IqAnswer> },
    /// Something happened to a user who may have a subscription or an affiliation.
    UserChanged { user: Jid, change: UserChange },
    /// A client is interested in the node of an account whose presence its user may see.
    Interested { user: Jid },
    /// Subscribers that do not exist any more.
    SubscribersLost(Vec<Jid>),
    /// The node is not used, another member of the cluster owns it, or its task waits for its end.
    Drop,
}

impl PubSubShared {
    pub(crate) fn new(host: Box<dyn PubSubHost>, options: PubSubOptions) -> Arc<PubSubShared> {
        Arc::new(PubSubShared {
            host,
            options: LeafRwLock::new(Arc::new(options)),
            directory: NodeDirectory::default(),
            presence: Arc::default(),
            contacts: ContactCache::default(),
            changes_of_others: UserBuckets::new(CHANGES_PER_SECOND, CHANGES_AT_ONCE),
            new_nodes: Arc::default(),
            new_subscriptions: Arc::default(),
            unwritten: Arc::default(),
            graph_lock: GraphLock::default(),
            root: RootUse::default(),
            retrievals: Semaphore::new(MAX_RETRIEVALS, MAX_WAITING_RETRIEVALS),
            publications: PublishRate::default(),
            tasks: OnceLock::new(),
            is_swept: AtomicBool::new(false),
            is_stopping: AtomicBool::new(false),
        })
    }

    /// Drops nodes that are not used from now on.
    pub(crate) fn watch(self: &Arc<Self>, node: &Arc<Node>) {
        if !self.is_swept.load(Ordering::Relaxed) && !self.is_swept.swap(true, Ordering::Relaxed) {
            node.extensions.get_or_default_swept::<NodeSweep>().add(self);
            peers::slices::add_slice_service(node, Arc::new(NodeShutdown::new(self)));
        }
    }

    /// From now on, tasks end when they have nothing to do.
    pub(crate) fn stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
    }

    /// Whether [`PubSubShared::stop`] was called.
    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    /// The tasks of the nodes, while they exist.
    pub(crate) fn tasks(&self) -> Option<Arc<NodeTasks>> {
        self.tasks.get()?.upgrade()
    }

    /// The same, for a task itself.
    pub(crate) fn tasks_later(&self) -> Weak<NodeTasks> {
        self.tasks.get().cloned().unwrap_or_default()
    }

    pub(crate) fn set_tasks(&self, tasks: &Arc<NodeTasks>) {
        let _ = self.tasks.set(Arc::downgrade(tasks));
    }

    /// The options after a reload.
    pub(crate) fn set_options(&self, options: PubSubOptions) {
        *self.options.write() = Arc::new(options);
    }

    pub(crate) fn options(&self) -> Arc<PubSubOptions> {
        self.options.read().clone()
    }
}
