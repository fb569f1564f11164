//! Options of subscriptions: XEP-0060 1.30.0, sections 6.3 and 6.4.

use stanza::StanzaError;
use stanza::payload::data_form::{DataForm, FormKind};
use xml::Ns;

use super::collections::OptionsTarget;
use super::subscribing::{FoundSubscription, limit_lease};
use super::{NodeCtx, PubSubAnswer, PubSubNode, Requester};
use crate::collection_config::NodeType;
use crate::pubsub_error::pubsub_error;
use crate::request::SubscriptionKey;
use crate::subscription::SubscriptionOptions;

impl PubSubNode {
    pub(super) fn subscription_options(
        &self,
        requester: &Requester<'_>,
        key: &SubscriptionKey,
    ) -> Result<PubSubAnswer, StanzaError> {
        let (jid, found) = self.find_for_options(requester, key)?;
        let special = match found {
            FoundSubscription::Plain => None,
            FoundSubscription::Special(one) => Some(one),
        };
        let options = special.as_ref().map(|one| one.options.clone()).unwrap_or_default();
        Ok(PubSubAnswer::pubsub(Ns::Pubsub, |w| {
            w.start("options").attr_opt("node", self.shown_name()).attr("jid", jid.as_str());
            w.attr_opt("subid", special.as_ref().map(|one| &*one.subid));
            options.form(FormKind::Form, self.node_type()).write(w);
            w.end();
        }))
    }

    pub(super) fn set_subscription_options(
        &mut self,
        ctx: &mut NodeCtx<'_>,
        requester: &Requester<'_>,
        key: &SubscriptionKey,
        form: &DataForm,
    ) -> Result<PubSubAnswer, StanzaError> {
        let (jid, found) = self.find_for_options(requester, key)?;
        if form.kind == FormKind::Cancel {
            return Ok(PubSubAnswer::empty());
        }
        let special = match found {
            FoundSubscription::Plain => None,
            FoundSubscription::Special(one) => Some(one),
        };
        let mut options = special.as_ref().map(|one| one.options.clone()).unwrap_or_default();
        options.submit(form, ctx.limits.form_fields, self.node_type())?;
        let target = key.subid.as_deref().map_or(OptionsTarget::TheOnlyOne, OptionsTarget::Subid);
        self.check_collection_options(requester, &jid, target, &options)?;
        limit_lease(&mut options, ctx.now);
        match special {
            Some(mut one) => {
                one.options = options;
                self.put_special(ctx, one);
            }
            None if options == SubscriptionOptions::default() => {}
            None => {
                self.check_special_capacity(ctx, 1)?;
                self.make_special(ctx, &jid, options);
            }
        }
        Ok(PubSubAnswer::empty())
    }

    fn find_for_options(
        &self,
        requester: &Requester<'_>,
        key: &SubscriptionKey,
    ) -> Result<(jid::Jid, FoundSubscription), StanzaError> {
        self.find_subscription(requester, key).map_err(|error| {
            // Section 6.3.4.2: of type modify, unlike the one of section 6.2.3.2.
            let is_absent = error.condition == stanza::StanzaCondition::UnexpectedRequest;
            if is_absent { pubsub_error("not-subscribed").kind(stanza::ErrorType::Modify) } else { error }
        })
    }
}

/// Section 6.4: the same for all nodes of a type.
pub(crate) fn default_options(node: Option<&str>, node_type: NodeType) -> PubSubAnswer {
    PubSubAnswer::pubsub(Ns::Pubsub, |w| {
        w.start("default").attr_opt("node", node);
        SubscriptionOptions::default().form(FormKind::Result, node_type).write(w);
        w.end();
    })
}
