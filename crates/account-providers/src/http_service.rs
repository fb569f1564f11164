//! Accounts of an HTTP service. Each operation is a POST of a JSON object to a path below the configured URL:
//!
//! | Path | Request | Response (200) |
//! | --- | --- | --- |
//! | `check_password` | `user`, `domain`, `password` | `valid`; `disabled`, `version` |
//! | `check_token` | `domain`, `token` | `valid`; `user`, `disabled`, `version` |
//! | `find` | `user`, `domain` | `exists`; `disabled`, `version` |
//! | `create` | `user`, `domain`, `password` | – |
//! | `set_password` | `user`, `domain`, `password` | – |
//! | `remove` | `user`, `domain` | – |
//!
//! `valid`, `exists` and `disabled` are booleans, the last of them optional; `version` is an optional string that changes with
//! the password. Status codes: 404 there is no such account, 409 it exists already, 422 the password is refused, with the
//! reason as the string `error`; any other is an error of the service, and logins get `temporary-auth-failure`.
//!
//! Not implemented: SCRAM keys.
//!
//! # Pitfalls
//!
//! 401 and 403 mean that the service refuses this server, not the user: with a wrong token of the service no user's password
//! would be right, and clients would forget theirs.

use std::sync::Arc;
use std::time::Duration;

use base::Secret;
use base::clock::Clock;
use environment::account_provider::{
    AccountProvider, MAX_VERSION_BYTES, PasswordCheck, ProvidedAccount, ProviderCapabilities, ProviderError,
    ProviderErrorKind, ProviderFuture, TokenCheck, check_new_password,
};
use http::{HeaderValue, StatusCode};
use jid::{Jid, JidRef};
use ring::digest;
use rustls::ClientConfig;
use serde_json::{Map, Value, json};

use crate::http_client::{ConnectionUse, HttpUrl, JsonResponse, ServiceClient};
use crate::limiter::{RequestLimiter, RequestLimits};
use crate::password_cache::PasswordCache;

/// Operations that a service has.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct HttpOperations {
    /// `check_password`.
    pub check_password: bool,
    /// `check_token`.
    pub check_token: bool,
    /// `find`.
    pub find: bool,
    /// `find` and `check_password` always report a `version`.
    pub versions: bool,
    /// `create`.
    pub create: bool,
    /// `set_password`.
    pub set_password: bool,
    /// `remove`.
    pub remove: bool,
}

/// Settings of a service.
#[derive(Clone, Debug)]
pub struct HttpServiceSettings {
    /// Where it is.
    pub url: HttpUrl,
    /// Token of this server at the service, sent as `Authorization: Bearer …`.
    pub token: Option<Secret>,
    /// What it can do.
    pub operations: HttpOperations,
    /// Time for which a right password is remembered.
    pub cache: Duration,
    /// Limits of requests.
    pub limits: RequestLimits,
}

/// Accounts of an HTTP service.
pub struct HttpAccounts {
    client: ServiceClient,
    operations: HttpOperations,
    cache: PasswordCache,
    limiter: RequestLimiter,
}

impl HttpAccounts {
    /// No request is made yet.
    ///
    /// # Errors
    /// One sentence, if the token cannot be sent in a header.
    pub fn new(
        settings: &HttpServiceSettings,
        tls: Option<Arc<ClientConfig>>,
        clock: Arc<dyn Clock>,
    ) -> Result<HttpAccounts, String> {
        let authorization = match &settings.token {
            None => None,
            Some(token) => {
                let line = [b"Bearer ", token.expose().trim_ascii()].concat();
                let mut value = HeaderValue::from_bytes(&line).map_err(|_| {
                    "the token of the HTTP service contains characters that no header may have".to_owned()
                })?;
                value.set_sensitive(true);
                Some(value)
            }
        };
        Ok(HttpAccounts {
            client: ServiceClient::new(settings.url.clone(), tls, authorization),
            operations: settings.operations,
            cache: PasswordCache::new(settings.cache, clock),
            limiter: RequestLimiter::new(settings.limits),
        })
    }

    /// Runs an operation; the object of a response with status 200, `None` for 404.
    async fn call(
        &self,
        operation: &str,
        domain: &str,
        request: Value,
        connection: ConnectionUse,
    ) -> Result<Option<Map<String, Value>>, ProviderError> {
        let request = request.to_string().into_bytes();
        let source = self.client.url().to_string();
        let response =
            self.limiter.run(&source, domain, self.client.post(operation, request, connection)).await?;
        self.read(operation, &response)
    }

