//! Tokens of XEP-0484: section 5 on slots, and everything that must not be accepted.

use super::*;
use sasl::tokens::{Change, Claim, Damaged, Gone, MAX_CLIENTS, Slot, Verdict};
use sasl::{ClientId, HtMechanism, TokenKey, Tokens, client, ht};

const JULIET: &str = "juliet@example.org";
const DAY: u32 = 86_400;

struct Desk {
    key: TokenKey,
    tokens: Tokens,
    now: u32,
}

fn phone() -> ClientId {
    ClientId::new("d4565fa7-4d72-4749-b3d3-740edbf87770")
}

impl Desk {
    fn new() -> Desk {
        Desk { key: TokenKey::new(&Secret::new(*b"server secret")), tokens: Tokens::default(), now: 1_000 }
    }
    fn change(&self, client: ClientId) -> Change {
        Change { client, used: None, invalidate: false, issue: None, clients: 32, now: self.now }
    }
    fn apply(&mut self, change: Change) -> Result<(), Gone> {
        // As the store does: encoded, decoded, changed, encoded.
        let mut tokens = Tokens::decode(&self.tokens.encode()).unwrap();
        let done = tokens.apply(&change);
        self.tokens = Tokens::decode(&tokens.encode()).unwrap();
        assert_eq!(self.tokens, tokens);
        done
    }
    fn issue(&mut self, client: ClientId, mechanism: HtMechanism) -> String {
        let slot = Slot::issue(mechanism, self.now, 21 * DAY);
        self.apply(Change { issue: Some(slot), ..self.change(client) }).unwrap();
        self.key.text(JULIET, client, &slot)
    }
    fn check(&self, client: ClientId, mechanism: HtMechanism, token: &str, data: &[u8]) -> Verdict {
        let message = client::hashed_token("juliet", token, data);
        let proof = ht::parse(&message).unwrap().proof;
        let claim = Claim { account: JULIET, client, mechanism, data, proof: &proof };
        self.tokens.check(&self.key, &claim, self.now)
    }
    /// Checks and does what a login does.
    fn login(&mut self, client: ClientId, token: &str) -> bool {
        match self.check(client, HtMechanism::Exporter, token, b"channel") {
            Verdict::Right(right) => {
                assert_eq!(right.proof, ht::responder(token, b"channel"));
                if right.first_use {
                    self.apply(Change { used: Some(right.slot.seed), ..self.change(client) }).unwrap();
                }
                true
            }
            _ => false,
        }
    }
}

#[test]
fn a_token_logs_in_again_and_again_without_a_change() {
    let mut desk = Desk::new();
    let token = desk.issue(phone(), HtMechanism::Exporter);
    assert_eq!(token.len(), 43);
    assert!(desk.login(phone(), &token));
    let blob = desk.tokens.encode();
    assert!(desk.login(phone(), &token) && desk.login(phone(), &token));
    assert_eq!(desk.tokens.encode(), blob);
    assert_eq!(blob.len(), 1 + 17 + 25);
}

#[test]
fn a_token_is_good_for_one_account_client_mechanism_and_channel() {
    let mut desk = Desk::new();
    let token = desk.issue(phone(), HtMechanism::Exporter);
    let right = |verdict| matches!(verdict, Verdict::Right(_));
    assert!(right(desk.check(phone(), HtMechanism::Exporter, &token, b"channel")));
    let laptop = ClientId::new("laptop");
    assert_eq!(desk.check(laptop, HtMechanism::Exporter, &token, b"channel"), Verdict::Wrong);
    for other in [HtMechanism::EndPoint, HtMechanism::Unbound] {
        assert_eq!(desk.check(phone(), other, &token, b"channel"), Verdict::Wrong);
    }
    // A recorded proof on another connection.
    let proof = ht::parse(&client::hashed_token("juliet", &token, b"channel")).unwrap().proof;
    let check = |account, key: &TokenKey, data: &[u8]| {
        let claim = Claim { account, client: phone(), mechanism: HtMechanism::Exporter, data, proof: &proof };
        desk.tokens.check(key, &claim, desk.now)
    };
    assert!(right(check(JULIET, &desk.key, b"channel")));
    assert_eq!(check(JULIET, &desk.key, b"another"), Verdict::Wrong);
    // A row that was copied to another account, and a server with another secret.
    assert_eq!(check("romeo@example.org", &desk.key, b"channel"), Verdict::Wrong);
    assert_eq!(check(JULIET, &TokenKey::new(&Secret::new(*b"other secret")), b"channel"), Verdict::Wrong);
}

