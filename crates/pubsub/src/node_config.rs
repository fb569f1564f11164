//! Configuration of a node: XEP-0060 1.30.0, section 16.4.4 (fields of `pubsub#node_config`).
//!
//! One field is private: `throng#publishers_hear_nothing`. A publisher of such a node does not receive its own items.
//!
//! Fields of collections are in `collection_config.rs`.
//!
//! Not implemented: transformations (`pubsub#body_xslt`, `pubsub#dataform_xslt`), which are stored for clients.
//!
//! Long because each field is described, shown, read and compared.

use stanza::payload::data_form::{DataForm, FormError, FormField, FormFieldType, FormKind, FormOption};
use stanza::{StanzaCondition, StanzaError};
use store::PubSubNodeRecord;

use crate::collection_config::{
    CHILDREN, CollectionConfig, FIELDS_OF_LEAVES, MAX_CHILDREN, MAX_PARENTS, NODE_TYPE, NodeType, PARENTS,
};
use crate::options::PubSubLimits;
use crate::pubsub_error::{graph_error, pubsub_error, unsupported};

/// `FORM_TYPE` of the configuration.
pub(crate) const CONFIG_FORM: &str = "http://jabber.org/protocol/pubsub#node_config";
/// `FORM_TYPE` of preconditions of a publication.
pub(crate) const PUBLISH_OPTIONS_FORM: &str = "http://jabber.org/protocol/pubsub#publish-options";
const ROSTER_GROUPS: &str = "pubsub#roster_groups_allowed";
const ACCESS_MODEL: &str = "pubsub#access_model";
/// The private field.
pub(crate) const PUBLISHERS_HEAR_NOTHING: &str = "throng#publishers_hear_nothing";
/// Longest text of a field, in bytes.
const MAX_TEXT_BYTES: usize = 1024;
/// Roster groups, and people to contact.
const MAX_LISTED: usize = 100;

/// An enum with the names of a field's options, and their labels.
macro_rules! choices {
    ($(#[$doc:meta])* $name:ident { $($choice:ident = $text:literal, $label:literal;)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum $name { $($choice),+ }

        impl $name {
            pub(crate) const ALL: &'static [($name, &'static str, &'static str)] = &[$(($name::$choice, $text, $label)),+];

            /// Its value in forms.
            pub(crate) fn as_str(self) -> &'static str {
                match self { $($name::$choice => $text),+ }
            }

            pub(crate) fn from_name(name: &str) -> Option<$name> {
                $name::ALL.iter().find(|(_, text, _)| *text == name).map(|(choice, ..)| *choice)
            }
        }
    };
}

pub(crate) use choices;

choices! {
    /// Who may subscribe and retrieve items.
    AccessModel {
        Authorize = "authorize", "NodeSubscription requests must be approved and only subscribers may retrieve items";
        Open = "open", "Anyone may subscribe and retrieve items";
        Presence = "presence", "Anyone with a presence subscription of both or from may subscribe and retrieve items";
        Roster = "roster", "Anyone in the specified roster groups may subscribe and retrieve items";
        Whitelist = "whitelist", "Only those on a whitelist may subscribe and retrieve items";
    }
}

choices! {
    /// Who may publish.
    PublishModel {
        Publishers = "publishers", "Only publishers may publish";
        Subscribers = "subscribers", "Subscribers may publish";
        Open = "open", "Anyone may publish";
    }
}

choices! {
    /// When the last item is sent.
    SendLast {
        Never = "never", "Never";
        OnSub = "on_sub", "When a new subscription is processed";
        OnSubAndPresence = "on_sub_and_presence", "When a new subscription is processed and whenever a subscriber comes online";
    }
}

choices! {
    /// What happens with the oldest item of a full node.
    NodeFull {
        RetractOldest = "retract-oldest", "Retract the oldest item";
        DiscardOldest = "discard-oldest", "Discard the oldest item";
        Reject = "reject", "Reject the new item";
    }
}

choices! {
    /// Whose address items have.
    ItemReply {
        Owner = "owner", "Statically specify a replyto of the node owner";
        Publisher = "publisher", "Dynamically specify a replyto of the item publisher";
        None = "none", "No replyto";
    }
}

choices! {
    /// Type of the messages with events.
    NotificationType {
        Normal = "normal", "Messages of type normal";
        Headline = "headline", "Messages of type headline";
    }
}

/// A number, or as much as the service permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bound {
    Number(u32),
    Max,
}

