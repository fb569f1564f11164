//! In-Band Registration: XEP-0077 2.4. Creating accounts is disabled unless `open` is set; users may change their own
//! password and remove their account.
//!
//! `pre_auth` answers unauthenticated clients, `account` logged-in users; `form` parses both, and `rate_limit` limits
//! attempts, so that names cannot be guessed and accounts cannot be created in bulk. Names of administrators and
//! reserved names count as taken.
//!
//! Not implemented: fields other than name and password; the obsolete `<key/>`; registering through another server;
//! requiring more data before an account is removed.
//!
//! # Pitfalls
//!
//! Requests contain passwords. No error may repeat the request (section 3.3), so each error is passed through
//! [`StanzaError::without_request`].

mod account;
mod form;
mod pre_auth;
mod rate_limit;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;

use feature_api::feature::{
    DiscoFeature, Feature, FeatureBuilder, OptionKind, OptionSpec, OptionValue, Spec,
};
use feature_api::stream_elements::PreAuthRequest;
use jid::Jid;
use stanza::StanzaError;
use throng_core::iq::{IqFlow, IqKey, IqRequest, IqTarget};
use throng_core::{Node, StreamFeature};
use xml::Ns;

use self::rate_limit::RegistrationLimiter;

/// In-Band Registration.
pub static FEATURE: Feature = Feature {
    name: "registration",
    summary: "Lets users change their password, remove their account and, if enabled, register accounts.",
    specs: &[Spec {
        name: "XEP-0077",
        title: "In-Band Registration",
        version: "2.4",
        not_implemented: "fields besides name and password; section 7: the obsolete key",
    }],
    disco: &[DiscoFeature::Server(Ns::Register.as_str())],
    iq: &[SERVER_GET, SERVER_SET, OWN_GET, OWN_SET],
    options: &[
        OptionSpec {
            key: "open",
            kind: OptionKind::Bool,
            default: OptionValue::Bool(false),
            doc: "Anyone may create an account.",
        },
        OptionSpec {
            key: "password_change",
            kind: OptionKind::Bool,
            default: OptionValue::Bool(true),
            doc: "Users may change their password.",
        },
        OptionSpec {
            key: "removal",
            kind: OptionKind::Bool,
            default: OptionValue::Bool(true),
            doc: "Users may remove their account.",
        },
        OptionSpec {
            key: "allow_without_tls",
            kind: OptionKind::Bool,
            default: OptionValue::Bool(false),
            doc: "Accept passwords on unencrypted streams as well.",
        },
        OptionSpec {
            key: "accounts_per_hour_per_address",
            kind: OptionKind::Int(1, 100_000),
            default: OptionValue::Int(5),
            doc: "Maximum number of accounts created per IP address and hour; IPv6 addresses are grouped by \
             /64.",
        },
        OptionSpec {
            key: "accounts_per_hour",
            kind: OptionKind::Int(1, 1_000_000),
            default: OptionValue::Int(500),
            doc: "Maximum number of accounts created per domain and hour.",
        },
        OptionSpec {
            key: "min_username_length",
            kind: OptionKind::Int(1, 64),
            default: OptionValue::Int(2),
            doc: "Minimum number of characters of a user name.",
        },
        OptionSpec {
            key: "reserved_usernames",
            kind: OptionKind::Texts,
            default: OptionValue::Texts(Vec::new()),
            doc: "User names that cannot be registered, in addition to role names such as `postmaster`.",
        },
        OptionSpec {
            key: "instructions",
            kind: OptionKind::Text,
            default: OptionValue::Text(std::borrow::Cow::Borrowed("Choose a user name and a password.")),
            doc: "Instructions shown to users who register.",
        },
        OptionSpec {
            key: "url",
            kind: OptionKind::Text,
            default: OptionValue::Text(std::borrow::Cow::Borrowed("")),
            doc: "URL of a page for creating accounts, announced to unregistered users while `open` is \
             false.",
        },
    ],
    build,
    ..Feature::EMPTY
};

const SERVER_GET: IqKey = IqKey::get(IqTarget::Server, Ns::Register, "query");
const SERVER_SET: IqKey = IqKey::set(IqTarget::Server, Ns::Register, "query");
const OWN_GET: IqKey = IqKey::get(IqTarget::OwnAccount, Ns::Register, "query");
const OWN_SET: IqKey = IqKey::set(IqTarget::OwnAccount, Ns::Register, "query");

/// Reserved names of the service's contacts (RFC 2142 and common use).
const RESERVED_NAMES: [&str; 16] = [
    "abuse",
    "admin",
    "administrator",
    "hostmaster",
    "info",
    "localhost",
    "noc",
    "postmaster",
    "register",
    "root",
    "security",
    "server",
    "support",
    "system",
    "webmaster",
    "xmpp",
];
/// Limit of characters of a user name; longer ones do not fit a contact list.
const MAX_NAME_CHARS: usize = 64;

/// Options of the module.
struct RegistrationRules {
    open: bool,
    password_change: bool,
    removal: bool,
    allow_without_tls: bool,
    accounts_per_hour_per_address: u32,
    accounts_per_hour: u32,
    min_username_length: usize,
    reserved: BTreeSet<String>,
    instructions: String,
    url: String,
}

fn build(builder: &mut FeatureBuilder<'_>) {
    let options = builder.options;
    let number = |key: &str| u32::try_from(options.int(key)).unwrap_or(0);
    let names = options.texts("reserved_usernames").iter().map(|name| name.to_lowercase());
    let rules = Arc::new(RegistrationRules {
        // Of accounts elsewhere, only their owner may be able to create one.
        open: options.bool("open")
            && builder.provider_capabilities().is_none_or(|capabilities| capabilities.create),
        password_change: options.bool("password_change"),
        removal: options.bool("removal"),
        allow_without_tls: options.bool("allow_without_tls"),
        accounts_per_hour_per_address: number("accounts_per_hour_per_address"),
        accounts_per_hour: number("accounts_per_hour"),
        min_username_length: number("min_username_length") as usize,
        reserved: names.chain(RESERVED_NAMES.map(str::to_owned)).collect(),
        instructions: options.text("instructions").to_owned(),
        url: options.text("url").to_owned(),
    });
    let counts = builder.shared_state(RegistrationLimiter::default);
    if rules.open {
        // Section 8.
        builder.stream_feature(StreamFeature::unauthenticated("register", Ns::RegisterFeature));
    }
    for key in [SERVER_GET, SERVER_SET, OWN_GET, OWN_SET] {
        let (rules, counts) = (rules.clone(), counts.clone());
        builder.iq(key, move |request: &mut IqRequest<'_>| {
            account::answer(&rules, &counts, request, key.set).unwrap_or_else(error_without_request)
        });
    }
    builder.pre_auth(Ns::Register, "query", move |request: &PreAuthRequest<'_>| {
        pre_auth::answer(&rules, &counts, request).unwrap_or_else(error_without_request)
    });
}

fn error_without_request(error: StanzaError) -> IqFlow {
    IqFlow::error(error.without_request())
}

impl RegistrationRules {
    /// Whether nobody may register this name.
    fn is_reserved(&self, node: &Node, jid: &Jid) -> bool {
        // A user who registers an administrator's name would become administrator.
        node.is_protected(jid.as_ref()) || jid.local().is_none_or(|name| self.reserved.contains(name))
    }
}
