//! API tokens for programs: a name, scopes and an expiry, stored as hashes in one value of the store.
//!
//! A token is 256 random bits, so one round of SHA-256 is as safe as a slow hash, and reading the database reveals
//! none. It is shown once, when it is created.
//!
//! Each node caches the list for [`MAX_AGE_SECONDS`], so a token that is added or removed on one node is known or revoked on the
//! others by then. A change reads the stored list and replaces it only if no other node has changed it meanwhile.
//!
//! # Pitfalls
//!
//! While the store does not answer, a node uses the list that it has: operators need the API then.

mod routes;

use std::sync::Arc;

use base::Millis;
use base::clock::Clock;
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
/// Seconds after which a node reads the list again, because another node may have changed it.
pub const MAX_AGE_SECONDS: u64 = 5;
/// Attempts to change a list that other nodes change at the same time.
const CHANGE_ATTEMPTS: usize = 8;

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
    clock: Arc<dyn Clock>,
    cached: LeafRwLock<Option<CachedList>>,
}

#[derive(Clone)]
struct CachedList {
    list: Arc<Vec<StoredToken>>,
    /// When it was read.
    read_at: Millis,
}

impl ApiTokens {
    /// The tokens in this store. They are loaded on first use.
    pub fn new(settings: Arc<dyn ServerKv>, clock: Arc<dyn Clock>) -> ApiTokens {
        ApiTokens { settings, clock, cached: LeafRwLock::new(None) }
    }

    /// The list, at most [`MAX_AGE_SECONDS`] old while the store answers.
    async fn list_of_tokens(&self) -> Result<Arc<Vec<StoredToken>>, CommandError> {
        let cached = self.cached.read().clone();
        let now = self.clock.now();
        if let Some(cached) = &cached
            && now.since(cached.read_at) < MAX_AGE_SECONDS * 1000
        {
            return Ok(cached.list.clone());
        }
        match (self.read().await, cached) {
            (Ok((_, list)), _) => Ok(self.cache(list, now)),
            (Err(error), Some(cached)) => {
                tracing::warn!(%error, "cannot read the list of tokens; the previous one is used");
                Ok(cached.list)
            }
            (Err(error), None) => Err(error),
        }
    }

    /// The stored value, if there is one, and the list in it.
    async fn read(&self) -> Result<(Option<Vec<u8>>, Vec<StoredToken>), CommandError> {
        let stored = self.settings.get(KEY).await?;
        let list = match &stored {
            Some(bytes) => serde_json::from_slice(bytes).map_err(|error| {
                tracing::error!(%error, "cannot read the list of tokens");
                CommandError::internal()
            })?,
            None => Vec::new(),
        };
        Ok((stored, list))
    }

    /// Caches a list that was read at `now`, unless a newer one is there.
    fn cache(&self, list: Vec<StoredToken>, now: Millis) -> Arc<Vec<StoredToken>> {
        let mut cached = self.cached.write();
        match &*cached {
            Some(newer) if newer.read_at >= now => newer.list.clone(),
            _ => cached.insert(CachedList { list: Arc::new(list), read_at: now }).list.clone(),
        }
    }

