//! API tokens for programs: a name, scopes and an expiry, stored as hashes in one value of the store.
//!
//! A token is 256 random bits, so one round of SHA-256 is as safe as a slow hash, and reading the database reveals
//! none. It is shown once, when it is created.
//!
//! Not implemented: several nodes that change the list concurrently.
//!
//! # Pitfalls
//!
//! All changes on a running node must go through its one [`ApiTokens`], which caches the list in memory.

mod routes;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::lock::LeafRwLock;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use store::ServerKv;
use throng_commands::{CommandError, CommandErrorKind};

use super::Scopes;
use super::sessions::hash_secret;

/// Tokens at a time; all of them must fit one value.
pub const MAX_TOKENS: usize = 100;
/// Prefix of every token, so that a leaked one is recognised.
pub const PREFIX: &str = "throng_";
/// Characters of a name.
const MAX_NAME_CHARS: usize = 64;
pub(crate) use routes::{operations, schemas};

const KEY: &str = "api-tokens";

/// A token as it is stored.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
struct StoredToken {
    name: String,
    scopes: Vec<String>,
    /// Creation in seconds since 1970.
    created: u64,
    /// Expiry in seconds since 1970; never if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires: Option<u64>,
    /// SHA-256, base64url.
    hash: String,
}

/// Metadata of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiToken {
    /// Its name, unique.
    pub name: String,
    /// Its scopes.
    pub scopes: Scopes,
    /// Creation in seconds since 1970.
    pub created: u64,
    /// Expiry in seconds since 1970; never if absent.
    pub expires: Option<u64>,
}

impl ApiToken {
    fn from_stored(stored: &StoredToken) -> ApiToken {
        // A scope that this version does not know grants nothing.
        let known = stored.scopes.iter().filter_map(|name| throng_commands::TokenScope::from_name(name));
        ApiToken {
            name: stored.name.clone(),
            scopes: Scopes::from_scopes(known),
            created: stored.created,
            expires: stored.expires,
        }
    }
}

/// All tokens.
pub struct ApiTokens {
    settings: Arc<dyn ServerKv>,
    list: LeafRwLock<Option<Arc<Vec<StoredToken>>>>,
    changing: AtomicBool,
}

/// Marks a change in progress.
struct ChangeGuard<'a>(&'a AtomicBool);

impl Drop for ChangeGuard<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl ApiTokens {
    /// The tokens in this store. They are loaded on first use.
    pub fn new(settings: Arc<dyn ServerKv>) -> ApiTokens {
        ApiTokens { settings, list: LeafRwLock::new(None), changing: AtomicBool::new(false) }
    }

    async fn stored(&self) -> Result<Arc<Vec<StoredToken>>, CommandError> {
        if let Some(list) = self.list.read().clone() {
            return Ok(list);
        }
        let list = match self.settings.get(KEY).await? {
            Some(bytes) => Arc::new(serde_json::from_slice(&bytes).map_err(|error| {
                tracing::error!(%error, "cannot read the list of tokens");
                CommandError::internal()
            })?),
            None => Arc::default(),
        };
        // A change made in between is newer than what was read.
        Ok(self.list.write().get_or_insert(list).clone())
    }

