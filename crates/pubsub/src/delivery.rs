//! Sends the notices of a node: an event is one multicast, which costs one message for each node of a cluster.

use std::borrow::Cow;
use std::sync::Arc;

use base::BoxFuture;
use jid::Jid;
use stanza::{MessageType, StanzaCondition, StanzaKind};
use throng_core::multicast::Multicast;
use throng_core::session::Session;
use throng_core::{Effect, Effects, Node, SharedStanza, StanzaSource, UndeliveredRecipient};
use xml::Ns;

use crate::node::{NodeEvent, Notice};
use crate::pubsub_host::ImplicitRecipients;
use crate::pubsub_shared::{NodeInput, NodeMessage, PubSubShared};
use crate::subscription::ShowValue;

/// Notices to send.
pub(crate) struct Delivery {
    key: Jid,
    shared: Arc<PubSubShared>,
    node: Arc<Node>,
    notices: Vec<Notice>,
}

impl Delivery {
    pub(crate) fn new(
        key: &Jid,
        shared: &Arc<PubSubShared>,
        node: &Arc<Node>,
        notices: Vec<Notice>,
    ) -> Delivery {
        Delivery { key: key.clone(), shared: shared.clone(), node: node.clone(), notices }
    }

    /// Whether plain subscribers must be known.
    pub(crate) fn is_for_all(&self) -> bool {
        self.notices.iter().any(|notice| matches!(notice, Notice::Event(_)))
    }

    /// Whether only users who are online receive the events, and this node knows them all.
    pub(crate) fn is_for_online(&self) -> bool {
        let is_missed = |notice: &Notice| match notice {
            Notice::Event(event) => event.stanza.kind() == StanzaKind::Message(MessageType::Headline),
            Notice::Direct { .. } => true,
        };
        self.node.is_single() && self.notices.iter().all(is_missed)
    }

    /// Sends all notices; these are the plain subscribers. Returns what must be awaited before the next notices.
    pub(crate) fn perform_to(&self, plain: &Arc<[Jid]>) -> Option<BoxFuture<'static, ()>> {
        self.perform(plain, true)
    }

    /// Sends events to a page of plain subscribers; with the last page, everything else.
    pub(crate) fn perform_page(&self, page: &Arc<[Jid]>, is_last: bool) -> Option<BoxFuture<'static, ()>> {
        self.perform(page, is_last)
    }

    fn perform(&self, plain: &Arc<[Jid]>, is_last: bool) -> Option<BoxFuture<'static, ()>> {
        if self.notices.is_empty() {
            return None;
        }
        let service = self.key.bare().to_jid();
        let mut effects = Effects::default();
        let mut later: Vec<(SharedStanza, BoxFuture<'static, Arc<[Jid]>>)> = Vec::new();
        for notice in &self.notices {
            match notice {
                Notice::Event(event) => {
                    self.multicast(&mut effects, &service, event, (plain, is_last));
                    if is_last && event.implicit.is_some() {
                        let subscribed: Vec<Jid> = plain
                            .iter()
                            .chain(event.special.iter())
                            .filter(|one| one.is_bare())
                            .cloned()
                            .collect();
                        match self.shared.host.implicit_recipients(&self.node, &self.key, event, &subscribed)
                        {
                            ImplicitRecipients::Known(known) if known.is_empty() => {}
                            ImplicitRecipients::Known(known) => {
                                effects.multicast(implicit_multicast(&event.stanza, &service, known));
                            }
                            ImplicitRecipients::Later(read) => later.push((event.stanza.clone(), read)),
                        }
                    }
                }
                Notice::Direct { to, stanza } if is_last => {
                    route(&mut effects, &service, to, stanza.clone());
                }
                Notice::Direct { .. } => {}
            }
        }
        let performed = self.node.perform_in_order(effects);
        if later.is_empty() {
            return performed;
        }
        let node = self.node.clone();
        Some(Box::pin(async move {
            if let Some(rest) = performed {
                rest.await;
            }
            for (stanza, read) in later {
                let recipients = read.await;
                if recipients.is_empty() {
                    continue;
                }
                let mut effects = Effects::default();
                effects.multicast(implicit_multicast(&stanza, &service, recipients));
                if let Some(rest) = node.perform_in_order(effects) {
                    rest.await;
                }
            }
        }))
    }

    fn multicast(
        &self,
        effects: &mut Effects,
        service: &Jid,
        event: &NodeEvent,
        (plain, is_last): (&Arc<[Jid]>, bool),
    ) {
        let special: &[Jid] = if is_last { &event.special } else { &[] };
        // Without exceptions the list is shared with the task.
        let with_show: Vec<Jid> = match is_last {
            true => event
                .with_show
                .iter()
                .filter(|one| has_show(&self.node, one))
                .map(|one| one.0.clone())
                .collect(),
            false => Vec::new(),
        };
        let special: Cow<'_, [Jid]> = match with_show.is_empty() {
            true => Cow::Borrowed(special),
            false => Cow::Owned([special, &with_show].concat()),
        };
        let recipients = match special.is_empty() && event.except.is_none() && !event.presence_based {
            true => plain.clone(),
            false => self.select(event, plain, &special),
        };
        if !recipients.is_empty() {
            let report = self.report();
            let multicast = Multicast::new(event.stanza.clone(), service.clone(), recipients).on_undelivered(
                move |node: &Arc<Node>, lost: Vec<UndeliveredRecipient>| {
                    report(node, lost);
                    Effects::default()
                },
            );
            effects.multicast(multicast);
        }
        if is_last {
            for (to, stanza) in event.separate.iter().filter(|(to, _)| self.receives(event, to)) {
                if let Some(stanza) = stanza.with_to(Some(to.as_ref())) {
                    route(effects, service, to, stanza);
                }
            }
        }
    }

    fn select(&self, event: &NodeEvent, plain: &[Jid], special: &[Jid]) -> Arc<[Jid]> {
        plain.iter().chain(special).filter(|jid| self.receives(event, jid)).cloned().collect()
    }

    fn receives(&self, event: &NodeEvent, jid: &Jid) -> bool {
        event.except.as_ref().is_none_or(|one| one.as_ref() != jid.bare())
            && (!event.presence_based || is_available(&self.node, jid))
    }

    /// Sends subscribers that do not exist any more to the task (section 12.4).
    fn report(&self) -> impl Fn(&Arc<Node>, Vec<UndeliveredRecipient>) + Send + 'static {
        let (key, tasks) = (self.key.clone(), self.shared.tasks());
        move |node, lost| {
            let is_gone = |one: &UndeliveredRecipient| {
                matches!(one.condition, StanzaCondition::ItemNotFound | StanzaCondition::Gone)
            };
            let lost: Vec<Jid> = lost.into_iter().filter(is_gone).map(|one| one.to).collect();
            let Some(tasks) = tasks.as_ref().filter(|_| !lost.is_empty()) else { return };
            let size = lost.iter().map(|one| one.as_str().len() + 32).sum();
            let message = NodeMessage { node: node.clone(), input: NodeInput::SubscribersLost(lost) };
            // The node's task may be the caller, so it must not wait; a full mailbox means that a later event reports them.
            let _ = tasks.try_send(&node.spawner, &key, message, size);
        }
    }
}

