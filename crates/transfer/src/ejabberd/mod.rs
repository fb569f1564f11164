//! ejabberd's data: the text dump of its Mnesia database, and what that and its SQL tables have in common.
//!
//! Both hold rosters with one record for each contact, where a request is a state of the contact (`ask`), and privacy
//! lists from which mod_blocking makes a blocklist.

mod dump;
mod pubsub;
mod room;

use jid::Jid;
use limits::FRAGMENT_LIMITS;
use sasl::{Credentials, ScramHash};
use store::Subscription;
use xml::{NamespaceContext, Tree, Writer};

pub use dump::EjabberdDump;
pub use pubsub::{
    OptionsBySubid, affiliation_of_letter, field_of_text, micros_of_text, payload_of_text, pubsub_item,
    pubsub_node, pubsub_state, subscriptions_of_text,
};
pub use room::{room_of_options, room_of_text};

use crate::scram_keys::add_base64;
use crate::stanza_form::{check_message, delay_stamp, to_store_form};
use crate::{AccountItem, ContactData, ContactRequest, OfflineData};

/// A record of a roster, with the words of Mnesia; the tables of SQL have the first letters.
#[derive(Clone, Debug, Default)]
pub struct EjabberdContact {
    /// Address as text.
    pub jid: String,
    /// The label; empty for none.
    pub name: String,
    /// `none`, `to`, `from`, `both`.
    pub subscription: String,
    /// `none`, `in`, `out`, `both`, `subscribe`, `unsubscribe`.
    pub ask: String,
    /// Whether the contact is approved in advance.
    pub approved: bool,
    /// The groups.
    pub groups: Vec<String>,
    /// Text of the contact's request.
    pub message: String,
}

impl EjabberdContact {
    /// The items that it becomes: a contact, a request, or both.
    ///
    /// # Errors
    /// One sentence, if the address is not valid.
    pub fn items(mut self, owner: &Jid) -> Result<Vec<AccountItem>, String> {
        let jid = Jid::from_stored(&self.jid);
        let jid =
            jid.map_err(|error| format!("the contact {} is not valid: {error}", self.jid))?.bare().to_jid();
        if jid == *owner {
            return Ok(Vec::new());
        }
        let mut subscription = match self.subscription.as_str() {
            "to" => Subscription::TO,
            "from" => Subscription::FROM,
            "both" => Subscription::BOTH,
            _ => Subscription::NONE,
        };
        if self.approved {
            subscription = subscription | Subscription::APPROVED;
        }
        let is_requested = matches!(self.ask.as_str(), "in" | "both");
        let requests = matches!(self.ask.as_str(), "out" | "both" | "subscribe");
        if requests && !subscription.contains(Subscription::TO) {
            subscription = subscription | Subscription::PENDING_OUT;
        }
        let mut items = Vec::new();
        // ejabberd does not show an entry that is only a request.
        if subscription != Subscription::NONE || self.ask != "in" {
            let mut groups = std::mem::take(&mut self.groups);
            groups.retain(|group| !group.is_empty());
            groups.sort_unstable();
            groups.dedup();
            items.push(AccountItem::Contact(ContactData {
                jid: jid.clone(),
                name: Some(self.name).filter(|name| !name.is_empty()),
                groups,
                subscription: subscription | Subscription::IN_ROSTER,
            }));
        }
        if is_requested && !subscription.contains(Subscription::FROM) {
            // A text that XML does not allow is lost, and the request is taken.
            let is_text = !self.message.is_empty() && self.message.chars().all(xml::is_char);
            let stanza = is_text.then(|| {
                let mut stanza = Vec::new();
                let mut writer = Writer::new(&mut stanza);
                writer.start("presence").attr("from", jid.as_str()).attr("to", owner.as_str());
                writer.attr("type", "subscribe").text_element("status", &self.message).end();
                stanza
            });
            items.push(AccountItem::Request(ContactRequest { from: jid, stanza }));
        }
        Ok(items)
    }
}

/// The hash of a name in ejabberd's records.
pub fn hash_of_name(name: &str) -> Option<ScramHash> {
    match name {
        "sha" => Some(ScramHash::Sha1),
        "sha256" => Some(ScramHash::Sha256),
        "sha512" => Some(ScramHash::Sha512),
        _ => None,
    }
}

