//! Records of rows. Rows of one contact, or of one privacy list, follow one another and become one record.

use base::Secret;
use jid::Jid;
use sqlx::any::AnyRow;
use sqlx::{Error, Row};
use store::LastActivity;
use transfer::ejabberd::{
    EjabberdContact, OptionsBySubid, affiliation_of_letter, element_of_text, field_of_text, hash_of_name,
    message_of_text, micros_of_text, payload_of_text, pubsub_item, pubsub_node, pubsub_state, room_of_text,
    scram_credentials, subscriptions_of_text,
};
use transfer::{AccountItem, AccountPassword, FormFields, PubSubNodeAddress, PubSubRecord, SourceRecord};

use crate::queries::{EjabberdSchema, TableKind};

/// Reads the rows of one query.
pub(crate) struct RowReader {
    kind: TableKind,
    /// Domain of an old schema.
    domain: String,
    contact: Option<(Jid, EjabberdContact)>,
    blocked: Option<(Jid, Vec<Jid>, usize)>,
    node: Option<UnfinishedNode>,
    options: OptionsBySubid,
}

/// A PubSub node whose options are read.
struct UnfinishedNode {
    host: String,
    name: String,
    /// Empty for none.
    owner: String,
    config: FormFields,
}

impl RowReader {
    pub(crate) fn new(schema: &EjabberdSchema, kind: TableKind) -> RowReader {
        let options = match kind {
            TableKind::PubSubStates => schema.subscription_options.clone(),
            _ => OptionsBySubid::new(),
        };
        RowReader { kind, domain: schema.domain.clone(), contact: None, blocked: None, node: None, options }
    }

    /// Reads a row.
    pub(crate) fn read(&mut self, row: &AnyRow, records: &mut Vec<SourceRecord>) -> Result<(), Error> {
        let (name, host) = (text(row, 0)?, text(row, 1)?);
        match self.kind {
            TableKind::PubSubNodes => return self.read_node((name, host), row, records),
            TableKind::PubSubStates | TableKind::PubSubItems => {
                return self.read_part_of_node((name, host), row, records);
            }
            _ => {}
        }
        let host = if host.is_empty() { self.domain.as_str() } else { host.as_str() };
        let owner = match Jid::from_parts(Some(&name), host, None) {
            Ok(owner) => owner,
            Err(error) => {
                let reason = format!("the address is not valid: {error}");
                records.push(SourceRecord::skipped(format!("{name}@{host}"), reason));
                return Ok(());
            }
        };
        match self.kind {
            TableKind::Roster => return self.read_contact(owner, row, records),
            TableKind::Privacy => return self.read_rule(owner, row, records),
            TableKind::Rooms => return read_room(owner, row, records),
            _ => {}
        }
        match read_item(self.kind, &owner, row)? {
            Ok(item) => records.push(SourceRecord::Item { owner, item }),
            Err(reason) => records.push(SourceRecord::skipped(owner.as_str(), reason)),
        }
        Ok(())
    }

    /// Records of the last rows.
    pub(crate) fn finish(&mut self, records: &mut Vec<SourceRecord>) {
        if let Some((owner, contact)) = self.contact.take() {
            match contact.items(&owner) {
                Ok(items) => records
                    .extend(items.into_iter().map(|item| SourceRecord::Item { owner: owner.clone(), item })),
                Err(reason) => records.push(SourceRecord::skipped(owner.as_str(), reason)),
            }
        }
        if let Some(UnfinishedNode { host, name, owner, config }) = self.node.take() {
            let owners = Some(owner).filter(|owner| !owner.is_empty());
            match pubsub_node(&host, name.clone(), owners.as_slice(), config) {
                Ok(node) => records.push(SourceRecord::PubSub(Box::new(PubSubRecord::Node(node)))),
                Err(reason) => records.push(SourceRecord::skipped(format!("the PubSub node {name}"), reason)),
            }
        }
        if let Some((owner, blocked, skipped)) = self.blocked.take() {
            if skipped > 0 {
                let reason = format!("{skipped} privacy rules do more than block an address");
                records.push(SourceRecord::skipped(owner.as_str(), reason));
            }
            records.push(SourceRecord::Item { owner, item: AccountItem::Blocked(blocked) });
        }
    }

