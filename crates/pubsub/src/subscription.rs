//! Subscriptions that are more than a bare address, and their options: XEP-0060 1.30.0, sections 4.2, 6.3 and 16.4.2; of
//! subscriptions to collections: XEP-0248 0.5.0, section 5.3.1.
//!
//! Not implemented: digests and message bodies, so the form does not have `pubsub#digest`, `pubsub#digest_frequency` and
//! `pubsub#include_body`.

use jid::{Jid, JidRef};
use stanza::StanzaError;
use stanza::payload::data_form::{DataForm, FormField, FormFieldType, FormKind};
use stanza::payload::datetime;
use store::SpecialSubscription;
use throng_core::limits::STANZA_LIMITS;
use xml::{NamespaceContext, Tree};

use crate::collection_config::NodeType;
use crate::graph::MAX_LEVELS;
use crate::node_config::choices;
use crate::pubsub_error::pubsub_error;

/// `FORM_TYPE` of the options.
pub(crate) const OPTIONS_FORM: &str = "http://jabber.org/protocol/pubsub#subscribe_options";
/// Name of the field with the state, in the store only.
const STATE: &str = "throng#state";
const TYPE: &str = "pubsub#subscription_type";
const DEPTH: &str = "pubsub#subscription_depth";

/// State of a subscription that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SubscriptionState {
    Pending,
    Subscribed,
}

impl SubscriptionState {
    /// Its name in attributes.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            SubscriptionState::Pending => "pending",
            SubscriptionState::Subscribed => "subscribed",
        }
    }
}

/// Presence for which events are delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShowValue {
    Away,
    Chat,
    Dnd,
    Online,
    Xa,
}

impl ShowValue {
    /// The value of `<show/>` in a presence; empty without that element.
    pub(crate) fn from_show(show: &str) -> Option<ShowValue> {
        let name = if show.is_empty() { "online" } else { show };
        ShowValue::ALL.iter().find(|(_, text, _)| *text == name).map(|(value, ..)| *value)
    }

    const ALL: [(ShowValue, &'static str, &'static str); 5] = [
        (ShowValue::Chat, "chat", "Want to Chat"),
        (ShowValue::Online, "online", "Available"),
        (ShowValue::Away, "away", "Away"),
        (ShowValue::Xa, "xa", "Extended Away"),
        (ShowValue::Dnd, "dnd", "Do Not Disturb"),
    ];
}

/// When a subscription ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum SubscriptionExpiry {
    #[default]
    Never,
    /// Milliseconds since 1970 (section 12.18).
    At(u64),
    /// When the subscriber goes offline (section 12.4).
    Presence,
}

/// What a notification is about (XEP-0248 0.5.0, section 5.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventKind {
    /// What a leaf contains.
    Items,
    /// Nodes, their configuration, and their place in a collection.
    Nodes,
}

choices! {
    /// The notifications that a subscriber of a collection wants.
    SubscriptionType {
        Items = "items", "Receive notification of items only";
        Nodes = "nodes", "Receive notification of nodes only";
        All = "all", "Receive notification of items and nodes";
    }
}

impl SubscriptionType {
    /// Whether it includes notifications of this kind.
    fn includes(self, kind: EventKind) -> bool {
        self == SubscriptionType::All || (self == SubscriptionType::Items) == (kind == EventKind::Items)
    }

    /// Whether there are notifications that both include.
    pub(crate) fn overlaps(self, other: SubscriptionType) -> bool {
        self == other || self == SubscriptionType::All || other == SubscriptionType::All
    }
}

/// How far below a collection notifications come from; `None`: from everywhere.
pub(crate) type SubscriptionDepth = Option<u32>;

/// Options of a subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SubscriptionOptions {
    pub(crate) deliver: bool,
    pub(crate) expiry: SubscriptionExpiry,
    pub(crate) show_values: Vec<ShowValue>,
    /// Of a subscription to a collection, as is the next.
    pub(crate) subscription_type: SubscriptionType,
    pub(crate) depth: SubscriptionDepth,
}

