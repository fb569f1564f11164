//! Personal eventing: XEP-0163 1.2.2. Every account is a PubSub service for its contacts.
//!
//! Nodes of an account are nodes of PubSub whose service is the bare address of the account; their names are what clients
//! expect, such as `urn:xmpp:avatar:metadata`. A publication of the user creates them. Contacts with a subscription to the
//! presence of the user receive events without subscribing, if their clients announce `NODE+notify` in verified capabilities
//! (`notifications.rs`), and the last item of each such node when they become available (`interest.rs`). Memory for that is one
//! bit of a session.
//!
//! * `account_host.rs`: what differs from nodes of a service. `account_nodes.rs`: which nodes accounts have.
//! * `discovery.rs`: nodes in service discovery of accounts. `conversion`: avatars and bookmarks for clients that keep them elsewhere.
//!
//! Not implemented: the address of the publishing resource in events (section 4.3.1, rule 3, a SHOULD); answers to requests for
//! approval by messages (the access model `authorize`): owners answer with a request (XEP-0060, section 8.8.2).
//!
//! # Pitfalls
//!
//! One node of a cluster owns all nodes of an account, which is rarely the one with the user's session. Requests are passed on
//! by the engine ([`throng_core::provided::OwnedAccountRequests`]).

mod account_host;
mod account_nodes;
mod conversion;
mod discovery;
mod interest;
mod interest_passes;
mod notice;
mod notifications;
mod options;

use std::sync::Arc;

use base::Provided;
use feature_api::account_data::{AccountDataObserver, SharedPrivateXml, SharedVCardPhotos};
use feature_api::disco::{DiscoIdentity, HostDisco, SharedAccountNodes};
use feature_api::feature::{DiscoFeature, Feature, FeatureBuilder, Spec};
use jid::Jid;
use stanza::{Head, StanzaCondition, StanzaError};
use throng_core::feature_notice::NoticeCtx;
use throng_core::hooks::{AvailableCtx, Flow, Phase, RemovedCtx};
use throng_core::iq::{IqFlow, IqKey, IqRequest, IqTarget};
use throng_core::provided::{CapabilitiesObserver, OwnedAccountRequests};
use throng_core::session::{Session, flags};
use throng_core::{Host, Node};
use xml::Ns;

use self::account_host::{AccountHost, PepAccounts};
use self::discovery::AccountDiscovery;
use self::interest_passes::InterestPasses;
use crate::service::PubSubService;
use crate::{ServiceOfHost, account_removal};

/// Personal eventing.
pub static FEATURE: Feature = Feature {
    name: "pep",
    summary: "Nodes of accounts, to which users publish for their contacts and for their own clients.",
    specs: SPECS,
    disco: DISCO,
    iq: REQUESTS,
    options: options::OPTIONS,
    build,
    ..Feature::EMPTY
};

const SPECS: &[Spec] = &[
    Spec {
        name: "XEP-0163",
        title: "Personal Eventing Protocol",
        version: "1.2.2",
        not_implemented: "section 4.3.1: the address of the publishing resource",
    },
    Spec {
        name: "XEP-0398",
        title: "User Avatar to vCard-Based Avatars Conversion",
        version: "1.0.0",
        not_implemented: "",
    },
    Spec { name: "XEP-0402", title: "PEP Native Bookmarks", version: "1.2.0", not_implemented: "" },
    Spec { name: "XEP-0411", title: "Bookmarks Conversion", version: "1.1.0", not_implemented: "" },
];

