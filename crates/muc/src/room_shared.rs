//! State that the tasks of a domain's rooms share: options, the directory of rooms, copies of other nodes, the key of occupant ids; and
//! who may create rooms.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use base::lock::{LeafMutex, LeafRwLock};
use cluster::NodeId;
use jid::Jid;
use queues::serial_task::SerialTasks;
use ring::hmac;
use store::StoreError;
use throng_core::Node;
use throng_core::server_secret::ServerSecret;
use throng_core::session::flags;

use crate::channel_search::ChannelIndex;
use crate::invitation_registry::InvitationRegistry;
use crate::options::{CreationAccess, ServiceOptions};
use crate::remote_rooms::RemoteRooms;
use crate::removed_accounts::{RemovedAccounts, removed_accounts};
use crate::room_directory::RoomDirectory;
use crate::room_placement::RoomCopies;
use crate::room_sweep::UnwrittenRooms;
use crate::room_task::RoomTask;

/// The tasks of a domain's rooms, by address.
pub(crate) type RoomTasks = SerialTasks<Jid, RoomTask>;

/// State that the tasks of a domain share.
pub(crate) struct RoomShared {
    /// The domain of accounts.
    domain: String,
    options: LeafRwLock<Arc<ServiceOptions>>,
    pub(crate) directory: RoomDirectory,
    pub(crate) copies: RoomCopies,
    pub(crate) invitations: InvitationRegistry,
    pub(crate) channels: ChannelIndex,
    pub(crate) unwritten: UnwrittenRooms,
    pub(crate) remote_rooms: RemoteRooms,
    /// Nodes whose rooms must be asked for: their queues were full.
    pub(crate) nodes_to_ask: LeafMutex<BTreeSet<NodeId>>,
    /// The extension of the node, which is not looked up for each stanza.
    removed_accounts: OnceLock<Arc<RemovedAccounts>>,
    occupant_key: OnceLock<hmac::Key>,
    pub(crate) tasks: OnceLock<Weak<RoomTasks>>,
    is_used: AtomicBool,
}

impl RoomShared {
    pub(crate) fn new(domain: &str, options: ServiceOptions) -> Arc<RoomShared> {
        Arc::new(RoomShared {
            domain: domain.to_owned(),
            options: LeafRwLock::new(Arc::new(options)),
            directory: RoomDirectory::default(),
            copies: RoomCopies::default(),
            invitations: InvitationRegistry::default(),
            channels: ChannelIndex::default(),
            unwritten: UnwrittenRooms::default(),
            remote_rooms: RemoteRooms::default(),
            nodes_to_ask: LeafMutex::default(),
            removed_accounts: OnceLock::new(),
            occupant_key: OnceLock::new(),
            tasks: OnceLock::new(),
            is_used: AtomicBool::new(false),
        })
    }

    /// Whether this is the first call.
    pub(crate) fn is_first_use(&self) -> bool {
        !self.is_used.swap(true, Ordering::Relaxed)
    }

    /// The domain of accounts.
    pub(crate) fn domain(&self) -> &str {
        &self.domain
    }

    /// The tasks of the rooms, while they exist.
    pub(crate) fn tasks(&self) -> Option<Arc<RoomTasks>> {
        self.tasks.get()?.upgrade()
    }

    /// The tasks that report undelivered stanzas.
    pub(crate) fn set_tasks(&self, tasks: &Arc<RoomTasks>) {
        let _ = self.tasks.set(Arc::downgrade(tasks));
    }

    /// The options after a reload.
    pub(crate) fn set_options(&self, options: ServiceOptions) {
        *self.options.write() = Arc::new(options);
    }

    pub(crate) fn options(&self) -> Arc<ServiceOptions> {
        self.options.read().clone()
    }

    /// The removed accounts of the node.
    pub(crate) fn removed_accounts(&self, node: &Node) -> &Arc<RemovedAccounts> {
        self.removed_accounts.get_or_init(|| removed_accounts(node))
    }

    /// The key of occupant ids: the same after a restart, if the server has a secret.
    pub(crate) fn occupant_key(&self, node: &Node) -> &hmac::Key {
        self.occupant_key.get_or_init(|| match node.extensions.get::<ServerSecret>() {
            Some(secret) => secret.key(&format!("occupant-id {}", self.domain)),
            None => hmac::Key::new(hmac::HMAC_SHA256, &base::id::random_bytes::<32>()),
        })
    }

    /// Whether a user may create a room.
    pub(crate) fn may_create(
        &self,
        node: &Node,
        from: &Jid,
        options: &ServiceOptions,
        has_account: bool,
    ) -> bool {
        if node.is_admin(from.as_ref()) {
            return true;
        }
        match options.creation {
            CreationAccess::All => true,
            CreationAccess::Admins => false,
            CreationAccess::Users => from.domain() == self.domain && has_account,
        }
    }

    /// Whether a sender has an account of the domain, which anonymous users (SASL ANONYMOUS) have not. The store is asked about
    /// sessions of other nodes only.
    pub(crate) async fn has_account(&self, node: &Node, from: &Jid) -> Result<bool, StoreError> {
        if from.domain() != self.domain {
            return Ok(false);
        }
        let session = || node.routing_table.find(from.bare())?.session(from.resource()?);
        match session() {
            Some(session) => Ok(!session.flags.has(flags::EPHEMERAL)),
            None => node.stores.accounts.exists(from.bare()).await,
        }
    }
}