    fn read(
        &self,
        operation: &str,
        response: &JsonResponse,
    ) -> Result<Option<Map<String, Value>>, ProviderError> {
        let object = || match serde_json::from_slice(&response.body) {
            Ok(Value::Object(object)) => Ok(object),
            _ => Err(self.invalid(operation, "the response is not a JSON object")),
        };
        match response.status {
            StatusCode::OK if response.body.is_empty() => Ok(Some(Map::new())),
            StatusCode::OK => object().map(Some),
            StatusCode::CREATED | StatusCode::NO_CONTENT => Ok(Some(Map::new())),
            // A page of a web server means that the URL is wrong. No password would be right, and clients would forget theirs.
            StatusCode::NOT_FOUND if response.body.trim_ascii_start().starts_with(b"<") => {
                Err(self.invalid(operation, "the status is 404 with a web page; check url"))
            }
            StatusCode::NOT_FOUND => Ok(None),
            StatusCode::CONFLICT => {
                Err(ProviderError::new(ProviderErrorKind::AlreadyExists, "the account exists already"))
            }
            StatusCode::UNPROCESSABLE_ENTITY => {
                let reason = object().ok().and_then(|object| Some(object.get("error")?.as_str()?.to_owned()));
                let reason =
                    reason.filter(|reason| reason.len() <= 200 && !reason.contains(char::is_control));
                let text = reason
                    .unwrap_or_else(|| "the password does not follow the rules of this service".to_owned());
                Err(ProviderError::new(ProviderErrorKind::PasswordRefused, text))
            }
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                let text = format!(
                    "{} refuses this server ({}); check token_file",
                    self.client.url(),
                    response.status
                );
                Err(ProviderError::new(ProviderErrorKind::Unavailable, text))
            }
            status if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => {
                let text = format!("{} answered {operation} with {status}", self.client.url());
                Err(ProviderError::new(ProviderErrorKind::Unavailable, text))
            }
            status => Err(self.invalid(operation, &format!("the status is {status}"))),
        }
    }

    fn invalid(&self, operation: &str, what: &str) -> ProviderError {
        let text = format!("{} gave an invalid response to {operation}: {what}", self.client.url());
        ProviderError::new(ProviderErrorKind::InvalidResponse, text)
    }

    /// A boolean that must be present: a response without it must not count as either.
    fn flag(&self, operation: &str, object: &Map<String, Value>, key: &str) -> Result<bool, ProviderError> {
        object
            .get(key)
            .and_then(Value::as_bool)
            .ok_or_else(|| self.invalid(operation, &format!("no boolean {key}")))
    }

    fn account(
        &self,
        operation: &str,
        object: &Map<String, Value>,
    ) -> Result<ProvidedAccount, ProviderError> {
        let disabled = match object.get("disabled") {
            None | Some(Value::Null) => false,
            Some(_) => self.flag(operation, object, "disabled")?,
        };
        let version = match object.get("version") {
            None | Some(Value::Null) if self.operations.versions => {
                return Err(self.invalid(operation, "no version"));
            }
            None | Some(Value::Null) => None,
            Some(Value::String(version)) => Some(hash_version(version)),
            Some(Value::Number(version)) => Some(hash_version(&version.to_string())),
            Some(_) => return Err(self.invalid(operation, "version is not a string")),
        };
        Ok(ProvidedAccount { disabled, credentials: None, version })
    }

    fn refuse<T: Send + 'static>(&self, operation: &'static str) -> ProviderFuture<'_, T> {
        Box::pin(async move { Err(ProviderError::not_supported(self.name(), operation)) })
    }

    /// An operation that changes an account and has no result.
    fn change(
        &self,
        able: bool,
        operation: &'static str,
        account: JidRef<'_>,
        password: Option<Secret>,
        refused: &'static str,
    ) -> ProviderFuture<'_, ()> {
        if !able {
            return self.refuse(refused);
        }
        let account = account.bare().to_jid();
        Box::pin(async move {
            let request = match &password {
                Some(password) => {
                    check_new_password(password)?;
                    request_with_password(&account, password)?
                }
                None => request_of(&account),
            };
            let change = self.cache.begin_change(account.as_ref());
            let done = self.call(operation, account.domain(), request, ConnectionUse::Fresh).await?;
            drop(change);
            match done {
                Some(_) => Ok(()),
                None => {
                    Err(ProviderError::new(ProviderErrorKind::NotFound, format!("{account} does not exist")))
                }
            }
        })
    }
}

