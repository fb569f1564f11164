//! What a node must know about the sender of an input, from its own memory or from the store: its subscription, how many it
//! has, and what the rosters of the owners say.

use std::sync::Arc;

use jid::Jid;
use store::{AddressId, StoreError};
use throng_core::Node;

use crate::node::{PubSubNode, ROOT_NODE, Requester};
use crate::node_config::{AccessModel, PublishModel, SendLast};
use crate::node_task::NodeTask;
use crate::plain_subscriptions::PlainSubscriptions;
use crate::pubsub_host::{PubSubHost, Relation, has_account};
use crate::pubsub_shared::{NodeInput, UserChange};
use crate::request::{NodeRequest, SubscriptionChange};

/// What the task found out about the sender of an input.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RequesterFacts {
    pub(crate) has_plain_subscription: bool,
    pub(crate) relation: Relation,
    pub(crate) has_room_for_subscription: bool,
    /// Known where it matters: for subscriptions and the creation of nodes.
    pub(crate) has_account: bool,
    pub(crate) created_nodes: u64,
}

impl NodeTask {
    /// What must be known about the sender of an input, if it is not yet: `None` if it is.
    pub(crate) async fn facts(
        &mut self,
        node: &Arc<Node>,
        input: &mut NodeInput,
    ) -> Result<RequesterFacts, StoreError> {
        let mut facts = self.known_facts(node, input);
        self.read_associated_nodes(node, input).await?;
        let (user, request) = match input {
            NodeInput::Request { request: NodeRequest::ModifySubscriptions(changes), from, .. }
                if self.is_owned_by(node, from) =>
            {
                self.read_subscribers_of(node, from, changes).await?;
                return Ok(facts);
            }
            NodeInput::Request { request, from, .. }
            | NodeInput::Conversion { request, account: from, .. } => (&*from, Some(&*request)),
            NodeInput::UserChanged { user, change: UserChange::Available } => (&*user, None),
            NodeInput::Interested { user } => return self.facts_of_interested(node, user).await,
            _ => return Ok(facts),
        };
        let stores = node.stores.clone();
        let options = self.shared.options();
        if self.node.is_none() {
            let creates = request.is_some_and(|request| self.may_create(request));
            if creates {
                facts.has_account = has_account(node, user.as_ref()).await?;
                let reservation = self.shared.new_nodes.reserve(user);
                let stored = stores.pubsub.count_created(user.bare(), options.nodes_per_user).await?;
                facts.created_nodes = stored + reservation.others;
                self.reservation = Some(reservation);
            }
            return Ok(facts);
        }
        let subject = self.subject(node, request, user);
        if self.needs_subscription(request, user) {
            facts.has_plain_subscription = match self.is_subscribed(node, &subject) {
                Some(known) => known,
                None => PlainSubscriptions(&stores).contains(self.key.as_ref(), subject.as_ref()).await?,
            };
        }
        if matches!(request, Some(NodeRequest::Subscribe { .. })) {
            let most = options.subscriptions_per_user;
            let reservation = self.shared.new_subscriptions.reserve(&subject);
            let count = PlainSubscriptions(&stores).count_of_user(subject.as_ref(), most).await?;
            let count = count + reservation.others;
            facts.has_account = has_account(node, user.as_ref()).await?;
            facts.has_room_for_subscription = node.is_admin(user.bare()) || count < u64::from(most);
            self.reservation = Some(reservation);
        }
        if let Some((owners, groups)) = self.needs_relation(request, user) {
            let (host, service) = (&self.shared.host, self.key.bare());
            let relation = host.relation(node, service, owners, user.bare().to_jid(), groups);
            facts.relation = relation.await?;
        }
        Ok(facts)
    }

    /// Whether a request creates a node that does not exist.
    fn may_create(&self, request: &NodeRequest) -> bool {
        match request {
            NodeRequest::Create { .. } | NodeRequest::Publish { .. } => true,
            // The root node exists when somebody subscribes to it.
            NodeRequest::Subscribe { .. } => self.key.resource() == Some(ROOT_NODE),
            _ => false,
        }
    }

    /// Whether a user owns the node.
    pub(crate) fn is_owned_by(&self, node: &Node, user: &Jid) -> bool {
        let requester = requester((node, &*self.shared.host), user, &RequesterFacts::default(), false);
        self.node.as_ref().is_some_and(|one| one.is_owner(&requester))
    }

