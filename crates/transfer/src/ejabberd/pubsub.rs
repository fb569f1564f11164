//! PubSub nodes of mod_pubsub, in Mnesia and SQL: the node with its options, what each entity has at it, and items. Nodes are named
//! by numbers in the other tables.

use std::collections::HashMap;

use jid::Jid;

use super::element_of_text;
use crate::erlang::{ErlangTerm, parse_term};
use crate::{
    FormFields, PubSubNodeAddress, SourcePubSubItem, SourcePubSubNode, SourcePubSubState, SourceSubscription,
    item_seq,
};

/// Options of subscriptions by identifier.
pub type OptionsBySubid = HashMap<String, FormFields>;

/// A node of its address and options.
///
/// # Errors
/// One sentence, if the address is not valid.
pub fn pubsub_node(
    host: &str,
    name: String,
    owners: &[String],
    config: FormFields,
) -> Result<SourcePubSubNode, String> {
    let service =
        Jid::from_stored(host).map_err(|error| format!("the address {host} is not valid: {error}"))?;
    let owners = owners.iter().filter_map(|owner| Jid::from_stored(owner).ok()).collect();
    Ok(SourcePubSubNode { address: PubSubNodeAddress { service, name }, owners, config })
}

/// In place of a value that cannot be read.
const UNREADABLE: &str = "unreadable";

/// The field of an option, whose value is a term; `None` for options that are no fields of the form.
pub(super) fn field_of_option(name: &str, value: &ErlangTerm) -> Option<(String, Vec<String>)> {
    // Properties of ejabberd's plugin.
    if matches!(name, "rsm" | "sql") {
        return None;
    }
    let one = |term: &ErlangTerm| match term {
        ErlangTerm::Atom(name) => Some(match name.as_str() {
            "true" => "1".to_owned(),
            "false" => "0".to_owned(),
            "infinity" | "unlimited" => "max".to_owned(),
            // No value.
            "undefined" => return None,
            name => name.to_owned(),
        }),
        ErlangTerm::Integer(number) => Some(number.to_string()),
        term => Some(term.to_text().unwrap_or_else(|| UNREADABLE.to_owned())),
    };
    let values = match value.as_list() {
        Some(values) => values.iter().filter_map(one).collect(),
        None => vec![one(value)?],
    };
    Some((format!("pubsub#{name}"), values))
}

/// The field of an option, whose value is the text of a term. What is no term is a value that no field has: it is reported, and
/// a node whose access model it is does not become open.
pub fn field_of_text(name: &str, value: &str) -> Option<(String, Vec<String>)> {
    let unreadable = ErlangTerm::Atom(UNREADABLE.to_owned());
    field_of_option(name, &parse_term(value.trim().as_bytes()).unwrap_or(unreadable))
}

/// The affiliation of a letter in SQL.
pub fn affiliation_of_letter(letter: &str) -> &'static str {
    match letter.trim() {
        "o" => "owner",
        "p" => "publisher",
        "u" => "publish-only",
        "m" => "member",
        "c" => "outcast",
        _ => "",
    }
}

/// What an entity has at a node: its subscriptions are pairs of a state and an identifier.
///
/// # Errors
/// One sentence, if its address is not valid.
pub fn pubsub_state(
    node: PubSubNodeAddress,
    jid: &str,
    affiliation: &str,
    subscriptions: impl Iterator<Item = (String, String)>,
    options: &OptionsBySubid,
) -> Result<SourcePubSubState, String> {
    let jid = Jid::from_stored(jid).map_err(|error| format!("the address {jid} is not valid: {error}"))?;
    let affiliation = match affiliation {
        "none" => "",
        "publish_only" => "publish-only",
        other => other,
    };
    let subscription = |(state, subid): (String, String)| {
        let is_pending = match state.as_str() {
            "subscribed" | "s" => false,
            "pending" | "p" => true,
            _ => return None,
        };
        let options = options.get(&subid).cloned().unwrap_or_default();
        Some(SourceSubscription { subid, is_pending, options })
    };
    let subscriptions = subscriptions.filter_map(subscription).collect();
    Ok(SourcePubSubState { node, jid, affiliation: affiliation.to_owned(), subscriptions })
}

