//! Declaration of a feature: one constant with everything that other parts need to know.
//!
//! The documentation (`docs/xeps.md`, `docs/modules.md`, `docs/commands.md`, `docs/hooks.md`), disco replies,
//! stream features and the order of hooks are all derived from these constants.

use std::any::Any;
use std::sync::Arc;

use base::{HostExtensions, Provided};
use declarations::StreamFeature;
use throng_core::account_provider::{ProviderCapabilities, SharedAccountProvider};
use throng_core::feature_notice::{NoticeHandler, NoticeHandlers};
use throng_core::hooks::{
    Available, Closing, Created, Deliver, Delivered, Handler, HandlerEntry, Incoming, Interest, Opened,
    Outgoing, Phase, Point, Removed, Undelivered,
};
use throng_core::iq::{IqHandler, IqKey};
use throng_core::limits::NodeLimits;
use throng_core::service::ServiceHandler;
use xml::Ns;

use crate::disco::{DiscoForm, DiscoIdentity, DiscoInfo, DiscoNode};
use crate::disco_declarations::DiscoExtensions;
use crate::feature_state::FeatureState;
use crate::host::HostError;
use crate::http_route::{HttpRoute, HttpRouteHandler, HttpRouteSpec};
use crate::listener::ListenerSpec;
use crate::periodic_job::{PeriodicJob, PeriodicJobHandler, PeriodicJobSpec};
use crate::service::{ServiceHandlers, ServiceSpec};
use crate::stream_elements::{Bind2InlineHandler, NonzaHandler, PreAuthHandler, StreamElements};

pub use declarations::{FeatureOptions, OptionKind, OptionSpec, OptionValue, Spec};

/// A feature variable for service discovery (XEP-0030).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiscoFeature {
    /// Of the domain.
    Server(&'static str),
    /// Of each account.
    Account(&'static str),
    /// Of the feature's service, or of every service of the domain if the feature has none.
    Service(&'static str),
}

/// Derives a stream feature from the domain's disco information; called once, when the host is complete.
pub type DeriveStreamFeature = fn(&DiscoInfo) -> DerivedStreamFeature;

/// A stream feature that is derived from the domain's disco information.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DerivedStreamFeature {
    /// The stream feature.
    pub feature: StreamFeature,
    /// The disco node under which the domain returns the same information; added to [`DiscoInfo::alias_nodes`].
    pub node: String,
}

/// A part of a feature's declaration that a crate above the engine defines; see [`Feature::declarations`].
pub trait FeatureDeclaration: Any + Sync {
    /// Called when the feature has registered its handlers; `registered` has those of all features so far.
    ///
    /// # Errors
    /// The feature did not register what this declares.
    fn check(&self, feature: &'static Feature, registered: &HostExtensions) -> Result<(), HostError>;
}

/// The declaration of a feature.
pub struct Feature {
    /// Its name in the configuration: `[modules] name = false`.
    pub name: &'static str,
    /// One sentence for the documentation.
    pub summary: &'static str,
    /// Specifications that it implements.
    pub specs: &'static [Spec],
    /// Feature variables.
    pub disco: &'static [DiscoFeature],
    /// Stream features.
    pub stream_features: &'static [StreamFeature],
    /// Stream features that are derived from the disco information of the finished host.
    pub derived_stream_features: &'static [DeriveStreamFeature],
    /// The service that it provides.
    pub service: Option<&'static ServiceSpec>,
    /// HTTP routes that it serves.
    pub http_routes: &'static [&'static HttpRouteSpec],
    /// Listeners with a protocol of their own.
    pub listeners: &'static [&'static ListenerSpec],
    /// Jobs that run periodically.
    pub periodic_jobs: &'static [&'static PeriodicJobSpec],
    /// IQ requests that it answers.
    pub iq: &'static [IqKey],
    /// Declarations for crates above the engine, such as commands.
    pub declarations: &'static [&'static dyn FeatureDeclaration],
    /// Options.
    pub options: &'static [OptionSpec],
    /// Features that must be enabled as well.
    pub needs: &'static [&'static str],
    /// Whether it is enabled by default.
    pub default_on: bool,
    /// Registers its handlers.
    pub build: fn(&mut FeatureBuilder<'_>),
}

