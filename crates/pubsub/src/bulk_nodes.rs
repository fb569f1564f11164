//! Nodes that are created directly in a database, many with one configuration: `throng pubsub bulk`.

use feature_api::feature::FeatureOptions;
use jid::Jid;
use stanza::payload::data_form::{DataForm, FormField, FormFieldType, FormKind};
use store::{PubSubChange, PubSubNodeRecord};

use crate::affiliation::NodeAffiliation;
use crate::node_config::{CONFIG_FORM, PubSubNodeConfig};
use crate::options::{OPTIONS, PubSubOptions};

/// The changes that create a node with these fields of its configuration, and the default of all others.
///
/// # Errors
/// One sentence: a field is unknown, or its value is invalid.
pub fn bulk_node(
    creator: &Jid,
    created: u64,
    fields: &[(String, String)],
) -> Result<Vec<PubSubChange>, String> {
    let options = PubSubOptions::read(&FeatureOptions::defaults(OPTIONS)).map_err(|(_, problem)| problem)?;
    let mut config = PubSubNodeConfig::new(&options.limits);
    let mut submitted = DataForm::typed(FormKind::Submit, CONFIG_FORM);
    for (var, value) in fields {
        if !config.has_field(var) {
            return Err(format!("a node has no field {var}"));
        }
        submitted =
            submitted.field(FormField::new(FormFieldType::TextSingle, var.as_str()).value(value.as_str()));
    }
    let refused = |error: stanza::StanzaError| {
        let text = error.text.map(|text| text.to_string()).unwrap_or_default();
        format!("the configuration is refused: {text}")
    };
    config.submit(&submitted, &options.limits).map_err(refused)?;
    if !config.graph.parents.is_empty() || !config.graph.children.is_empty() {
        return Err("collections are not supported".to_owned());
    }
    let full = config.record(creator.bare().to_jid(), created, None);
    // Only these fields: the form of all of them would be the largest part of the database.
    let mut stored = Vec::with_capacity(256);
    submitted.write(&mut xml::Writer::new(&mut stored));
    let record = PubSubNodeRecord { config: stored, ..full };
    let owner = PubSubChange::Affiliate(creator.bare().to_jid(), NodeAffiliation::Owner.number());
    Ok(vec![PubSubChange::Put(record), owner])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::PubSubNode;
    use crate::node_config::AccessModel;
    use crate::tests::limits;
    use store::StoredPubSubNode;

    fn jid(text: &str) -> Jid {
        Jid::parse(text).unwrap()
    }

    #[test]
    fn a_node_is_restored_with_its_fields_and_the_defaults() {
        let owner = jid("hamlet@denmark.lit");
        let fields = [("pubsub#access_model", "whitelist"), ("pubsub#title", "a & b")];
        let fields: Vec<_> = fields.map(|(var, value)| (var.to_owned(), value.to_owned())).into();
        let changes = bulk_node(&owner, 5, &fields).unwrap();
        let [PubSubChange::Put(record), PubSubChange::Affiliate(user, affiliation)] = changes.as_slice()
        else {
            panic!("{changes:?}");
        };
        assert!(record.config.len() < 500, "{}", record.config.len());
        assert_eq!((record.title.as_str(), record.is_listed), ("a & b", false));
        let stored = StoredPubSubNode {
            number: 1,
            record: record.clone(),
            affiliations: vec![(user.clone(), affiliation.unwrap())],
            special: Vec::new(),
            items: Vec::new(),
        };
        let node = PubSubNode::restore(jid("pubsub.denmark.lit"), "n".to_owned(), stored, &limits()).unwrap();
        assert_eq!(node.config().access_model, AccessModel::Whitelist);
        assert_eq!(node.owners().collect::<Vec<_>>(), [&owner]);
    }

    #[test]
    fn unknown_fields_and_values_are_refused() {
        let owner = jid("hamlet@denmark.lit");
        for (var, value) in [("pubsub#x", "1"), ("pubsub#max_items", "many"), ("pubsub#access_model", "x")] {
            assert!(bulk_node(&owner, 5, &[(var.to_owned(), value.to_owned())]).is_err(), "{var}");
        }
    }
}
