//! PubSub nodes of mod_pubsub and mod_pep: a table with `config`, `affiliations` and `subscribers`, and a list of items with the
//! id of each as `key`, its publisher as `with`, and its time as `when`.
//!
//! # Pitfalls
//!
//! Values of the configuration that are the defaults of Prosody may be missing. They differ from those here.

use std::collections::BTreeSet;

use jid::Jid;

use super::account::AccountRecords;
use super::pep::{CONFIGURATIONS, NODE_PREFIX};
use crate::lua::{LuaTable, LuaValue};
use crate::{
    FormFields, PubSubNodeAddress, PubSubRecord, SourceElement, SourcePubSubItem, SourcePubSubNode,
    SourcePubSubState, SourceSubscription,
};

/// Names of the configuration that differ from those of the form without `pubsub#`.
const NAMES: [(&str, &str); 4] = [
    ("payload_type", "type"),
    ("notify_items", "deliver_notifications"),
    ("include_payload", "deliver_payloads"),
    ("message_type", "notification_type"),
];

/// Prosody's defaults where they differ from those here.
const DEFAULTS_OF_ACCOUNTS: [(&str, &str); 1] = [("max_items", "1")];
const DEFAULTS_OF_SERVICES: [(&str, &str); 2] = [("max_items", "20"), ("persist_items", "0")];

impl AccountRecords<'_> {
    /// The nodes of an account.
    pub(super) fn read_pep_nodes(&mut self) {
        let configurations = self.table(CONFIGURATIONS);
        let mut names: BTreeSet<String> = BTreeSet::new();
        for (name, _) in configurations.as_ref().map(LuaTable::pairs).unwrap_or_default() {
            names.extend(name.as_str().map(str::to_owned));
        }
        let stores: Vec<String> = self.account.host.stores.iter().map(|(store, _)| store.clone()).collect();
        for store in stores {
            let has_items = || self.account.path(&store, "list").is_some_and(|path| path.is_file());
            if let Some(node) = store.strip_prefix(NODE_PREFIX).filter(|_| has_items()) {
                names.insert(node.to_owned());
            }
        }
        for node in names {
            let address = PubSubNodeAddress { service: self.account.jid.clone(), name: node.clone() };
            // Old versions have `true` in place of a table.
            let stored = configurations.as_ref().and_then(|all| all.get(&node)?.as_table());
            self.add_node(&address, stored, &DEFAULTS_OF_ACCOUNTS);
            let mut seq = 0;
            self.each_item(&format!("{NODE_PREFIX}{node}"), |records, item| {
                seq += 1;
                records.add_item(&address, seq, &item);
            });
        }
    }

    /// A node of a component.
    pub(super) fn read_pubsub_node(&mut self) {
        let Some(name) = base::percent_encoding::percent_decode(&self.account.file) else { return };
        let stored = self.table(super::PUBSUB_NODES);
        let address = PubSubNodeAddress { service: self.account.jid.clone(), name };
        self.add_node(&address, stored.as_ref(), &DEFAULTS_OF_SERVICES);
        let store = format!("pubsub_{}", address.name);
        let list = self.account.host.lists.iter().find(|(found, _)| *found == store);
        let Some((_, file)) = list else { return };
        let path = self.account.host.path.join(file);
        let mut seq = 0;
        self.each_item_of(path, |records, item| {
            seq += 1;
            records.add_item(&address, seq, &item);
        });
    }

    fn add_node(
        &mut self,
        address: &PubSubNodeAddress,
        stored: Option<&LuaTable>,
        defaults: &[(&str, &str)],
    ) {
        let table = |key: &str| stored.and_then(|stored| stored.get(key)?.as_table());
        let config = table("config").map(read_config).unwrap_or_default();
        let has = |var: &str| config.iter().any(|(found, _)| found == var);
        let usual = defaults.iter().map(|(key, value)| (format!("pubsub#{key}"), vec![(*value).to_owned()]));
        let usual: FormFields = usual.filter(|(var, _)| !has(var)).collect();
        let affiliations = table("affiliations").map(LuaTable::pairs).unwrap_or_default();
        let of_users = affiliations.iter().filter_map(|(user, affiliation)| {
            // The key `true` is the default of all others.
            Some((Jid::from_stored(user.as_str()?).ok()?, affiliation.as_str()?.to_owned()))
        });
        let of_users: Vec<(Jid, String)> = of_users.collect();
        let owners = of_users.iter().filter(|(_, affiliation)| affiliation == "owner");
        let mut owners: Vec<Jid> = owners.map(|(user, _)| user.clone()).collect();
        if owners.is_empty() && address.service.local().is_none() {
            // The administrators of the component, who are no owners of their own.
            owners.push(address.service.clone());
        }
        let node = SourcePubSubNode { address: address.clone(), owners, config: [config, usual].concat() };
        self.pubsub(PubSubRecord::Node(node));
        for (jid, affiliation) in of_users {
            let (node, subscriptions) = (address.clone(), Vec::new());
            self.pubsub(PubSubRecord::State(SourcePubSubState { node, jid, affiliation, subscriptions }));
        }
        for (user, options) in table("subscribers").map(LuaTable::pairs).unwrap_or_default() {
            let Some(jid) = user.as_str().and_then(|user| Jid::from_stored(user).ok()) else {
                self.skip(format!("a subscription of the node {} is not of an address", address.name));
                continue;
            };
            let options = options.as_table().map(read_options).unwrap_or_default();
            let subscriptions = vec![SourceSubscription { subid: String::new(), is_pending: false, options }];
            let (node, affiliation) = (address.clone(), String::new());
            self.pubsub(PubSubRecord::State(SourcePubSubState { node, jid, affiliation, subscriptions }));
        }
    }

    fn add_item(&mut self, address: &PubSubNodeAddress, seq: u64, item: &LuaValue) {
        let read = || {
            let table = item.as_table()?;
            let mut payload = SourceElement::from_lua(table)?;
            // The store adds this attribute to the root.
            payload.remove_attribute("stamp");
            let published = table.get("when").and_then(|when| match when {
                LuaValue::Number(when) if (0.0..9e12).contains(when) => {
                    LuaValue::Number(when.floor()).as_u64()?.checked_mul(1000)
                }
                _ => None,
            });
            Some(SourcePubSubItem {
                node: address.clone(),
                id: table.text("key")?.to_owned(),
                seq,
                publisher: table.text("with").and_then(|with| Jid::from_stored(with).ok()),
                published,
                payload: payload.to_xml("")?,
            })
        };
        match read() {
            Some(item) => self.pubsub(PubSubRecord::Item(item)),
            None => self.skip(format!("an item of the node {} is not an element", address.name)),
        }
    }
}

