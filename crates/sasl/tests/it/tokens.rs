//! Tests of XEP-0484 tokens: the slots of section 5, and tokens that must not be accepted.

use sasl::fast_tokens::{
    CorruptTokens, FastToken, MAX_CLIENTS, TokenChange, TokenProof, TokenRemoved, TokenVerification,
};
use sasl::{ClientId, FastTokens, HtMechanism, TokenKey, client, hashed_token};

use super::*;

const JULIET: &str = "juliet@example.org";
const DAY: u32 = 86_400;

struct TokenStore {
    key: TokenKey,
    tokens: FastTokens,
    now: u32,
}

fn phone_client() -> ClientId {
    ClientId::new("d4565fa7-4d72-4749-b3d3-740edbf87770")
}

impl TokenStore {
    fn new() -> TokenStore {
        TokenStore {
            key: TokenKey::new(&Secret::new(*b"server secret")),
            tokens: FastTokens::default(),
            now: 1_000,
        }
    }

    fn change(&self, client: ClientId) -> TokenChange {
        TokenChange {
            client,
            used_seed: None,
            invalidate: false,
            new_token: None,
            max_clients: 32,
            now: self.now,
        }
    }

    fn apply(&mut self, change: TokenChange) -> Result<(), TokenRemoved> {
        // As the store does: encode, decode, change, encode.
        let mut tokens = FastTokens::decode(&self.tokens.encode()).unwrap();
        let done = tokens.apply(&change);
        self.tokens = FastTokens::decode(&tokens.encode()).unwrap();
        assert_eq!(self.tokens, tokens);
        done
    }

    fn issue(&mut self, client: ClientId, mechanism: HtMechanism) -> String {
        let slot = FastToken::issue(mechanism, self.now, 21 * DAY);
        self.apply(TokenChange { new_token: Some(slot), ..self.change(client) }).unwrap();
        self.key.token_text(JULIET, client, &slot)
    }

    fn check(&self, client: ClientId, mechanism: HtMechanism, token: &str, data: &[u8]) -> TokenVerification {
        let message = client::hashed_token("juliet", token, data);
        let proof = hashed_token::parse(&message).unwrap().proof;
        let claim = TokenProof { account: JULIET, client, mechanism, binding_data: data, proof: &proof };
        self.tokens.check(&self.key, &claim, self.now)
    }

    /// Verifies a token and applies the changes of a login.
    fn login(&mut self, client: ClientId, token: &str) -> bool {
        match self.check(client, HtMechanism::Exporter, token, b"channel") {
            TokenVerification::Valid(valid) => {
                let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, token.as_bytes());
                assert!(ring::hmac::verify(&key, b"Responderchannel", valid.proof.expose()).is_ok());
                if valid.first_use {
                    self.apply(TokenChange { used_seed: Some(valid.token.seed), ..self.change(client) })
                        .unwrap();
                }
                true
            }
            _ => false,
        }
    }
}

#[test]
fn a_token_logs_in_again_and_again_without_a_change() {
    let mut store = TokenStore::new();
    let token = store.issue(phone_client(), HtMechanism::Exporter);
    assert_eq!(token.len(), 43);
    assert!(store.login(phone_client(), &token));
    let blob = store.tokens.encode();
    assert!(store.login(phone_client(), &token) && store.login(phone_client(), &token));
    assert_eq!(store.tokens.encode(), blob);
    assert_eq!(blob.len(), 1 + 17 + 25);
}

#[test]
fn a_token_is_valid_for_one_account_client_mechanism_and_channel() {
    let mut store = TokenStore::new();
    let token = store.issue(phone_client(), HtMechanism::Exporter);
    let valid = |verdict| matches!(verdict, TokenVerification::Valid(_));
    assert!(valid(store.check(phone_client(), HtMechanism::Exporter, &token, b"channel")));
    let laptop = ClientId::new("laptop");
    assert_eq!(store.check(laptop, HtMechanism::Exporter, &token, b"channel"), TokenVerification::Invalid);
    for other in [HtMechanism::EndPoint, HtMechanism::Unbound] {
        assert_eq!(store.check(phone_client(), other, &token, b"channel"), TokenVerification::Invalid);
    }
    // A proof recorded on another connection.
    let proof = hashed_token::parse(&client::hashed_token("juliet", &token, b"channel")).unwrap().proof;
    let check = |account, key: &TokenKey, data: &[u8]| {
        let claim = TokenProof {
            account,
            client: phone_client(),
            mechanism: HtMechanism::Exporter,
            binding_data: data,
            proof: &proof,
        };
        store.tokens.check(key, &claim, store.now)
    };
    assert!(valid(check(JULIET, &store.key, b"channel")));
    assert_eq!(check(JULIET, &store.key, b"another"), TokenVerification::Invalid);
    // A row copied to another account, and a server with another secret.
    assert_eq!(check("romeo@example.org", &store.key, b"channel"), TokenVerification::Invalid);
    assert_eq!(
        check(JULIET, &TokenKey::new(&Secret::new(*b"other secret")), b"channel"),
        TokenVerification::Invalid
    );
}