    /// Reads what must be known about those whose subscriptions an owner changes.
    async fn read_subscribers_of(
        &self,
        node: &Arc<Node>,
        owner: &Jid,
        changes: &mut [SubscriptionChange],
    ) -> Result<(), StoreError> {
        let most = self.shared.options().subscriptions_per_user;
        let plain = PlainSubscriptions(&node.stores);
        for change in changes.iter_mut().filter(|change| change.subscription.is_some()) {
            let user = change.jid.bare().to_jid();
            let is_subscribed = match self.is_subscribed(node, &user) {
                Some(known) => known,
                None => plain.contains(self.key.as_ref(), user.as_ref()).await?,
            };
            change.subscriber.has_plain_subscription = is_subscribed;
            let is_unchanged = is_subscribed && change.jid.is_bare();
            if is_unchanged || change.subscription.as_deref() != Some("subscribed") {
                continue;
            }
            let is_own = user.as_ref() == owner.bare();
            // Others leave room for the subscriptions that a user wants.
            let most = if is_own { most } else { most.div_ceil(2) };
            // Both are read for every address, so that the time does not tell which accounts exist.
            let exists = !is_account(node, &user) || node.stores.accounts.exists(user.as_ref()).await?;
            let has_room = plain.count_of_user(user.as_ref(), most).await? < u64::from(most);
            change.subscriber.exists = exists;
            change.subscriber.is_admitted = has_room || node.is_admin(owner.bare());
        }
        Ok(())
    }

    /// What must be known about a user who may see the presence of the account.
    async fn facts_of_interested(
        &mut self,
        node: &Arc<Node>,
        user: &Jid,
    ) -> Result<RequesterFacts, StoreError> {
        let mut facts = RequesterFacts::default();
        facts.relation.sees_presence = true;
        let Some(one) = &self.node else { return Ok(facts) };
        match one.config().access_model {
            AccessModel::Roster => {
                let groups = one.config().roster_groups.clone();
                let (host, service) = (&self.shared.host, self.key.bare());
                let relation = host.relation(node, service, Vec::new(), user.bare().to_jid(), groups);
                facts.relation = relation.await?;
            }
            AccessModel::Authorize => {
                let subject = user.bare();
                facts.has_plain_subscription =
                    match self.subscribers.contains(subject, || account_number(node, &subject.to_jid())) {
                        Some(known) => known,
                        None => PlainSubscriptions(&node.stores).contains(self.key.as_ref(), subject).await?,
                    };
            }
            _ => {}
        }
        Ok(facts)
    }

    /// What the task knows about the sender of an input without the store.
    pub(crate) fn known_facts(&self, node: &Node, input: &NodeInput) -> RequesterFacts {
        let subject = match input {
            NodeInput::Request { request, from, .. }
            | NodeInput::Conversion { request, account: from, .. } => self.subject(node, Some(request), from),
            NodeInput::UserChanged { user, .. } => self.subject(node, None, user),
            NodeInput::Interested { .. } => {
                let relation = Relation { sees_presence: true, is_in_group: false };
                return RequesterFacts { relation, ..RequesterFacts::default() };
            }
            _ => return RequesterFacts::default(),
        };
        let has_plain_subscription = self.is_subscribed(node, &subject).unwrap_or(false);
        RequesterFacts { has_plain_subscription, ..RequesterFacts::default() }
    }

    /// Whether a user has a plain subscription; `None` if only the store knows.
    fn is_subscribed(&self, node: &Node, user: &Jid) -> Option<bool> {
        self.subscribers.contains(user.as_ref(), || account_number(node, user))
    }

    /// The owners and groups that a request, or presence, must be compared with.
    fn needs_relation(&self, request: Option<&NodeRequest>, user: &Jid) -> Option<(Vec<Jid>, Vec<String>)> {
        let node = self.node.as_ref()?;
        let config = node.config();
        let groups = match config.access_model {
            AccessModel::Presence => Vec::new(),
            AccessModel::Roster => config.roster_groups.clone(),
            _ => return None,
        };
        let needs = match request {
            None => config.send_last == SendLast::OnSubAndPresence,
            // Whether the node exists is a secret for those who may not read it.
            Some(_) if node.is_of_account() => user.bare() != self.key.bare(),
            Some(NodeRequest::Subscribe { .. } | NodeRequest::Items(_) | NodeRequest::DiscoItems(_)) => true,
            Some(NodeRequest::Publish { .. } | NodeRequest::Retract { .. }) => {
                config.publish_model == PublishModel::Subscribers
            }
            Some(_) => false,
        };
        needs.then(|| (node.accepted_owners().cloned().collect(), groups))
    }

