//! Prosody's data folder, versions 0.12 and 13 (`storage = "internal"`): `HOST/STORE/USER.dat` and `.list`, with everything
//! but letters and digits of the names percent-encoded.
//!
//! PEP nodes are read as they are. Besides, vCards and avatars that everybody may see become vCards (XEP-0054), bookmarks become
//! private bookmarks (XEP-0048). That is what mod_vcard_legacy and mod_bookmarks of Prosody answer to clients that know no PEP.
//!
//! Persistent rooms are read from the hosts that are components of mod_muc, and nodes from those of mod_pubsub: the store
//! `pubsub_nodes`, and a list of items `pubsub_NODE` for each node.
//!
//! Not implemented: archives and other stores of [`UNSUPPORTED_STORES`]; the SQL storage of Prosody,
//! which `prosody-migrator` converts into this folder.
//!
//! # Pitfalls
//!
//! Prosody writes while it runs, and keeps rosters of online users in memory. It must be stopped before the import.

mod account;
mod pep;
mod pubsub;
mod room;

use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::percent_encoding::percent_decode;
use jid::Jid;

use self::account::{AccountRecords, OfflineFile};
use crate::{SourceError, SourceRecord, TransferSource};

/// Stores that are read.
const STORES: [&str; 14] = [
    "accounts",
    "roster",
    "private",
    "vcard",
    "blocklist",
    "privacy",
    "offline",
    pep::VCARD,
    pep::AVATAR_METADATA,
    pep::AVATAR_DATA,
    pep::NICKNAME,
    pep::BOOKMARKS,
    pep::OLD_BOOKMARKS,
    pep::STORAGE_BOOKMARKS,
];

/// Stores that are read for accounts which others name: a file here is no account.
const ACCOMPANYING_STORES: [&str; 3] = [pep::CONFIGURATIONS, ACTIVITY, DELETIONS];

/// Times of the last login or logout, by mod_account_activity of Prosody 13.
const ACTIVITY: &str = "account_activity";

/// Accounts that their owners have removed: Prosody 13 disables them and deletes them later.
const DELETIONS: &str = "accounts_cleanup";

/// Rooms, and their vCards.
const ROOMS: &str = "config";
const ROOM_CARDS: &str = "vcard_muc";

/// Nodes of a component.
const PUBSUB_NODES: &str = "pubsub_nodes";

/// Stores that are not read, with what they contain. Names ending in `*` are prefixes.
pub const UNSUPPORTED_STORES: [(&str, &str); 12] = [
    ("archive", "message archives"),
    ("archive_prefs", "preferences of message archives"),
    ("muc_log", "archives of rooms"),
    ("cloud_notify", "push registrations"),
    ("smacks_h", "counters of stream management"),
    ("uploads*", "uploaded files"),
    ("http_file_share", "uploaded files"),
    ("account_roles", "roles of accounts"),
    ("roles", "roles of accounts"),
    ("account_details", "contact details of accounts"),
    ("auth_tokens", "login tokens"),
    ("invite*", "invitations"),
];

/// Stores without data of users, which nobody misses.
const INTERNAL_STORES: [&str; 13] = [
    // Addresses of rooms that are in ROOMS, and the occupants of a server that has stopped.
    "persistent",
    "state",
    "archive_cleanup",
    "muc_log_cleanup",
    "upload_stats",
    "skeletons",
    "cron",
    "tombstones",
    "caps",
    "lastlog*",
    "account_flags",
    "csi*",
    "roster_versions",
];

/// A data folder.
pub struct ProsodyFolder {
    root: PathBuf,
    /// Accounts that are not read yet, in reverse order.
    accounts: Vec<ListedFile>,
    total: usize,
    records: VecDeque<SourceRecord>,
    /// Those of the last account.
    offline: Option<OfflineFile>,
}

/// What is in memory of each owner of the folder.
struct ListedFile {
    host: Arc<HostFolder>,
    /// Name of its files, without ending.
    file: Box<str>,
    kind: FileKind,
}

/// What a data file belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FileKind {
    Account,
    Room,
    PubSubNode,
}

