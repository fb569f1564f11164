//! The text file of `ejabberdctl dump`: a term that describes the tables, then a term for each record.
//!
//! Fields are found by the names in the description, since their order differs between versions of ejabberd.
//!
//! # Pitfalls
//!
//! Records of one account are spread over the file, in no order. Those of PubSub nodes name a node by its number: the file is read a
//! second time for them.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use base::Secret;
use jid::Jid;
use store::LastActivity;

use super::pubsub::{OptionsBySubid, field_of_option, pubsub_item, pubsub_node, pubsub_state};
use super::{EjabberdContact, UNSUPPORTED_TABLES, hash_of_name, room_of_options, scram_credentials};
use crate::erlang::{ErlangTerm, TermReader, TermText, parse_term};
use crate::stanza_form::{add_delay, check_message};
use crate::{
    AccountItem, AccountPassword, FormFields, OfflineData, PubSubNodeAddress, PubSubRecord, SourceElement,
    SourceError, SourcePubSubItem, SourcePubSubNode, SourcePubSubState, SourceRecord, TransferSource,
};

const FORMAT: &str = "a dump of ejabberd";

/// A dump.
pub struct EjabberdDump {
    path: PathBuf,
    terms: TermReader<BufReader<File>>,
    size: u64,
    /// Names of the fields of each table.
    tables: HashMap<String, Vec<String>>,
    /// Records of tables that are not read.
    unsupported: BTreeMap<&'static str, u64>,
    records: VecDeque<SourceRecord>,
    nodes: DumpedNodes,
}

/// PubSub nodes of the dump.
#[derive(Default)]
struct DumpedNodes {
    /// Addresses by number.
    addresses: HashMap<String, PubSubNodeAddress>,
    options: OptionsBySubid,
    /// There are records of the second pass.
    needs_second_pass: bool,
    pass: DumpPass,
}

/// A reading of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum DumpPass {
    #[default]
    First,
    /// Only what belongs to PubSub nodes.
    NodeParts,
}

/// A record with the names of its fields.
struct MnesiaRecord<'a> {
    fields: &'a [String],
    values: &'a [ErlangTerm],
}

impl<'a> MnesiaRecord<'a> {
    fn field(&self, name: &str) -> Option<&'a ErlangTerm> {
        let at = self.fields.iter().position(|field| field == name)?;
        self.values.get(at)
    }

    fn text(&self, name: &str) -> String {
        self.field(name).and_then(ErlangTerm::to_text).unwrap_or_default()
    }

    fn atom(&self, name: &str) -> &'a str {
        self.field(name).and_then(ErlangTerm::as_atom).unwrap_or_default()
    }

    /// The account of a key such as `{User, Server}`, which may have further elements.
    fn owner(&self, key: &str) -> Result<Jid, String> {
        let key = self.field(key).and_then(ErlangTerm::as_tuple).unwrap_or_default();
        let [user, server, ..] = key else { return Err("its key is not an account".to_owned()) };
        let (Some(user), Some(server)) = (user.to_text(), server.to_text()) else {
            return Err("its key is not an account".to_owned());
        };
        let jid = Jid::from_parts(Some(&user), &server, None);
        jid.map_err(|error| format!("the address {user}@{server} is not valid: {error}"))
    }
}