    fn read_contact(
        &mut self,
        owner: Jid,
        row: &AnyRow,
        records: &mut Vec<SourceRecord>,
    ) -> Result<(), Error> {
        let jid = text(row, 2)?;
        let group = text(row, 8)?;
        let is_same = |(last, contact): &(Jid, EjabberdContact)| *last == owner && contact.jid == jid;
        if !self.contact.as_ref().is_some_and(is_same) {
            self.finish(records);
            let contact = EjabberdContact {
                jid,
                name: text(row, 3)?,
                subscription: word(&text(row, 4)?, &[("B", "both"), ("T", "to"), ("F", "from")]),
                ask: word(
                    &text(row, 5)?,
                    &[("B", "both"), ("O", "out"), ("I", "in"), ("S", "subscribe"), ("U", "unsubscribe")],
                ),
                message: text(row, 6)?,
                approved: row.try_get::<i64, _>(7)? != 0,
                groups: Vec::new(),
            };
            self.contact = Some((owner, contact));
        }
        if let Some((_, contact)) = &mut self.contact
            && !group.is_empty()
        {
            contact.groups.push(group);
        }
        Ok(())
    }

    /// A row is an option of a node, or a node without options.
    fn read_node(
        &mut self,
        (host, name): (String, String),
        row: &AnyRow,
        records: &mut Vec<SourceRecord>,
    ) -> Result<(), Error> {
        let (owner, option, value) = (text(row, 2)?, text(row, 3)?, text(row, 4)?);
        let is_same = |last: &UnfinishedNode| (&last.host, &last.name) == (&host, &name);
        if !self.node.as_ref().is_some_and(is_same) {
            self.finish(records);
            self.node = Some(UnfinishedNode { host, name, owner, config: FormFields::new() });
        }
        if let Some(UnfinishedNode { config, .. }) = &mut self.node
            && !option.is_empty()
        {
            config.extend(field_of_text(&option, &value));
        }
        Ok(())
    }

    fn read_part_of_node(
        &mut self,
        (host, name): (String, String),
        row: &AnyRow,
        records: &mut Vec<SourceRecord>,
    ) -> Result<(), Error> {
        let place = format!("the PubSub node {name}");
        let Ok(service) = Jid::from_stored(&host) else { return Ok(()) };
        let node = PubSubNodeAddress { service, name };
        let part = match self.kind {
            TableKind::PubSubStates => {
                let subscriptions = text(row, 4)?;
                let affiliation = text(row, 3)?;
                pubsub_state(
                    node,
                    &text(row, 2)?,
                    affiliation_of_letter(&affiliation),
                    subscriptions_of_text(&subscriptions),
                    &self.options,
                )
                .map(PubSubRecord::State)
            }
            _ => {
                let id = text(row, 2)?;
                let (publisher, created, modified) = (text(row, 3)?, text(row, 4)?, text(row, 5)?);
                let micros = micros_of_text(&modified).or_else(|| micros_of_text(&created));
                payload_of_text(&text(row, 6)?)
                    .map(|payload| PubSubRecord::Item(pubsub_item(node, id, &publisher, micros, payload)))
            }
        };
        records.push(match part {
            Ok(part) => SourceRecord::PubSub(Box::new(part)),
            Err(reason) => SourceRecord::skipped(place, reason),
        });
        Ok(())
    }

    fn read_rule(&mut self, owner: Jid, row: &AnyRow, records: &mut Vec<SourceRecord>) -> Result<(), Error> {
        if self.blocked.as_ref().is_none_or(|(last, ..)| *last != owner) {
            self.finish(records);
            self.blocked = Some((owner, Vec::new(), 0));
        }
        let (kind, value, action) = (text(row, 2)?, text(row, 3)?, text(row, 4)?);
        let everything = row.try_get::<i64, _>(5)? != 0;
        if action.trim() != "d" {
            return Ok(());
        }
        if let Some((_, blocked, skipped)) = &mut self.blocked {
            match Jid::from_stored(&value) {
                Ok(jid) if kind.trim() == "j" && everything => blocked.push(jid),
                _ => *skipped += 1,
            }
        }
        Ok(())
    }
}

/// An item of a row that is a record by itself; the inner error is a reason for people.
fn read_item(kind: TableKind, owner: &Jid, row: &AnyRow) -> Result<Result<AccountItem, String>, Error> {
    Ok(match kind {
        TableKind::Users => {
            let keys = [text(row, 2)?, text(row, 3)?, text(row, 4)?];
            let password = read_password(keys, row.try_get(5)?, row.try_get(6)?);
            password.map(|password| AccountItem::Account { password, disabled: false })
        }
        TableKind::Private => element_of_text(&text(row, 2)?).map(AccountItem::Private),
        TableKind::Vcard => element_of_text(&text(row, 2)?).map(AccountItem::Vcard),
        TableKind::Spool => message_of_text(owner, &text(row, 2)?).map(AccountItem::Offline),
        TableKind::Last => {
            let status = Some(text(row, 3)?).filter(|status| !status.is_empty());
            match text(row, 2)?.trim().parse() {
                Ok(at) => Ok(AccountItem::LastActivity(LastActivity { at, status })),
                Err(_) => Err("its last activity has no time".to_owned()),
            }
        }
        // They are read elsewhere.
        TableKind::Roster
        | TableKind::Privacy
        | TableKind::Rooms
        | TableKind::PubSubNodes
        | TableKind::PubSubStates
        | TableKind::PubSubItems => Err("it is not a record".to_owned()),
    })
}