impl Bound {
    pub(crate) fn text(self) -> String {
        match self {
            Bound::Number(number) => number.to_string(),
            Bound::Max => "max".to_owned(),
        }
    }

    pub(crate) fn read(text: &str) -> Option<Bound> {
        match text.trim() {
            "max" => Some(Bound::Max),
            number => number.parse().ok().map(Bound::Number),
        }
    }
}

/// The configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PubSubNodeConfig {
    pub(crate) title: String,
    pub(crate) description: String,
    pub(crate) language: String,
    /// Semantic type of the payloads: their namespace.
    pub(crate) payload_type: String,
    pub(crate) body_xslt: String,
    pub(crate) dataform_xslt: String,
    pub(crate) contact: Vec<String>,
    pub(crate) access_model: AccessModel,
    pub(crate) roster_groups: Vec<String>,
    pub(crate) publish_model: PublishModel,
    pub(crate) deliver_notifications: bool,
    pub(crate) deliver_payloads: bool,
    pub(crate) notify_config: bool,
    pub(crate) notify_delete: bool,
    pub(crate) notify_retract: bool,
    pub(crate) notify_sub: bool,
    pub(crate) persist_items: bool,
    pub(crate) max_items: Bound,
    /// Seconds.
    pub(crate) item_expire: Bound,
    /// Bytes.
    pub(crate) max_payload_size: u32,
    pub(crate) subscribe: bool,
    pub(crate) node_full: NodeFull,
    pub(crate) purge_offline: bool,
    pub(crate) send_last: SendLast,
    pub(crate) presence_based_delivery: bool,
    pub(crate) notification_type: NotificationType,
    pub(crate) temporary_subscriptions: bool,
    pub(crate) item_reply: ItemReply,
    pub(crate) publishers_hear_nothing: bool,
    pub(crate) graph: CollectionConfig,
    /// Nodes of accounts have no collections.
    pub(crate) supports_collections: bool,
}

impl PubSubNodeConfig {
    /// The configuration of a node that is created.
    pub(crate) fn new(limits: &PubSubLimits) -> PubSubNodeConfig {
        PubSubNodeConfig {
            title: String::new(),
            description: String::new(),
            language: String::new(),
            payload_type: String::new(),
            body_xslt: String::new(),
            dataform_xslt: String::new(),
            contact: Vec::new(),
            access_model: AccessModel::Open,
            roster_groups: Vec::new(),
            publish_model: PublishModel::Publishers,
            deliver_notifications: true,
            deliver_payloads: true,
            notify_config: false,
            notify_delete: true,
            notify_retract: false,
            notify_sub: false,
            persist_items: true,
            max_items: Bound::Number(limits.default_items),
            item_expire: Bound::Max,
            max_payload_size: limits.payload_bytes,
            subscribe: true,
            node_full: NodeFull::RetractOldest,
            purge_offline: false,
            send_last: SendLast::OnSubAndPresence,
            presence_based_delivery: false,
            notification_type: NotificationType::Headline,
            temporary_subscriptions: false,
            item_reply: ItemReply::None,
            publishers_hear_nothing: false,
            graph: CollectionConfig::default(),
            supports_collections: true,
        }
    }

    /// The configuration of a collection that is created.
    pub(crate) fn of_collection(limits: &PubSubLimits) -> PubSubNodeConfig {
        let graph = CollectionConfig { node_type: NodeType::Collection, ..CollectionConfig::default() };
        PubSubNodeConfig { graph, ..PubSubNodeConfig::new(limits) }
    }

    /// The configuration of a node that is created on an account: XEP-0163 1.2.2, section 3.5, with the values of XEP-0060,
    /// section 9.4.
    pub(crate) fn of_account(limits: &PubSubLimits) -> PubSubNodeConfig {
        PubSubNodeConfig {
            access_model: AccessModel::Presence,
            max_items: Bound::Number(limits.default_items),
            send_last: SendLast::OnSubAndPresence,
            supports_collections: false,
            ..PubSubNodeConfig::new(limits)
        }
    }

    /// Bytes of its texts and lists.
    pub(crate) fn text_bytes(&self) -> usize {
        let texts = [&self.title, &self.description, &self.language, &self.payload_type];
        let texts = texts.into_iter().chain([&self.body_xslt, &self.dataform_xslt]);
        let lists = self.contact.iter().chain(&self.roster_groups);
        texts.chain(lists).map(String::len).sum::<usize>() + self.graph.list_bytes()
    }

