//! Pending subscription requests of an owner, as an ad-hoc command of the service: XEP-0060 1.30.0, section 8.7; XEP-0050 1.3.0.
//!
//! The command keeps no state: its second step names the node.

use std::borrow::Cow;

use jid::Jid;
use stanza::payload::data_form::{DataForm, FormField, FormFieldType, FormKind};
use stanza::{ErrorType, StanzaCondition, StanzaError};
use throng_core::iq::{IqFlow, IqRequest};
use throng_core::server_error::store_error;
use xml::{Ns, TreeNode, Writer};

use crate::affiliation::NodeAffiliation;
use crate::pubsub_error::{bad_request, not_found};
use crate::pubsub_shared::NodeInput;
use crate::request::AUTHORIZATION_FORM;
use crate::service::{PubSubService, node_address};

/// Name of the command.
pub(crate) const GET_PENDING: &str = "http://jabber.org/protocol/pubsub#get-pending";
const NODE: &str = "pubsub#node";
/// Nodes in the form.
const MAX_NODES: u32 = 1_000;
/// Longest id of a session that is repeated, in bytes.
const MAX_SESSION_BYTES: usize = 128;

/// The node that a step of the command names.
pub(crate) fn chosen_node(command: TreeNode<'_>) -> Option<String> {
    let form = DataForm::read(command.child("x", Ns::DataForms)?).ok()?;
    form.value(NODE).map(str::to_owned)
}

impl PubSubService {
    /// Executes a step of the command.
    pub(crate) fn handle_command(&self, request: &IqRequest<'_>) -> IqFlow {
        self.try_command(request).unwrap_or_else(IqFlow::error)
    }

    fn try_command(&self, request: &IqRequest<'_>) -> Result<IqFlow, StanzaError> {
        let service = request.service.ok_or(StanzaCondition::ServiceUnavailable)?.jid.clone();
        let tree = request.tree()?;
        let command = tree.root().child_elements().next().ok_or(StanzaCondition::BadRequest)?;
        if command.attr("node").as_deref() != Some(GET_PENDING) {
            return Err(not_found());
        }
        let session = command.attr("sessionid").filter(|id| !id.is_empty() && id.len() <= MAX_SESSION_BYTES);
        let session = session.map_or_else(|| base::id::random_id().to_lowercase(), Cow::into_owned);
        if command.attr("action").as_deref() == Some("cancel") {
            return Ok(IqFlow::Reply(Ok(write(&session, "canceled", |_| {}))));
        }
        match command.child("x", Ns::DataForms) {
            None => Ok(self.show_nodes(request, service, session)),
            Some(_) => {
                let name = chosen_node(command).ok_or_else(|| bad_request("choose a node"))?;
                let key = node_address(service.as_ref(), &name)?;
                let from = request.from.to_jid();
                let answer = self.send_request(request.node, &key, request.bytes.len(), |reply| {
                    NodeInput::AskAgain { from, reply }
                });
                Ok(IqFlow::wait(async move { answer.await.map(|_| write(&session, "completed", |_| {})) }))
            }
        }
    }

    /// The first step: a form with the nodes of the owner.
    fn show_nodes(&self, request: &IqRequest<'_>, service: Jid, session: String) -> IqFlow {
        let (stores, user) = (request.node.stores.clone(), request.from.bare().to_jid());
        IqFlow::wait(async move {
            let found = stores.pubsub.affiliations_of(user.as_ref(), service.as_ref(), None, MAX_NODES).await;
            let found = found.map_err(store_error)?;
            let is_owned = |number: u8| NodeAffiliation::from_number(number) == Some(NodeAffiliation::Owner);
            let mut field = FormField::new(FormFieldType::ListSingle, NODE);
            for (node, _) in found.iter().filter(|(_, number)| is_owned(*number)) {
                field = field.option("", node.resource().unwrap_or_default());
            }
            if field.options.is_empty() {
                return Err(StanzaError::new(StanzaCondition::Forbidden).kind(ErrorType::Cancel));
            }
            let form = DataForm::typed(FormKind::Form, AUTHORIZATION_FORM).field(field);
            Ok(write(&session, "executing", |w| form.write(w)))
        })
    }
}

fn write(session: &str, status: &str, content: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    let mut w = Writer::new(&mut out);
    w.start_ns("command", Ns::Commands).attr("sessionid", session).attr("node", GET_PENDING);
    w.attr("status", status);
    content(&mut w);
    w.end();
    out
}
