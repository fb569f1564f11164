//! Registration requests of logged-in users: current registration, password change, account removal (XEP-0077 2.4,
//! sections 3.2 and 3.3).
//!
//! # Pitfalls
//!
//! The stream that requests the removal of its account is closed with it, but the reply has to be sent first. It is
//! closed after its reply; all other streams of the account are closed at once.

use std::sync::Arc;

use base::Secret;
use jid::Jid;
use stanza::{ErrorType, StanzaCondition, StanzaError};
use throng_commands::account_admin::{self, AccountError};
use throng_commands::password_policy::PasswordPolicy;
use throng_core::account_provider::PasswordCheck;
use throng_core::iq::{IqFlow, IqRequest};
use throng_core::server_error::{ServerError, store_error};
use throng_core::session::flags;
use throng_core::{Node, Session};
use xml::Ns;

use super::RegistrationRules;
use super::form::{self, RegistrationRequest};
use super::pre_auth::not_acceptable;
use super::rate_limit::RegistrationLimiter;

pub(super) fn answer(
    rules: &Arc<RegistrationRules>,
    counts: &Arc<RegistrationLimiter>,
    request: &IqRequest<'_>,
    set: bool,
) -> Result<IqFlow, StanzaError> {
    // Only for users of this domain, on requests without a resource of the domain.
    let session = request.session.filter(|_| request.to.is_none_or(|to| to.resource().is_none()));
    let session = session.ok_or(StanzaCondition::ServiceUnavailable)?;
    if session.flags.has(flags::EPHEMERAL) {
        return Err(StanzaCondition::RegistrationRequired.into());
    }
    let own = session.bare();
    let name = own.local().unwrap_or_default();
    if !set {
        return Ok(IqFlow::Reply(Ok(form::registered_reply(name))));
    }
    let tree = request.tree()?;
    let query = tree.root().child("query", Ns::Register).ok_or(StanzaCondition::BadRequest)?;
    let query_form = form::read(query)?;
    let now = request.node.seconds();
    let (node, session) = (request.node.clone(), session.clone());
    match query_form {
        RegistrationRequest::Remove(_) if !rules.removal => Err(StanzaCondition::NotAllowed.into()),
        RegistrationRequest::Remove(password) => {
            if password.is_some() {
                counts.count_password_check(session.account.id, now)?;
            }
            Ok(IqFlow::wait(async move {
                let done = remove_account(&node, &session, password).await;
                done.map(|()| Vec::new()).map_err(StanzaError::without_request)
            }))
        }
        RegistrationRequest::Fields { .. } if !rules.password_change => {
            Err(StanzaCondition::NotAllowed.into())
        }
        RegistrationRequest::Fields { .. }
            if !rules.allow_without_tls && !session.flags.has(flags::SECURE) =>
        {
            Err(StanzaError::new(StanzaCondition::NotAuthorized)
                .kind(ErrorType::Modify)
                .text("passwords can be changed only on encrypted streams"))
        }
        RegistrationRequest::Fields { username: Some(username), password: Some(password), old } => {
            let meant = match username.contains('@') {
                true => Jid::parse(&username).ok(),
                false => Jid::from_parts(Some(&username), own.domain(), None).ok(),
            };
            if meant.is_none_or(|jid| jid.as_str() != own.as_str()) {
                return Err(StanzaError::new(StanzaCondition::Forbidden).text("this is not your user name"));
            }
            counts.count_password_check(session.account.id, now)?;
            Ok(IqFlow::wait(async move {
                let done = change_password(&node, &session, password, old).await;
                done.map(|()| Vec::new()).map_err(StanzaError::without_request)
            }))
        }
        RegistrationRequest::Fields { .. } => Err(StanzaError::new(StanzaCondition::BadRequest)
            .text("a user name and a password are required; the password was not changed")),
    }
}

/// Whether the password is that of the account.
async fn verify_password(node: &Node, session: &Session, password: Secret) -> Result<(), StanzaError> {
    let host = node.host(session.bare().domain());
    if let Some(provider) = host.as_ref().and_then(|host| host.account_provider()) {
        let checked = provider.check_password(session.bare(), password).await;
        return match checked.map_err(|error| ServerError::from(error).stanza())? {
            PasswordCheck::Valid(_) => Ok(()),
            PasswordCheck::Invalid => Err(wrong_password()),
        };
    }
    let login = node.stores.logins.secrets(session.bare()).await.map_err(store_error)?;
    let stored = login.ok_or_else(wrong_password)?.credentials;
    if node.passwords.verify(stored, password).await { Ok(()) } else { Err(wrong_password()) }
}

fn wrong_password() -> StanzaError {
    StanzaError::new(StanzaCondition::NotAuthorized).text("the password is wrong")
}

async fn change_password(
    node: &Arc<Node>,
    session: &Arc<Session>,
    password: Secret,
    old: Option<Secret>,
) -> Result<(), StanzaError> {
    let own = session.bare();
    if let Some(old) = old {
        verify_password(node, session, old).await?;
    }
    let policy = PasswordPolicy::load(&*node.stores.server_kv, own.domain()).await.map_err(store_error)?;
    policy.check(own.local().unwrap_or_default(), &password).map_err(not_acceptable)?;
    account_admin::change_password(node, own, password).await.map_err(account_error)?;
    tracing::info!(target: "throng::audit", who = %session.jid, interface = "registration", "password changed");
    Ok(())
}

async fn remove_account(
    node: &Arc<Node>,
    session: &Arc<Session>,
    password: Option<Secret>,
) -> Result<(), StanzaError> {
    if let Some(password) = password {
        verify_password(node, session, password).await?;
    }
    let own = session.bare().to_jid();
    let Some(host) = node.host(own.domain()) else { return Err(StanzaCondition::ServiceUnavailable.into()) };
    account_admin::remove_at_provider(&host, own.as_ref()).await.map_err(account_error)?;
    let removed = node.stores.accounts.remove(own.as_ref()).await.map_err(store_error)?;
    let removed = removed.ok_or(StanzaCondition::RegistrationRequired)?;
    node.account_removed_by(&host, session, removed.contacts);
    tracing::info!(target: "throng::audit", who = %session.jid, interface = "registration", "account removed");
    Ok(())
}

fn account_error(error: AccountError) -> StanzaError {
    match error {
        AccountError::InvalidPassword(text) => not_acceptable(text),
        AccountError::Store(error) => store_error(error),
        AccountError::NotSupported(text) => StanzaError::new(StanzaCondition::NotAllowed).text(text),
        AccountError::Provider(error) => error.stanza(),
        AccountError::NotFound | AccountError::Exists | AccountError::UnknownDomain => {
            StanzaCondition::RegistrationRequired.into()
        }
    }
}
