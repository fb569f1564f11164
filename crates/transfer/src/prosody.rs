//! Prosody's data folder, versions 0.12 and 13 (`storage = "internal"`): `HOST/STORE/USER.dat` and `.list`, with everything
//! but letters and digits of the names percent-encoded.
//!
//! Not implemented: archives, PEP, rooms and other stores of [`UNSUPPORTED_STORES`]; the SQL storage of Prosody, which
//! `prosodyctl`'s migrator converts into this folder.
//!
//! # Pitfalls
//!
//! Prosody writes while it runs, and keeps rosters of online users in memory. It must be stopped before the import.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use base::Secret;
use base::percent_encoding::percent_decode;
use jid::Jid;
use sasl::Credentials;
use store::Subscription;

use crate::lua::{LuaTable, LuaValue, parse_list, parse_value};
use crate::scram_keys::add_hex;
use crate::stanza_form::{add_delay, check_message, check_request};
use crate::{
    AccountItem, AccountPassword, ContactData, ContactRequest, OfflineData, SourceElement, SourceError,
    SourceRecord, TransferSource,
};

/// Largest file that is read, in bytes. Files of one account are far smaller.
const MAX_FILE_BYTES: u64 = 256 << 20;

/// Stores that are read.
const STORES: [&str; 7] = ["accounts", "roster", "private", "vcard", "blocklist", "privacy", "offline"];

/// Stores that are not read, with what they contain. Names ending in `*` are prefixes.
pub const UNSUPPORTED_STORES: [(&str, &str); 14] = [
    ("archive", "message archives"),
    ("archive_prefs", "preferences of message archives"),
    ("muc_log", "archives of rooms"),
    ("config", "rooms"),
    ("persistent", "lists of rooms"),
    ("pep*", "PEP nodes"),
    ("pubsub*", "PubSub nodes"),
    ("cloud_notify", "push registrations"),
    ("smacks_h", "counters of stream management"),
    ("uploads*", "uploaded files"),
    ("account_roles", "roles of accounts"),
    ("account_details", "contact details of accounts"),
    ("auth_tokens", "login tokens"),
    ("invite*", "invitations"),
];

/// Stores without data of users, which nobody misses.
const INTERNAL_STORES: [&str; 8] = [
    "cron",
    "tombstones",
    "caps",
    "lastlog*",
    "account_activity",
    "account_flags",
    "csi*",
    "roster_versions",
];

/// A data folder.
pub struct ProsodyFolder {
    root: PathBuf,
    /// Accounts that are not read yet, in reverse order.
    accounts: Vec<ProsodyAccount>,
    total: usize,
    records: VecDeque<SourceRecord>,
}

struct ProsodyAccount {
    folder: PathBuf,
    /// Name of its files, without ending.
    file: String,
    jid: Jid,
}

impl ProsodyFolder {
    /// Lists the accounts of a folder.
    ///
    /// # Errors
    /// If it cannot be read or contains no host with accounts.
    pub fn open(root: &Path) -> Result<ProsodyFolder, SourceError> {
        let mut folder =
            ProsodyFolder { root: root.to_owned(), accounts: Vec::new(), total: 0, records: VecDeque::new() };
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
        for store in sorted_names(folder)? {
            if !folder.join(&store).is_dir()
                || STORES.contains(&store.as_str())
                || is_listed(&store, &INTERNAL_STORES)
            {
                continue;
            }
            let known = UNSUPPORTED_STORES.iter().find(|(name, _)| is_listed(&store, &[*name]));
            let content = known.map_or("an unknown kind of data", |(_, content)| *content);
            unsupported.push((store, content));
        }
        for (store, content) in unsupported {
            let files = sorted_names(&folder.join(&store))?.len();
            let reason = format!("{content} are not implemented; {files} files in {store}");
            self.records.push_back(SourceRecord::skipped(domain, reason));
        }
        let accounts = folder.join("accounts");
        if !accounts.is_dir() {
            return Ok(());
        }
        for name in sorted_names(&accounts)? {
            let Some(file) = name.strip_suffix(".dat") else { continue };
            let user = percent_decode(file);
            let jid = user.as_deref().map(|user| Jid::from_parts(Some(user), domain, None));
            match jid {
                Some(Ok(jid)) => {
                    self.accounts.push(ProsodyAccount {
                        folder: folder.to_owned(),
                        file: file.to_owned(),
                        jid,
                    });
                }
                _ => {
                    let place = accounts.join(&name).display().to_string();
                    self.records.push_back(SourceRecord::skipped(place, "its name is not a valid address"));
                }
            }
        }
        Ok(())
    }