fn read_config(config: &LuaTable) -> FormFields {
    let mut fields = FormFields::new();
    for (key, value) in config.pairs() {
        let Some(key) = key.as_str() else { continue };
        if key.starts_with('_') {
            continue;
        }
        let name = NAMES.iter().find(|(name, _)| *name == key).map_or(key, |(_, name)| *name);
        fields.push((format!("pubsub#{name}"), values(value)));
    }
    fields.sort();
    fields
}

/// Options have the names of the form.
fn read_options(options: &LuaTable) -> FormFields {
    let option = |(key, value): &(LuaValue, LuaValue)| Some((key.as_str()?.to_owned(), vec![text(value)?]));
    options.pairs().iter().filter_map(option).collect()
}

/// The values of a field, of a list as well. What cannot be read is a value that no field has, and is reported.
fn values(value: &LuaValue) -> Vec<String> {
    let one = |value: &LuaValue| text(value).unwrap_or_else(|| "unreadable".to_owned());
    match value.as_table() {
        Some(list) => list.pairs().iter().map(|(_, value)| one(value)).collect(),
        None => vec![one(value)],
    }
}

fn text(value: &LuaValue) -> Option<String> {
    match value {
        LuaValue::Boolean(on) => Some(if *on { "1" } else { "0" }.to_owned()),
        LuaValue::Number(_) => value.as_u64().map(|number| number.to_string()),
        value => value.as_str().map(str::to_owned),
    }
}