impl EjabberdDump {
    /// Opens a dump.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open(path: &Path) -> Result<EjabberdDump, SourceError> {
        let (terms, size) = open_terms(path)?;
        Ok(EjabberdDump {
            path: path.to_owned(),
            terms,
            size,
            tables: HashMap::new(),
            unsupported: BTreeMap::new(),
            records: VecDeque::new(),
            nodes: DumpedNodes::default(),
        })
    }

    /// Reads one term. False at the end.
    fn advance(&mut self) -> Result<bool, SourceError> {
        let place = self.path.display().to_string();
        let term = self.terms.next_term();
        let term = match term.map_err(|error| SourceError::Io { place: place.clone(), error })? {
            None if self.nodes.needs_second_pass && self.nodes.pass == DumpPass::First => {
                self.nodes.pass = DumpPass::NodeParts;
                self.tables.clear();
                (self.terms, self.size) = open_terms(&self.path)?;
                return Ok(true);
            }
            None => {
                for (content, count) in std::mem::take(&mut self.unsupported) {
                    let reason = format!("{content} are not implemented; {count} records");
                    self.records.push_back(SourceRecord::skipped(place.clone(), reason));
                }
                return Ok(false);
            }
            Some(TermText::TooLong) if self.nodes.pass == DumpPass::NodeParts => return Ok(true),
            Some(TermText::TooLong) => {
                let reason = format!("the record in line {} is too large", self.terms.first_line());
                self.records.push_back(SourceRecord::skipped(place, reason));
                return Ok(true);
            }
            Some(TermText::Complete(term)) => term,
        };
        let first_line = self.terms.first_line();
        let term = match parse_term(&term) {
            Ok(term) => term,
            Err(_) if self.nodes.pass == DumpPass::NodeParts => return Ok(true),
            Err(error) => {
                let line = first_line.saturating_add(error.line);
                if self.tables.is_empty() {
                    let place = format!("{place}, line {line}");
                    return Err(SourceError::Format { place, expected: FORMAT, reason: error.to_string() });
                }
                let reason = format!("the record in line {line} is not an Erlang term: {error}");
                self.records.push_back(SourceRecord::skipped(place, reason));
                return Ok(true);
            }
        };
        if self.tables.is_empty() {
            self.tables = read_tables(&term).ok_or_else(|| SourceError::Format {
                place: format!("{place}, line {first_line}"),
                expected: FORMAT,
                reason: "it does not begin with the description of its tables".to_owned(),
            })?;
            return Ok(true);
        }
        let Some([table, values @ ..]) = term.as_tuple() else { return Ok(true) };
        let table = table.as_atom().unwrap_or_default();
        if let Some((_, content)) = UNSUPPORTED_TABLES.iter().find(|(name, _)| *name == table) {
            if self.nodes.pass == DumpPass::NodeParts {
                return Ok(true);
            }
            *self.unsupported.entry(*content).or_default() += 1;
            return Ok(true);
        }
        let Some(fields) = self.tables.get(table) else { return Ok(true) };
        let record = MnesiaRecord { fields, values };
        let read = match table.starts_with("pubsub_") {
            true => self.nodes.read(table, &record),
            // They were read the first time.
            false if self.nodes.pass == DumpPass::NodeParts => return Ok(true),
            false => read_record(table, &record),
        };
        match read {
            Ok(records) => self.records.extend(records),
            Err(reason) => {
                let owner = ["us", "usns", "name_host"].into_iter().find_map(|key| record.owner(key).ok());
                let place = match owner {
                    Some(owner) => owner.as_str().to_owned(),
                    None => format!("{place}, line {first_line}, table {table}"),
                };
                self.records.push_back(SourceRecord::skipped(place, reason));
            }
        }
        Ok(true)
    }
}

impl TransferSource for EjabberdDump {
    fn next_record(&mut self) -> Result<Option<SourceRecord>, SourceError> {
        loop {
            if let Some(record) = self.records.pop_front() {
                return Ok(Some(record));
            }
            if !self.advance()? {
                // The end reports what was not read.
                return Ok(self.records.pop_front());
            }
        }
    }

    fn rewind(&mut self) -> Result<(), SourceError> {
        (self.terms, self.size) = open_terms(&self.path)?;
        self.tables.clear();
        self.unsupported.clear();
        self.records.clear();
        self.nodes = DumpedNodes::default();
        Ok(())
    }

    fn progress(&self) -> Option<(u64, u64)> {
        Some((self.terms.consumed(), self.size))
    }
}

fn open_terms(path: &Path) -> Result<(TermReader<BufReader<File>>, u64), SourceError> {
    let io = |error| SourceError::Io { place: path.display().to_string(), error };
    let file = File::open(path).map_err(io)?;
    let size = file.metadata().map_err(io)?.len();
    Ok((TermReader::new(BufReader::with_capacity(1 << 16, file)), size))
}

/// `{tables, [{Name, [{record_name, Name}, {attributes, [Field]}]}]}`.
fn read_tables(term: &ErlangTerm) -> Option<HashMap<String, Vec<String>>> {
    let [tag, tables] = term.as_tuple()? else { return None };
    if tag.as_atom() != Some("tables") {
        return None;
    }
    let mut found = HashMap::new();
    for table in tables.as_list()? {
        let [name, properties] = table.as_tuple()? else { return None };
        for property in properties.as_list()? {
            let Some([key, fields]) = property.as_tuple() else { continue };
            if key.as_atom() == Some("attributes") {
                let fields = fields.as_list()?.iter().filter_map(ErlangTerm::as_atom).map(str::to_owned);
                found.insert(name.as_atom()?.to_owned(), fields.collect());
            }
        }
    }
    Some(found)
}