/// Keys of one hash in base64, as ejabberd stores them.
///
/// # Errors
/// One sentence.
pub fn scram_credentials(
    hash: ScramHash,
    stored_key: &str,
    server_key: &str,
    salt: &str,
    iterations: u32,
) -> Result<Credentials, String> {
    let mut credentials = Credentials::default();
    add_base64(&mut credentials, hash, salt, iterations, stored_key, server_key)?;
    Ok(credentials)
}

/// A stored element in the text of a column, as a standalone document.
///
/// # Errors
/// One sentence.
pub fn element_of_text(text: &str) -> Result<Vec<u8>, String> {
    let scope = NamespaceContext::empty();
    let tree = Tree::parse(text.as_bytes(), &scope, &FRAGMENT_LIMITS);
    let tree = tree.map_err(|error| format!("it is not valid XML: {error}"))?;
    let alone = tree.root().to_standalone(&FRAGMENT_LIMITS).map_err(|error| error.to_string())?;
    Ok(alone.into_owned())
}

/// An offline message in the text of a column.
///
/// # Errors
/// One sentence.
pub fn message_of_text(owner: &Jid, text: &str) -> Result<OfflineData, String> {
    let stanza = to_store_form(text.as_bytes());
    check_message(&stanza)?;
    Ok(OfflineData { stored_at: delay_stamp(&stanza, owner.domain()), expires: None, stanza })
}

/// Tables that are not read, by their names in Mnesia and SQL, with what they contain.
pub const UNSUPPORTED_TABLES: [(&str, &str); 11] = [
    ("archive_msg", "message archives"),
    ("archive", "message archives"),
    ("archive_prefs", "preferences of message archives"),
    ("muc_registered", "nicknames registered in rooms"),
    ("sr_group", "shared roster groups"),
    ("sr_user", "members of shared roster groups"),
    ("motd", "messages of the day"),
    ("mqtt_pub", "retained MQTT messages"),
    ("push_session", "push registrations"),
    ("mix_channel", "MIX channels"),
    ("oauth_token", "OAuth tokens"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn items(subscription: &str, ask: &str) -> Vec<AccountItem> {
        let contact = EjabberdContact {
            jid: "Romeo@montague.lit".into(),
            subscription: subscription.into(),
            ask: ask.into(),
            message: "it's me".into(),
            groups: vec!["b".into(), String::new(), "a".into(), "b".into()],
            ..EjabberdContact::default()
        };
        contact.items(&Jid::parse("juliet@capulet.lit").unwrap()).unwrap()
    }

    fn states(items: &[AccountItem]) -> Vec<Option<Subscription>> {
        let state = |item: &AccountItem| match item {
            AccountItem::Contact(contact) => Some(contact.subscription),
            _ => None,
        };
        items.iter().map(state).collect()
    }

    #[test]
    fn a_state_of_a_contact_becomes_a_contact_a_request_or_both() {
        let shown = Subscription::IN_ROSTER;
        for (subscription, ask, expected) in [
            ("none", "none", vec![Some(shown)]),
            ("both", "none", vec![Some(shown | Subscription::BOTH)]),
            ("none", "out", vec![Some(shown | Subscription::PENDING_OUT)]),
            ("to", "out", vec![Some(shown | Subscription::TO)]),
            ("none", "in", vec![None]),
            ("to", "in", vec![Some(shown | Subscription::TO), None]),
            ("none", "both", vec![Some(shown | Subscription::PENDING_OUT), None]),
            ("from", "both", vec![Some(shown | Subscription::FROM | Subscription::PENDING_OUT)]),
        ] {
            assert_eq!(states(&items(subscription, ask)), expected, "{subscription} {ask}");
        }
    }

    #[test]
    fn groups_are_sorted_and_a_request_has_its_text() {
        let found = items("to", "in");
        let AccountItem::Contact(contact) = &found[0] else { panic!("{found:?}") };
        assert_eq!(contact.groups, ["a", "b"]);
        let AccountItem::Request(request) = &found[1] else { panic!("{found:?}") };
        assert_eq!(
            String::from_utf8(request.stanza.clone().unwrap()).unwrap(),
            "<presence from='romeo@montague.lit' to='juliet@capulet.lit' type='subscribe'><status>it's me</status></presence>"
        );
        let own = EjabberdContact { jid: "juliet@capulet.lit".into(), ..EjabberdContact::default() };
        assert!(own.items(&Jid::parse("juliet@capulet.lit").unwrap()).unwrap().is_empty());
        let wrong = EjabberdContact { jid: "@".into(), ..EjabberdContact::default() };
        assert!(wrong.items(&Jid::parse("juliet@capulet.lit").unwrap()).is_err());
    }
}
