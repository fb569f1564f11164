//! The stores of one account, except for its offline messages, which are read one by one.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::PathBuf;

use base::Secret;
use jid::Jid;
use sasl::Credentials;
use store::{LastActivity, Subscription};

use super::pep::is_bookmarks;
use super::room::read_room;
use super::{ACTIVITY, DELETIONS, ProsodyOwner, ROOM_CARDS, ROOMS};
use crate::lua::{LuaTable, LuaValue, parse_value};
use crate::lua_list::{LuaListItem, LuaListReader};
use crate::scram_keys::add_hex;
use crate::stanza_form::{add_delay, check_message, check_request};
use crate::{
    AccountItem, AccountPassword, ContactData, ContactRequest, OfflineData, PubSubRecord, SourceElement,
    SourceRecord,
};

/// Largest `.dat` file that is read, in bytes: four for each byte of the largest stanza. Files of one account are far smaller.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// Records of one account.
pub(super) struct AccountRecords<'a> {
    pub(super) account: &'a ProsodyOwner,
    pub(super) records: &'a mut VecDeque<SourceRecord>,
}

impl AccountRecords<'_> {
    /// Reads everything but offline messages.
    pub(super) fn read(&mut self) {
        if let Some(stored) = self.table("accounts") {
            let item = self.read_password(&stored);
            self.item(item);
            if is_disabled(&stored) && self.table(DELETIONS).is_some() {
                self.skip(
                    "its owner has removed it, and Prosody would have deleted it later; it is imported as disabled",
                );
            }
        }
        if let Some(roster) = self.table("roster") {
            self.read_roster(&roster);
        }
        // Prosody answers requests for private bookmarks from the node.
        let bookmarks = self.read_bookmarks();
        if let Some(values) = self.table("private") {
            for (_, value) in values.pairs() {
                match self.element(value, "") {
                    Some(bytes) if bookmarks.is_none() || !is_bookmarks(value) => {
                        self.item(AccountItem::Private(bytes));
                    }
                    Some(_) => self.skip("the private bookmarks: those of the PEP node were imported"),
                    None => self.skip("a private value is not an element"),
                }
            }
        }
        if let Some(bookmarks) = bookmarks {
            self.item(AccountItem::Private(bookmarks));
        }
        let card = self.table("vcard");
        if let Some(card) = card {
            match self.element(&LuaValue::Table(card), "") {
                Some(bytes) => self.item(AccountItem::Vcard(bytes)),
                None => self.skip("the vCard is not an element"),
            }
        } else if let Some(card) = self.read_profile() {
            self.item(AccountItem::Vcard(card));
        }
        match self.table("blocklist") {
            Some(blocklist) => self.read_blocklist(&blocklist),
            // Prosody converts these lists when their owners log in.
            None => {
                if let Some(lists) = self.table("privacy") {
                    self.read_privacy(&lists);
                }
            }
        }
        let activity = self.table(ACTIVITY);
        if let Some(at) = activity.and_then(|activity| activity.get("timestamp")?.as_u64()) {
            self.item(AccountItem::LastActivity(LastActivity { at, status: None }));
        }
        self.read_pep_nodes();
    }

    /// Reads the account's files as those of a room.
    pub(super) fn read_room(&mut self) {
        let Some(stored) = self.table(ROOMS) else { return };
        let (mut room, skipped) = match read_room(self.account.jid.clone(), &stored) {
            Ok(found) => found,
            Err(reason) => return self.skip(format!("the room: {reason}")),
        };
        if skipped > 0 {
            self.skip(format!("{skipped} affiliations of the room are not valid"));
        }
        if let Some(card) = self.table(ROOM_CARDS) {
            room.vcard = self.element(&LuaValue::Table(card), "");
        }
        self.records.push_back(SourceRecord::Room(Box::new(room)));
    }

    /// Adds a part of a PubSub node.
    pub(super) fn pubsub(&mut self, record: PubSubRecord) {
        self.records.push_back(SourceRecord::PubSub(Box::new(record)));
    }

    /// The offline messages; `None` if there are none.
    pub(super) fn offline(&mut self) -> Option<OfflineFile> {
        let (file, path) = self.open("offline", "list")?;
        let reader = LuaListReader::new(BufReader::with_capacity(1 << 16, file));
        Some(OfflineFile { reader, path, owner: self.account.jid.clone() })
    }

    fn item(&mut self, item: AccountItem) {
        self.records.push_back(SourceRecord::Item { owner: self.account.jid.clone(), item });
    }

    pub(super) fn skip(&mut self, reason: impl Into<String>) {
        self.records.push_back(SourceRecord::skipped(self.account.jid.as_str(), reason));
    }

    /// A file; `None` if there is none or it cannot be opened.
    fn open(&mut self, store: &str, ending: &str) -> Option<(File, PathBuf)> {
        let path = self.account.path(store, ending)?;
        // Anything else than a file could block.
        let opened = std::fs::metadata(&path).and_then(|found| {
            if found.is_file() { File::open(&path) } else { Err(std::io::ErrorKind::InvalidInput.into()) }
        });
        match opened {
            Ok(file) => Some((file, path)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => {
                self.skip(format!("cannot read {}: {error}", path.display()));
                None
            }
        }
    }

    /// The table of a `.dat` file.
    pub(super) fn table(&mut self, store: &str) -> Option<LuaTable> {
        let (file, path) = self.open(store, "dat")?;
        let mut text = Vec::new();
        let read = file.take(MAX_FILE_BYTES + 1).read_to_end(&mut text);
        let reason = match read {
            Err(error) => format!("cannot read {}: {error}", path.display()),
            Ok(size) if size as u64 > MAX_FILE_BYTES => {
                format!("{} has more than {MAX_FILE_BYTES} bytes", path.display())
            }
            Ok(_) => match parse_value(&text) {
                Ok(LuaValue::Table(table)) => return Some(table),
                Ok(_) => return None,
                Err(error) => format!("{} is not a file of Prosody: {error}", path.display()),
            },
        };
        self.skip(reason);
        None
    }

    /// The items of a `.list` file, one by one; what cannot be read is reported.
    pub(super) fn each_item(&mut self, store: &str, take: impl FnMut(&mut Self, LuaValue)) {
        let Some((file, path)) = self.open(store, "list") else { return };
        self.each_item_in(file, path, take);
    }

    /// The same for a file.
    pub(super) fn each_item_of(&mut self, path: PathBuf, take: impl FnMut(&mut Self, LuaValue)) {
        match File::open(&path) {
            Ok(file) => self.each_item_in(file, path, take),
            Err(error) => self.skip(format!("cannot read {}: {error}", path.display())),
        }
    }

    fn each_item_in(&mut self, file: File, path: PathBuf, mut take: impl FnMut(&mut Self, LuaValue)) {
        let mut reader = LuaListReader::new(BufReader::with_capacity(1 << 16, file));
        loop {
            match reader.next_item() {
                Ok(Some(LuaListItem::Value(value))) => take(self, value),
                Ok(Some(other)) => self.skip(list_fault(&path, &other)),
                Ok(None) => return,
                Err(error) => {
                    self.skip(format!("cannot read {}: {error}", path.display()));
                    return;
                }
            }
        }
    }

    /// An element as XML for a place with this default namespace.
    pub(super) fn element(&self, value: &LuaValue, ns: &str) -> Option<Vec<u8>> {
        SourceElement::from_lua(value.as_table()?)?.to_xml(ns)
    }

    fn read_password(&mut self, stored: &LuaTable) -> AccountItem {
        let plain = stored.text("password").filter(|password| !password.is_empty());
        let password = match plain {
            Some(password) => AccountPassword::Plain(Secret::from(password)),
            None => self.read_keys(stored),
        };
        AccountItem::Account { password, disabled: is_disabled(stored) }
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
            if is_broken(key) {
                self.skip("the address of a contact is not UTF-8");
            }
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
                Ok(jid) => {
                    let labels = item.get("name").into_iter().chain(group_names(item));
                    let broken = labels.filter(|label| is_broken(label)).count();
                    if broken > 0 {
                        self.skip(format!("{broken} names or groups of the contact {jid} are not UTF-8"));
                    }
                    self.item(AccountItem::Contact(read_contact(jid.bare().to_jid(), item)));
                }
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

    fn read_blocklist(&mut self, blocklist: &LuaTable) {
        let mut blocked = Vec::new();
        let mut wrong = 0;
        for (key, value) in blocklist.pairs() {
            // The key `false` is of metadata, and the value `false` of an address that was removed.
            if *key == LuaValue::Boolean(false) || *value == LuaValue::Boolean(false) {
                continue;
            }
            match key.as_str().map(Jid::from_stored) {
                Some(Ok(jid)) => blocked.push(jid),
                _ => wrong += 1,
            }
        }
        if wrong > 0 {
            self.skip(format!("{wrong} blocked addresses are not valid"));
        }
        self.item(AccountItem::Blocked(blocked));
    }
}

/// The offline messages of an account.
pub(super) struct OfflineFile {
    reader: LuaListReader<BufReader<File>>,
    path: PathBuf,
    owner: Jid,
}

impl OfflineFile {
    /// The next message or report; `None` at the end.
    pub(super) fn next_record(&mut self) -> Option<SourceRecord> {
        let owner = &self.owner;
        let skipped = |reason: String| SourceRecord::skipped(owner.as_str(), reason);
        match self.reader.next_item() {
            Ok(None) => None,
            Ok(Some(LuaListItem::Value(item))) => Some(match read_message(&item, owner.domain()) {
                Ok(message) => {
                    SourceRecord::Item { owner: owner.clone(), item: AccountItem::Offline(message) }
                }
                Err(reason) => skipped(format!("an offline message: {reason}")),
            }),
            Ok(Some(other)) => Some(skipped(list_fault(&self.path, &other))),
            Err(error) => {
                let reason = format!("cannot read {}: {error}", self.path.display());
                let record = skipped(reason);
                self.reader.end();
                Some(record)
            }
        }
    }
}

fn is_disabled(stored: &LuaTable) -> bool {
    stored.get("disabled") == Some(&LuaValue::Boolean(true))
}

/// What is wrong with an item of a list.
fn list_fault(path: &std::path::Path, item: &LuaListItem) -> String {
    let path = path.display();
    match item {
        LuaListItem::TooLong(line) => format!("an item in line {line} of {path} is too large"),
        LuaListItem::Broken(error) => format!("{path} is cut off: {error}; what follows is not read"),
        LuaListItem::Value(_) => format!("an item of {path}"),
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
    let mut groups: Vec<String> = group_names(item)
        .filter_map(LuaValue::as_str)
        .filter(|group| !group.is_empty())
        .map(str::to_owned)
        .collect();
    // They are keys of a table, which has no order.
    groups.sort_unstable();
    let name = item.text("name").filter(|name| !name.is_empty()).map(str::to_owned);
    ContactData { jid, name, groups, subscription }
}

/// The names of the groups of a contact.
fn group_names(item: &LuaTable) -> impl Iterator<Item = &LuaValue> {
    let groups = item.get("groups").and_then(LuaValue::as_table).map(LuaTable::pairs).unwrap_or_default();
    groups.iter().map(|(group, _)| group)
}

/// Whether a string is not UTF-8.
fn is_broken(value: &LuaValue) -> bool {
    matches!(value, LuaValue::Text(_)) && value.as_str().is_none()
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
