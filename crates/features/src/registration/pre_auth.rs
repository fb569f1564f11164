//! Registration of unauthenticated clients: XEP-0077 2.4, section 3.1.1.
//!
//! # Pitfalls
//!
//! Everything here is open to anybody who can connect. Each attempt is counted before any lookup, or names could be
//! guessed without limit.

use std::sync::Arc;

use base::Secret;
use feature_api::stream_elements::PreAuthRequest;
use jid::Jid;
use stanza::{ErrorType, IqType, StanzaCondition, StanzaError, StanzaKind};
use throng_commands::account_admin::{self, AccountError};
use throng_commands::password_policy::PasswordPolicy;
use throng_core::Node;
use throng_core::iq::IqFlow;
use throng_core::server_error::store_error;
use xml::Ns;

use super::form::{self, RegistrationRequest};
use super::rate_limit::{RateLimitKey, RegistrationLimiter};
use super::{MAX_NAME_CHARS, RegistrationRules};

pub(super) fn answer(
    rules: &Arc<RegistrationRules>,
    counts: &Arc<RegistrationLimiter>,
    request: &PreAuthRequest<'_>,
) -> Result<IqFlow, StanzaError> {
    if !rules.open {
        return match (request.head.kind, rules.url.as_str()) {
            (StanzaKind::Iq(IqType::Get), url) if !url.is_empty() => {
                Ok(IqFlow::Reply(Ok(form::external_registration(url))))
            }
            _ => Err(StanzaCondition::ServiceUnavailable.into()),
        };
    }
    if !request.secure && !rules.allow_without_tls {
        return Err(StanzaError::new(StanzaCondition::NotAuthorized)
            .kind(ErrorType::Modify)
            .text("accounts can be registered only on encrypted streams"));
    }
    if request.head.kind == StanzaKind::Iq(IqType::Get) {
        return Ok(IqFlow::Reply(Ok(form::registration_form(&rules.instructions))));
    }
    let tree = throng_core::shared_stanza::tree(request.bytes).map_err(|_| StanzaCondition::BadRequest)?;
    let query = tree.root().child("query", Ns::Register).ok_or(StanzaCondition::BadRequest)?;
    let (name, password) = match form::read(query)? {
        // Section 3.2: an unauthenticated client has no account to remove.
        RegistrationRequest::Remove(_) => return Err(StanzaCondition::UnexpectedRequest.into()),
        RegistrationRequest::Fields { username: Some(name), password: Some(password), .. } => {
            (name, password)
        }
        RegistrationRequest::Fields { .. } => {
            return Err(not_acceptable("a user name and a password are required"));
        }
    };
    let now = request.node.seconds();
    let whose = RateLimitKey::address(request.peer);
    counts.count_attempt(whose, rules.accounts_per_hour_per_address, now)?;
    let jid = Jid::from_parts(Some(&name), request.host.domain(), None)
        .map_err(|error| not_acceptable(format!("invalid user name: {error}")))?;
    let length = jid.local().unwrap_or_default().chars().count();
    if length < rules.min_username_length || length > MAX_NAME_CHARS {
        let text =
            format!("a user name must have {} to {MAX_NAME_CHARS} characters", rules.min_username_length);
        return Err(not_acceptable(text));
    }
    if rules.is_reserved(request.node, &jid) {
        return Err(StanzaCondition::Conflict.into());
    }
    let (node, rules, counts, peer) = (request.node.clone(), rules.clone(), counts.clone(), request.peer);
    Ok(IqFlow::wait(async move {
        match create_account(&node, &jid, password, &rules, &counts, whose).await {
            Ok(()) => {
                tracing::info!(target: "throng::audit", who = %peer, interface = "registration", on = %jid, "registered");
                Ok(Vec::new())
            }
            Err(error) => Err(error.without_request()),
        }
    }))
}

async fn create_account(
    node: &Arc<Node>,
    jid: &Jid,
    password: Secret,
    rules: &RegistrationRules,
    counts: &RegistrationLimiter,
    whose: RateLimitKey,
) -> Result<(), StanzaError> {
    let policy = PasswordPolicy::load(&*node.stores.server_kv, jid.domain()).await.map_err(store_error)?;
    policy.check(jid.local().unwrap_or_default(), &password).map_err(not_acceptable)?;
    counts.reserve_account(
        whose,
        rules.accounts_per_hour_per_address,
        rules.accounts_per_hour,
        node.seconds(),
    )?;
    let done = account_admin::create_account(node, jid, password).await;
    // A provider that has not answered may have created the account, and before an error of the store it has.
    let may_exist = matches!(done, Err(AccountError::Provider(_) | AccountError::Store(_)))
        && node.host(jid.domain()).is_some_and(|host| host.account_provider().is_some());
    if done.is_err() && !may_exist {
        counts.release_account(whose);
    }
    done.map(drop).map_err(|error| match error {
        AccountError::Exists => StanzaCondition::Conflict.into(),
        AccountError::InvalidPassword(text) => not_acceptable(text),
        AccountError::NotFound | AccountError::UnknownDomain => StanzaCondition::ServiceUnavailable.into(),
        AccountError::Store(error) => store_error(error),
        AccountError::NotSupported(_) => StanzaCondition::ServiceUnavailable.into(),
        AccountError::Provider(error) => error.stanza(),
    })
}

pub(super) fn not_acceptable(text: impl Into<std::borrow::Cow<'static, str>>) -> StanzaError {
    StanzaError::new(StanzaCondition::NotAcceptable).text(text)
}
