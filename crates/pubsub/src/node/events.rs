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
use crate::node_config::{AccessModel, ItemReply, NotificationType};
use crate::subscription::ShowValue;

const SHIM: &str = "http://jabber.org/protocol/shim";

/// Which subscribers receive an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventAudience {
    /// Those whose subscriptions are in force.
    Subscribers,
    /// Also those that wait for approval.
    SubscribersAndPending,
}

/// A message to all subscribers, plain ones included. Its stanzas have no `to`.
#[derive(Clone, Debug)]
pub(crate) struct NodeEvent {
    pub(crate) stanza: SharedStanza,
    /// Subscribers that are not plain.
    pub(crate) special: Arc<[Jid]>,
    /// Subscribers that receive it while their presence is one of these.
    pub(crate) with_show: Vec<(Jid, Vec<ShowValue>)>,
    /// Subscribers with several subscriptions, each with a stanza of its own.
    pub(crate) separate: Vec<(Jid, SharedStanza)>,
    /// A user who does not receive it.
    pub(crate) except: Option<Jid>,
    /// Only available users receive it.
    pub(crate) presence_based: bool,
    /// Who receives it without a subscription; of an account's node only.
    pub(crate) implicit: Option<ImplicitAudience>,
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
    /// Sends an event. `write` writes the content of `<event/>`.
    pub(super) fn send_event(
        &self,
        ctx: &mut NodeCtx<'_>,
        audience: EventAudience,
        except: Option<Jid>,
        write: impl Fn(&mut Writer<'_>),
    ) {
        if !self.config.deliver_notifications {
            return;
        }
        let id = (ctx.new_id)();
        let build = |subids: &[&str]| {
            SharedStanza::build(|w| {
                w.start("message").attr("from", self.service.as_str()).attr("id", &id);
                self.write_type(w);
                w.start_ns("event", Ns::PubsubEvent);
                write(w);
                w.end();
                write_headers(w, subids);
                w.end();
            })
        };
        let Some(stanza) = build(&[]) else { return };
        let receives = |pending: bool| match audience {
            EventAudience::Subscribers => !pending,
            EventAudience::SubscribersAndPending => true,
        };
        let mut special: Vec<Jid> = Vec::new();
        let mut with_show: Vec<(Jid, Vec<ShowValue>)> = Vec::new();
        let mut separate: Vec<(Jid, SharedStanza)> = Vec::new();
        let mut all: Vec<_> = self
            .special
            .iter()
            .filter(|one| receives(!one.is_approved()) && one.options.deliver)
            .map(|one| (&one.jid, &*one.subid, one.options.wanted_show()))
            .collect();
        all.sort_unstable_by_key(|(jid, subid, _)| (*jid, *subid));
        for of_one in all.chunk_by(|one, other| one.0 == other.0) {
            let Some((jid, _, wanted)) = of_one.first() else { continue };
            if of_one.len() == 1 {
                match wanted {
                    Some(wanted) => with_show.push(((*jid).clone(), wanted.to_vec())),
                    None => special.push((*jid).clone()),
                }
                continue;
            }
            // Section 7.1.2.4: the headers name the subscriptions.
            let subids: Vec<&str> = of_one.iter().map(|(_, subid, _)| *subid).collect();
            separate.extend(build(&subids).map(|stanza| ((*jid).clone(), stanza)));
        }
        ctx.notices.push(Notice::Event(NodeEvent {
            stanza,
            special: special.into(),
            with_show,
            separate,
            except,
            presence_based: self.config.presence_based_delivery,
            implicit: self.is_of_account().then(|| self.implicit_audience()),
        }));
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

    fn write_type(&self, w: &mut Writer<'_>) {
        if self.config.notification_type == NotificationType::Headline {
            w.attr("type", "headline");
        }
    }

    /// Writes an item as it is in events and answers.
    pub(super) fn write_item(&self, w: &mut Writer<'_>, head: &PubSubItemHead, payload: &[u8]) {
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
        let payload: &[u8] = if self.config.deliver_payloads { payload } else { &[] };
        self.send_direct(ctx, to, |w| {
            self.write_type(w);
            w.start_ns("event", Ns::PubsubEvent).start("items").attr("node", &self.name);
            self.write_item(w, head, payload);
            w.end().end();
            stanza::payload::delay::write(w, self.service.as_str(), head.published);
        });
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
        for owner in self.owners().take(MAX_NOTIFIED_OWNERS) {
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
            write_subscription(w, Some(&self.name), jid, state, subid);
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

/// Section 7.1.2.4.
fn write_headers(w: &mut Writer<'_>, subids: &[&str]) {
    if subids.is_empty() {
        return;
    }
    w.start("headers").xmlns(SHIM);
    for subid in subids {
        w.start("header").attr("name", "SubID").text(subid).end();
    }
    w.end();
}