/// Section 6.1, and those of XEP-0060.
const DISCO: &[DiscoFeature] = &[
    DiscoFeature::Account(Ns::Pubsub.as_str()),
    DiscoFeature::Account("http://jabber.org/protocol/pubsub#access-open"),
    DiscoFeature::Account("http://jabber.org/protocol/pubsub#access-presence"),
    DiscoFeature::Account("http://jabber.org/protocol/pubsub#access-roster"),
    DiscoFeature::Account("http://jabber.org/protocol/pubsub#access-whitelist"),
    DiscoFeature::Account("http://jabber.org/protocol/pubsub#auto-create"),
    DiscoFeature::Account("http://jabber.org/protocol/pubsub#auto-subscribe"),
    DiscoFeature::Account("http://jabber.org/protocol/pubsub#config-node"),
    DiscoFeature::Account("http://jabber.org/protocol/pubsub#config-node-max"),
    DiscoFeature::Account("http://jabber.org/protocol/pubsub#create-and-configure"),
    DiscoFeature::Account("http://jabber.org/protocol/pubsub#create-nodes"),
    DiscoFeature::Account("http://jabber.org/protocol/pubsub#delete-items"),
    DiscoFeature::Account("http://jabber.org/protocol/pubsub#delete-nodes"),
    DiscoFeature::Account("http://jabber.org/protocol/pubsub#filtered-notifications"),
    DiscoFeature::Account("http://jabber.org/protocol/pubsub#instant-nodes"),
    DiscoFeature::Account("http://jabber.org/protocol/pubsub#item-ids"),
    DiscoFeature::Account("http://jabber.org/protocol/pubsub#last-published"),
    DiscoFeature::Account("http://jabber.org/protocol/pubsub#manage-subscriptions"),
    DiscoFeature::Account("http://jabber.org/protocol/pubsub#member-affiliation"),
    DiscoFeature::Account("http://jabber.org/protocol/pubsub#meta-data"),
    DiscoFeature::Account("http://jabber.org/protocol/pubsub#modify-affiliations"),
    DiscoFeature::Account("http://jabber.org/protocol/pubsub#multi-items"),
    DiscoFeature::Account("http://jabber.org/protocol/pubsub#outcast-affiliation"),
    DiscoFeature::Account("http://jabber.org/protocol/pubsub#persistent-items"),
    DiscoFeature::Account("http://jabber.org/protocol/pubsub#publish"),
    DiscoFeature::Account("http://jabber.org/protocol/pubsub#publish-options"),
    DiscoFeature::Account("http://jabber.org/protocol/pubsub#publisher-affiliation"),
    DiscoFeature::Account("http://jabber.org/protocol/pubsub#purge-nodes"),
    DiscoFeature::Account("http://jabber.org/protocol/pubsub#retract-items"),
    DiscoFeature::Account("http://jabber.org/protocol/pubsub#retrieve-affiliations"),
    DiscoFeature::Account("http://jabber.org/protocol/pubsub#retrieve-default"),
    DiscoFeature::Account("http://jabber.org/protocol/pubsub#retrieve-items"),
    DiscoFeature::Account("http://jabber.org/protocol/pubsub#retrieve-subscriptions"),
    DiscoFeature::Account("http://jabber.org/protocol/pubsub#rsm"),
    DiscoFeature::Account("http://jabber.org/protocol/pubsub#subscribe"),
    DiscoFeature::Account("urn:xmpp:order-by:1"),
    DiscoFeature::Account("urn:xmpp:order-by:1@http://jabber.org/protocol/pubsub"),
    DiscoFeature::Account("urn:xmpp:bookmarks:1#compat-pep"),
];

const REQUESTS: &[IqKey] = &[
    IqKey::get(IqTarget::OwnAccount, Ns::Pubsub, "pubsub"),
    IqKey::set(IqTarget::OwnAccount, Ns::Pubsub, "pubsub"),
    IqKey::get(IqTarget::OwnAccount, Ns::PubsubOwner, "pubsub"),
    IqKey::set(IqTarget::OwnAccount, Ns::PubsubOwner, "pubsub"),
    IqKey::get(IqTarget::Account, Ns::Pubsub, "pubsub"),
    IqKey::set(IqTarget::Account, Ns::Pubsub, "pubsub"),
    IqKey::get(IqTarget::Account, Ns::PubsubOwner, "pubsub"),
    IqKey::set(IqTarget::Account, Ns::PubsubOwner, "pubsub"),
];

/// Personal eventing of a domain; it survives reloads.
pub(crate) struct PersonalEventing {
    pub(crate) service: PubSubService,
    pub(crate) accounts: Arc<PepAccounts>,
    passes: Arc<InterestPasses>,
}

/// Personal eventing of a host, which is notified of accounts of other domains that are removed.
#[derive(Clone)]
pub(crate) struct PepOfHost(pub(crate) Arc<PersonalEventing>);

impl Provided for PepOfHost {
    const NAME: &'static str = "personal eventing";
}