    /// Items that are kept.
    pub(crate) fn item_limit(&self, limits: &PubSubLimits) -> usize {
        let most = match self.max_items {
            Bound::Number(most) => most.min(limits.items),
            Bound::Max => limits.items,
        };
        usize::try_from(most).unwrap_or(usize::MAX)
    }

    /// Milliseconds after which an item expires.
    pub(crate) fn expiry_millis(&self) -> Option<u64> {
        match self.item_expire {
            Bound::Number(seconds) => Some(u64::from(seconds) * 1000),
            Bound::Max => None,
        }
    }

    /// Whether the node is in the list of nodes: its existence is no secret.
    pub(crate) fn is_listed(&self) -> bool {
        matches!(self.access_model, AccessModel::Open | AccessModel::Authorize)
    }

    /// Whether neither items nor payloads are needed: an event without content (section 4.3).
    pub(crate) fn is_transient_notification(&self) -> bool {
        !self.persist_items && !self.deliver_payloads
    }

    /// The record of a node with this configuration.
    pub(crate) fn record(&self, creator: jid::Jid, created: u64, redirect: Option<&str>) -> PubSubNodeRecord {
        let mut form = self.form(FormKind::Submit);
        if self.graph.parents.is_empty() {
            form.fields.retain(|field| field.var != PARENTS);
        }
        if let Some(uri) = redirect {
            form = form.field(FormField::new(FormFieldType::Hidden, super::node::REDIRECT).value(uri));
        }
        let mut config = Vec::with_capacity(2048);
        form.write(&mut xml::Writer::new(&mut config));
        let title = self.title.clone();
        PubSubNodeRecord {
            creator,
            created,
            title,
            // The children of a collection are found there.
            is_listed: self.is_listed() && redirect.is_none() && self.graph.parents.is_empty(),
            config,
        }
    }

    /// The form.
    pub(crate) fn form(&self, kind: FormKind) -> DataForm {
        let text = |var: &str, label: &str, value: &str| {
            let field = FormField::new(FormFieldType::TextSingle, var).label(label);
            if value.is_empty() { field } else { field.value(value) }
        };
        let switch = |var: &str, label: &str, on: bool| FormField::boolean(var, on).label(label);
        let groups = FormField::new(FormFieldType::ListMulti, ROSTER_GROUPS)
            .label("Roster groups allowed to subscribe")
            .values(self.roster_groups.iter().cloned());
        let groups = self.roster_groups.iter().fold(groups, |field, group| field.option("", group.clone()));
        macro_rules! list {
            ($var:literal, $label:literal, $type:ident, $value:expr) => {{
                let field =
                    FormField::new(FormFieldType::ListSingle, $var).label($label).value($value.as_str());
                $type::ALL.iter().fold(field, |field, (_, name, label)| field.option(*label, *name))
            }};
        }
        let form = DataForm::typed(kind, CONFIG_FORM)
            .field(text("pubsub#title", "A friendly name for the node", &self.title))
            .field(text("pubsub#description", "A description of the node", &self.description))
            .field(text("pubsub#language", "Default language", &self.language))
            .field(text("pubsub#type", "Semantic type of the payloads", &self.payload_type))
            .field(
                FormField::new(FormFieldType::JidMulti, "pubsub#contact")
                    .label("People to contact with questions")
                    .values(self.contact.iter().cloned()),
            );
        let form = match self.supports_collections {
            true => self.graph.add_fields(form),
            false => form.field(
                FormField::new(FormFieldType::ListSingle, NODE_TYPE)
                    .label("Type of the node")
                    .value("leaf")
                    .option("A leaf node", "leaf"),
            ),
        };
        let mut form = form
            .field(list!("pubsub#access_model", "Access model", AccessModel, self.access_model))
            .field(groups)
            .field(list!("pubsub#publish_model", "Publish model", PublishModel, self.publish_model))
            .field(switch("pubsub#subscribe", "Whether to allow subscriptions", self.subscribe))
            .field(switch(
                "pubsub#deliver_notifications",
                "Deliver event notifications",
                self.deliver_notifications,
            ))
            .field(switch(
                "pubsub#deliver_payloads",
                "Deliver payloads with event notifications",
                self.deliver_payloads,
            ))
            .field(switch(
                "pubsub#notify_config",
                "Notify subscribers when the node configuration changes",
                self.notify_config,
            ))
            .field(switch(
                "pubsub#notify_delete",
                "Notify subscribers when the node is deleted",
                self.notify_delete,
            ))
            .field(switch(
                "pubsub#notify_retract",
                "Notify subscribers when items are removed from the node",
                self.notify_retract,
            ))
            .field(switch(
                "pubsub#notify_sub",
                "Notify owners about new subscribers and unsubscribes",
                self.notify_sub,
            ))
            .field(switch("pubsub#persist_items", "Persist items to storage", self.persist_items))
            .field(text("pubsub#max_items", "Maximum number of items to persist", &self.max_items.text()))
            .field(text(
                "pubsub#item_expire",
                "Seconds after which items are removed",
                &self.item_expire.text(),
            ))
            .field(list!("pubsub#publish_node_full", "When the node is full", NodeFull, self.node_full))
            .field(switch(
                "pubsub#purge_offline",
                "Purge all items when the relevant publisher goes offline",
                self.purge_offline,
            ))
            .field(text(
                "pubsub#max_payload_size",
                "Maximum payload size in bytes",
                &self.max_payload_size.to_string(),
            ))
            .field(list!(
                "pubsub#send_last_published_item",
                "When to send the last published item",
                SendLast,
                self.send_last
            ))
            .field(switch(
                "pubsub#presence_based_delivery",
                "Deliver notifications to available users only",
                self.presence_based_delivery,
            ))
            .field(list!(
                "pubsub#notification_type",
                "Type of messages with events",
                NotificationType,
                self.notification_type
            ))
            .field(switch(
                "pubsub#tempsub",
                "Make all subscriptions temporary, based on subscriber presence",
                self.temporary_subscriptions,
            ))
            .field(list!("pubsub#itemreply", "Whose address items have", ItemReply, self.item_reply))
            .field(text("pubsub#body_xslt", "Transformation to a message body", &self.body_xslt))
            .field(text("pubsub#dataform_xslt", "Transformation to a data form", &self.dataform_xslt))
            .field(switch(
                PUBLISHERS_HEAR_NOTHING,
                "Publishers do not receive their own items",
                self.publishers_hear_nothing,
            ));
        if self.graph.is_collection() {
            form.fields.retain(|field| !FIELDS_OF_LEAVES.contains(&field.var.as_str()));
        }
        form
    }