#[test]
fn section_3_5_the_old_token_lives_until_the_new_one_is_used() {
    let mut desk = Desk::new();
    let old = desk.issue(phone(), HtMechanism::Exporter);
    assert!(desk.login(phone(), &old));
    let lost = desk.issue(phone(), HtMechanism::Exporter);
    let new = desk.issue(phone(), HtMechanism::Exporter);
    assert!(!desk.login(phone(), &lost), "a newer one was given out before it was used");
    assert!(desk.login(phone(), &old), "the client may not have got the new one");
    assert!(desk.login(phone(), &new));
    assert!(!desk.login(phone(), &old), "replaced");
    assert!(desk.login(phone(), &new));
}

#[test]
fn section_3_6_invalidated_is_gone() {
    let mut desk = Desk::new();
    let token = desk.issue(phone(), HtMechanism::Exporter);
    let tablet = desk.issue(ClientId::new("tablet"), HtMechanism::Exporter);
    assert!(desk.login(phone(), &token));
    let Verdict::Right(right) = desk.check(phone(), HtMechanism::Exporter, &token, b"") else { panic!() };
    let out = Change { used: Some(right.slot.seed), invalidate: true, ..desk.change(phone()) };
    desk.apply(out).unwrap();
    assert!(!desk.login(phone(), &token));
    assert_eq!(desk.apply(out), Err(Gone), "the token was used twice at once");
    assert!(desk.login(ClientId::new("tablet"), &tablet), "other clients stay");
}

#[test]
fn time_ends_a_token_and_only_its_owner_learns_it() {
    let mut desk = Desk::new();
    let token = desk.issue(phone(), HtMechanism::Exporter);
    desk.now += 21 * DAY - 1;
    assert!(desk.login(phone(), &token));
    desk.now += 1;
    assert_eq!(desk.check(phone(), HtMechanism::Exporter, &token, b"c"), Verdict::Expired);
    assert_eq!(desk.check(phone(), HtMechanism::Exporter, "guess", b"c"), Verdict::Wrong);
    // The next change sweeps it out.
    desk.issue(ClientId::new("tablet"), HtMechanism::Exporter);
    assert_eq!(desk.tokens.clients(), 1);
}

#[test]
fn clients_of_an_account_are_bounded_and_the_longest_unused_goes() {
    let mut desk = Desk::new();
    let mut given = Vec::new();
    for number in 0..100 {
        desk.now += 1;
        let client = ClientId::new(&number.to_string());
        let slot = Slot::issue(HtMechanism::Exporter, desk.now, DAY);
        desk.apply(Change { issue: Some(slot), clients: 10, ..desk.change(client) }).unwrap();
        given.push((client, desk.key.text(JULIET, client, &slot)));
    }
    assert_eq!(desk.tokens.clients(), 10);
    for (number, (client, token)) in given.iter().enumerate() {
        assert_eq!(desk.login(*client, token), number >= 90, "{number}");
    }
    // No configuration makes more than can be read again.
    for number in 0..100 {
        let client = ClientId::new(&number.to_string());
        let issue = Some(Slot::issue(HtMechanism::Exporter, desk.now, DAY));
        desk.apply(Change { issue, clients: usize::MAX, ..desk.change(client) }).unwrap();
    }
    assert_eq!(desk.tokens.clients(), MAX_CLIENTS);
}

#[test]
fn a_name_for_the_client_is_stable_and_tells_nothing() {
    let desk = Desk::new();
    let name = phone().name(&desk.key, JULIET);
    assert_eq!((name.len(), &name), (16, &phone().name(&desk.key, JULIET)));
    assert_ne!(name, phone().name(&desk.key, "romeo@example.org"));
    assert_ne!(name, ClientId::new("tablet").name(&desk.key, JULIET));
}

#[test]
fn damaged_blobs_are_refused() {
    let mut desk = Desk::new();
    desk.issue(phone(), HtMechanism::Exporter);
    desk.issue(ClientId::new("tablet"), HtMechanism::Unbound);
    let blob = desk.tokens.encode();
    for cut in 1..blob.len() {
        // A cut between two clients is a shorter list.
        assert_eq!(Tokens::decode(&blob[..cut]).is_ok(), cut == 1 + 42, "{cut}");
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
        assert_eq!(Tokens::decode(&wrong), Err(Damaged), "{wrong:?}");
    }
    assert_eq!(Tokens::decode(&[]), Ok(Tokens::default()));
}