fn read_room(jid: Jid, row: &AnyRow, records: &mut Vec<SourceRecord>) -> Result<(), Error> {
    let place = jid.as_str().to_owned();
    match room_of_text(jid, &text(row, 2)?) {
        Ok((room, skipped)) => {
            if skipped > 0 {
                let reason = format!("{skipped} affiliations of the room are not valid");
                records.push(SourceRecord::skipped(place, reason));
            }
            records.push(SourceRecord::Room(Box::new(room)));
        }
        Err(reason) => records.push(SourceRecord::skipped(place, format!("the room: {reason}"))),
    }
    Ok(())
}

/// Password or keys. `kind` is 0 for versions without the column, 1 for a password, 2 and above for a hash.
fn read_password(
    [stored, server, salt]: [String; 3],
    iterations: i64,
    kind: i64,
) -> Result<AccountPassword, String> {
    // A key without the other one must not become a password: others may have seen it.
    if kind == 1 || (kind <= 0 && server.is_empty()) {
        return Ok(if stored.is_empty() {
            AccountPassword::Missing
        } else {
            AccountPassword::Plain(Secret::from(stored))
        });
    }
    let (named, key) = match stored.split_once(':') {
        Some((hash, key)) => (hash, key),
        None => ("sha", stored.as_str()),
    };
    let hash = match kind {
        2 => "sha",
        3 => "sha256",
        4 => "sha512",
        _ => named,
    };
    let hash = hash_of_name(hash).ok_or("its keys have an unknown hash")?;
    let iterations = u32::try_from(iterations).unwrap_or(0);
    scram_credentials(hash, key, &server, &salt, iterations)
        .map(|keys| AccountPassword::Scram(Box::new(keys)))
}

/// The identifier of a subscription, and an option.
pub(crate) fn subscription_option(row: &AnyRow) -> Result<(String, String, String), Error> {
    let name = text(row, 1)?.to_lowercase();
    let name = if name == "show_values" { "show-values".to_owned() } else { name };
    Ok((text(row, 0)?, format!("pubsub#{name}"), text(row, 2)?))
}

fn text(row: &AnyRow, column: usize) -> Result<String, Error> {
    match row.try_get::<Option<String>, _>(column) {
        Ok(text) => Ok(text.unwrap_or_default()),
        // MySQL describes long texts as bytes.
        Err(error) => match row.try_get::<Vec<u8>, _>(column) {
            Ok(bytes) => String::from_utf8(bytes).map_err(|_| error),
            Err(_) => Err(error),
        },
    }
}

/// The word of a letter; `none` for any other.
fn word(letter: &str, words: &[(&str, &str)]) -> String {
    let found = words.iter().find(|(found, _)| *found == letter.trim());
    found.map_or("none", |(_, word)| *word).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "Q6qT/SbybblGCZz8e8eSfCJOQic=";

    fn password(stored: &str, server: &str, kind: i64) -> Result<AccountPassword, String> {
        read_password([stored.to_owned(), server.to_owned(), "c2FsdA==".to_owned()], 4096, kind)
    }

    #[test]
    fn passwords_and_keys_of_all_versions_are_read() {
        assert_eq!(password("secret", "", 0), Ok(AccountPassword::Plain(Secret::from("secret"))));
        assert_eq!(password("sha256:x", KEY, 1), Ok(AccountPassword::Plain(Secret::from("sha256:x"))));
        assert_eq!(password("", "", 0), Ok(AccountPassword::Missing));
        for (stored, kind) in [(KEY, 0), (KEY, 2)] {
            let Ok(AccountPassword::Scram(keys)) = password(stored, KEY, kind) else { panic!("{stored}") };
            assert!(keys.sha1.is_some() && keys.sha256.is_none());
        }
        let long = "JqI7OeuW8zBkrOVNsa5A2kjZrJ2Wn4RVtBPHFxbTcqU=";
        for (stored, kind) in [(format!("sha256:{long}"), 0), (long.to_owned(), 3)] {
            let Ok(AccountPassword::Scram(keys)) = password(&stored, long, kind) else { panic!("{stored}") };
            assert!(keys.sha256.is_some() && keys.sha1.is_none());
        }
        assert!(password("md5:x", KEY, 0).is_err());
        for kind in [2, 3, 4] {
            assert!(password(KEY, "", kind).is_err(), "a key is no password");
        }
        assert!(password(KEY, "x", 0).is_err());
    }

    #[test]
    fn letters_become_words() {
        assert_eq!(word("B ", &[("B", "both")]), "both");
        assert_eq!(word("N", &[("B", "both")]), "none");
    }
}