/// An event to those who receive it without a subscription: one that cannot is not interested any more.
pub(crate) fn implicit_multicast(stanza: &SharedStanza, service: &Jid, recipients: Arc<[Jid]>) -> Multicast {
    Multicast::new(stanza.clone(), service.clone(), recipients)
        .on_undelivered(|_: &Arc<Node>, _: Vec<UndeliveredRecipient>| Effects::default())
}

fn route(effects: &mut Effects, from: &Jid, to: &Jid, stanza: SharedStanza) {
    let (from, to) = (from.clone(), to.clone());
    effects.add(Effect::RouteInLane { source: StanzaSource::Service, stanza, from, to });
}

/// Whether the presence of a subscriber is one of those that it wants events for (section 16.4.2). Of a user without a session
/// on this node it is not known, and the event is sent.
fn has_show(node: &Node, (jid, wanted): &(Jid, Vec<ShowValue>)) -> bool {
    let Some(account) = node.routing_table.find(jid.as_ref()) else {
        return !node.is_single() || node.host(jid.domain()).is_none();
    };
    let matches = |session: &Arc<Session>| {
        let Some(presence) = session.with(|state| state.presence.clone()) else { return false };
        let Ok(tree) = presence.tree() else { return false };
        let show = tree.root().child("show", Ns::Client).map(|show| show.text().into_owned());
        ShowValue::from_show(show.as_deref().unwrap_or_default()).is_some_and(|show| wanted.contains(&show))
    };
    match jid.resource() {
        Some(resource) => account.session(resource).is_some_and(|session| matches(&session)),
        None => account.sessions().iter().any(matches),
    }
}

/// Whether a user is available, as far as this node knows: presence of other servers is not subscribed to, so their users count
/// as available.
fn is_available(node: &Node, user: &Jid) -> bool {
    if node.host(user.domain()).is_none() {
        return true;
    }
    let account = node.routing_table.find(user.as_ref());
    let is_here = account.is_some_and(|account| match user.resource() {
        Some(resource) => account.session(resource).is_some_and(|session| session.is_available()),
        None => account.sessions().iter().any(|session| session.is_available()),
    });
    if is_here || node.is_single() {
        return is_here;
    }
    let own = node.cluster.node();
    node.cluster.locate(node.routing_table.hash(user.as_ref()), None).other_nodes(own).next().is_some()
}