impl Default for SubscriptionOptions {
    fn default() -> Self {
        SubscriptionOptions {
            deliver: true,
            expiry: SubscriptionExpiry::Never,
            show_values: ShowValue::ALL.map(|(value, ..)| value).to_vec(),
            subscription_type: SubscriptionType::Nodes,
            depth: Some(1),
        }
    }
}

impl SubscriptionOptions {
    /// The form of a subscription to a node of this type.
    pub(crate) fn form(&self, kind: FormKind, node_type: NodeType) -> DataForm {
        let expire =
            FormField::new(FormFieldType::TextSingle, "pubsub#expire").label("End of the subscription");
        let expire = match self.expiry {
            SubscriptionExpiry::Never => expire,
            SubscriptionExpiry::Presence => expire.value("presence"),
            SubscriptionExpiry::At(millis) => expire.value(datetime::format_utc(millis, false)),
        };
        let show = FormField::new(FormFieldType::ListMulti, "pubsub#show-values")
            .label("Presence for which events are delivered");
        let chosen = ShowValue::ALL.iter().filter(|(value, ..)| self.show_values.contains(value));
        let show = show.values(chosen.map(|(_, name, _)| *name));
        let show = ShowValue::ALL.iter().fold(show, |field, (_, name, label)| field.option(*label, *name));
        let form = DataForm::typed(kind, OPTIONS_FORM)
            .field(FormField::boolean("pubsub#deliver", self.deliver).label("Enable delivery?"))
            .field(expire)
            .field(show);
        if node_type == NodeType::Leaf {
            return form;
        }
        let wanted = FormField::new(FormFieldType::ListSingle, TYPE)
            .label("Which notifications of the collection are delivered")
            .value(self.subscription_type.as_str());
        let wanted =
            SubscriptionType::ALL.iter().fold(wanted, |field, (_, name, label)| field.option(*label, *name));
        let depth = self.depth.map_or_else(|| "all".to_owned(), |depth| depth.to_string());
        form.field(wanted).field(
            FormField::new(FormFieldType::TextSingle, DEPTH)
                .label("How far to traverse the node graph for notifications")
                .value(depth),
        )
    }

    /// Whether a subscriber of a collection wants a notification from this depth below it, and not from `seen`.
    pub(crate) fn wants(&self, kind: EventKind, depth: u32, seen: Option<u32>) -> bool {
        let is_within = |depth| self.depth.is_none_or(|most| depth <= most);
        self.subscription_type.includes(kind) && is_within(depth) && !seen.is_some_and(is_within)
    }

    /// The presence for which events are delivered; `None`: any, and none.
    pub(crate) fn wanted_show(&self) -> Option<&[ShowValue]> {
        Some(self.show_values.as_slice()).filter(|values| values.len() < ShowValue::ALL.len())
    }

    /// Applies a submission, all or nothing.
    ///
    /// # Errors
    /// `invalid-options` (section 6.3.6.2).
    pub(crate) fn submit(
        &mut self,
        submitted: &DataForm,
        max_fields: usize,
        node_type: NodeType,
    ) -> Result<(), StanzaError> {
        let invalid = || pubsub_error("invalid-options");
        if submitted.fields.len() > max_fields {
            return Err(invalid().text("the form has too many fields"));
        }
        let form = self
            .form(FormKind::Form, node_type)
            .validate(submitted)
            .map_err(|error| invalid().text(error.to_string()))?;
        let mut next = self.clone();
        next.apply(&form).ok_or_else(invalid)?;
        *self = next;
        Ok(())
    }

    fn apply(&mut self, form: &DataForm) -> Option<()> {
        self.deliver = form.bool("pubsub#deliver").unwrap_or(self.deliver);
        if form.get("pubsub#expire").is_some() {
            self.expiry = match form.value("pubsub#expire").map(str::trim) {
                None | Some("") => SubscriptionExpiry::Never,
                Some("presence") => SubscriptionExpiry::Presence,
                Some(text) => SubscriptionExpiry::At(u64::try_from(datetime::parse_datetime(text)?).ok()?),
            };
        }
        if form.get("pubsub#show-values").is_some() {
            let given = form.values("pubsub#show-values");
            let chosen = ShowValue::ALL.iter().filter(|(_, name, _)| given.iter().any(|one| one == name));
            self.show_values = chosen.map(|(value, ..)| *value).collect();
        }
        if let Some(name) = form.value(TYPE) {
            self.subscription_type = SubscriptionType::from_name(name)?;
        }
        if let Some(text) = form.value(DEPTH) {
            self.depth = match text.trim() {
                "all" => None,
                // Notifications pass no more levels.
                number => Some(number.parse().ok()?).filter(|depth| *depth < MAX_LEVELS),
            };
        }
        Some(())
    }
}

