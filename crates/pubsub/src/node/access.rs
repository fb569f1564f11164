//! Who may subscribe, retrieve and publish: XEP-0060 1.30.0, sections 4.1, 4.5, 6.5.1 and 7.1.

use stanza::StanzaError;

use super::{PubSubNode, Requester};
use crate::affiliation::NodeAffiliation;
use crate::node_config::{AccessModel, PublishModel};
use crate::pubsub_error::{forbidden, not_subscribed_to_read, pubsub_error, unsupported};
use crate::subscription::NodeSubscription;

/// Result of a request to subscribe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SubscribeDecision {
    Accept,
    /// An owner decides.
    NeedsApproval,
}

impl PubSubNode {
    /// Whether the requester may subscribe (section 6.1.3).
    pub(super) fn check_subscribe(
        &self,
        requester: &Requester<'_>,
    ) -> Result<SubscribeDecision, StanzaError> {
        let affiliation = self.affiliation(requester);
        if matches!(affiliation, NodeAffiliation::Outcast | NodeAffiliation::PublishOnly) {
            return Err(forbidden());
        }
        if requester.is_anonymous {
            return Err(forbidden().kind(stanza::ErrorType::Cancel).text("anonymous users cannot subscribe"));
        }
        if !self.config.subscribe {
            return Err(unsupported("subscribe"));
        }
        if affiliation.may_always_read() {
            return Ok(SubscribeDecision::Accept);
        }
        match self.config.access_model {
            AccessModel::Authorize => Ok(SubscribeDecision::NeedsApproval),
            _ => self.check_model(requester).map(|()| SubscribeDecision::Accept),
        }
    }

    /// Whether the requester may retrieve items (section 6.5.9).
    pub(super) fn check_read(&self, requester: &Requester<'_>) -> Result<(), StanzaError> {
        let affiliation = self.affiliation(requester);
        if matches!(affiliation, NodeAffiliation::Outcast | NodeAffiliation::PublishOnly) {
            return Err(forbidden());
        }
        if affiliation.may_always_read() {
            return Ok(());
        }
        match self.config.access_model {
            AccessModel::Authorize if self.is_subscribed(requester) => Ok(()),
            AccessModel::Authorize => Err(not_subscribed_to_read()),
            _ => self.check_model(requester),
        }
    }

    fn check_model(&self, requester: &Requester<'_>) -> Result<(), StanzaError> {
        let presence = requester.sees_presence;
        match self.config.access_model {
            AccessModel::Open | AccessModel::Authorize => Ok(()),
            AccessModel::Presence if presence => Ok(()),
            AccessModel::Presence => Err(pubsub_error("presence-subscription-required")),
            // Section 6.5.1: subscribed to the owner's presence, and in a group.
            AccessModel::Roster if presence && requester.is_in_group => Ok(()),
            AccessModel::Roster => Err(pubsub_error("not-in-roster-group")),
            AccessModel::Whitelist => Err(pubsub_error("closed-node")),
        }
    }

    /// Whether the requester may publish.
    pub(super) fn check_publish(&self, requester: &Requester<'_>) -> Result<(), StanzaError> {
        let affiliation = self.affiliation(requester);
        let may = affiliation.may_always_publish()
            || affiliation != NodeAffiliation::Outcast
                && match self.config.publish_model {
                    PublishModel::Open => true,
                    // The right to read may have ended since the subscription.
                    PublishModel::Subscribers => {
                        self.is_subscribed(requester) && self.check_read(requester).is_ok()
                    }
                    PublishModel::Publishers => false,
                };
        if may { Ok(()) } else { Err(forbidden()) }
    }

    /// Whether the requester has a subscription that is in force.
    pub(super) fn is_subscribed(&self, requester: &Requester<'_>) -> bool {
        requester.has_plain_subscription
            || self.special.of_user(requester.user()).iter().any(NodeSubscription::is_approved)
    }

    /// Whether a subscriber may stay after a change of the configuration. Owners' rosters are not read for that: presence and
    /// groups were checked when it subscribed.
    pub(crate) fn may_stay_subscribed(&self, subscriber: jid::JidRef<'_>) -> bool {
        let affiliation = self.affiliation_of(subscriber);
        match self.config.access_model {
            _ if affiliation == NodeAffiliation::Outcast => false,
            AccessModel::Whitelist => affiliation.may_always_read(),
            _ => true,
        }
    }
}
