//! Affiliations: XEP-0060 1.30.0, sections 4.1, 5.7 and 8.9.
//!
//! Not implemented: messages about changed affiliations (section 8.9.4 permits them), by which an owner could make the
//! service write to anybody.

use std::collections::BTreeSet;
use std::ops::Bound;

use jid::Jid;
use stanza::payload::rsm::{PagePosition, RsmRequest, RsmResponse};
use stanza::{ErrorType, StanzaCondition, StanzaError};
use store::PubSubChange;
use xml::{Ns, Writer};

use super::{ENTRY_BYTES, NodeCtx, PAGE_BYTES, PubSubAnswer, PubSubNode, Requester};
use crate::affiliation::{NodeAffiliation, UNCONFIRMED_OWNER};
use crate::node_config::AccessModel;
use crate::pubsub_error::{bad_request, not_found};
use crate::subscription::NodeSubscription;

/// Affiliations of a page.
const MAX_PAGE: u32 = 1_000;

/// Whether the table of section 4.1 has this transition.
fn is_allowed(from: NodeAffiliation, to: NodeAffiliation) -> bool {
    use NodeAffiliation::{Member, None, Outcast, Owner, PublishOnly, Publisher};
    match (from, to) {
        (Owner, Outcast | Member | Publisher | PublishOnly) | (Publisher | PublishOnly, Member) => false,
        (Owner | Publisher | PublishOnly | Member | None | Outcast, _) => true,
    }
}

impl PubSubNode {
    /// Section 5.7, of one node.
    pub(super) fn own_affiliation(&self, requester: &Requester<'_>) -> PubSubAnswer {
        let affiliation = self.affiliation_of(requester.user());
        PubSubAnswer::pubsub(Ns::Pubsub, |w| {
            w.start("affiliations");
            if affiliation != NodeAffiliation::None {
                w.start("affiliation").attr("node", &self.name);
                w.attr("affiliation", affiliation.as_str()).end();
            }
            w.end();
        })
    }

    /// Section 8.9.1, in pages of XEP-0059.
    pub(super) fn list_affiliations(&self, rsm: Option<RsmRequest>) -> Result<PubSubAnswer, StanzaError> {
        let after = match rsm.as_ref().map(|rsm| &rsm.position) {
            None | Some(PagePosition::First) => None,
            Some(PagePosition::After(id)) => Some(Jid::parse(id).map_err(|_| not_found())?),
            Some(_) => return Err(StanzaCondition::FeatureNotImplemented.into()),
        };
        let size = rsm.as_ref().map_or(MAX_PAGE, |rsm| rsm.page_size(MAX_PAGE));
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut bytes = 0;
        let fits = |jid: &&Jid| {
            bytes += jid.as_str().len() + ENTRY_BYTES;
            bytes <= PAGE_BYTES
        };
        let rest = self.affiliations.range((start, Bound::Unbounded)).map(|(jid, _)| jid);
        let page: Vec<&Jid> =
            rest.take(usize::try_from(size).unwrap_or(usize::MAX)).take_while(fits).collect();
        Ok(PubSubAnswer::pubsub(Ns::PubsubOwner, |w| {
            self.write_affiliations(w, page.iter().copied());
            if rsm.is_some() || page.len() < self.affiliations.len() {
                let ends = page.first().zip(page.last()).map(|(first, last)| (first.as_str(), last.as_str()));
                let count = Some(self.affiliations.len() as u64);
                RsmResponse { first_and_last: ends, index: None, count }.write(w);
            }
        }))
    }

    /// The number of an affiliation in the store.
    pub(super) fn stored_number(&self, user: &Jid, affiliation: NodeAffiliation) -> Option<u8> {
        match affiliation {
            NodeAffiliation::Owner if self.unconfirmed.contains(user) => Some(UNCONFIRMED_OWNER),
            other => other.number(),
        }
    }

    fn write_affiliations<'a>(&self, w: &mut Writer<'_>, users: impl Iterator<Item = &'a Jid>) {
        w.start("affiliations").attr("node", &self.name);
        for user in users {
            let affiliation = self.affiliation_of(user.as_ref());
            w.start("affiliation").attr("jid", user.as_str());
            w.attr("affiliation", affiliation.as_str()).end();
        }
        w.end();
    }

    /// Section 8.9.2: what is possible is changed, the rest is in the error.
    pub(super) fn modify_affiliations(
        &mut self,
        ctx: &mut NodeCtx<'_>,
        requester: &Requester<'_>,
        changes: Vec<(Jid, Option<NodeAffiliation>)>,
    ) -> Result<PubSubAnswer, StanzaError> {
        let changes: Vec<(Jid, Option<NodeAffiliation>)> =
            changes.into_iter().map(|(jid, affiliation)| (jid.bare().to_jid(), affiliation)).collect();
        let users: BTreeSet<&Jid> = changes.iter().map(|(jid, _)| jid).collect();
        if users.len() < changes.len() {
            return Err(bad_request("an entity is there twice"));
        }
        let mut failed = Vec::new();
        for (user, affiliation) in changes {
            let Some(affiliation) = affiliation else { continue };
            let before = self.affiliation_of(user.as_ref());
            if before == affiliation {
                continue;
            }
            let is_last_owner = before == NodeAffiliation::Owner && self.owners().count() < 2;
            let is_full =
                before == NodeAffiliation::None && self.affiliations.len() >= ctx.limits.affiliations;
            if is_last_owner || is_full || !is_allowed(before, affiliation) {
                failed.push(user);
                continue;
            }
            if affiliation == NodeAffiliation::Owner && user.as_ref() != requester.user() {
                self.unconfirmed.insert(user.clone());
            } else {
                self.unconfirmed.remove(&user);
            }
            self.set_affiliation(ctx, user, affiliation);
        }
        if failed.is_empty() {
            return Ok(PubSubAnswer::empty());
        }
        let error = StanzaError::new(StanzaCondition::NotAcceptable).kind(ErrorType::Modify);
        Err(error.payload(|w| {
            w.start_ns("pubsub", Ns::PubsubOwner);
            self.write_affiliations(w, failed.iter());
            w.end();
        }))
    }

    /// Sets an affiliation, with what follows for the user's subscriptions (section 8.7.4).
    fn set_affiliation(&mut self, ctx: &mut NodeCtx<'_>, user: Jid, affiliation: NodeAffiliation) {
        let number = self.stored_number(&user, affiliation);
        ctx.changes.push(PubSubChange::Affiliate(user.clone(), number));
        match affiliation {
            NodeAffiliation::None => self.affiliations.remove(&user),
            other => self.affiliations.insert(user.clone(), other),
        };
        let own: Vec<NodeSubscription> = self.special.of_user(user.as_ref()).to_vec();
        if affiliation.may_always_read() {
            for pending in own.into_iter().filter(|one| !one.is_approved()) {
                self.accept_pending(ctx, pending);
            }
            return;
        }
        let loses_access = match affiliation {
            NodeAffiliation::Outcast | NodeAffiliation::PublishOnly => true,
            _ => self.config.access_model == AccessModel::Whitelist,
        };
        if !loses_access {
            return;
        }
        ctx.changes.push(PubSubChange::Unsubscribe(user));
        for one in own {
            self.remove_special(ctx, &one.jid, &one.subid);
            self.notify_subscription(ctx, &one.jid, "none", Some(&one.subid));
        }
    }
}
