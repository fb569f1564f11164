//! Messages to subscribers and owners: XEP-0060 1.30.0, sections 7.1.2, 8 and 12.13 to 12.15; identifiers of subscriptions as
//! headers of XEP-0131 1.2.

use std::sync::Arc;

use jid::Jid;
use store::{PubSubItem, PubSubItemHead};
use throng_core::SharedStanza;
use xml::{Ns, Writer};

use super::subscribing::write_subscription;
use super::{MAX_NOTIFIED_OWNERS, NodeCtx, Notice, PubSubNode};
use crate::affiliation::NodeAffiliation;
use crate::graph::EventDelivery;
use crate::node_config::{AccessModel, ItemReply, NotificationType};
use crate::subscriber_filter::ReadCondition;
use crate::subscription::{EventKind, NodeSubscription, ShowValue, SubscriptionOptions};

pub(super) const SHIM: &str = "http://jabber.org/protocol/shim";

/// Which subscribers receive an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventAudience {
    /// Those whose subscriptions are in force.
    Subscribers,
    /// Also those that wait for approval.
    SubscribersAndPending,
}

/// What an event comes from.
#[derive(Clone, Copy, Debug)]
pub(super) enum EventOrigin {
    /// The node itself.
    Own(EventAudience),
    /// A node in this collection.
    Child(ChildOrigin),
}

/// A node in a collection, `depth` edges below. From `seen` edges below, the event was delivered before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChildOrigin {
    pub(super) kind: EventKind,
    pub(super) depth: u32,
    pub(super) seen: Option<u32>,
}

impl EventOrigin {
    /// Whether a subscription receives it.
    fn is_for(self, one: &NodeSubscription) -> bool {
        match self {
            EventOrigin::Own(EventAudience::Subscribers) => one.receives_events(),
            EventOrigin::Own(EventAudience::SubscribersAndPending) => one.options.deliver,
            EventOrigin::Child(ChildOrigin { kind, depth, seen }) => {
                one.receives_events() && one.options.wants(kind, depth, seen)
            }
        }
    }

    /// Whether plain subscriptions do.
    pub(super) fn is_for_plain(self) -> bool {
        match self {
            EventOrigin::Own(_) => true,
            EventOrigin::Child(ChildOrigin { kind, depth, seen }) => {
                SubscriptionOptions::default().wants(kind, depth, seen)
            }
        }
    }
}

/// A message to all subscribers. Its stanzas have no `to`.
#[derive(Clone, Debug)]
pub(crate) struct NodeEvent {
    pub(crate) stanza: SharedStanza,
    /// Plain subscribers receive it.
    pub(crate) is_for_plain: bool,
    /// Subscribers that are not plain; several events can share them.
    pub(crate) recipients: Arc<EventRecipients>,
    pub(crate) delivery: EventDelivery,
    /// Who receives it without a subscription; of an account's node only.
    pub(crate) implicit: Option<ImplicitAudience>,
    /// What subscribers must fulfil when they receive it, besides their subscriptions.
    pub(crate) condition: Option<Arc<ReadCondition>>,
}

/// Subscribers that receive an event and are not plain.
#[derive(Debug, Default)]
pub(crate) struct EventRecipients {
    pub(crate) special: Vec<Jid>,
    /// Those that receive it while their presence is one of these.
    pub(crate) with_show: Vec<(Jid, Vec<ShowValue>)>,
    /// Those with several subscriptions, and the identifiers of these, which its stanza must have ([`with_subids`]).
    pub(crate) separate: Arc<[(Jid, Vec<Box<str>>)]>,
}

impl EventRecipients {
    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.special.is_empty() && self.with_show.is_empty() && self.separate.is_empty()
    }
}

/// Contacts of an account that receive an event without a subscription (XEP-0163, section 5). The account itself always does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ImplicitAudience {
    pub(crate) contacts: AudienceContacts,
    /// Contacts that never receive it.
    pub(crate) outcasts: Vec<Jid>,
}

/// Contacts among those who may see the account's presence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AudienceContacts {
    All,
    /// Those in one of these groups of the roster.
    InGroups(Vec<String>),
    /// These.
    Listed(Vec<Jid>),
}