fn build(builder: &mut FeatureBuilder<'_>) {
    let options = options::read(builder.options);
    let (domain, first) = (builder.domain.to_owned(), options.clone());
    let pep = builder.shared_state(|| {
        let accounts = Arc::new(PepAccounts::default());
        let host = AccountHost { domain, accounts: accounts.clone() };
        PersonalEventing {
            service: PubSubService::new(Box::new(host), first),
            accounts,
            passes: Arc::default(),
        }
    });
    pep.service.shared.set_options(options);
    pep.accounts.conversions.set_nodes(&pep.service.shared);
    for key in REQUESTS {
        let pep = pep.clone();
        builder.iq(*key, move |request: &mut IqRequest<'_>| pep.handle_request(request, key.set));
    }
    if builder.provided::<SharedVCardPhotos>().is_some() {
        builder.account_disco_feature("urn:xmpp:pep-vcard-conversion:0");
    }
    if builder.provided::<SharedPrivateXml>().is_some() {
        builder.account_disco_feature("urn:xmpp:bookmarks-conversion:0");
        builder.account_disco_feature("urn:xmpp:bookmarks:1#compat");
    }
    builder.provide(AccountDataObserver(pep.clone()));
    builder.account_disco_identity(DiscoIdentity { category: "pubsub", kind: "pep", name: "" });
    builder.provide(SharedAccountNodes(Arc::new(AccountDiscovery(pep.clone()))));
    builder.provide(OwnedAccountRequests(is_owned_request));
    let of_capabilities = pep.clone();
    builder.provide(CapabilitiesObserver(Arc::new(
        move |node: &Arc<Node>, session: &Arc<Session>, had: &dyn Fn(&str) -> bool| {
            of_capabilities.interest_changed(node, session, had);
        },
    )));
    let of_available = pep.clone();
    builder.available(Phase::Notify, move |ctx: &mut AvailableCtx<'_>| {
        of_available.interest_changed(ctx.node, ctx.session, &|_| true);
        Flow::Next
    });
    builder.provide(PepOfHost(pep.clone()));
    builder.removed(Phase::Archive, account_removed);
    let of_notices = pep.clone();
    builder.notice(notice::REMOVED, move |ctx: &NoticeCtx<'_>| of_notices.service.handle_notice(ctx));
    builder.notice(notice::EVENT, notifications::receive);
    let of_conversions = pep.clone();
    builder.notice(notice::CONVERSION, move |ctx: &NoticeCtx<'_>| {
        of_conversions.accounts.conversions.receive(ctx);
    });
    builder.notice(notice::INTEREST, move |ctx: &NoticeCtx<'_>| pep.receive_interest(ctx));
}

/// Removes the nodes of an account, and what it has at nodes of all domains, unless the service of its domain does.
fn account_removed(ctx: &mut RemovedCtx<'_>) -> Flow {
    if ctx.host.extensions.get::<ServiceOfHost>().is_none()
        && let Some(PepOfHost(pep)) = ctx.host.extensions.get()
    {
        account_removal::remove_everywhere(ctx, &pep.service, notice::REMOVED);
    }
    Flow::Next
}

/// Requests that the owner of the nodes answers.
fn is_owned_request(host: &Host, head: &Head, bytes: &[u8]) -> bool {
    let Some(first) = head.first_child else { return false };
    match first.ns {
        Some(Ns::Pubsub | Ns::PubsubOwner) => true,
        // Without a node it is about the account itself, and commands (XEP-0050) are those of the session: any node knows both.
        Some(Ns::DiscoInfo | Ns::DiscoItems) => {
            discovery::queried_node(bytes).is_some_and(|node| !HostDisco::has_account_node(host, &node))
        }
        _ => false,
    }
}

impl PersonalEventing {
    /// The account that a request addresses.
    fn service_of(request: &IqRequest<'_>) -> Jid {
        request.to.unwrap_or(request.from).bare().to_jid()
    }

    fn handle_request(&self, request: &IqRequest<'_>, is_set: bool) -> IqFlow {
        if request.session.is_some_and(|session| session.flags.has(flags::EPHEMERAL)) {
            let error = StanzaError::new(StanzaCondition::NotAllowed);
            return IqFlow::error(error.text("anonymous users have no nodes"));
        }
        let service = PersonalEventing::service_of(request);
        self.service.handle_at(request, &service, is_set).unwrap_or_else(IqFlow::error)
    }
}
