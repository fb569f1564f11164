//! `pubsub:*` requests of Tsung scenarios.
//!
//! The name of a node that does not begin with a slash is relative to the user, as in Tsung: `home`, the domain,
//! the user and the node are its parts.
//!
//! Not implemented: instant nodes, types and configuration of nodes; subscriptions to nodes that are relative to another user.

use super::reader::{TsungReader, XmlNode, attribute};
use super::request::{TsungAck, TsungRequest};
use super::session_flow::SessionFlow;
use crate::plan::{
    MessageBody, PlanStep, PubSubNodeSelection, PubSubStep, ResponseChecks, TemplatePart, TextTemplate,
};

/// Tsung's default address of the service.
const DEFAULT_SERVICE: &str = "pubsub.localhost";

impl TsungReader<'_> {
    pub(super) fn pubsub(
        &mut self,
        request: TsungRequest<'_>,
        flow: &mut SessionFlow,
        steps: &mut Vec<PlanStep>,
    ) {
        let (node, kind) = (request.node, request.kind);
        let is_own = !matches!(kind, "pubsub:subscribe" | "pubsub:unsubscribe");
        let Some(name) = self.node_name(node, flow, kind, (request.subst, is_own)) else { return };
        for ignored in ["node_type", "data"].into_iter().filter(|name| attribute(node, name).is_some()) {
            self.note(node, format!("{kind}: {ignored} is ignored: nodes have the default configuration"));
        }
        self.settings.pubsub_service.get_or_insert_with(|| DEFAULT_SERVICE.to_owned());
        let plain = request.checks == ResponseChecks::default();
        let wait = plain && matches!(request.wait, TsungAck::Packet | TsungAck::Everybody);
        let name = PubSubNodeSelection::Named(name);
        let step = match kind {
            "pubsub:create" => PubSubStep::Create { node: name, wait },
            "pubsub:delete" => PubSubStep::Delete { node: name, wait },
            "pubsub:subscribe" => PubSubStep::Subscribe { node: name, wait },
            "pubsub:unsubscribe" => {
                let subid = node.attribute("subid").map(|subid| self.text(node, flow, subid, request.subst));
                PubSubStep::Unsubscribe { node: name, subid, wait }
            }
            _ => {
                let body = MessageBody::Size(self.count(node, "size").unwrap_or(0));
                PubSubStep::Publish { node: name, body, wait }
            }
        };
        steps.push(PlanStep::PubSub(step));
        if wait {
            self.everybody(&request.wait, steps);
        } else {
            self.answer(request, true, steps);
        }
    }

    fn node_name(
        &mut self,
        node: XmlNode<'_>,
        flow: &mut SessionFlow,
        kind: &str,
        (subst, is_own): (bool, bool),
    ) -> Option<TextTemplate> {
        let given = node.attribute("node").map(|name| self.text(node, flow, name, subst));
        let is_absolute = node.attribute("node").is_some_and(|name| name.starts_with('/'));
        if let (true, Some(name)) = (is_absolute, &given) {
            return Some(name.clone());
        }
        if !is_own {
            let text = "write a node that begins with /; those of other users are not supported";
            self.error(node, kind, text);
            return None;
        }
        let Some(name) = given else {
            self.error(node, kind, "the node is missing; names that the server chooses are not supported");
            return None;
        };
        let mut parts = vec![
            TemplatePart::Literal(["", "home", &self.settings.domain, ""].join("/")),
            TemplatePart::User,
        ];
        // An empty name is the user's root.
        if node.attribute("node") != Some("") {
            parts.push(TemplatePart::Literal("/".to_owned()));
            parts.extend(name.0);
        }
        Some(TextTemplate(parts))
    }
}
