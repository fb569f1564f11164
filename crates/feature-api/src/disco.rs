//! Disco information of a host and its accounts: the data of XEP-0030 replies and XEP-0115 hashes.
//!
//! Filled from the declarations of the enabled features, so that a reply never advertises a disabled one.

use std::sync::Arc;

use base::{BoxFuture, Provided};
use jid::JidRef;
use stanza::StanzaError;
use throng_core::iq::{IqFlow, IqRequest, IqTarget};
use throng_core::service::Service;
use throng_core::{Host, Node};
use xml::Ns;

/// An identity (XEP-0030, section 3.1).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DiscoIdentity {
    /// Category.
    pub category: &'static str,
    /// Type.
    pub kind: &'static str,
    /// Name for people.
    pub name: &'static str,
}

/// Identities and feature variables, sorted and without duplicates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiscoInfo {
    /// Identities.
    pub identities: Vec<DiscoIdentity>,
    /// Feature variables.
    pub features: Vec<&'static str>,
    /// Forms with more information (XEP-0128), by type.
    pub forms: Vec<DiscoForm>,
    /// Nodes that are aliases for this information (XEP-0115, section 6.2).
    pub alias_nodes: Vec<String>,
}

/// A form of extended information (XEP-0128). Its fields have type `list-multi` or none.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DiscoForm {
    /// Value of the field `FORM_TYPE`.
    pub form_type: String,
    /// The other fields: name and values.
    pub fields: Vec<(String, Vec<String>)>,
}

/// A query of a node.
pub struct DiscoQuery<'a> {
    /// The server node.
    pub node: &'a Arc<Node>,
    /// The host that replies.
    pub host: &'a Arc<Host>,
    /// The queried entity.
    pub target: IqTarget,
    /// The requester.
    pub from: JidRef<'a>,
    /// The queried address.
    pub to: JidRef<'a>,
    /// The queried node (XEP-0030).
    pub name: &'a str,
}

/// An item (XEP-0030, section 4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoItem {
    /// Its address.
    pub jid: String,
    /// Its node, if it has one.
    pub node: Option<String>,
    /// Its name for people; may be empty.
    pub name: String,
}

/// Provides nodes of the domain or an account.
pub trait DiscoNode: Send + Sync {
    /// The information; none if the node is not one of these or not visible to the requester.
    fn info(&self, query: &DiscoQuery<'_>) -> Option<DiscoInfo>;
    /// The error for a requester that may not see an existing node (XEP-0050, section 2.2). Called first.
    fn refusal(&self, _query: &DiscoQuery<'_>) -> Option<StanzaError> {
        None
    }

    /// The items, as for [`DiscoNode::info`].
    fn items(&self, query: &DiscoQuery<'_>) -> Option<Vec<DiscoItem>>;

    /// Whether a name is that of one of these nodes on a host, for whatever requester.
    fn contains(&self, host: &Host, name: &str) -> bool;
}

/// Nodes of accounts that are kept elsewhere than in [`DiscoNode`]s, such as those of PubSub.
pub trait AccountNodes: Send + Sync {
    /// Answers a query of an account's node, of information or of items.
    fn answer(&self, request: &IqRequest<'_>) -> IqFlow;

    /// A page of the nodes of an account that the requester may see, as items of the account.
    fn list(&self, request: &IqRequest<'_>) -> BoxFuture<'static, Result<AccountNodePage, StanzaError>>;
}

/// A page (XEP-0059) of the nodes of an account.
#[derive(Clone, Debug, Default)]
pub struct AccountNodePage {
    /// The nodes; their names are the ids of the page's ends.
    pub nodes: Vec<DiscoItem>,
    /// It is not the first page, which has the other items of the account.
    pub is_continued: bool,
    /// The answer must have `<set/>`: it was requested, or there are more nodes.
    pub is_page: bool,
}

/// The nodes of accounts, provided by one feature.
#[derive(Clone)]
pub struct SharedAccountNodes(pub Arc<dyn AccountNodes>);

impl Provided for SharedAccountNodes {
    const NAME: &'static str = "the nodes of accounts";
}

/// The information of a host, among its extensions.
#[derive(Default)]
pub struct HostDisco {
    /// Of the domain.
    pub server: DiscoInfo,
    /// Of its accounts.
    pub account: DiscoInfo,
    /// Of its services.
    pub(crate) services: Vec<(Arc<Service>, DiscoInfo)>,
    /// Nodes that features provide.
    pub nodes: Vec<Arc<dyn DiscoNode>>,
}

impl HostDisco {
    /// The information of a host; empty for a host without features.
    pub fn of(host: &Host) -> &HostDisco {
        static EMPTY: HostDisco = HostDisco {
            server: DiscoInfo::EMPTY,
            account: DiscoInfo::EMPTY,
            services: Vec::new(),
            nodes: Vec::new(),
        };
        host.extensions.get().unwrap_or(&EMPTY)
    }

    /// Whether a name is that of a node of accounts which a feature provides, or an alias of them.
    pub fn has_account_node(host: &Host, name: &str) -> bool {
        let disco = HostDisco::of(host);
        disco.account.alias_nodes.iter().any(|alias| alias == name)
            || disco.nodes.iter().any(|node| node.contains(host, name))
    }

    /// The information of one of its services.
    pub fn service(&self, service: &Arc<Service>) -> Option<&DiscoInfo> {
        self.services.iter().find(|(one, _)| Arc::ptr_eq(one, service)).map(|(_, info)| info)
    }
}

impl DiscoInfo {
    const EMPTY: DiscoInfo = DiscoInfo {
        identities: Vec::new(),
        features: Vec::new(),
        forms: Vec::new(),
        alias_nodes: Vec::new(),
    };

    /// Writes identities and features into an open `<query/>`.
    pub fn write(&self, writer: &mut xml::Writer<'_>) {
        for identity in &self.identities {
            writer.start("identity");
            writer.attr("category", identity.category);
            writer.attr("type", identity.kind);
            if !identity.name.is_empty() {
                writer.attr("name", identity.name);
            }
            writer.end();
        }
        for var in &self.features {
            writer.start("feature");
            writer.attr("var", var);
            writer.end();
        }
        for form in &self.forms {
            writer.start("x").ns(Ns::DataForms).attr("type", "result");
            writer.start("field").attr("var", "FORM_TYPE").attr("type", "hidden");
            writer.text_element("value", &form.form_type).end();
            for (var, values) in &form.fields {
                writer.start("field").attr("var", var);
                for value in values {
                    writer.text_element("value", value);
                }
                writer.end();
            }
            writer.end();
        }
    }
}