    /// Changes the stored list. Other nodes may do the same, so `change` may be called repeatedly.
    async fn change(
        &self,
        change: impl Fn(&mut Vec<StoredToken>) -> Result<(), CommandError>,
    ) -> Result<(), CommandError> {
        for _ in 0..CHANGE_ATTEMPTS {
            let (stored, mut list) = self.read().await?;
            change(&mut list)?;
            let bytes = serde_json::to_vec(&list).map_err(|_| CommandError::internal())?;
            if self.settings.compare_and_set(KEY, stored.as_deref(), &bytes).await? {
                // A read that began before this change is older than the change.
                *self.cached.write() = Some(CachedList { list: Arc::new(list), read_at: self.clock.now() });
                return Ok(());
            }
        }
        Err(CommandError::new(
            CommandErrorKind::Unavailable,
            "other changes of the tokens are in progress; try again",
        ))
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
        let list = self.list_of_tokens().await?;
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
        fn wrong<T>(text: String) -> Result<T, CommandError> {
            Err(CommandError::new(CommandErrorKind::NotAcceptable, text))
        }
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
        let random = URL_SAFE_NO_PAD.encode(base::id::random_bytes::<32>());
        let stored = StoredToken {
            name: name.to_owned(),
            scopes: scopes.names().into_iter().map(str::to_owned).collect(),
            created,
            expires,
            hash: URL_SAFE_NO_PAD.encode(hash_secret(random.as_bytes())),
        };
        let token = ApiToken::from_stored(&stored);
        self.change(|list| {
            list.retain(|other| other.expires.is_none_or(|end| created < end));
            if list.iter().any(|other| other.name == name) {
                return Err(CommandError::new(
                    CommandErrorKind::Conflict,
                    format!("the token \"{name}\" already exists"),
                ));
            }
            if list.len() >= MAX_TOKENS {
                return wrong(format!("the limit of {MAX_TOKENS} tokens is reached; remove one"));
            }
            list.push(stored.clone());
            Ok(())
        })
        .await?;
        Ok((format!("{PREFIX}{random}"), token))
    }

    /// All tokens, including expired ones.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn list(&self) -> Result<Vec<ApiToken>, CommandError> {
        Ok(self.list_of_tokens().await?.iter().map(ApiToken::from_stored).collect())
    }

    /// Removes a token by its name. It is revoked on this node at once, on others within [`MAX_AGE_SECONDS`].
    ///
    /// # Errors
    /// `item-not-found` if there is none.
    pub async fn remove(&self, name: &str) -> Result<(), CommandError> {
        self.change(|list| {
            let before = list.len();
            list.retain(|stored| stored.name != name);
            if list.len() == before {
                let name: String = name.chars().take(MAX_NAME_CHARS).collect();
                return Err(CommandError::new(
                    CommandErrorKind::NotFound,
                    format!("the token \"{name}\" does not exist"),
                ));
            }
            Ok(())
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::ManualClock;
    use throng_commands::TokenScope;

    fn tokens() -> (ApiTokens, Arc<dyn ServerKv>) {
        let settings = store::memory::stores(Arc::new(ManualClock::new())).server_kv;
        (of_node(&settings, &Arc::new(ManualClock::new())), settings)
    }

    fn of_node(settings: &Arc<dyn ServerKv>, clock: &Arc<ManualClock>) -> ApiTokens {
        ApiTokens::new(settings.clone(), clock.clone())
    }

    #[tokio::test]
    async fn other_nodes_learn_of_changes_within_seconds_and_none_is_undone() {
        let (_, settings) = tokens();
        let clock = Arc::new(ManualClock::new());
        let [a, b] = [(); 2].map(|()| of_node(&settings, &clock));
        let read = Scopes::from_scopes([TokenScope::Read]);
        let (first, _) = a.add("first", read, 0, None).await.unwrap();
        assert!(b.find(first.as_bytes(), 0).await.unwrap().is_some());
        // Each knows a list without the token of the other.
        let (second, _) = b.add("second", read, 0, None).await.unwrap();
        a.remove("first").await.unwrap();
        assert_eq!(a.find(first.as_bytes(), 0).await.unwrap(), None);
        clock.set(Millis(MAX_AGE_SECONDS * 1000));
        for node in [&a, &b] {
            assert_eq!(node.find(first.as_bytes(), 0).await.unwrap(), None, "it is revoked");
            assert!(node.find(second.as_bytes(), 0).await.unwrap().is_some());
        }
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
        let again = of_node(&settings, &Arc::new(ManualClock::new()));
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
        let stored = tokens.list_of_tokens().await.unwrap()[0].hash.clone();
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