fn read_record(table: &str, record: &MnesiaRecord<'_>) -> Result<Vec<SourceRecord>, String> {
    let key = match table {
        "passwd" | "roster" | "vcard" | "privacy" | "offline_msg" | "last_activity" => "us",
        "private_storage" => "usns",
        "muc_room" => return read_room(record),
        _ => return Ok(Vec::new()),
    };
    let owner = record.owner(key)?;
    let mut skipped = None;
    let items = match table {
        "passwd" => {
            vec![AccountItem::Account { password: read_password(record)?, disabled: false }]
        }
        "roster" => read_contact(record).items(&owner)?,
        "private_storage" => vec![AccountItem::Private(read_element(record, "xml")?)],
        "vcard" => vec![AccountItem::Vcard(read_element(record, "vcard")?)],
        "privacy" => {
            let (blocked, rules) = read_privacy(record);
            skipped = (rules > 0).then(|| format!("{rules} privacy rules do more than block an address"));
            vec![AccountItem::Blocked(blocked)]
        }
        "offline_msg" => vec![AccountItem::Offline(read_message(record, &owner)?)],
        _ => {
            let at = record.field("timestamp").and_then(ErlangTerm::as_integer);
            let at = at.and_then(|at| u64::try_from(at).ok()).ok_or("its last activity has no time")?;
            let status = Some(record.text("status")).filter(|status| !status.is_empty());
            vec![AccountItem::LastActivity(LastActivity { at, status })]
        }
    };
    let mut records: Vec<SourceRecord> =
        skipped.into_iter().map(|reason| SourceRecord::skipped(owner.as_str(), reason)).collect();
    records.extend(items.into_iter().map(|item| SourceRecord::Item { owner: owner.clone(), item }));
    Ok(records)
}

impl DumpedNodes {
    /// Nodes and options of subscriptions in the first pass, everything else in the second one.
    fn read(&mut self, table: &str, record: &MnesiaRecord<'_>) -> Result<Vec<SourceRecord>, String> {
        let read = match (table, self.pass) {
            ("pubsub_node", DumpPass::First) => PubSubRecord::Node(self.read_node(record)?),
            ("pubsub_subscription", DumpPass::First) => {
                let options = record.field("options").map(read_fields).unwrap_or_default();
                self.options.insert(record.text("subid"), options);
                return Ok(Vec::new());
            }
            ("pubsub_state" | "pubsub_item", DumpPass::First) => {
                self.needs_second_pass = true;
                return Ok(Vec::new());
            }
            ("pubsub_state", DumpPass::NodeParts) => PubSubRecord::State(self.read_state(record)?),
            ("pubsub_item", DumpPass::NodeParts) => PubSubRecord::Item(self.read_item(record)?),
            _ => return Ok(Vec::new()),
        };
        Ok(vec![SourceRecord::PubSub(Box::new(read))])
    }

    fn read_node(&mut self, record: &MnesiaRecord<'_>) -> Result<SourcePubSubNode, String> {
        let key = record.field("nodeid").and_then(ErlangTerm::as_tuple).unwrap_or_default();
        let [host, node] = key else { return Err("its key is not the name of a node".to_owned()) };
        // Of an account, the host is its address.
        let host = address(host).or_else(|| host.to_text()).ok_or("its host is not an address")?;
        let node = node.to_text().ok_or("its name is not a text")?;
        let owners = record.field("owners").and_then(ErlangTerm::as_list).unwrap_or_default();
        let owners: Vec<String> = owners.iter().filter_map(address).collect();
        let config = record.field("options").map(read_fields).unwrap_or_default();
        let node = pubsub_node(&host, node, &owners, config)?;
        if let Some(number) = record.field("id").and_then(node_number) {
            self.addresses.insert(number, node.address.clone());
        }
        Ok(node)
    }

