//! FAST tokens of an account: XEP-0484 (0.2.0), as one versioned blob.
//!
//! Layout of version 1, numbers big-endian, times in seconds since 1970:
//!
//! ```text
//! u8 version = 1 | for each client, in ascending order:
//!   16 bytes client | u8 which (1 current, 2 new, 3 both) | for each, current first:
//!     u8 mechanism (1 EXPR, 2 ENDP, 3 NONE) | 16 bytes seed | u32 issued | u32 expires
//! ```
//!
//! A client is identified by the hash of its user agent's id; the id itself is not stored. Section 5.1 defines the two
//! slots: an issued token is stored as *new*; its first use makes it *current* and ends the previous one.
//!
//! **What is stored.** The proof is an HMAC under the token, so the verifier must be able to compute the token; a hash
//! of it would be useless. The token itself is not stored: it is computed from the seed with a key that every node has
//! ([`TokenKey`]), over account, client, mechanism and time of issue. A leaked row does not permit a login, and a row
//! copied to another account or client is worthless there.
//!
//! **Cost.** Verification is four HMACs over short texts, also when there is no such account or client.
//!
//! Not implemented: `count`. It prevents replays of TLS early data, which this server does not accept (so `tls-0rtt` is
//! not offered); storing it would cost a write per login.
//!
//! # Pitfalls
//!
//! [`FastTokens::check`] verifies against data that was read earlier. Every resulting change must find the token again
//! inside the transaction ([`FastTokens::apply`]): the password may have changed in between.

use base::Secret;
use base::secret::constant_time_eq;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::hash::{KeyBytes, ScramHash};
use crate::hashed_token::{HtMechanism, PROOF_BYTES, initiator_proof, responder_proof};

const VERSION: u8 = 1;
/// Maximum of clients in a blob; one with more is corrupt. 64 of them are 4 kB.
pub const MAX_CLIENTS: usize = 64;

/// Key that tokens are computed with; the same on every node and after a restart.
#[derive(Clone, Debug)]
pub struct TokenKey(KeyBytes);

/// A client installation: the hash of its user agent's id (XEP-0388, section 3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClientId([u8; 16]);

/// Stored part of a token, without its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastToken {
    /// The only mechanism that it is valid for.
    pub mechanism: HtMechanism,
    /// Random seed, different for each token.
    pub seed: [u8; 16],
    /// Time of issue.
    pub issued: u32,
    /// Time from which it is invalid.
    pub expires: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct ClientTokens {
    id: ClientId,
    current: Option<FastToken>,
    new: Option<FastToken>,
}

/// All tokens of an account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FastTokens(Vec<ClientTokens>);

/// The blob is corrupt or has another version. Its owner logs in with the password and it is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stored tokens are corrupt")]
pub struct CorruptTokens;

/// Claim of a client, and its proof.
#[derive(Clone, Copy, Debug)]
pub struct TokenProof<'a> {
    /// The account's address.
    pub account: &'a str,
    /// The client.
    pub client: ClientId,
    /// The mechanism in use.
    pub mechanism: HtMechanism,
    /// Channel binding data of the mechanism on this stream ([`HtMechanism::binding_data`]).
    pub binding_data: &'a [u8],
    /// The client's proof.
    pub proof: &'a [u8; PROOF_BYTES],
}

/// Result of verifying a proof.
#[derive(Debug, PartialEq, Eq)]
pub enum TokenVerification {
    /// The client has no token, or the proof is of another one.
    Invalid,
    /// The proof is correct, but the token has expired.
    Expired,
    /// The proof is correct.
    Valid(VerifiedToken),
}

/// A correctly proved token.
#[derive(Debug, PartialEq, Eq)]
pub struct VerifiedToken {
    /// The token.
    pub token: FastToken,
    /// First use of the token: [`FastTokens::apply`] must make it the current one.
    pub first_use: bool,
    /// The server's proof.
    pub proof: KeyBytes,
}

