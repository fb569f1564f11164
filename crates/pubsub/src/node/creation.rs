//! Creation of nodes: XEP-0060 1.30.0, sections 7.1.4 and 8.1.

use std::collections::{BTreeMap, BTreeSet};

use jid::Jid;
use stanza::StanzaError;
use stanza::payload::data_form::DataForm;
use store::PubSubChange;
use xml::Ns;

use super::collections::{ROOT_NODE, RecentEvents};
use super::items::ItemIndex;
use super::publishing::precondition_form;
use super::special_subscriptions::SpecialSubscriptions;
use super::{NodeCtx, NodeState, PubSubAnswer, PubSubNode};
use crate::affiliation::NodeAffiliation;
use crate::collection_config::CollectionConfig;
use crate::node_config::PubSubNodeConfig;
use crate::pubsub_error::pubsub_error;

impl PubSubNode {
    /// A node that its first owner creates, with the default configuration and what the request says.
    ///
    /// # Errors
    /// The configuration is refused (section 8.1.2).
    pub(crate) fn create(
        ctx: &mut NodeCtx<'_>,
        service: Jid,
        name: String,
        creator: Jid,
        (defaults, form): (PubSubNodeConfig, Option<&DataForm>),
    ) -> Result<(PubSubNode, PubSubAnswer), StanzaError> {
        let mut config = defaults;
        if let Some(form) = form {
            config.submit(form, ctx.limits)?;
        }
        let mut node = PubSubNode::with_config(ctx, service, name, creator, config);
        if let Err(error) = node.change_graph(ctx, &CollectionConfig::default(), true) {
            ctx.changes.clear();
            return Err(error);
        }
        node.announce_creation(ctx);
        let answer = PubSubAnswer::pubsub(Ns::Pubsub, |w| {
            w.start("create").attr("node", &node.name).end();
        });
        Ok((node, answer))
    }

    /// A node that is created by a publication, with its preconditions as configuration (section 7.1.5).
    ///
    /// # Errors
    /// The preconditions cannot be met.
    pub(crate) fn auto_create(
        ctx: &mut NodeCtx<'_>,
        service: Jid,
        name: String,
        creator: Jid,
        (defaults, options): (PubSubNodeConfig, Option<&DataForm>),
    ) -> Result<PubSubNode, StanzaError> {
        let mut config = defaults;
        if let Some(options) = options {
            let graph = config.graph.clone();
            let not_met = || pubsub_error("precondition-not-met");
            let form = precondition_form(options, &config, ctx.limits).ok_or_else(not_met)?;
            config.submit(&form, ctx.limits).map_err(|_| not_met())?;
            // Whether the collections admit the node is not known here.
            if config.graph != graph {
                return Err(not_met());
            }
        }
        let node = PubSubNode::with_config(ctx, service, name, creator, config);
        node.announce_creation(ctx);
        Ok(node)
    }

    /// The root node, which the service owns (XEP-0248, section 8.1).
    pub(crate) fn create_root(ctx: &mut NodeCtx<'_>, service: Jid) -> PubSubNode {
        let config = PubSubNodeConfig::of_collection(ctx.limits);
        PubSubNode::with_config(ctx, service.clone(), ROOT_NODE.to_owned(), service, config)
    }

    fn with_config(
        ctx: &mut NodeCtx<'_>,
        service: Jid,
        name: String,
        creator: Jid,
        config: PubSubNodeConfig,
    ) -> PubSubNode {
        let creator = creator.bare().to_jid();
        let node = PubSubNode {
            service,
            name,
            created: ctx.now,
            config,
            affiliations: BTreeMap::from([(creator.clone(), NodeAffiliation::Owner)]),
            unconfirmed: BTreeSet::new(),
            special: SpecialSubscriptions::default(),
            recent: RecentEvents::default(),
            items: ItemIndex::default(),
            last: None,
            redirect: None,
            state: NodeState::Alive,
            creator,
        };
        node.put_record(ctx);
        ctx.changes.push(PubSubChange::Affiliate(node.creator.clone(), NodeAffiliation::Owner.number()));
        node
    }
}