    /// The node of a key such as `{Something, Number}`, and the other part.
    fn address<'a>(
        &self,
        record: &MnesiaRecord<'a>,
        key: &str,
    ) -> Result<(PubSubNodeAddress, &'a ErlangTerm), String> {
        let key = record.field(key).and_then(ErlangTerm::as_tuple).unwrap_or_default();
        let [of, number] = key else { return Err("its key does not name a node".to_owned()) };
        let found = node_number(number).and_then(|number| self.addresses.get(&number));
        Ok((found.cloned().ok_or("it belongs to a PubSub node that does not exist")?, of))
    }

    fn read_state(&self, record: &MnesiaRecord<'_>) -> Result<SourcePubSubState, String> {
        let (node, jid) = self.address(record, "stateid")?;
        let jid = address(jid).ok_or("its key has no address")?;
        let subscriptions = record.field("subscriptions").and_then(ErlangTerm::as_list).unwrap_or_default();
        let subscriptions = subscriptions.iter().filter_map(|one| match one.as_tuple()? {
            [state, subid] => Some((state.as_atom()?.to_owned(), subid.to_text().unwrap_or_default())),
            _ => None,
        });
        pubsub_state(node, &jid, record.atom("affiliation"), subscriptions, &self.options)
    }

    fn read_item(&self, record: &MnesiaRecord<'_>) -> Result<SourcePubSubItem, String> {
        let (node, id) = self.address(record, "itemid")?;
        let id = id.to_text().ok_or("the id of the item is not a text")?;
        let [at, publisher] =
            ["modification", "creation"].map(|key| record.field(key).and_then(ErlangTerm::as_tuple));
        let (at, publisher) = (at.and_then(<[_]>::first), publisher.and_then(|parts| parts.get(1)));
        let payload = record.field("payload").and_then(ErlangTerm::as_list).unwrap_or_default();
        let payload = match payload.first() {
            None => Vec::new(),
            Some(element) => SourceElement::from_erlang(element)
                .and_then(|element| element.to_xml(""))
                .ok_or_else(|| format!("the item {id} of the node {} is not an element", node.name))?,
        };
        let publisher = publisher.and_then(address).unwrap_or_default();
        Ok(pubsub_item(node, id, &publisher, at.and_then(unix_micros), payload))
    }
}

/// The number of a node, which is a text in some databases.
fn node_number(term: &ErlangTerm) -> Option<String> {
    term.as_integer().map(|number| number.to_string()).or_else(|| term.to_text())
}

/// A list of options.
fn read_fields(options: &ErlangTerm) -> FormFields {
    let field = |option: &ErlangTerm| match option.as_tuple()? {
        [name, value] => field_of_option(name.as_atom()?, value),
        _ => None,
    };
    options.as_list().unwrap_or_default().iter().filter_map(field).collect()
}

fn read_room(record: &MnesiaRecord<'_>) -> Result<Vec<SourceRecord>, String> {
    let jid = record.owner("name_host")?;
    let options = record.field("opts").ok_or("it has no options")?;
    let (room, skipped) = room_of_options(jid, options)?;
    let reason = || format!("{skipped} affiliations of the room are not valid");
    let report = (skipped > 0).then(|| SourceRecord::skipped(room.jid.as_str(), reason()));
    Ok(report.into_iter().chain([SourceRecord::Room(Box::new(room))]).collect())
}

/// A text, or `{scram, StoredKey, ServerKey, Salt, [Hash,] Iterations}`.
fn read_password(record: &MnesiaRecord<'_>) -> Result<AccountPassword, String> {
    let stored = record.field("password").ok_or("it has no password")?;
    let Some(keys) = stored.as_tuple() else {
        let password = stored.to_text().filter(|password| !password.is_empty());
        return Ok(password
            .map_or(AccountPassword::Missing, |password| AccountPassword::Plain(Secret::from(password))));
    };
    let (stored_key, server_key, salt, hash, iterations) = match keys {
        [_, stored, server, salt, iterations] => (stored, server, salt, "sha", iterations),
        [_, stored, server, salt, hash, iterations] => {
            (stored, server, salt, hash.as_atom().unwrap_or_default(), iterations)
        }
        _ => return Err("its keys have an unknown form".to_owned()),
    };
    let hash = hash_of_name(hash).ok_or("its keys have an unknown hash")?;
    let iterations = iterations.as_integer().and_then(|number| u32::try_from(number).ok());
    let texts = [stored_key, server_key, salt].map(|term| term.to_text().unwrap_or_default());
    let [stored_key, server_key, salt] = &texts;
    let keys = scram_credentials(hash, stored_key, server_key, salt, iterations.unwrap_or(0))?;
    Ok(AccountPassword::Scram(Box::new(keys)))
}