    /// Whether there is a field of this name.
    pub(crate) fn has_field(&self, var: &str) -> bool {
        self.form(FormKind::Form).get(var).is_some()
    }

    /// Applies a submission, all or nothing.
    ///
    /// # Errors
    /// `not-acceptable`: an invalid value (section 8.2.5).
    pub(crate) fn submit(&mut self, submitted: &DataForm, limits: &PubSubLimits) -> Result<(), StanzaError> {
        if submitted.fields.len() > limits.form_fields {
            return Err(StanzaError::new(StanzaCondition::NotAcceptable).text("the form has too many fields"));
        }
        if let Some(model) = submitted.value(ACCESS_MODEL)
            && AccessModel::from_name(model).is_none()
        {
            return Err(pubsub_error("unsupported-access-model"));
        }
        for var in [ROSTER_GROUPS, "pubsub#contact"] {
            if submitted.values(var).len() > MAX_LISTED {
                return Err(FormError::of(var, "has too many values").into());
            }
        }
        let mut next = self.clone();
        next.check_node_type(submitted)?;
        let mut shown = next.form(FormKind::Form);
        CollectionConfig::accept_other_names(&mut shown);
        // Which groups the owner's roster has is unknown here: an unknown group admits nobody.
        if let Some(groups) = shown.fields.iter_mut().find(|field| field.var == ROSTER_GROUPS) {
            let given = submitted.values(ROSTER_GROUPS).iter();
            groups.options.extend(given.map(|group| FormOption::new("", group.clone())));
        }
        next.apply(&shown.validate(submitted)?, limits)?;
        if !next.graph.permits(&next.graph.children) {
            return Err(graph_error("max-nodes-exceeded"));
        }
        *self = next;
        Ok(())
    }

    /// Takes the type of the node from a submission, and bounds its lists of nodes (XEP-0248, section 7.2.3).
    fn check_node_type(&mut self, submitted: &DataForm) -> Result<(), StanzaError> {
        let node_type = submitted.value(NODE_TYPE).and_then(NodeType::from_name);
        match node_type {
            Some(NodeType::Collection) if !self.supports_collections => {
                return Err(unsupported("collections"));
            }
            Some(NodeType::Collection) => self.graph.node_type = NodeType::Collection,
            Some(NodeType::Leaf) if self.graph.is_collection() => return Err(graph_error("invalid-options")),
            _ => {}
        }
        let count = |var| submitted.values(var).iter().filter(|name| !name.is_empty()).count();
        if !self.graph.is_collection() && count(CHILDREN) > 0 {
            return Err(graph_error("invalid-options"));
        }
        if count(CHILDREN) > usize::try_from(MAX_CHILDREN).unwrap_or(usize::MAX)
            || count(PARENTS) > MAX_PARENTS
        {
            return Err(graph_error("max-nodes-exceeded"));
        }
        Ok(())
    }