/// Change to the tokens of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenChange {
    /// The client.
    pub client: ClientId,
    /// Seed of the token that was used. It must still exist.
    pub used_seed: Option<[u8; 16]>,
    /// Section 3.6: the client logs out. All its tokens are removed, including an issued one that was not used.
    pub invalidate: bool,
    /// Token to add.
    pub new_token: Option<FastToken>,
    /// Maximum of clients of an account; the one whose last token was issued earliest is removed.
    pub max_clients: usize,
    /// Current time.
    pub now: u32,
}

/// The token that was used no longer exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the token no longer exists")]
pub struct TokenRemoved;

impl TokenKey {
    /// `secret`: at least 16 random bytes, the same on every node. It may have other uses.
    pub fn new(secret: &Secret) -> TokenKey {
        TokenKey(ScramHash::Sha256.hmac(secret.expose(), &[b"throng fast tokens"]))
    }

    /// Text of the token: 43 characters of base 64 (URL), 256 bits.
    pub fn token_text(&self, account: &str, client: ClientId, slot: &FastToken) -> String {
        let issued = slot.issued.to_be_bytes();
        let parts: [&[u8]; 5] =
            [&slot.seed, &client.0, &[slot.mechanism.stored_id()], &issued, account.as_bytes()];
        URL_SAFE_NO_PAD.encode(ScramHash::Sha256.hmac(self.0.expose(), &parts).expose())
    }
}

impl ClientId {
    /// Client of this user agent id.
    pub fn new(user_agent: &str) -> ClientId {
        let mut id = [0; 16];
        id.copy_from_slice(&ScramHash::Sha256.digest(user_agent.as_bytes()).expose()[..16]);
        ClientId(id)
    }

    /// Name of the client, 16 characters, that does not reveal its id; stable for the same account.
    pub fn display_name(self, key: &TokenKey, account: &str) -> String {
        let name = ScramHash::Sha256.hmac(key.0.expose(), &[b"resource\0", &self.0, account.as_bytes()]);
        URL_SAFE_NO_PAD.encode(&name.expose()[..12])
    }
}

impl FastToken {
    /// Issues a token.
    pub fn issue(mechanism: HtMechanism, now: u32, lifetime: u32) -> FastToken {
        let seed = base::id::random_bytes::<16>();
        FastToken { mechanism, seed, issued: now, expires: now.saturating_add(lifetime) }
    }
    /// Placeholder for a missing token.
    const NONE: FastToken =
        FastToken { mechanism: HtMechanism::Unbound, seed: [0; 16], issued: 0, expires: 0 };
    fn is_valid_at(&self, now: u32) -> bool {
        now < self.expires
    }
}

impl FastTokens {
    /// Number of clients that have tokens.
    pub const fn clients(&self) -> usize {
        self.0.len()
    }

    /// Verifies a proof.
    pub fn check(&self, key: &TokenKey, claim: &TokenProof<'_>, now: u32) -> TokenVerification {
        let TokenProof { account, client, mechanism, binding_data: data, proof } = *claim;
        let found = self.0.iter().find(|c| c.id == client);
        let slots = [found.and_then(|c| c.new), found.and_then(|c| c.current)];
        let mut verdict = TokenVerification::Invalid;
        // Both slots, and placeholders for a missing client, so that timing reveals nothing.
        for (at, slot) in slots.into_iter().enumerate() {
            let known = slot.is_some_and(|slot| slot.mechanism == mechanism);
            let slot = slot.unwrap_or(FastToken::NONE);
            let text = key.token_text(account, client, &slot);
            let proof_valid = constant_time_eq(initiator_proof(&text, data).expose(), proof);
            if !(known & proof_valid) {
                continue;
            }
            verdict = if slot.is_valid_at(now) {
                TokenVerification::Valid(VerifiedToken {
                    token: slot,
                    first_use: at == 0,
                    proof: responder_proof(&text, data),
                })
            } else {
                TokenVerification::Expired
            };
        }
        verdict
    }

