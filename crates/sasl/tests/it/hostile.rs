//! Tests with random and mutated input: nothing panics, and only the right proof logs in.

use proptest::collection::vec;
use proptest::prelude::*;
use sasl::client;

use super::*;

/// Change to a message at a position given as a fraction of its length.
#[derive(Clone, Debug)]
enum Mutation {
    Flip(u16, u8),
    Cut(u16),
    Insert(u16, Vec<u8>),
    Remove(u16),
    Double(u16),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let bytes = prop_oneof![
        vec(any::<u8>(), 1..8),
        prop::sample::select(vec![
            ",", "=", "m=", ",m=x", "n=", "r=", "p=", "=2C", "\0", "\u{ad}", ",,", "y", "a=b"
        ])
        .prop_map(|text| text.as_bytes().to_vec()),
    ];
    prop_oneof![
        (any::<u16>(), 1..=255u8).prop_map(|(at, mask)| Mutation::Flip(at, mask)),
        any::<u16>().prop_map(Mutation::Cut),
        (any::<u16>(), bytes).prop_map(|(at, bytes)| Mutation::Insert(at, bytes)),
        any::<u16>().prop_map(Mutation::Remove),
        any::<u16>().prop_map(Mutation::Double),
    ]
}

fn mutate(mut message: Vec<u8>, mutations: &[Mutation]) -> Vec<u8> {
    for mutation in mutations {
        let position = |at: u16| usize::from(at) * message.len() / 65536;
        match mutation {
            Mutation::Flip(at, mask) => {
                let at = position(*at);
                message.get_mut(at).into_iter().for_each(|byte| *byte ^= mask);
            }
            Mutation::Cut(at) => message.truncate(position(*at)),
            Mutation::Insert(at, bytes) => {
                let at = position(*at);
                message.splice(at..at, bytes.iter().copied());
            }
            Mutation::Remove(at) if !message.is_empty() => {
                message.remove(position(*at));
            }
            Mutation::Remove(_) => {}
            Mutation::Double(at) => message.extend_from_within(position(*at)..),
        }
    }
    message
}

fn mechanisms() -> impl Strategy<Value = Mechanism> {
    prop::sample::select(Mechanism::ALL.to_vec())
}

fn gs2() -> impl Strategy<Value = Gs2> {
    prop::sample::select(vec![Gs2::None, Gs2::NotOffered, exporter()])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn random_messages_never_panic_and_never_authenticate(
        mechanism in mechanisms(),
        messages in vec(proptest::option::of(vec(any::<u8>(), 0..80)), 0..4),
    ) {
        let fixture = SaslFixture::new();
        let mut exchange = fixture.exchange(mechanism);
        for message in &messages {
            let step = exchange.step(message.as_deref());
            let step = fixture.answer(&mut exchange, step);
            if !matches!(mechanism, Mechanism::Anonymous | Mechanism::External) {
                let done = matches!(step, ExchangeStep::Done { .. });
                prop_assert!(!done, "{mechanism}: {messages:?}");
            }
        }
    }

    /// A mutated message either fails or is still the same exchange.
    #[test]
    fn altered_messages_never_log_in_as_another_user(
        plus in any::<bool>(),
        gs2 in gs2(),
        first_changes in vec(mutation(), 0..3),
        last_changes in vec(mutation(), 0..3),
    ) {
        let fixture = SaslFixture::new();
        let mut client = user(gs2);
        let mut exchange = fixture.exchange(Mechanism::scram(ScramHash::Sha256, plus));
        let first = mutate(client.client_first(), &first_changes);
        let first_same = first == client.client_first();
        let step = exchange.step(Some(&first));
        if let ExchangeStep::Challenge(challenge) = fixture.answer(&mut exchange, step)
            && let Ok(honest) = client.client_final(&challenge, None)
        {
            let last = mutate(honest.clone(), &last_changes);
            let done = matches!(exchange.step(Some(&last)), ExchangeStep::Done { .. });
            prop_assert!(!done || (first_same && last == honest), "{:?} {:?}", String::from_utf8_lossy(&first), String::from_utf8_lossy(&last));
        }
    }

    #[test]
    fn altered_plain_messages_log_in_only_with_the_password(changes in vec(mutation(), 1..4)) {
        let fixture = SaslFixture::new();
        let message = mutate(client::plain(None, "user", "pencil"), &changes);
        let mut exchange = fixture.exchange(Mechanism::Plain);
        let step = exchange.step(Some(&message));
        if let ExchangeStep::Done { username, .. } = fixture.answer(&mut exchange, step) {
            let password = String::from_utf8(message).unwrap().rsplit_once('\0').unwrap().1.to_owned();
            prop_assert_eq!(username, "user");
            prop_assert_eq!(sasl::prepare(&password).unwrap(), "pencil");
        }
    }

    #[test]
    fn random_blobs_and_certificates_never_panic(bytes in vec(any::<u8>(), 0..400), changes in vec(mutation(), 1..4)) {
        drop(Credentials::decode(&bytes));
        drop(sasl::channel_binding::server_end_point(&bytes));
        let changed = mutate(SaslFixture::new().stored.encode(), &changes);
        if let Ok(read) = Credentials::decode(&changed) {
            prop_assert_eq!(read.encode(), changed, "one blob, one meaning");
        }
        drop(sasl::channel_binding::server_end_point(&mutate(include_bytes!("certificates/pss-sha384.der").to_vec(), &changes)));
    }

    #[test]
    fn random_text_never_panics(text in any::<String>()) {
        drop(sasl::encoding::decode_response(&text));
        if let Ok(prepared) = sasl::prepare(&text) {
            prop_assert!(!prepared.bytes().any(|byte| byte.is_ascii_control()));
        }
        drop(user(Gs2::None).client_final(text.as_bytes(), None));
        drop(user(Gs2::None).verify(text.as_bytes()));
    }
}