#[test]
fn section_3_5_the_old_token_is_valid_until_the_new_one_is_used() {
    let mut store = TokenStore::new();
    let old = store.issue(phone_client(), HtMechanism::Exporter);
    assert!(store.login(phone_client(), &old));
    let lost = store.issue(phone_client(), HtMechanism::Exporter);
    let new = store.issue(phone_client(), HtMechanism::Exporter);
    assert!(!store.login(phone_client(), &lost), "a newer one was given out before it was used");
    assert!(store.login(phone_client(), &old), "the client may not have received the new one");
    assert!(store.login(phone_client(), &new));
    assert!(!store.login(phone_client(), &old), "replaced");
    assert!(store.login(phone_client(), &new));
}

#[test]
fn section_3_6_invalidated_tokens_are_removed() {
    let mut store = TokenStore::new();
    let token = store.issue(phone_client(), HtMechanism::Exporter);
    let tablet = store.issue(ClientId::new("tablet"), HtMechanism::Exporter);
    assert!(store.login(phone_client(), &token));
    let TokenVerification::Valid(valid) = store.check(phone_client(), HtMechanism::Exporter, &token, b"")
    else {
        panic!()
    };
    let out =
        TokenChange { used_seed: Some(valid.token.seed), invalidate: true, ..store.change(phone_client()) };
    store.apply(out).unwrap();
    assert!(!store.login(phone_client(), &token));
    assert_eq!(store.apply(out), Err(TokenRemoved), "the token was used twice at once");
    assert!(store.login(ClientId::new("tablet"), &tablet), "other clients stay");
}

#[test]
fn an_expired_token_is_reported_only_to_its_owner() {
    let mut store = TokenStore::new();
    let token = store.issue(phone_client(), HtMechanism::Exporter);
    store.now += 21 * DAY - 1;
    assert!(store.login(phone_client(), &token));
    store.now += 1;
    assert_eq!(store.check(phone_client(), HtMechanism::Exporter, &token, b"c"), TokenVerification::Expired);
    assert_eq!(store.check(phone_client(), HtMechanism::Exporter, "guess", b"c"), TokenVerification::Invalid);
    // The next change removes it.
    store.issue(ClientId::new("tablet"), HtMechanism::Exporter);
    assert_eq!(store.tokens.clients(), 1);
}

#[test]
fn clients_of_an_account_are_bounded_and_the_least_recently_used_is_removed() {
    let mut store = TokenStore::new();
    let mut given = Vec::new();
    for number in 0..100 {
        store.now += 1;
        let client = ClientId::new(&number.to_string());
        let slot = FastToken::issue(HtMechanism::Exporter, store.now, DAY);
        store.apply(TokenChange { new_token: Some(slot), max_clients: 10, ..store.change(client) }).unwrap();
        given.push((client, store.key.token_text(JULIET, client, &slot)));
    }
    assert_eq!(store.tokens.clients(), 10);
    for (number, (client, token)) in given.iter().enumerate() {
        assert_eq!(store.login(*client, token), number >= 90, "{number}");
    }
    // No configuration writes more than can be decoded again.
    for number in 0..100 {
        let client = ClientId::new(&number.to_string());
        let issue = Some(FastToken::issue(HtMechanism::Exporter, store.now, DAY));
        store
            .apply(TokenChange { new_token: issue, max_clients: usize::MAX, ..store.change(client) })
            .unwrap();
    }
    assert_eq!(store.tokens.clients(), MAX_CLIENTS);
}

#[test]
fn a_client_display_name_is_stable_and_discloses_nothing() {
    let store = TokenStore::new();
    let name = phone_client().display_name(&store.key, JULIET);
    assert_eq!((name.len(), &name), (16, &phone_client().display_name(&store.key, JULIET)));
    assert_ne!(name, phone_client().display_name(&store.key, "romeo@example.org"));
    assert_ne!(name, ClientId::new("tablet").display_name(&store.key, JULIET));
}

#[test]
fn damaged_token_blobs_are_refused() {
    let mut store = TokenStore::new();
    store.issue(phone_client(), HtMechanism::Exporter);
    store.issue(ClientId::new("tablet"), HtMechanism::Unbound);
    let blob = store.tokens.encode();
    for cut in 1..blob.len() {
        // A cut between two clients is a shorter, valid list.
        assert_eq!(FastTokens::decode(&blob[..cut]).is_ok(), cut == 1 + 42, "{cut}");
    }
    let twice = [&blob[..43], &blob[1..43]].concat();
    let backwards = [&[1][..], &blob[43..], &blob[1..43]].concat();
    let mut slots = blob.clone();
    slots[17] = 4;
    let mut none = blob.clone();
    none[17] = 0;
    let mut mechanism = blob.clone();
    mechanism[18] = 9;
    let version = [&[2][..], &blob[1..]].concat();
    for wrong in [twice, backwards, slots, none, mechanism, version, vec![1]] {
        assert_eq!(FastTokens::decode(&wrong), Err(CorruptTokens), "{wrong:?}");
    }
    assert_eq!(FastTokens::decode(&[]), Ok(FastTokens::default()));
}