impl ListedFile {
    /// The owner; an error is the report that the name is not valid.
    fn into_owner(self) -> Result<ProsodyOwner, SourceRecord> {
        let ListedFile { host, file, kind } = self;
        let user = percent_decode(&file);
        // A node belongs to its component.
        let local = |user: &str| if kind == FileKind::PubSubNode { None } else { Some(user.to_owned()) };
        match user.map(|user| Jid::from_parts(local(&user).as_deref(), &host.domain, None)) {
            Some(Ok(jid)) => Ok(ProsodyOwner { host, file, jid }),
            _ => {
                let place = host.path.join("*").join(format!("{file}.*")).display().to_string();
                Err(SourceRecord::skipped(place, "its name is not a valid address"))
            }
        }
    }
}

/// An account, a room, or the component of a node.
struct ProsodyOwner {
    host: Arc<HostFolder>,
    /// Name of its files, without ending.
    file: Box<str>,
    jid: Jid,
}

impl ProsodyOwner {
    /// The path of a file; `None` if the host has no such store.
    fn path(&self, store: &str, ending: &str) -> Option<PathBuf> {
        let (_, folder) = self.host.stores.iter().find(|(name, _)| name == store)?;
        Some(self.host.path.join(folder).join(format!("{}.{ending}", self.file)))
    }
}

/// A host with its stores that are read.
struct HostFolder {
    path: PathBuf,
    domain: String,
    /// Names of stores and of their folders, which are percent-encoded.
    stores: Vec<(String, String)>,
    /// Lists of items of the component's nodes: names of the stores, and of their files.
    lists: Vec<(String, String)>,
}

impl ProsodyFolder {
    /// Lists the accounts of a folder.
    ///
    /// # Errors
    /// If it cannot be read or contains no host with accounts.
    pub fn open(root: &Path) -> Result<ProsodyFolder, SourceError> {
        let mut folder = ProsodyFolder {
            root: root.to_owned(),
            accounts: Vec::new(),
            total: 0,
            records: VecDeque::new(),
            offline: None,
        };
        folder.rewind()?;
        if folder.total == 0 {
            return Err(SourceError::Format {
                place: root.display().to_string(),
                expected: "a data folder of Prosody",
                reason: "it contains no accounts; they are in the folder that `data_path` of Prosody's \
                         configuration names, such as /var/lib/prosody"
                    .to_owned(),
            });
        }
        Ok(folder)
    }

    fn list_host(&mut self, folder: &Path, domain: &str) -> Result<(), SourceError> {
        let mut unsupported = Vec::new();
        let (mut stores, mut lists) = (Vec::new(), Vec::new());
        for name in sorted_names(folder)? {
            // Versions before 0.12 did not encode names of stores.
            let store = percent_decode(&name).unwrap_or_else(|| name.clone());
            if let Some(store) = name.strip_suffix(".list")
                && store.starts_with("pubsub_")
            {
                lists.push((percent_decode(store).unwrap_or_else(|| store.to_owned()), name));
                continue;
            }
            if !folder.join(&name).is_dir() || is_listed(&store, &INTERNAL_STORES) {
                continue;
            }
            let is_accompanying = ACCOMPANYING_STORES.contains(&store.as_str());
            if has_no_accounts(&store) {
                stores.push((store, name));
                continue;
            }
            if is_listed(&store, &STORES) || is_accompanying {
                stores.push((store.clone(), name.clone()));
            }
            if is_listed(&store, &STORES) || is_accompanying {
                continue;
            }
            let known = UNSUPPORTED_STORES.iter().find(|(name, _)| is_listed(&store, &[*name]));
            let content = known.map_or("an unknown kind of data", |(_, content)| *content);
            unsupported.push((name, content));
        }
        for (name, content) in unsupported {
            let mut files = sorted_names(&folder.join(&name))?;
            // Indexes of lists, and files that are being written.
            files.retain(|file| !file.ends_with(".lidx") && !file.ends_with('~'));
            if !files.is_empty() {
                let reason = format!("{content} are not implemented; {} files in {name}", files.len());
                self.records.push_back(SourceRecord::skipped(domain, reason));
            }
        }
        // With another authentication than its own, Prosody has the data of a user, and no account.
        let mut files: BTreeSet<Box<str>> = BTreeSet::new();
        for (store, name) in &stores {
            let is_known = is_listed(store, &STORES);
            if !is_known && (ACCOMPANYING_STORES.contains(&store.as_str()) || has_no_accounts(store)) {
                continue;
            }
            for name in sorted_names(&folder.join(name))? {
                if let Some(file) = name.strip_suffix(".dat").or_else(|| name.strip_suffix(".list")) {
                    files.insert(Box::from(file));
                }
            }
        }
        let mut files: Vec<(Box<str>, FileKind)> =
            files.into_iter().map(|file| (file, FileKind::Account)).collect();
        for (of, kind) in [(ROOMS, FileKind::Room), (PUBSUB_NODES, FileKind::PubSubNode)] {
            let Some((_, name)) = stores.iter().find(|(store, _)| store == of) else { continue };
            let names = sorted_names(&folder.join(name))?;
            let names = names.iter().filter_map(|name| name.strip_suffix(".dat"));
            files.extend(names.map(|file| (Box::from(file), kind)));
        }
        let host = Arc::new(HostFolder { path: folder.to_owned(), domain: domain.to_owned(), stores, lists });
        let listed = files.into_iter().map(|(file, kind)| ListedFile { host: host.clone(), file, kind });
        self.accounts.extend(listed);
        Ok(())
    }
}