impl PubSubNode {
    /// Sends an event about items. `write` writes the content of `<event/>`.
    pub(super) fn send_event(
        &self,
        ctx: &mut NodeCtx<'_>,
        except: Option<Jid>,
        write: impl Fn(&mut Writer<'_>),
    ) {
        self.send_event_of(ctx, EventKind::Items, EventAudience::Subscribers, except, write);
    }

    /// Sends an event about the node.
    pub(super) fn send_node_event(
        &self,
        ctx: &mut NodeCtx<'_>,
        audience: EventAudience,
        write: impl Fn(&mut Writer<'_>),
    ) {
        self.send_event_of(ctx, EventKind::Nodes, audience, None, write);
    }

    fn send_event_of(
        &self,
        ctx: &mut NodeCtx<'_>,
        kind: EventKind,
        audience: EventAudience,
        except: Option<Jid>,
        write: impl Fn(&mut Writer<'_>),
    ) {
        if !self.config.deliver_notifications {
            return;
        }
        let id = (ctx.new_id)();
        let stanza = SharedStanza::build(|w| {
            w.start("message").attr("from", self.service.as_str()).attr("id", &id);
            self.write_type(w);
            w.start_ns("event", Ns::PubsubEvent);
            write(w);
            w.end().end();
        });
        let Some(stanza) = stanza else { return };
        let presence_based = self.config.presence_based_delivery;
        let delivery = EventDelivery { except, presence_based };
        self.push_event(ctx, stanza.clone(), EventOrigin::Own(audience), delivery.clone());
        self.propagate_to_collections(ctx, kind, (stanza, &id), delivery);
    }

    /// Sends an event to the subscribers that receive it.
    pub(super) fn push_event(
        &self,
        ctx: &mut NodeCtx<'_>,
        stanza: SharedStanza,
        origin: EventOrigin,
        delivery: EventDelivery,
    ) {
        let recipients = self.event_recipients(ctx, origin);
        ctx.notices.push(Notice::Event(NodeEvent {
            stanza,
            is_for_plain: origin.is_for_plain(),
            recipients,
            delivery,
            implicit: self.is_of_account().then(|| self.implicit_audience()),
            condition: self.read_condition(),
        }));
    }

    /// The subscribers that receive an event and are not plain. Events of one input that come from the same distance share them.
    pub(super) fn event_recipients(
        &self,
        ctx: &mut NodeCtx<'_>,
        origin: EventOrigin,
    ) -> Arc<EventRecipients> {
        let child = match origin {
            EventOrigin::Child(child) => Some(child),
            EventOrigin::Own(_) => None,
        };
        if let (Some(child), Some((of, recipients))) = (child, &ctx.recipients)
            && *of == child
        {
            return recipients.clone();
        }
        let recipients = Arc::new(self.find_recipients(origin));
        if let Some(child) = child {
            ctx.recipients = Some((child, recipients.clone()));
        }
        recipients
    }

    fn find_recipients(&self, origin: EventOrigin) -> EventRecipients {
        let receives = |one: &&NodeSubscription| origin.is_for(one);
        let mut special: Vec<Jid> = Vec::new();
        let mut with_show: Vec<(Jid, Vec<ShowValue>)> = Vec::new();
        let mut separate: Vec<(Jid, Vec<Box<str>>)> = Vec::new();
        for of_user in self.special.by_user() {
            let mut of_user: Vec<&NodeSubscription> = of_user.iter().filter(receives).collect();
            of_user.sort_unstable_by_key(|one| (&one.jid, &one.subid));
            for of_jid in of_user.chunk_by(|one, other| one.jid == other.jid) {
                match of_jid {
                    [] => {}
                    [one] => match one.options.wanted_show() {
                        Some(wanted) => with_show.push((one.jid.clone(), wanted.to_vec())),
                        None => special.push(one.jid.clone()),
                    },
                    // Section 7.1.2.4: the headers name the subscriptions.
                    [one, ..] => {
                        let subids = of_jid.iter().map(|one| one.subid.clone()).collect();
                        separate.push((one.jid.clone(), subids));
                    }
                }
            }
        }
        EventRecipients { special, with_show, separate: separate.into() }
    }

    /// What subscribers must fulfil besides their subscriptions, whose right to read may have ended since.
    fn read_condition(&self) -> Option<Arc<ReadCondition>> {
        let model = self.config.access_model;
        let needs_roster = matches!(model, AccessModel::Presence | AccessModel::Roster);
        if !needs_roster && !self.is_of_account() {
            return None;
        }
        let account = self.is_of_account().then(|| self.service.clone());
        let owners =
            || account.clone().map_or_else(|| self.accepted_owners().cloned().collect(), |one| vec![one]);
        let groups = (model == AccessModel::Roster).then(|| self.config.roster_groups.clone());
        // In the order of the map.
        let exempt = self.affiliations.iter().filter(|(_, one)| one.may_always_read());
        Some(Arc::new(ReadCondition {
            owners: needs_roster.then(owners),
            groups,
            exempt: exempt.map(|(jid, _)| jid.clone()).collect(),
            account,
        }))
    }

    fn implicit_audience(&self) -> ImplicitAudience {
        let with = |is_meant: fn(NodeAffiliation) -> bool| {
            let all = self.affiliations.iter().filter(move |(_, one)| is_meant(**one));
            all.map(|(jid, _)| jid.clone()).collect::<Vec<_>>()
        };
        let contacts = match self.config.access_model {
            AccessModel::Open | AccessModel::Presence => AudienceContacts::All,
            AccessModel::Roster => AudienceContacts::InGroups(self.config.roster_groups.clone()),
            // Others must subscribe.
            AccessModel::Authorize | AccessModel::Whitelist => {
                AudienceContacts::Listed(with(NodeAffiliation::may_always_read))
            }
        };
        let outcasts = with(|one| matches!(one, NodeAffiliation::Outcast | NodeAffiliation::PublishOnly));
        ImplicitAudience { contacts, outcasts }
    }

    pub(super) fn write_type(&self, w: &mut Writer<'_>) {
        if self.config.notification_type == NotificationType::Headline {
            w.attr("type", "headline");
        }
    }

    /// Writes an item as it is in events and answers.
    pub(crate) fn write_item(&self, w: &mut Writer<'_>, head: &PubSubItemHead, payload: &[u8]) {
        w.start("item").attr("id", &head.id);
        match self.config.item_reply {
            ItemReply::None => {}
            ItemReply::Publisher => {
                w.attr("publisher", head.publisher.as_str());
            }
            ItemReply::Owner => {
                w.attr_opt("publisher", self.owners().next().map(Jid::as_str));
            }
        }
        w.raw(payload).end();
    }

    /// Sends the last item to one subscriber (section 6.1.7), if there is one.
    pub(crate) fn send_last(&self, ctx: &mut NodeCtx<'_>, to: &Jid) {
        let Some(PubSubItem { head, payload }) = &self.last else { return };
        if !self.config.deliver_notifications {
            return;
        }
        if ctx.last.as_ref().is_none_or(|(seq, _)| *seq != head.seq) {
            let payload: &[u8] = if self.config.deliver_payloads { payload } else { &[] };
            let id = (ctx.new_id)();
            let stanza = SharedStanza::build(|w| {
                w.start("message").attr("from", self.service.as_str()).attr("id", &id);
                self.write_type(w);
                w.start_ns("event", Ns::PubsubEvent).start("items").attr("node", &self.name);
                self.write_item(w, head, payload);
                w.end().end();
                stanza::payload::delay::write(w, self.service.as_str(), head.published);
                w.end();
            });
            ctx.last = stanza.map(|stanza| (head.seq, stanza));
        }
        if let Some((_, stanza)) = &ctx.last {
            ctx.notices.push(Notice::Shared { to: to.clone(), stanza: stanza.clone() });
        }
    }

    /// Tells a subscriber about the state of its subscription (section 12.14).
    pub(super) fn notify_subscription(
        &self,
        ctx: &mut NodeCtx<'_>,
        jid: &Jid,
        state: &str,
        subid: Option<&str>,
    ) {
        self.send_subscription(ctx, jid, jid, state, subid);
    }

    /// `pubsub#notify_sub`: tells the owners about the state of a subscription.
    pub(super) fn notify_owners(&self, ctx: &mut NodeCtx<'_>, jid: &Jid, state: &str, subid: Option<&str>) {
        for owner in self.accepted_owners().take(MAX_NOTIFIED_OWNERS) {
            self.send_subscription(ctx, owner, jid, state, subid);
        }
    }

    fn send_subscription(
        &self,
        ctx: &mut NodeCtx<'_>,
        to: &Jid,
        jid: &Jid,
        state: &str,
        subid: Option<&str>,
    ) {
        self.send_direct(ctx, to, |w| {
            w.start_ns("event", Ns::PubsubEvent);
            write_subscription(w, self.shown_name(), jid, state, subid);
            w.end();
        });
    }

    fn send_direct(&self, ctx: &mut NodeCtx<'_>, to: &Jid, write: impl FnOnce(&mut Writer<'_>)) {
        let id = (ctx.new_id)();
        let stanza = SharedStanza::build(|w| {
            w.start("message").attr("from", self.service.as_str()).attr("to", to.as_str()).attr("id", &id);
            write(w);
            w.end();
        });
        if let Some(stanza) = stanza {
            ctx.notices.push(Notice::Direct { to: to.clone(), stanza });
        }
    }
}

/// An event with the identifiers of subscriptions (section 7.1.2.4).
pub(crate) fn with_subids(event: &SharedStanza, subids: &[Box<str>]) -> Option<SharedStanza> {
    const END: &[u8] = b"</message>";
    // Of a collection's notification, the headers have the name of the collection.
    const HEADERS_END: &[u8] = b"</headers></message>";
    let bytes = event.bytes();
    let (start, end) = match bytes.strip_suffix(HEADERS_END) {
        Some(start) => (start, HEADERS_END),
        None => (bytes.strip_suffix(END)?, END),
    };
    let mut out = start.to_vec();
    let mut w = Writer::new(&mut out);
    if end == END {
        w.start("headers").xmlns(SHIM);
    }
    for subid in subids {
        w.start("header").attr("name", "SubID").text(subid).end();
    }
    if end == END {
        w.end();
    }
    out.extend_from_slice(end);
    SharedStanza::parse(&out)
}