    /// Whether a request, or presence, depends on a plain subscription.
    fn needs_subscription(&self, request: Option<&NodeRequest>, user: &Jid) -> bool {
        let is_of_another =
            self.node.as_ref().is_some_and(PubSubNode::is_of_account) && user.bare() != self.key.bare();
        is_of_another || request.is_none_or(needs_subscription)
    }

    /// The bare address whose subscription a request is about: only administrators can name others.
    fn subject(&self, node: &Node, request: Option<&NodeRequest>, from: &Jid) -> Jid {
        let may_name = |jid: &&Jid| {
            jid.bare() == from.bare() || self.shared.host.admins_are_owners() && node.is_admin(from.bare())
        };
        request.and_then(named_subscriber).filter(may_name).unwrap_or(from).bare().to_jid()
    }

    /// Whether an input can be handled without the store.
    pub(crate) fn is_ready(&self, node: &Node, input: &NodeInput) -> bool {
        let lacks_last = self.node.as_ref().is_some_and(PubSubNode::lacks_last);
        if !self.is_loaded || lacks_last || self.must_flush() {
            return false;
        }
        let (from, request) = match input {
            NodeInput::Request {
                request: NodeRequest::ModifySubscriptions(_) | NodeRequest::Dissociate(_),
                ..
            }
            | NodeInput::Request { guard: Some(_), .. } => return false,
            NodeInput::Request { request, from, .. }
            | NodeInput::Conversion { request, account: from, .. } => (from, Some(request)),
            NodeInput::UserChanged { user, change: UserChange::Available } => (user, None),
            NodeInput::Interested { .. } => {
                let model = self.node.as_ref().map(|one| one.config().access_model);
                return !matches!(model, Some(AccessModel::Roster | AccessModel::Authorize));
            }
            _ => return true,
        };
        if self.node.is_none() {
            return !request.is_some_and(|request| self.may_create(request));
        }
        let is_subscribe = matches!(request, Some(NodeRequest::Subscribe { .. }));
        let subject = self.subject(node, request, from);
        let knows_subscription =
            !self.needs_subscription(request, from) || self.is_subscribed(node, &subject).is_some();
        !is_subscribe && knows_subscription && self.needs_relation(request, from).is_none()
    }
}

/// The number of a user who is online on this node.
pub(crate) fn account_number(node: &Node, user: &Jid) -> Option<AddressId> {
    let account = node.routing_table.find(user.as_ref())?;
    Some(account.id).filter(|id| *id != AddressId::UNASSIGNED)
}

/// Whether an address is that of an account of this server, which may not exist.
pub(crate) fn is_account(node: &Node, jid: &Jid) -> bool {
    jid.local().is_some() && node.host(jid.domain()).is_some()
}

/// Who an input comes from.
pub(crate) fn requester<'a>(
    (node, host): (&Node, &dyn PubSubHost),
    user: &'a Jid,
    facts: &RequesterFacts,
    is_operator: bool,
) -> Requester<'a> {
    Requester {
        jid: user,
        is_admin: is_operator || host.admins_are_owners() && node.is_admin(user.bare()),
        is_anonymous: !is_operator && !facts.has_account,
        has_plain_subscription: facts.has_plain_subscription,
        sees_presence: facts.relation.sees_presence,
        is_in_group: facts.relation.is_in_group,
        may_subscribe: facts.has_room_for_subscription,
    }
}

/// Whether a request depends on a plain subscription.
fn needs_subscription(request: &NodeRequest) -> bool {
    matches!(
        request,
        NodeRequest::Subscribe { .. }
            | NodeRequest::Unsubscribe(_)
            | NodeRequest::GetOptions(_)
            | NodeRequest::SetOptions(..)
            | NodeRequest::Items(_)
            | NodeRequest::DiscoItems(_)
            | NodeRequest::Publish { .. }
            | NodeRequest::Retract { .. }
            | NodeRequest::OwnSubscriptions
    )
}

/// The address that a request names as the subscriber.
fn named_subscriber(request: &NodeRequest) -> Option<&Jid> {
    match request {
        NodeRequest::Subscribe { jid, .. } => Some(jid),
        NodeRequest::Unsubscribe(key) | NodeRequest::GetOptions(key) | NodeRequest::SetOptions(key, _) => {
            key.jid.as_ref()
        }
        _ => None,
    }
}