/// The subscriptions of a column: `STATE:ID` with commas.
pub fn subscriptions_of_text(text: &str) -> impl Iterator<Item = (String, String)> {
    let pair = |one: &str| one.split_once(':').map(|(state, subid)| (state.to_owned(), subid.to_owned()));
    text.split(',').filter_map(pair)
}

/// An item that was published at this time, in microseconds since 1970.
pub fn pubsub_item(
    node: PubSubNodeAddress,
    id: String,
    publisher: &str,
    micros: Option<u64>,
    payload: Vec<u8>,
) -> SourcePubSubItem {
    SourcePubSubItem {
        seq: item_seq(micros, &id),
        node,
        id,
        publisher: Jid::from_stored(publisher).ok(),
        published: micros.map(|micros| micros / 1000),
        payload,
    }
}

/// The time in a column: megaseconds, seconds and microseconds with colons.
pub fn micros_of_text(text: &str) -> Option<u64> {
    let mut parts = text.split(':').map(|part| part.trim().parse::<u64>().ok());
    let (mega, seconds, micros) = (parts.next()??, parts.next()??, parts.next()??);
    mega.checked_mul(1_000_000)?.checked_add(seconds)?.checked_mul(1_000_000)?.checked_add(micros)
}

/// The payload in a column; empty for none.
///
/// # Errors
/// One sentence.
pub fn payload_of_text(text: &str) -> Result<Vec<u8>, String> {
    if text.trim().is_empty() { Ok(Vec::new()) } else { element_of_text(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_columns_are_read() {
        assert_eq!(
            field_of_text("title", "<<\"a\">>"),
            Some(("pubsub#title".to_owned(), vec!["a".to_owned()]))
        );
        assert_eq!(field_of_text("deliver_payloads", "true").unwrap().1, ["1"]);
        assert_eq!(field_of_text("max_items", "infinity").unwrap().1, ["max"]);
        assert_eq!(field_of_text("roster_groups_allowed", "[<<\"x\">>,<<\"y\">>]").unwrap().1, ["x", "y"]);
        assert!(field_of_text("collection", "[]").unwrap().1.is_empty());
        assert!(field_of_text("type", "undefined").is_none() && field_of_text("rsm", "{").is_none());
        assert_eq!(field_of_text("access_model", "<<\"whitelist\">>x").unwrap().1, ["unreadable"]);
        assert_eq!(micros_of_text("001700:000001:000002"), Some(1_700_000_001_000_002));
        assert!(micros_of_text("1:2").is_none() && micros_of_text("x:2:3").is_none());
        let found: Vec<_> = subscriptions_of_text("s:1,p:2,x").collect();
        assert_eq!(found, [("s".to_owned(), "1".to_owned()), ("p".to_owned(), "2".to_owned())]);
        let name = || PubSubNodeAddress { service: Jid::parse("a.org").unwrap(), name: "n".to_owned() };
        let state = pubsub_state(name(), "b@a.org", "none", found.into_iter(), &OptionsBySubid::new());
        let state = state.unwrap();
        assert_eq!((state.affiliation.as_str(), state.subscriptions.len()), ("", 2));
        assert!(state.subscriptions[1].is_pending);
        let (first, second) = (
            pubsub_item(name(), "1".into(), "b@a.org", Some(5), Vec::new()),
            pubsub_item(name(), "2".into(), "b@a.org", Some(6), Vec::new()),
        );
        assert!(first.seq < second.seq);
        assert!(payload_of_text("").unwrap().is_empty() && payload_of_text("<a").is_err());
    }
}