    /// Applies a change; to be called inside the store's transaction. Also removes expired tokens.
    ///
    /// # Errors
    /// [`TokenRemoved`]; nothing is changed then.
    pub fn apply(&mut self, change: &TokenChange) -> Result<(), TokenRemoved> {
        let mut clients = std::mem::take(&mut self.0);
        let at = clients.binary_search_by_key(&change.client, |c| c.id);
        if let Some(seed) = change.used_seed {
            let client = at.ok().and_then(|at| clients.get_mut(at));
            let is = |slot: &Option<FastToken>| slot.is_some_and(|s| s.seed == seed);
            match client {
                Some(c) if is(&c.new) => c.current = c.new.take(),
                Some(c) if is(&c.current) => {}
                _ => {
                    self.0 = clients;
                    return Err(TokenRemoved);
                }
            }
        }
        if change.invalidate
            && let Ok(at) = at
            && let Some(client) = clients.get_mut(at)
        {
            (client.current, client.new) = (None, None);
        }
        if let Some(slot) = change.new_token {
            match at.ok().and_then(|at| clients.get_mut(at)) {
                Some(client) => client.new = Some(slot),
                None => {
                    let client = ClientTokens { id: change.client, current: None, new: Some(slot) };
                    clients.insert(at.unwrap_or_else(|at| at).min(clients.len()), client);
                }
            }
        }
        for client in &mut clients {
            client.current = client.current.filter(|s| s.is_valid_at(change.now));
            client.new = client.new.filter(|s| s.is_valid_at(change.now));
        }
        clients.retain(|c| c.current.is_some() || c.new.is_some());
        while clients.len() > change.max_clients.clamp(1, MAX_CLIENTS) {
            let last = |c: &ClientTokens| [c.new, c.current].into_iter().flatten().map(|s| s.issued).max();
            let others = clients.iter().enumerate().filter(|(_, c)| c.id != change.client);
            let Some(oldest) = others.min_by_key(|(_, c)| last(c)).map(|(at, _)| at) else { break };
            clients.remove(oldest);
        }
        self.0 = clients;
        Ok(())
    }

    /// Encodes the blob; empty without tokens.
    pub fn encode(&self) -> Vec<u8> {
        if self.0.is_empty() {
            return Vec::new();
        }
        let mut out = Vec::with_capacity(1 + self.0.len() * 67);
        out.push(VERSION);
        for client in &self.0 {
            out.extend_from_slice(&client.id.0);
            out.push(u8::from(client.current.is_some()) | u8::from(client.new.is_some()) << 1);
            for slot in [client.current, client.new].into_iter().flatten() {
                out.push(slot.mechanism.stored_id());
                out.extend_from_slice(&slot.seed);
                out.extend_from_slice(&slot.issued.to_be_bytes());
                out.extend_from_slice(&slot.expires.to_be_bytes());
            }
        }
        out
    }

    /// Decodes a blob; an empty one has no tokens.
    ///
    /// # Errors
    /// If it is corrupt or of another version.
    pub fn decode(blob: &[u8]) -> Result<FastTokens, CorruptTokens> {
        let Some((version, mut rest)) = blob.split_first() else { return Ok(FastTokens::default()) };
        if *version != VERSION || rest.is_empty() {
            return Err(CorruptTokens);
        }
        let mut clients: Vec<ClientTokens> = Vec::new();
        while !rest.is_empty() {
            let id = ClientId(take(&mut rest)?);
            let [which] = take(&mut rest)?;
            if !(1..=3).contains(&which)
                || clients.len() == MAX_CLIENTS
                || clients.last().is_some_and(|last| last.id >= id)
            {
                return Err(CorruptTokens);
            }
            let current = if which & 1 == 0 { None } else { Some(decode_token(&mut rest)?) };
            let new = if which & 2 == 0 { None } else { Some(decode_token(&mut rest)?) };
            clients.push(ClientTokens { id, current, new });
        }
        Ok(FastTokens(clients))
    }
}

fn decode_token(rest: &mut &[u8]) -> Result<FastToken, CorruptTokens> {
    let [number] = take(rest)?;
    let mechanism = HtMechanism::ALL.into_iter().find(|m| m.stored_id() == number).ok_or(CorruptTokens)?;
    let seed = take(rest)?;
    let issued = u32::from_be_bytes(take(rest)?);
    let expires = u32::from_be_bytes(take(rest)?);
    Ok(FastToken { mechanism, seed, issued, expires })
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], CorruptTokens> {
    let (taken, left) = rest.split_first_chunk::<N>().ok_or(CorruptTokens)?;
    *rest = left;
    Ok(*taken)
}