    fn read_account(&mut self, account: &ProsodyAccount) {
        let mut records = AccountRecords { account, records: &mut self.records };
        if let Some(stored) = records.table("accounts") {
            let item = records.read_password(&stored);
            records.item(item);
        }
        if let Some(roster) = records.table("roster") {
            records.read_roster(&roster);
        }
        if let Some(values) = records.table("private") {
            for (_, value) in values.pairs() {
                match records.element(value, "") {
                    Some(bytes) => records.item(AccountItem::Private(bytes)),
                    None => records.skip("a private value is not an element"),
                }
            }
        }
        if let Some(card) = records.table("vcard") {
            match records.element(&LuaValue::Table(card), "") {
                Some(bytes) => records.item(AccountItem::Vcard(bytes)),
                None => records.skip("the vCard is not an element"),
            }
        }
        match records.table("blocklist") {
            Some(blocklist) => {
                let addresses =
                    blocklist.pairs().iter().filter(|(_, value)| *value != LuaValue::Boolean(false));
                let addresses =
                    addresses.filter_map(|(key, _)| Jid::from_stored(key.as_str()?).ok()).collect();
                records.item(AccountItem::Blocked(addresses));
            }
            // Prosody converts these lists when their owners log in.
            None => {
                if let Some(lists) = records.table("privacy") {
                    records.read_privacy(&lists);
                }
            }
        }
        records.read_offline();
    }
}

impl TransferSource for ProsodyFolder {
    fn next_record(&mut self) -> Result<Option<SourceRecord>, SourceError> {
        loop {
            if let Some(record) = self.records.pop_front() {
                return Ok(Some(record));
            }
            let Some(account) = self.accounts.pop() else { return Ok(None) };
            self.read_account(&account);
        }
    }

    fn rewind(&mut self) -> Result<(), SourceError> {
        self.accounts.clear();
        self.records.clear();
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

/// Records of one account.
struct AccountRecords<'a> {
    account: &'a ProsodyAccount,
    records: &'a mut VecDeque<SourceRecord>,
}

impl AccountRecords<'_> {
    fn item(&mut self, item: AccountItem) {
        self.records.push_back(SourceRecord::Item { owner: self.account.jid.clone(), item });
    }

    fn skip(&mut self, reason: impl Into<String>) {
        self.records.push_back(SourceRecord::skipped(self.account.jid.as_str(), reason));
    }

    /// The text of a file; `None` if there is none or it cannot be read.
    fn file(&mut self, store: &str, ending: &str) -> Option<Vec<u8>> {
        let path = self.account.folder.join(store).join(format!("{}.{ending}", self.account.file));
        let size = std::fs::metadata(&path).ok()?.len();
        let read = if size > MAX_FILE_BYTES {
            Err("it is too large".to_owned())
        } else {
            std::fs::read(&path).map_err(|error| error.to_string())
        };
        match read {
            Ok(text) => Some(text),
            Err(reason) => {
                self.skip(format!("cannot read {}: {reason}", path.display()));
                None
            }
        }
    }

    /// The table of a `.dat` file.
    fn table(&mut self, store: &str) -> Option<LuaTable> {
        let text = self.file(store, "dat")?;
        match parse_value(&text) {
            Ok(LuaValue::Table(table)) => Some(table),
            Ok(_) => None,
            Err(error) => {
                self.skip(format!("{store} is not a file of Prosody: {error}"));
                None
            }
        }
    }

    /// An element as XML for a place with this default namespace.
    fn element(&self, value: &LuaValue, ns: &str) -> Option<Vec<u8>> {
        SourceElement::from_lua(value.as_table()?)?.to_xml(ns)
    }

    fn read_password(&mut self, stored: &LuaTable) -> AccountItem {
        let disabled = stored.get("disabled") == Some(&LuaValue::Boolean(true));
        let plain = stored.text("password").filter(|password| !password.is_empty());
        let password = match plain {
            Some(password) => AccountPassword::Plain(Secret::from(password)),
            None => self.read_keys(stored),
        };
        AccountItem::Account { password, disabled }
    }

    fn read_keys(&mut self, stored: &LuaTable) -> AccountPassword {
        let number = stored.get("iteration_count").and_then(LuaValue::as_u64);
        let iterations = number.and_then(|number| u32::try_from(number).ok());
        // The salt is bytes; the server itself makes texts.
        let salt = match stored.get("salt") {
            Some(LuaValue::Text(salt)) => Some(salt),
            _ => None,
        };
        let (Some(iterations), Some(salt), Some(stored_key), Some(server_key)) =
            (iterations, salt, stored.text("stored_key"), stored.text("server_key"))
        else {
            self.skip("it has neither a password nor keys");
            return AccountPassword::Missing;
        };
        let mut keys = Credentials::default();
        match add_hex(&mut keys, salt, iterations, stored_key, server_key) {
            Ok(()) => AccountPassword::Scram(Box::new(keys)),
            Err(reason) => {
                self.skip(reason);
                AccountPassword::Missing
            }
        }
    }