fn read_contact(record: &MnesiaRecord<'_>) -> EjabberdContact {
    let groups = record.field("groups").and_then(ErlangTerm::as_list).unwrap_or_default();
    EjabberdContact {
        jid: record.field("jid").and_then(address).unwrap_or_default(),
        name: record.text("name"),
        subscription: record.atom("subscription").to_owned(),
        ask: record.atom("ask").to_owned(),
        approved: record.atom("approved") == "true",
        groups: groups.iter().filter_map(ErlangTerm::to_text).collect(),
        message: record.text("askmessage"),
    }
}

/// An address of a tuple `{User, Server, Resource}` or a record `{jid, User, Server, Resource, …}`.
fn address(term: &ErlangTerm) -> Option<String> {
    let parts = term.as_tuple()?;
    let parts = if parts.first()?.as_atom() == Some("jid") { parts.get(1..)? } else { parts };
    let [user, server, resource, ..] = parts else { return None };
    let (user, server, resource) = (user.to_text()?, server.to_text()?, resource.to_text()?);
    let local = if user.is_empty() { user } else { format!("{user}@") };
    Some(if resource.is_empty() { format!("{local}{server}") } else { format!("{local}{server}/{resource}") })
}

fn read_element(record: &MnesiaRecord<'_>, field: &str) -> Result<Vec<u8>, String> {
    let element = record.field(field).and_then(SourceElement::from_erlang);
    element.and_then(|element| element.to_xml("")).ok_or_else(|| format!("its {field} is not an element"))
}

/// The addresses that the default list blocks, and the number of its other denying rules. Rules are
/// `{listitem, Type, Value, Action, Order, MatchAll, MatchIq, MatchMessage, MatchPresenceIn, MatchPresenceOut}`.
fn read_privacy(record: &MnesiaRecord<'_>) -> (Vec<Jid>, usize) {
    let default = record.field("default").and_then(ErlangTerm::to_text);
    let lists = record.field("lists").and_then(ErlangTerm::as_list).unwrap_or_default();
    let list = lists.iter().find_map(|list| match list.as_tuple()? {
        [name, rules] if default.is_some() && name.to_text() == default => rules.as_list(),
        _ => None,
    });
    let mut blocked = Vec::new();
    let mut skipped = 0;
    for rule in list.unwrap_or_default() {
        let Some([_, kind, value, action, _, matches @ ..]) = rule.as_tuple() else { continue };
        if action.as_atom() != Some("deny") {
            continue;
        }
        let is_true = |at: usize| matches.get(at).and_then(ErlangTerm::as_atom) == Some("true");
        let everything = is_true(0) || (1..5).all(is_true);
        match address(value).and_then(|address| Jid::from_stored(&address).ok()) {
            Some(jid) if kind.as_atom() == Some("jid") && everything => blocked.push(jid),
            _ => skipped += 1,
        }
    }
    (blocked, skipped)
}

fn read_message(record: &MnesiaRecord<'_>, owner: &Jid) -> Result<OfflineData, String> {
    let element = record.field("packet").and_then(SourceElement::from_erlang);
    let mut element = element.ok_or("an offline message is not an element")?;
    for (name, field) in [("from", "from"), ("to", "to")] {
        if element.attribute(name).is_none()
            && let Some(address) = record.field(field).and_then(address)
        {
            element.attributes.push((name.to_owned(), address));
        }
    }
    let stored_at = record.field("timestamp").and_then(unix_millis);
    if let Some(stored_at) = stored_at {
        add_delay(&mut element, owner.domain(), stored_at);
    }
    let stanza = element.to_xml("jabber:client").ok_or("an offline message is not valid XML")?;
    check_message(&stanza).map_err(|reason| format!("an offline message: {reason}"))?;
    Ok(OfflineData { stanza, stored_at, expires: record.field("expire").and_then(unix_millis) })
}

fn unix_millis(term: &ErlangTerm) -> Option<u64> {
    unix_micros(term).map(|micros| micros / 1000)
}

/// `{MegaSeconds, Seconds, MicroSeconds}`.
fn unix_micros(term: &ErlangTerm) -> Option<u64> {
    let [mega, seconds, micros] = term.as_tuple()? else { return None };
    let part = |term: &ErlangTerm| u64::try_from(term.as_integer()?).ok();
    let seconds = part(mega)?.checked_mul(1_000_000)?.checked_add(part(seconds)?)?;
    seconds.checked_mul(1_000_000)?.checked_add(part(micros)?)
}