    fn begin_change(&self) -> Result<ChangeGuard<'_>, CommandError> {
        match self.changing.swap(true, Ordering::AcqRel) {
            false => Ok(ChangeGuard(&self.changing)),
            true => Err(CommandError::new(
                CommandErrorKind::Unavailable,
                "another change of the tokens is in progress; try again",
            )),
        }
    }

    async fn save(&self, list: Vec<StoredToken>) -> Result<(), CommandError> {
        let bytes = serde_json::to_vec(&list).map_err(|_| CommandError::internal())?;
        self.settings.put(KEY, &bytes).await?;
        *self.list.write() = Some(Arc::new(list));
        Ok(())
    }

    /// The token of this secret, if it is valid at `now` (milliseconds since 1970).
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn find(&self, secret: &[u8], now: u64) -> Result<Option<ApiToken>, CommandError> {
        let Some(random) = secret.strip_prefix(PREFIX.as_bytes()).filter(|r| r.len() == 43) else {
            return Ok(None);
        };
        let hash = URL_SAFE_NO_PAD.encode(hash_secret(random));
        let list = self.stored().await?;
        let same =
            |stored: &&StoredToken| base::secret::constant_time_eq(stored.hash.as_bytes(), hash.as_bytes());
        let holds = |stored: &&StoredToken| stored.expires.is_none_or(|end| now / 1000 < end);
        Ok(list.iter().find(same).filter(holds).map(ApiToken::from_stored))
    }

    /// Creates a token; returns its secret, which cannot be read again.
    ///
    /// # Errors
    /// `conflict` if the name is taken, `not-acceptable` if there are too many or the name is invalid.
    pub async fn add(
        &self,
        name: &str,
        scopes: Scopes,
        created: u64,
        expires: Option<u64>,
    ) -> Result<(String, ApiToken), CommandError> {
        let wrong = |text: String| Err(CommandError::new(CommandErrorKind::NotAcceptable, text));
        let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if name.is_empty() || name.len() > MAX_NAME_CHARS || !name.chars().all(plain) {
            return wrong(format!(
                "a name must have 1 to {MAX_NAME_CHARS} letters, digits, dots, hyphens and underscores"
            ));
        }
        if scopes == Scopes::NONE {
            return wrong("a token requires at least one scope".to_owned());
        }
        if expires.is_some_and(|end| end <= created) {
            return wrong("the expiry of the token is in the past".to_owned());
        }
        let _change = self.begin_change()?;
        let mut list = self.stored().await?.as_ref().clone();
        list.retain(|stored| stored.expires.is_none_or(|end| created < end));
        if list.iter().any(|stored| stored.name == name) {
            return Err(CommandError::new(
                CommandErrorKind::Conflict,
                format!("the token \"{name}\" already exists"),
            ));
        }
        if list.len() >= MAX_TOKENS {
            return wrong(format!("the limit of {MAX_TOKENS} tokens is reached; remove one"));
        }
        let random = URL_SAFE_NO_PAD.encode(base::id::random_bytes::<32>());
        let stored = StoredToken {
            name: name.to_owned(),
            scopes: scopes.names().into_iter().map(str::to_owned).collect(),
            created,
            expires,
            hash: URL_SAFE_NO_PAD.encode(hash_secret(random.as_bytes())),
        };
        let token = ApiToken::from_stored(&stored);
        list.push(stored);
        self.save(list).await?;
        Ok((format!("{PREFIX}{random}"), token))
    }

    /// All tokens, including expired ones.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn list(&self) -> Result<Vec<ApiToken>, CommandError> {
        Ok(self.stored().await?.iter().map(ApiToken::from_stored).collect())
    }

    /// Removes a token by its name; it is revoked immediately.
    ///
    /// # Errors
    /// `item-not-found` if there is none.
    pub async fn remove(&self, name: &str) -> Result<(), CommandError> {
        let _change = self.begin_change()?;
        let mut list = self.stored().await?.as_ref().clone();
        let before = list.len();
        list.retain(|stored| stored.name != name);
        if list.len() == before {
            let name: String = name.chars().take(MAX_NAME_CHARS).collect();
            return Err(CommandError::new(
                CommandErrorKind::NotFound,
                format!("the token \"{name}\" does not exist"),
            ));
        }
        self.save(list).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::ManualClock;
    use throng_commands::TokenScope;

    fn tokens() -> (ApiTokens, Arc<dyn ServerKv>) {
        let settings = store::memory::stores(Arc::new(ManualClock::new())).server_kv;
        (ApiTokens::new(settings.clone()), settings)
    }

    #[tokio::test]
    async fn a_token_is_shown_once_and_stored_as_a_hash() {
        let (tokens, settings) = tokens();
        let scopes = Scopes::from_scopes([TokenScope::Read, TokenScope::Accounts]);
        let (secret, token) = tokens.add("backup", scopes, 100, Some(200)).await.unwrap();
        assert!(secret.starts_with("throng_") && secret.len() == 50);
        assert_eq!(tokens.find(secret.as_bytes(), 199_999).await.unwrap(), Some(token.clone()));
        assert_eq!(tokens.find(secret.as_bytes(), 200_000).await.unwrap(), None, "it has expired");
        let stored = String::from_utf8(settings.get(KEY).await.unwrap().unwrap()).unwrap();
        assert!(!stored.contains(&secret[7..]), "{stored}");
        // It is still there after a restart.
        let again = ApiTokens::new(settings);
        assert_eq!(again.list().await.unwrap(), [token]);
        assert!(again.find(secret.as_bytes(), 0).await.unwrap().is_some());
        again.remove("backup").await.unwrap();
        assert_eq!(again.find(secret.as_bytes(), 0).await.unwrap(), None);
        assert_eq!(again.remove("backup").await.unwrap_err().kind, CommandErrorKind::NotFound);
    }

    #[tokio::test]
    async fn forged_tokens_are_rejected() {
        let (tokens, _) = tokens();
        let (secret, _) = tokens.add("a", Scopes::ALL, 0, None).await.unwrap();
        let stored = tokens.stored().await.unwrap()[0].hash.clone();
        let long = "throng_".to_owned() + &"A".repeat(100_000);
        for forged in ["", "throng_", &secret[..49], &secret[7..], &format!("throng_{stored}"), &long] {
            assert_eq!(tokens.find(forged.as_bytes(), 0).await.unwrap(), None, "{forged:.60}");
        }
    }

    #[tokio::test]
    async fn names_are_plain_and_tokens_are_limited() {
        let (tokens, settings) = tokens();
        let read = Scopes::from_scopes([TokenScope::Read]);
        for bad in ["", "a b", "a\nb", "ä", &"x".repeat(65)] {
            assert_eq!(
                tokens.add(bad, read, 0, None).await.unwrap_err().kind,
                CommandErrorKind::NotAcceptable
            );
        }
        assert_eq!(
            tokens.add("a", Scopes::NONE, 0, None).await.unwrap_err().kind,
            CommandErrorKind::NotAcceptable
        );
        assert_eq!(
            tokens.add("a", read, 9, Some(9)).await.unwrap_err().kind,
            CommandErrorKind::NotAcceptable
        );
        let all = Scopes::from_scopes(TokenScope::ALL);
        for n in 0..MAX_TOKENS {
            let name = format!("{n:0>64}");
            tokens.add(&name, all, 0, Some(10)).await.unwrap();
        }
        assert!(settings.get(KEY).await.unwrap().unwrap().len() < store::server_kv::MAX_VALUE_BYTES);
        assert_eq!(
            tokens.add("more", read, 0, None).await.unwrap_err().kind,
            CommandErrorKind::NotAcceptable
        );
        // Expired ones make room.
        tokens.add("more", read, 10, None).await.unwrap();
        assert_eq!(tokens.add("more", read, 10, None).await.unwrap_err().kind, CommandErrorKind::Conflict);
    }
}
