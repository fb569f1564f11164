//! Accounts of an identity provider, known by its tokens only.
//!
//! Not implemented: a look-up of accounts, for there is nothing to look into. So login tokens (XEP-0484) are not offered, and
//! an account exists here after its first login.

use std::sync::Arc;

use base::Secret;
use base::clock::Clock;
use environment::account_provider::{
    AccountProvider, PasswordCheck, ProvidedAccount, ProviderCapabilities, ProviderError, ProviderFuture,
    TokenCheck,
};
use jid::{Jid, JidRef};

use super::claims::ClaimRules;
use super::keys::KeySource;
use super::signature::CompactToken;

/// Settings besides the keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JwtSettings {
    /// Rules for the claims.
    pub claims: ClaimRules,
    /// Whether a token may be sent as a password.
    pub as_password: bool,
}

/// Accounts of an identity provider.
pub struct JwtAccounts {
    settings: JwtSettings,
    keys: KeySource,
    clock: Arc<dyn Clock>,
}

impl JwtAccounts {
    /// Accounts whose tokens these keys verify.
    pub fn new(settings: JwtSettings, keys: KeySource, clock: Arc<dyn Clock>) -> JwtAccounts {
        JwtAccounts { settings, keys, clock }
    }

    async fn account_of(&self, domain: &str, token: &Secret) -> Result<Option<Jid>, ProviderError> {
        // Before the keys are read: not every password is worth a request.
        let Some(token) = token.expose_str().ok().and_then(CompactToken::parse) else { return Ok(None) };
        let keys = self.keys.keys(token.key_id.as_deref()).await?;
        let now = self.clock.unix_millis() / 1000;
        let Some(claims) = token.verify(&keys) else {
            tracing::debug!(domain, "no known key verifies the signature of a token");
            return Ok(None);
        };
        match self.settings.claims.account(&claims, domain, now) {
            Ok(account) => Ok(Some(account)),
            // The identity provider has signed it, so the configuration may be wrong.
            Err(reason) => {
                tracing::info!(domain, reason, "a token with a valid signature was refused");
                Ok(None)
            }
        }
    }
}

impl AccountProvider for JwtAccounts {
    fn name(&self) -> &'static str {
        "an identity provider"
    }

    fn capabilities(&self) -> ProviderCapabilities {
        ProviderCapabilities {
            passwords: self.settings.as_password,
            tokens: true,
            ..ProviderCapabilities::default()
        }
    }

    fn check_password(&self, account: JidRef<'_>, password: Secret) -> ProviderFuture<'_, PasswordCheck> {
        let account = account.bare().to_jid();
        Box::pin(async move {
            if !self.settings.as_password {
                return Err(ProviderError::not_supported(self.name(), "check passwords"));
            }
            Ok(match self.account_of(account.domain(), &password).await? {
                Some(found) if found == account => PasswordCheck::Valid(ProvidedAccount::default()),
                _ => PasswordCheck::Invalid,
            })
        })
    }

    fn check_token(&self, domain: &str, token: Secret) -> ProviderFuture<'_, TokenCheck> {
        let domain = domain.to_owned();
        Box::pin(async move {
            Ok(match self.account_of(&domain, &token).await? {
                Some(found) => TokenCheck::Valid(found, ProvidedAccount::default()),
                None => TokenCheck::Invalid,
            })
        })
    }
}
