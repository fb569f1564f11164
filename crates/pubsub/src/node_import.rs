//! Nodes of other servers, as they are stored.

use std::collections::BTreeSet;

use feature_api::feature::FeatureOptions;
use jid::Jid;
use stanza::payload::data_form::{DataForm, FormField, FormFieldType, FormKind};
use store::PubSubChange;

use crate::affiliation::NodeAffiliation;
use crate::collection_config::{CHILDREN, NodeType, PARENTS};
use crate::node::ROOT_NODE;
use crate::node_config::{CONFIG_FORM, PubSubNodeConfig};
use crate::options::{OPTIONS, PubSubOptions};
use crate::subscription::{NodeSubscription, OPTIONS_FORM, SubscriptionOptions, SubscriptionState};

/// The models of a node whose model cannot be taken.
const CLOSED_MODELS: [(&str, &str); 2] =
    [("pubsub#access_model", "whitelist"), ("pubsub#publish_model", "publishers")];

/// Fields of a form with their values.
pub type ImportedFields = [(String, Vec<String>)];

/// A node.
#[derive(Clone, Copy, Debug)]
pub struct ImportedNode<'a> {
    /// The service, or the account.
    pub service: &'a Jid,
    /// Its name there.
    pub name: &'a str,
    /// When it is said to have been created, in milliseconds since 1970.
    pub created: u64,
    /// Its owners, of whom the first has created it.
    pub owners: &'a [Jid],
    /// Its configuration.
    pub config: &'a ImportedFields,
}

/// What one entity has at a node.
#[derive(Clone, Copy, Debug)]
pub struct ImportedState<'a> {
    /// The entity.
    pub jid: &'a Jid,
    /// Whether it is an account of this server.
    pub is_account: bool,
    /// Its affiliation; empty for none.
    pub affiliation: &'a str,
    /// Its subscriptions.
    pub subscriptions: &'a [ImportedSubscription<'a>],
}

/// A subscription.
#[derive(Clone, Copy, Debug)]
pub struct ImportedSubscription<'a> {
    /// Its identifier; may be empty.
    pub subid: &'a str,
    /// An owner must approve it.
    pub is_pending: bool,
    /// Its options.
    pub options: &'a ImportedFields,
}

/// What one entity has at a node, as it is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImportedStateChanges {
    /// The changes of the node.
    pub changes: Vec<PubSubChange>,
    /// Number of subscriptions among them.
    pub subscriptions: usize,
    /// Options of the subscriptions that have no place here.
    pub dropped: Vec<String>,
}

fn form(form_type: &'static str, var: &str, values: &[String]) -> DataForm {
    // Text that XML does not allow is lost.
    let values = values.iter().filter(|value| value.chars().all(xml::is_char)).cloned();
    let field = FormField::new(FormFieldType::TextMulti, var).values(values);
    DataForm::typed(FormKind::Submit, form_type).field(FormField { kind: None, ..field })
}

impl ImportedNode<'_> {
    /// The changes that create the node, and the names of fields that it does not have here.
    ///
    /// # Errors
    /// One sentence.
    pub fn changes(&self) -> Result<(Vec<PubSubChange>, Vec<String>), String> {
        if self.name == ROOT_NODE {
            return Err("its name is reserved here".to_owned());
        }
        let options =
            PubSubOptions::read(&FeatureOptions::defaults(OPTIONS)).map_err(|(_, problem)| problem)?;
        let limits = &options.limits;
        let is_of_account = self.service.local().is_some();
        let mut config = match is_of_account {
            true => PubSubNodeConfig::of_account(limits),
            false => PubSubNodeConfig::new(limits),
        };
        let mut dropped = Vec::new();
        for (var, values) in self.config {
            // An edge is at both of its nodes.
            let is_edge = [PARENTS, CHILDREN].contains(&var.as_str());
            if is_edge && values.iter().all(String::is_empty) {
                continue;
            }
            let mut is_taken = !is_edge
                && config.has_field(var)
                && config.submit(&form(CONFIG_FORM, var, values), limits).is_ok();
            if !is_taken && matches!(var.as_str(), "pubsub#max_items" | "pubsub#max_payload_size") {
                // More than the limit here.
                let most = match var.as_str() {
                    "pubsub#max_items" => "max".to_owned(),
                    _ => limits.payload_bytes.to_string(),
                };
                is_taken = config.submit(&form(CONFIG_FORM, var, &[most]), limits).is_ok();
            }
            if !is_taken {
                // A model that is unknown here must not become the default, which can be open.
                let closed = CLOSED_MODELS.iter().find(|(name, _)| name == var);
                if let Some((_, model)) = closed {
                    let _ = config.submit(&form(CONFIG_FORM, var, &[(*model).to_owned()]), limits);
                }
                dropped.push(var.clone());
            }
        }
        let account = is_of_account.then_some(self.service);
        let creator = self.owners.first().or(account).ok_or("it has no owner")?;
        let record = config.record(creator.bare().to_jid(), self.created, None);
        let mut owners: Vec<Jid> = self.owners.iter().chain(account).map(|jid| jid.bare().to_jid()).collect();
        owners.sort_unstable();
        owners.dedup();
        let owner = |jid| PubSubChange::Affiliate(jid, NodeAffiliation::Owner.number());
        let changes = std::iter::once(PubSubChange::Put(record)).chain(owners.into_iter().map(owner));
        Ok((changes.collect(), dropped))
    }
}