    fn read_roster(&mut self, roster: &LuaTable) {
        let mut pending: Vec<&LuaTable> = Vec::new();
        pending.extend(roster.metadata().and_then(|metadata| metadata.get("pending")?.as_table()));
        for (key, value) in roster.pairs() {
            let (Some(address), Some(item)) = (key.as_str(), value.as_table()) else { continue };
            // Before 0.10 the requests were an entry beside the contacts.
            if address == "pending" && item.text("subscription").is_none() {
                pending.push(item);
                continue;
            }
            if item.get("persist") == Some(&LuaValue::Boolean(false)) {
                continue;
            }
            match Jid::from_stored(address) {
                Ok(jid) if jid.bare() == self.account.jid => {}
                Ok(jid) => self.item(AccountItem::Contact(read_contact(jid.bare().to_jid(), item))),
                Err(error) => self.skip(format!("the contact {address} is not valid: {error}")),
            }
        }
        for (key, value) in pending.into_iter().flat_map(LuaTable::pairs) {
            let Some(address) = key.as_str() else { continue };
            match Jid::from_stored(address) {
                Ok(from) => {
                    let stanza = self.element(value, "jabber:client");
                    let stanza = stanza.filter(|stanza| check_request(stanza).is_ok());
                    self.item(AccountItem::Request(ContactRequest { from: from.bare().to_jid(), stanza }));
                }
                Err(error) => self.skip(format!("the request of {address} is not valid: {error}")),
            }
        }
    }

    /// The addresses that the default list of mod_privacy denies, as mod_blocklist converts it.
    fn read_privacy(&mut self, stored: &LuaTable) {
        let list =
            stored.text("default").and_then(|name| stored.get("lists")?.as_table()?.get(name)?.as_table());
        let Some(items) = list.and_then(|list| list.get("items")?.as_table()) else { return };
        let mut blocked = Vec::new();
        let mut skipped = 0;
        for (_, item) in items.pairs() {
            let item = item.as_table();
            let text = |key: &str| item.and_then(|item| item.text(key));
            match text("value").and_then(|value| Jid::from_stored(value).ok()) {
                Some(jid) if text("type") == Some("jid") && text("action") == Some("deny") => {
                    blocked.push(jid)
                }
                _ => skipped += usize::from(text("action") == Some("deny")),
            }
        }
        if skipped > 0 {
            self.skip(format!("{skipped} privacy rules do more than block an address"));
        }
        self.item(AccountItem::Blocked(blocked));
    }

    fn read_offline(&mut self) {
        let Some(text) = self.file("offline", "list") else { return };
        let (items, error) = parse_list(&text);
        if let Some(error) = error {
            self.skip(format!("offline messages are cut off: {error}"));
        }
        let domain = self.account.jid.domain().to_owned();
        for item in &items {
            match read_message(item, &domain) {
                Ok(message) => self.item(AccountItem::Offline(message)),
                Err(reason) => self.skip(format!("an offline message: {reason}")),
            }
        }
    }
}

fn read_contact(jid: Jid, item: &LuaTable) -> ContactData {
    let mut subscription = Subscription::IN_ROSTER
        | match item.text("subscription") {
            Some("to") => Subscription::TO,
            Some("from") => Subscription::FROM,
            Some("both") => Subscription::BOTH,
            _ => Subscription::NONE,
        };
    if item.text("ask") == Some("subscribe") && !subscription.contains(Subscription::TO) {
        subscription = subscription | Subscription::PENDING_OUT;
    }
    if item.text("approved") == Some("true") || item.get("approved") == Some(&LuaValue::Boolean(true)) {
        subscription = subscription | Subscription::APPROVED;
    }
    let groups = item.get("groups").and_then(LuaValue::as_table).map(LuaTable::pairs).unwrap_or_default();
    let mut groups: Vec<String> = groups
        .iter()
        .filter_map(|(group, _)| group.as_str())
        .filter(|group| !group.is_empty())
        .map(str::to_owned)
        .collect();
    // They are keys of a table, which has no order.
    groups.sort_unstable();
    let name = item.text("name").filter(|name| !name.is_empty()).map(str::to_owned);
    ContactData { jid, name, groups, subscription }
}

fn read_message(item: &LuaValue, domain: &str) -> Result<OfflineData, String> {
    let table = item.as_table().ok_or("it is not an element")?;
    let mut element = SourceElement::from_lua(table).ok_or("it is not an element")?;
    let stamp = element.remove_attribute("stamp");
    element.remove_attribute("stamp_legacy");
    let seconds = table.get("when").and_then(LuaValue::as_u64);
    let stamp =
        stamp.and_then(|stamp| u64::try_from(stanza::payload::datetime::parse_datetime(&stamp)?).ok());
    let stored_at = seconds.map(|seconds| seconds.saturating_mul(1000)).or(stamp);
    if let Some(stored_at) = stored_at {
        add_delay(&mut element, domain, stored_at);
    }
    let stanza = element.to_xml("jabber:client").ok_or("it is not valid XML")?;
    check_message(&stanza)?;
    Ok(OfflineData { stanza, stored_at, expires: None })
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