/// A version of any length in the space of a stored one.
fn hash_version(version: &str) -> Vec<u8> {
    let mut hash = digest::digest(&digest::SHA256, version.as_bytes()).as_ref().to_vec();
    hash.truncate(MAX_VERSION_BYTES);
    hash
}

fn request_of(account: &Jid) -> Value {
    json!({ "user": account.local().unwrap_or_default(), "domain": account.domain() })
}

fn request_with_password(account: &Jid, password: &Secret) -> Result<Value, ProviderError> {
    let password = password.expose_str().map_err(|_| {
        ProviderError::new(ProviderErrorKind::PasswordRefused, "the password is not valid text")
    })?;
    Ok(
        json!({ "user": account.local().unwrap_or_default(), "domain": account.domain(), "password": password }),
    )
}

impl AccountProvider for HttpAccounts {
    fn name(&self) -> &'static str {
        "an HTTP service"
    }

    fn capabilities(&self) -> ProviderCapabilities {
        let HttpOperations { check_password, check_token, find, versions, create, set_password, remove } =
            self.operations;
        ProviderCapabilities {
            passwords: check_password,
            tokens: check_token,
            lookup: find,
            scram: &[],
            versions: find && versions,
            create,
            set_password,
            remove,
        }
    }

    fn find(&self, account: JidRef<'_>) -> ProviderFuture<'_, Option<ProvidedAccount>> {
        if !self.operations.find {
            return self.refuse("look up accounts");
        }
        let account = account.bare().to_jid();
        Box::pin(async move {
            let Some(object) =
                self.call("find", account.domain(), request_of(&account), ConnectionUse::Kept).await?
            else {
                return Ok(None);
            };
            match self.flag("find", &object, "exists")? {
                true => self.account("find", &object).map(Some),
                false => Ok(None),
            }
        })
    }

    fn check_password(&self, account: JidRef<'_>, password: Secret) -> ProviderFuture<'_, PasswordCheck> {
        if !self.operations.check_password {
            return self.refuse("check passwords");
        }
        let account = account.bare().to_jid();
        Box::pin(async move {
            if password.is_empty() || password.expose().contains(&0) || password.expose_str().is_err() {
                return Ok(PasswordCheck::Invalid);
            }
            let check = Box::pin(async {
                let request = request_with_password(&account, &password)?;
                let Some(object) =
                    self.call("check_password", account.domain(), request, ConnectionUse::Kept).await?
                else {
                    return Ok(PasswordCheck::Invalid);
                };
                if !self.flag("check_password", &object, "valid")? {
                    return Ok(PasswordCheck::Invalid);
                }
                Ok(PasswordCheck::Valid(self.account("check_password", &object)?))
            });
            self.cache.get_or_check(account.as_ref(), &password, check).await
        })
    }

    fn check_token(&self, domain: &str, token: Secret) -> ProviderFuture<'_, TokenCheck> {
        if !self.operations.check_token {
            return self.refuse("check tokens");
        }
        let domain = domain.to_owned();
        Box::pin(async move {
            let Some(token) = token.expose_str().ok().filter(|token| !token.is_empty()) else {
                return Ok(TokenCheck::Invalid);
            };
            let request = json!({ "domain": domain, "token": token });
            let Some(object) = self.call("check_token", &domain, request, ConnectionUse::Kept).await? else {
                return Ok(TokenCheck::Invalid);
            };
            if !self.flag("check_token", &object, "valid")? {
                return Ok(TokenCheck::Invalid);
            }
            let user = object.get("user").and_then(Value::as_str);
            let jid = user.and_then(|user| Jid::from_parts(Some(user), &domain, None).ok());
            let jid = jid.ok_or_else(|| self.invalid("check_token", "no valid user"))?;
            Ok(TokenCheck::Valid(jid, self.account("check_token", &object)?))
        })
    }

    fn create(&self, account: JidRef<'_>, password: Secret) -> ProviderFuture<'_, ()> {
        self.change(self.operations.create, "create", account, Some(password), "create accounts")
    }

    fn set_password(&self, account: JidRef<'_>, password: Secret) -> ProviderFuture<'_, ()> {
        let able = self.operations.set_password;
        self.change(able, "set_password", account, Some(password), "change passwords")
    }

    fn remove(&self, account: JidRef<'_>) -> ProviderFuture<'_, ()> {
        self.change(self.operations.remove, "remove", account, None, "remove accounts")
    }
}