impl ImportedState<'_> {
    /// The changes of a node that exists.
    ///
    /// # Errors
    /// One sentence.
    pub fn changes(&self) -> Result<ImportedStateChanges, String> {
        let options =
            PubSubOptions::read(&FeatureOptions::defaults(OPTIONS)).map_err(|(_, problem)| problem)?;
        let (mut changes, mut dropped) = (Vec::new(), BTreeSet::new());
        if !self.affiliation.is_empty() {
            let affiliation = NodeAffiliation::from_name(self.affiliation)
                .ok_or_else(|| format!("the affiliation {} is unknown", self.affiliation))?;
            if affiliation != NodeAffiliation::None {
                changes.push(PubSubChange::Affiliate(self.jid.bare().to_jid(), affiliation.number()));
            }
        }
        let usual = SubscriptionOptions::default();
        let most = options.limits.subscriptions_per_user_and_node;
        for (number, one) in self.subscriptions.iter().enumerate().take(most) {
            let mut of_one = usual.clone();
            for (var, values) in one.options {
                let has_field = usual.form(FormKind::Form, NodeType::Collection).get(var).is_some();
                let form = form(OPTIONS_FORM, var, values);
                let is_taken = has_field
                    && of_one.submit(&form, options.limits.form_fields, NodeType::Collection).is_ok();
                // What is off has no effect.
                if !is_taken && !values.iter().all(|value| matches!(value.as_str(), "" | "0" | "false")) {
                    dropped.insert(var.clone());
                }
            }
            let is_only = self.subscriptions.len() == 1;
            if is_only && self.is_account && self.jid.is_bare() && !one.is_pending && of_one == usual {
                changes.push(PubSubChange::Subscribe(self.jid.clone()));
                continue;
            }
            let is_valid = (1..=64).contains(&one.subid.len()) && one.subid.chars().all(xml::is_char);
            let subid = if is_valid { one.subid.to_owned() } else { self.subid(number) };
            let state = match one.is_pending {
                true => SubscriptionState::Pending,
                false => SubscriptionState::Subscribed,
            };
            let jid = self.jid.clone();
            let special = NodeSubscription { jid, subid: subid.into(), state, options: of_one };
            changes.push(PubSubChange::PutSpecial(special.record()));
        }
        let subscriptions = self.subscriptions.len().min(most);
        Ok(ImportedStateChanges { changes, subscriptions, dropped: dropped.into_iter().collect() })
    }

    /// An identifier that no other entity of the node has, and the same when an import is continued.
    fn subid(&self, number: usize) -> String {
        // FNV-1a.
        let hash = self.jid.as_str().bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        format!("imported-{hash:016x}-{number}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::PubSubNode;
    use crate::node_config::{AccessModel, Bound};
    use crate::tests::limits;
    use store::StoredPubSubNode;

    fn jid(text: &str) -> Jid {
        Jid::parse(text).unwrap()
    }

    fn fields(all: &[(&str, &str)]) -> Vec<(String, Vec<String>)> {
        all.iter().map(|(var, value)| ((*var).to_owned(), vec![(*value).to_owned()])).collect()
    }

    #[test]
    fn a_node_keeps_what_has_a_place_here() {
        let (service, owners) = (jid("pubsub.denmark.lit"), [jid("hamlet@denmark.lit/elsinore")]);
        let config = fields(&[
            ("pubsub#title", "Musings"),
            ("pubsub#access_model", "whitelist"),
            ("pubsub#max_items", "4000000000"),
            ("pubsub#collection", ""),
            ("pubsub#deliver_payloads", "false"),
            ("pubsub#purple", "1"),
            ("pubsub#itemreply", "bard"),
        ]);
        let node =
            ImportedNode { service: &service, name: "n", created: 5, owners: &owners, config: &config };
        let (changes, dropped) = node.changes().unwrap();
        assert_eq!(dropped, ["pubsub#purple", "pubsub#itemreply"]);
        let [PubSubChange::Put(record), PubSubChange::Affiliate(owner, Some(number))] = changes.as_slice()
        else {
            panic!("{changes:?}");
        };
        let stored = StoredPubSubNode {
            number: 1,
            record: record.clone(),
            affiliations: vec![(owner.clone(), *number)],
            special: Vec::new(),
            items: Vec::new(),
        };
        let node = PubSubNode::restore(service.clone(), "n".to_owned(), stored, &limits()).unwrap();
        let config = node.config();
        assert_eq!((config.access_model, config.max_items), (AccessModel::Whitelist, Bound::Max));
        assert!(!config.deliver_payloads && config.title == "Musings");
        assert_eq!(node.owners().collect::<Vec<_>>(), [&jid("hamlet@denmark.lit")]);
        let nobody = ImportedNode { service: &service, name: "n", created: 5, owners: &[], config: &[] };
        assert!(nobody.changes().is_err());
        let account = jid("hamlet@denmark.lit");
        let own = ImportedNode { service: &account, name: "n", created: 5, owners: &[], config: &[] };
        assert_eq!(own.changes().unwrap().0.len(), 2);
    }

    #[test]
    fn subscriptions_are_plain_if_they_can_be() {
        let francisco = jid("francisco@denmark.lit");
        let options = fields(&[("pubsub#deliver", "0"), ("pubsub#digest", "1")]);
        let plain = [ImportedSubscription { subid: "1", is_pending: false, options: &[] }];
        let state = |is_account, affiliation, subscriptions| {
            ImportedState { jid: &francisco, is_account, affiliation, subscriptions }
                .changes()
                .unwrap()
                .changes
        };
        assert_eq!(
            state(true, "publisher", &plain),
            [
                PubSubChange::Affiliate(francisco.clone(), NodeAffiliation::Publisher.number()),
                PubSubChange::Subscribe(francisco.clone())
            ]
        );
        assert!(
            matches!(state(false, "none", &plain).as_slice(), [PubSubChange::PutSpecial(one)] if &*one.subid == "1")
        );
        let special = [ImportedSubscription { subid: "", is_pending: true, options: &options }];
        let changes = state(true, "", &special);
        let [PubSubChange::PutSpecial(one)] = changes.as_slice() else { panic!("{changes:?}") };
        let one = NodeSubscription::restore(one.clone()).unwrap();
        assert!(!one.options.deliver && !one.is_approved());
        let wrong =
            ImportedState { jid: &francisco, is_account: true, affiliation: "king", subscriptions: &[] };
        assert!(wrong.changes().is_err());
    }

    #[test]
    fn subscriptions_without_identifiers_do_not_replace_each_other() {
        let options = fields(&[("pubsub#deliver", "0"), ("pubsub#digest", "1"), ("pubsub#purple", "0")]);
        let one = ImportedSubscription { subid: "", is_pending: false, options: &options };
        let subscriptions = [one; 100];
        let mut subids = BTreeSet::new();
        for user in ["friar@elsewhere.lit", "romeo@elsewhere.lit", "romeo@elsewhere.lit/orchard"] {
            let jid = jid(user);
            let state = ImportedState {
                jid: &jid,
                is_account: false,
                affiliation: "",
                subscriptions: &subscriptions,
            };
            let new = state.changes().unwrap();
            assert_eq!(new, state.changes().unwrap(), "a continued import writes the same");
            assert_eq!(new.subscriptions, new.changes.len(), "those that are written are counted");
            assert!(
                (1..100).contains(&new.subscriptions) && new.dropped == ["pubsub#digest"],
                "{:?}",
                new.dropped
            );
            for change in &new.changes {
                let PubSubChange::PutSpecial(one) = change else { panic!("{change:?}") };
                assert!(subids.insert(one.subid.clone()) && one.subid.len() <= 64, "{one:?}");
            }
        }
    }

    #[test]
    fn a_node_whose_model_is_unknown_is_closed_and_a_reserved_name_is_refused() {
        let (service, owners) = (jid("pubsub.denmark.lit"), [jid("hamlet@denmark.lit")]);
        let config = fields(&[("pubsub#access_model", "unreadable"), ("pubsub#publish_model", "anybody")]);
        let node =
            ImportedNode { service: &service, name: "n", created: 5, owners: &owners, config: &config };
        let (changes, dropped) = node.changes().unwrap();
        assert_eq!(dropped, ["pubsub#access_model", "pubsub#publish_model"]);
        let [PubSubChange::Put(record), ..] = changes.as_slice() else { panic!("{changes:?}") };
        let config = PubSubNode::restored_config(&record.config, &limits()).unwrap();
        assert_eq!(config.access_model, AccessModel::Whitelist);
        assert!(ImportedNode { name: ROOT_NODE, ..node }.changes().is_err());
    }
}
