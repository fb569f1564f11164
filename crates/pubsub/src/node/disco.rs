//! Information about a node: XEP-0060 1.30.0, sections 5.3, 5.4 and 16.4.3 (`pubsub#meta-data`).

use jid::Jid;
use stanza::StanzaError;
use stanza::payload::data_form::{DataForm, FormField, FormFieldType, FormKind};
use stanza::payload::datetime;
use xml::{Ns, Writer};

use super::{PubSubAnswer, PubSubNode, Requester};
use crate::affiliation::NodeAffiliation;
use crate::pubsub_error::{forbidden, not_found};

/// `FORM_TYPE` of the information.
const META_DATA_FORM: &str = "http://jabber.org/protocol/pubsub#meta-data";
/// Addresses in one field.
const MAX_LISTED: usize = 100;

/// The information without the number of plain subscribers.
#[derive(Debug)]
pub(crate) struct InfoAnswer {
    form: DataForm,
    special: u64,
}

impl PubSubNode {
    pub(super) fn info(&self, requester: &Requester<'_>) -> Result<PubSubAnswer, StanzaError> {
        if self.affiliation(requester) == NodeAffiliation::Outcast {
            return Err(forbidden());
        }
        // Unlike a service, an account has nodes whose existence is private.
        if self.is_of_account() && self.check_read(requester).is_err() {
            return Err(not_found());
        }
        let configured = self.config.form(FormKind::Result);
        let mut form = DataForm::typed(FormKind::Result, META_DATA_FORM);
        for var in [
            "type",
            "title",
            "description",
            "language",
            "contact",
            "access_model",
            "publish_model",
            "max_items",
        ] {
            let field = configured.get(&format!("pubsub#{var}")).filter(|field| !field.values.is_empty());
            if let Some(field) = field {
                form = form.field(FormField { options: Vec::new(), ..field.clone() });
            }
        }
        let users = |affiliation| {
            let all = self.affiliations.iter().filter(move |(_, one)| **one == affiliation);
            all.map(|(jid, _)| jid.as_str()).take(MAX_LISTED)
        };
        let form = form
            .field(
                FormField::new(FormFieldType::JidSingle, "pubsub#creator")
                    .label("Node creator")
                    .value(self.creator.as_str()),
            )
            .field(
                FormField::new(FormFieldType::TextSingle, "pubsub#creation_date")
                    .label("Creation date")
                    .value(datetime::format_utc(self.created, false)),
            )
            .field(
                FormField::new(FormFieldType::JidMulti, "pubsub#owner")
                    .label("Node owners")
                    .values(users(NodeAffiliation::Owner)),
            )
            .field(
                FormField::new(FormFieldType::JidMulti, "pubsub#publisher")
                    .label("Publishers to this node")
                    .values(users(NodeAffiliation::Publisher)),
            );
        let mut special: Vec<&Jid> =
            self.special.iter().filter(|one| one.is_approved()).map(|one| &one.jid).collect();
        special.sort_unstable();
        special.dedup();
        Ok(PubSubAnswer::Info(InfoAnswer { form, special: special.len() as u64 }))
    }

    /// Writes the answer with the number of plain subscribers.
    pub(crate) fn write_info(&self, answer: InfoAnswer, plain: u64) -> Vec<u8> {
        let InfoAnswer { form, special } = answer;
        let form = form.field(
            FormField::new(FormFieldType::TextSingle, "pubsub#num_subscribers")
                .label("Number of subscribers to this node")
                .value((plain + special).to_string()),
        );
        let mut out = Vec::with_capacity(1024);
        let mut w = Writer::new(&mut out);
        w.start_ns("query", Ns::DiscoInfo).attr("node", &self.name);
        let title = Some(self.config.title.as_str()).filter(|title| !title.is_empty());
        w.start("identity").attr("category", "pubsub").attr("type", self.node_type().as_str());
        w.attr_opt("name", title).end();
        for feature in [Ns::DiscoInfo, Ns::DiscoItems, Ns::Pubsub] {
            w.start("feature").attr("var", feature.as_str()).end();
        }
        form.write(&mut w);
        w.end();
        out
    }
}