/// A subscription that is more than a bare address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeSubscription {
    pub(crate) jid: Jid,
    pub(crate) subid: Box<str>,
    pub(crate) state: SubscriptionState,
    pub(crate) options: SubscriptionOptions,
}

impl NodeSubscription {
    /// As it is stored.
    pub(crate) fn record(&self) -> SpecialSubscription {
        let usual = SubscriptionOptions::default();
        let is_of_collection =
            (self.options.subscription_type, self.options.depth) != (usual.subscription_type, usual.depth);
        let node_type = if is_of_collection { NodeType::Collection } else { NodeType::Leaf };
        let form = self.options.form(FormKind::Submit, node_type);
        let form = form.field(FormField::new(FormFieldType::Hidden, STATE).value(self.state.as_str()));
        let mut state = Vec::with_capacity(512);
        form.write(&mut xml::Writer::new(&mut state));
        SpecialSubscription { jid: self.jid.clone(), subid: self.subid.clone(), state }
    }

    /// The subscription from the store; `None` if it cannot be read.
    pub(crate) fn restore(stored: SpecialSubscription) -> Option<NodeSubscription> {
        let scope = NamespaceContext::client();
        let tree = Tree::parse(&stored.state, &scope, &STANZA_LIMITS).ok()?;
        let form = DataForm::read(tree.root()).ok()?;
        let mut options = SubscriptionOptions::default();
        options.apply(&form)?;
        let state = match form.value(STATE)? {
            "pending" => SubscriptionState::Pending,
            _ => SubscriptionState::Subscribed,
        };
        Some(NodeSubscription { jid: stored.jid, subid: stored.subid, state, options })
    }

    /// Whether it is in force.
    pub(crate) fn is_approved(&self) -> bool {
        self.state == SubscriptionState::Subscribed
    }

    /// Whether events are sent to it.
    pub(crate) fn receives_events(&self) -> bool {
        self.is_approved() && self.options.deliver
    }

    /// Whether it is one of this user, whatever its resource is.
    pub(crate) fn is_of(&self, user: JidRef<'_>) -> bool {
        self.jid.bare() == user.bare()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_checked_and_stored() {
        let submit = |fields: &[(&str, &[&str])]| {
            let mut form = DataForm::typed(FormKind::Submit, OPTIONS_FORM);
            for (var, values) in fields {
                let field = FormField::new(FormFieldType::TextMulti, *var).values(values.iter().copied());
                form = form.field(FormField { kind: None, ..field });
            }
            let mut options = SubscriptionOptions::default();
            options.submit(&form, 16, NodeType::Leaf).map(|()| options)
        };
        let options = submit(&[
            ("pubsub#deliver", &["0"]),
            ("pubsub#digest", &["0"]),
            ("pubsub#expire", &["2006-02-28T11:59:59Z"]),
            ("pubsub#show-values", &["chat", "online", "away"]),
        ])
        .unwrap();
        assert!(!options.deliver);
        assert_eq!(options.expiry, SubscriptionExpiry::At(1_141_127_999_000));
        assert_eq!(options.show_values, [ShowValue::Chat, ShowValue::Online, ShowValue::Away]);
        let subscription = NodeSubscription {
            jid: Jid::parse("francisco@denmark.lit/barracks").unwrap(),
            subid: "1".into(),
            state: SubscriptionState::Pending,
            options,
        };
        assert_eq!(NodeSubscription::restore(subscription.record()), Some(subscription));
        for (var, value) in
            [("pubsub#deliver", "maybe"), ("pubsub#expire", "tomorrow"), ("pubsub#show-values", "bored")]
        {
            let error = submit(&[(var, &[value])]).unwrap_err();
            assert!(error.application_condition.unwrap().starts_with("<invalid-options "), "{var}");
        }
    }
}