    /// The configuration that was stored as this form; `None` if it cannot be read.
    pub(crate) fn restore(form: &DataForm, limits: &PubSubLimits) -> Option<PubSubNodeConfig> {
        let mut config = PubSubNodeConfig::new(limits);
        // A limit of the service may be lower than when the node was configured.
        let limits = PubSubLimits { items: u32::MAX, payload_bytes: u32::MAX, ..*limits };
        config.apply(form, &limits).ok()?;
        Some(config)
    }

    /// Applies valid fields.
    fn apply(&mut self, form: &DataForm, limits: &PubSubLimits) -> Result<(), FormError> {
        if self.supports_collections {
            self.graph.apply(form)?;
        }
        for (var, field) in [
            ("pubsub#title", &mut self.title),
            ("pubsub#description", &mut self.description),
            ("pubsub#language", &mut self.language),
            ("pubsub#type", &mut self.payload_type),
            ("pubsub#body_xslt", &mut self.body_xslt),
            ("pubsub#dataform_xslt", &mut self.dataform_xslt),
        ] {
            if let Some(given) = form.get(var) {
                *field = given.values.first().cloned().unwrap_or_default();
                if field.len() > MAX_TEXT_BYTES {
                    return Err(FormError::of(var, "is too long"));
                }
            }
        }
        for (var, field) in [("pubsub#contact", &mut self.contact), (ROSTER_GROUPS, &mut self.roster_groups)]
        {
            if let Some(given) = form.get(var) {
                if given.values.len() > MAX_LISTED
                    || given.values.iter().any(|one| one.len() > MAX_TEXT_BYTES)
                {
                    return Err(FormError::of(var, "has too many values, or too long ones"));
                }
                field.clone_from(&given.values);
            }
        }
        for (var, field) in [
            ("pubsub#deliver_notifications", &mut self.deliver_notifications),
            ("pubsub#deliver_payloads", &mut self.deliver_payloads),
            ("pubsub#notify_config", &mut self.notify_config),
            ("pubsub#notify_delete", &mut self.notify_delete),
            ("pubsub#notify_retract", &mut self.notify_retract),
            ("pubsub#notify_sub", &mut self.notify_sub),
            ("pubsub#persist_items", &mut self.persist_items),
            ("pubsub#subscribe", &mut self.subscribe),
            ("pubsub#purge_offline", &mut self.purge_offline),
            ("pubsub#presence_based_delivery", &mut self.presence_based_delivery),
            ("pubsub#tempsub", &mut self.temporary_subscriptions),
            (PUBLISHERS_HEAR_NOTHING, &mut self.publishers_hear_nothing),
        ] {
            *field = form.bool(var).unwrap_or(*field);
        }
        macro_rules! choose {
            ($var:literal, $type:ident, $field:ident) => {
                if let Some(name) = form.value($var) {
                    self.$field = $type::from_name(name).ok_or_else(|| FormError::of($var, "is unknown"))?;
                }
            };
        }
        choose!("pubsub#access_model", AccessModel, access_model);
        choose!("pubsub#publish_model", PublishModel, publish_model);
        choose!("pubsub#send_last_published_item", SendLast, send_last);
        choose!("pubsub#publish_node_full", NodeFull, node_full);
        choose!("pubsub#notification_type", NotificationType, notification_type);
        choose!("pubsub#itemreply", ItemReply, item_reply);
        for (var, field, most) in [
            ("pubsub#max_items", &mut self.max_items, limits.items),
            ("pubsub#item_expire", &mut self.item_expire, u32::MAX),
        ] {
            let Some(text) = form.value(var) else { continue };
            *field = Bound::read(text).ok_or_else(|| FormError::of(var, "must be a number or max"))?;
            if let Bound::Number(number) = *field
                && number > most
            {
                return Err(FormError::of(var, &format!("must be at most {most}")));
            }
        }
        let var = "pubsub#max_payload_size";
        if let Some(text) = form.value(var) {
            let size: u32 = text.trim().parse().map_err(|_| FormError::of(var, "must be a number"))?;
            if size > limits.payload_bytes {
                return Err(FormError::of(var, &format!("must be at most {}", limits.payload_bytes)));
            }
            self.max_payload_size = size;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::limits;
    use xml::{Limits, NamespaceContext, Tree};

    fn submit(fields: &[(&str, &str)]) -> Result<PubSubNodeConfig, StanzaError> {
        let mut form = DataForm::typed(FormKind::Submit, CONFIG_FORM);
        for (var, value) in fields {
            form = form.field(FormField::cell(*var, *value));
        }
        let mut config = PubSubNodeConfig::new(&limits());
        config.submit(&form, &limits()).map(|()| config)
    }

    #[test]
    fn every_registered_field_is_in_the_form_and_survives_the_store() {
        let mut config = PubSubNodeConfig::new(&limits());
        config.roster_groups = vec!["friends".into(), "courtiers".into()];
        config.contact = vec!["bard@shakespeare.lit".into()];
        (config.max_items, config.item_expire) = (Bound::Max, Bound::Number(604_800));
        (config.access_model, config.publishers_hear_nothing) = (AccessModel::Roster, true);
        let mut bytes = Vec::new();
        config.form(FormKind::Submit).write(&mut xml::Writer::new(&mut bytes));
        let scope = NamespaceContext::client();
        let tree = Tree::parse(&bytes, &scope, &Limits::DEFAULT).unwrap();
        let form = DataForm::read(tree.root()).unwrap();
        assert_eq!(PubSubNodeConfig::restore(&form, &limits()), Some(config));
        for var in [
            "access_model",
            "body_xslt",
            "contact",
            "dataform_xslt",
            "deliver_notifications",
            "deliver_payloads",
            "description",
            "item_expire",
            "itemreply",
            "language",
            "max_items",
            "max_payload_size",
            "node_type",
            "notification_type",
            "notify_config",
            "notify_delete",
            "notify_retract",
            "notify_sub",
            "persist_items",
            "presence_based_delivery",
            "publish_model",
            "publish_node_full",
            "purge_offline",
            "roster_groups_allowed",
            "send_last_published_item",
            "tempsub",
            "subscribe",
            "title",
            "type",
        ] {
            assert!(form.get(&format!("pubsub#{var}")).is_some(), "{var}");
        }
    }

    #[test]
    fn values_are_checked_and_nothing_is_changed_by_a_refused_form() {
        let config = submit(&[("pubsub#max_items", "max"), ("pubsub#access_model", "whitelist")]).unwrap();
        assert_eq!((config.max_items, config.access_model), (Bound::Max, AccessModel::Whitelist));
        assert_eq!(config.item_limit(&limits()), usize::try_from(limits().items).unwrap());
        for (var, value, condition) in [
            ("pubsub#access_model", "secret", "<unsupported-access-model "),
            ("pubsub#max_items", "-1", ""),
            ("pubsub#max_items", "4000000000", ""),
            ("pubsub#max_payload_size", "4000000000", ""),
            ("pubsub#notify_sub", "perhaps", ""),
            ("pubsub#node_type", "branch", ""),
            ("pubsub#itemreply", "bard", ""),
        ] {
            let error = submit(&[("pubsub#title", "x"), (var, value)]).unwrap_err();
            assert_eq!(error.condition, StanzaCondition::NotAcceptable, "{var}={value}");
            assert!(error.application_condition.unwrap_or_default().starts_with(condition), "{var}={value}");
        }
        let many: Vec<(String, String)> = (0..1000).map(|n| (format!("x-{n}"), String::new())).collect();
        let many: Vec<(&str, &str)> = many.iter().map(|(var, value)| (&**var, &**value)).collect();
        assert_eq!(submit(&many).unwrap_err().condition, StanzaCondition::NotAcceptable);
    }

    #[test]
    fn a_long_list_is_refused_before_it_is_compared() {
        let groups = (0..200_000).map(|number| format!("group-{number}"));
        let groups = FormField::new(FormFieldType::ListMulti, ROSTER_GROUPS).values(groups);
        let form = DataForm::typed(FormKind::Submit, CONFIG_FORM).field(groups);
        let error = PubSubNodeConfig::new(&limits()).submit(&form, &limits()).unwrap_err();
        assert_eq!(error.condition, StanzaCondition::NotAcceptable);
        // The text tells which check has refused it.
        let text = format!("{error:?}");
        assert!(text.contains("has too many values") && !text.contains("too long"), "{text}");
    }
}