impl Feature {
    /// Empty values, for `..Feature::EMPTY`.
    pub const EMPTY: Feature = Feature {
        name: "",
        summary: "",
        specs: &[],
        disco: &[],
        stream_features: &[],
        derived_stream_features: &[],
        service: None,
        http_routes: &[],
        listeners: &[],
        periodic_jobs: &[],
        iq: &[],
        declarations: &[],
        options: &[],
        needs: &[],
        default_on: true,
        build: |_| {},
    };
}

/// Handlers of a host that is being built.
#[derive(Default)]
pub(crate) struct HostRegistrations {
    pub(crate) outgoing: Vec<HandlerEntry<Outgoing>>,
    pub(crate) incoming: Vec<HandlerEntry<Incoming>>,
    pub(crate) deliver: Vec<HandlerEntry<Deliver>>,
    pub(crate) delivered: Vec<HandlerEntry<Delivered>>,
    pub(crate) undelivered: Vec<HandlerEntry<Undelivered>>,
    pub(crate) opened: Vec<HandlerEntry<Opened>>,
    pub(crate) available: Vec<HandlerEntry<Available>>,
    pub(crate) closing: Vec<HandlerEntry<Closing>>,
    pub(crate) removed: Vec<HandlerEntry<Removed>>,
    pub(crate) created: Vec<HandlerEntry<Created>>,
    pub(crate) stores_offline_messages: bool,
    pub(crate) message_backup: Option<Arc<dyn throng_core::message_backup::MessageBackup>>,
    pub(crate) iq_without_subscription: bool,
    pub(crate) iq: Vec<(IqKey, &'static str, Arc<dyn IqHandler>)>,
    pub(crate) elements: StreamElements,
    pub(crate) disco: DiscoExtensions,
    pub(crate) extensions: HostExtensions,
    pub(crate) errors: Vec<HostError>,
    pub(crate) stream_features: Vec<StreamFeature>,
    pub(crate) service: ServiceHandlers,
    /// The first option with a value that its feature refuses, and the problem.
    pub(crate) invalid_option: Option<(&'static str, String)>,
    pub(crate) http_routes: Vec<HttpRoute>,
    pub(crate) periodic_jobs: Vec<PeriodicJob>,
}

/// Registers the handlers of a feature.
pub struct FeatureBuilder<'a> {
    pub(crate) owner: &'static str,
    /// The declaration of the feature.
    pub feature: &'static Feature,
    /// The options of the feature.
    pub options: &'a FeatureOptions,
    /// The domain of the host.
    pub domain: &'a str,
    /// The node's limits.
    pub limits: &'a NodeLimits,
    pub(crate) feature_state: &'a FeatureState,
    pub(crate) parts: &'a mut HostRegistrations,
}

macro_rules! register_for_stanzas {
    ($($(#[$doc:meta])* $name:ident: $point:ident),* $(,)?) => {$(
        $(#[$doc])*
        pub fn $name(&mut self, phase: Phase, interest: Interest, handler: impl Handler<$point> + 'static) {
            self.parts.$name.push(entry(self.owner, phase, interest, handler));
        }
    )*};
}

/// Events have no stanza in which a handler could be interested: every handler runs.
macro_rules! register_for_events {
    ($($(#[$doc:meta])* $name:ident: $point:ident),* $(,)?) => {$(
        $(#[$doc])*
        pub fn $name(&mut self, phase: Phase, handler: impl Handler<$point> + 'static) {
            self.parts.$name.push(entry(self.owner, phase, Interest::ALL, handler));
        }
    )*};
}

fn entry<P: Point>(
    owner: &'static str,
    phase: Phase,
    interest: Interest,
    handler: impl Handler<P> + 'static,
) -> HandlerEntry<P> {
    HandlerEntry { owner, phase, interest, run: Arc::new(handler) }
}

impl FeatureBuilder<'_> {
    register_for_stanzas! {
        /// A handler for stanzas from local sessions.
        outgoing: Outgoing,
        /// A handler for stanzas to local accounts.
        incoming: Incoming,
        /// A handler before a session's queue.
        deliver: Deliver,
        /// A handler for stanzas that at least one session accepted.
        delivered: Delivered,
        /// A handler for messages that no session accepted.
        undelivered: Undelivered,
    }

    register_for_events! {
        /// A handler for new sessions.
        opened: Opened,
        /// A handler for resources that become available or change their priority.
        available: Available,
        /// A handler for ending sessions.
        closing: Closing,
        /// A handler for removed accounts.
        removed: Removed,
        /// A handler for new accounts.
        created: Created,
    }

    /// State that the handlers of this domain share across reloads; see [`crate::feature_state`]. `make` is
    /// called the first time.
    pub fn shared_state<T: Send + Sync + 'static>(&self, make: impl FnOnce() -> T) -> Arc<T> {
        self.feature_state.get_or_create(self.domain, self.owner, make)
    }

    /// Refuses the value of an option, so that the configuration is not applied. `problem` follows the key in a sentence:
    /// `must be …`.
    pub fn refuse_option(&mut self, key: &'static str, problem: String) {
        self.parts.invalid_option.get_or_insert((key, problem));
    }

    /// What the provider of the host's accounts can do; `None` if their passwords are in the store.
    pub fn provider_capabilities(&self) -> Option<ProviderCapabilities> {
        self.parts.extensions.get::<SharedAccountProvider>().map(|provider| provider.0.capabilities())
    }

    /// Provides a value that is found by its type in [`throng_core::Host::extensions`]; see [`throng_core::provided`]. Only one
    /// feature of a host can provide it.
    pub fn provide<T: Provided>(&mut self, value: T) {
        match self.parts.extensions.provide(self.owner, value) {
            Ok(()) => {}
            Err(first) if first == self.owner => {
                let difference = format!("provides {} twice; remove one", T::NAME);
                self.fail(HostError::Undeclared(first, difference));
            }
            Err(first) => self.fail(HostError::DuplicateProvider(first, self.owner, T::NAME.to_owned())),
        }
    }

    /// A value that a feature provides which is earlier in the order.
    pub fn provided<T: Provided>(&self) -> Option<&T> {
        self.parts.extensions.get()
    }

    /// Handles the notices of this name from other nodes ([`throng_core::feature_notice`]).
    pub fn notice(&mut self, name: &'static str, handler: impl NoticeHandler + 'static) {
        if !self.extension::<NoticeHandlers>().add(name, Box::new(handler)) {
            let difference = format!("handles the notice {name}, which has a handler; use another name");
            self.fail(HostError::Undeclared(self.owner, difference));
        }
    }

    /// Declares that the feature stores undelivered messages and delivers them later, with a handler of
    /// `available` that clears [`throng_core::account::AccountState::flushing`] when nothing is left.
    pub fn stores_offline_messages(&mut self) {
        self.parts.stores_offline_messages = true;
    }

    /// Registers the store of backups for messages that clients take slowly; it replaces that of an earlier feature.
    pub fn message_backup(&mut self, backup: Arc<dyn throng_core::message_backup::MessageBackup>) {
        self.parts.message_backup = Some(backup);
    }

    /// Delivers requests to a full address whether or not their sender may see its presence, contrary to RFC
    /// 6121, section 8.5.3.1.
    pub fn iq_without_subscription(&mut self) {
        self.parts.iq_without_subscription = true;
    }

    /// A handler for an element on the stream that is not a stanza.
    pub fn nonza(&mut self, ns: Ns, name: &'static str, handler: NonzaHandler) {
        self.parts.elements.nonzas.push((ns, name, handler));
    }

    /// A handler for an element in a client's bind request (XEP-0386).
    pub fn bind2_inline(&mut self, ns: Ns, name: &'static str, handler: Bind2InlineHandler) {
        self.parts.elements.bind2_inline.push((ns, name, handler));
    }

    /// A handler for requests before authentication.
    pub fn pre_auth(&mut self, ns: Ns, name: &'static str, handler: impl PreAuthHandler + 'static) {
        self.parts.elements.pre_auth.push((ns, name, Arc::new(handler)));
    }

    /// A form with more information about the domain (XEP-0128).
    pub fn disco_form(&mut self, form: DiscoForm) {
        self.parts.disco.forms.push(form);
    }

    /// An additional identity of the domain.
    pub fn disco_identity(&mut self, identity: DiscoIdentity) {
        self.parts.disco.identities.push(identity);
    }

    /// An additional identity of the domain's accounts.
    pub fn account_disco_identity(&mut self, identity: DiscoIdentity) {
        self.parts.disco.account_identities.push(identity);
    }

    /// An additional feature variable of the domain's accounts, for what depends on other features.
    pub fn account_disco_feature(&mut self, var: &'static str) {
        self.parts.disco.account_features.push(var);
    }

    /// A node whose information and items the feature provides.
    pub fn disco_node(&mut self, node: impl DiscoNode + 'static) {
        self.parts.disco.nodes.push(Arc::new(node));
    }

    /// A stream feature that depends on an option.
    pub fn stream_feature(&mut self, feature: StreamFeature) {
        self.parts.stream_features.push(feature);
    }

    /// What features register for a crate above the engine: one value of each type for the host.
    pub fn extension<T: Any + Default + Send + Sync>(&mut self) -> &mut T {
        self.parts.extensions.get_or_default(self.owner)
    }

    /// Refuses to build the host: the feature registered what it must not.
    pub fn fail(&mut self, error: HostError) {
        self.parts.errors.push(error);
    }

    /// The handler of messages to the feature's service and its items.
    pub fn service_message(&mut self, handler: impl ServiceHandler + 'static) {
        self.parts.service.message = Some(Arc::new(handler));
    }

    /// The handler of presence to the feature's service and its items.
    pub fn service_presence(&mut self, handler: impl ServiceHandler + 'static) {
        self.parts.service.presence = Some(Arc::new(handler));
    }

    /// The handler of requests to resources of the service's items, instead of handlers for each kind, and of responses to
    /// requests that the service has passed on.
    pub fn service_relayed_iq(&mut self, handler: impl ServiceHandler + 'static) {
        self.parts.service.relayed_iq = Some(Arc::new(handler));
    }

    /// Names what a stanza to the feature's service is about: one node of a cluster owns each name. Without it, each address
    /// at the service is owned by one node.
    pub fn service_item_name(&mut self, name: impl throng_core::service::ServiceItemName + 'static) {
        self.parts.service.item_name = Some(Arc::new(name));
    }

    /// A form with more information about the feature's service (XEP-0128).
    pub fn service_disco_form(&mut self, form: DiscoForm) {
        self.parts.service.forms.push(form);
    }

    /// The handler of a declared HTTP route.
    pub fn http_route(&mut self, spec: &'static HttpRouteSpec, handler: impl HttpRouteHandler + 'static) {
        self.parts.http_routes.push(HttpRoute { feature: self.owner, spec, handler: Arc::new(handler) });
    }

    /// The handler of a declared periodic job.
    pub fn periodic_job(
        &mut self,
        spec: &'static PeriodicJobSpec,
        handler: impl PeriodicJobHandler + 'static,
    ) {
        self.parts.periodic_jobs.push(PeriodicJob { feature: self.owner, spec, handler: Arc::new(handler) });
    }

    /// The handler of a declared IQ request.
    pub fn iq(&mut self, key: IqKey, handler: impl IqHandler + 'static) {
        self.parts.iq.push((key, self.owner, Arc::new(handler)));
    }
}