impl TransferSource for ProsodyFolder {
    fn next_record(&mut self) -> Result<Option<SourceRecord>, SourceError> {
        loop {
            if let Some(record) = self.records.pop_front() {
                return Ok(Some(record));
            }
            if let Some(offline) = &mut self.offline {
                if let Some(record) = offline.next_record() {
                    return Ok(Some(record));
                }
                self.offline = None;
            }
            let Some(account) = self.accounts.pop() else { return Ok(None) };
            let kind = account.kind;
            let account = match account.into_owner() {
                Ok(account) => account,
                Err(report) => return Ok(Some(report)),
            };
            let mut records = AccountRecords { account: &account, records: &mut self.records };
            match kind {
                FileKind::Room => records.read_room(),
                FileKind::PubSubNode => records.read_pubsub_node(),
                FileKind::Account => {
                    records.read();
                    self.offline = records.offline();
                }
            }
        }
    }

    fn rewind(&mut self) -> Result<(), SourceError> {
        self.accounts.clear();
        self.records.clear();
        self.offline = None;
        let root = self.root.clone();
        for name in sorted_names(&root)? {
            let folder = root.join(&name);
            let Some(domain) = percent_decode(&name).filter(|_| folder.is_dir()) else { continue };
            if name.starts_with('_') {
                // `_global` and similar contain no accounts.
                continue;
            }
            match Jid::parse(&domain).ok().filter(Jid::is_domain) {
                Some(domain) => self.list_host(&folder, domain.domain())?,
                None => {
                    let place = folder.display().to_string();
                    self.records.push_back(SourceRecord::skipped(place, "its name is not a domain"));
                }
            }
        }
        self.accounts.reverse();
        self.total = self.accounts.len();
        Ok(())
    }

    fn progress(&self) -> Option<(u64, u64)> {
        Some(((self.total - self.accounts.len()) as u64, self.total as u64))
    }
}

/// Whether the files of a store are no accounts: rooms, nodes of a component, and PEP nodes of accounts.
fn has_no_accounts(store: &str) -> bool {
    matches!(store, ROOMS | ROOM_CARDS | PUBSUB_NODES)
        || store.starts_with(pep::NODE_PREFIX) && !is_listed(store, &STORES)
}

/// Whether a store is on a list; a name ending in `*` is a prefix.
fn is_listed(store: &str, list: &[&str]) -> bool {
    list.iter().any(|name| name.strip_suffix('*').map_or(*name == store, |prefix| store.starts_with(prefix)))
}

/// The names in a folder in a fixed order; those that are not UTF-8 are none of Prosody's.
fn sorted_names(folder: &Path) -> Result<Vec<String>, SourceError> {
    let io = |error| SourceError::Io { place: folder.display().to_string(), error };
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(io)? {
        names.extend(entry.map_err(io)?.file_name().into_string().ok());
    }
    names.sort_unstable();
    Ok(names)
}
