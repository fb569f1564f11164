//! Poisoning of the entity capabilities cache.
//!
//! Done: a client announces the hash of another client's software (XEP-0115) and answers the server's query with
//! other features; announces it in the legacy format without a hash function; answers with the right features
//! repeated.
//!
//! Rule: XEP-0115, sections 5.4 and 9.1; ejabberd's cache accepted the legacy format (release 26.07), Openfire
//! accepted malformed responses (OF-3218).
//!
//! Right: a response is accepted only if its hash is the announced one. After a wrong response the next client with
//! the hash is queried, after a right one none.

use testkit::server::{ReceivedElement, StreamClient};

use crate::support::{bare, pair, start_server};

// The example of XEP-0115 section 5.2.
const HASH: &str = "QgayPKawpkPSDYmwT/WM94uAlu0=";
const GOOD: &str = "<identity category='client' type='pc' name='Exodus 0.9.1'/><feature var='http://jabber.org/protocol/caps'/>\
                    <feature var='http://jabber.org/protocol/disco#info'/><feature var='http://jabber.org/protocol/disco#items'/>\
                    <feature var='http://jabber.org/protocol/muc'/>";

async fn announce(client: &mut StreamClient, extra: &str) -> Vec<ReceivedElement> {
    client
        .send(format!(
            "<presence><c xmlns='http://jabber.org/protocol/caps' {extra} node='http://code.google.com/p/exodus' ver='{HASH}'/></presence>"
        ))
        .await;
    let own = bare(client);
    let seen = client.sync().await;
    seen.into_iter()
        .filter(|one| {
            one.name() == "iq" && one.attr("from").is_none_or(|from| from == own || from == "example.com")
        })
        .collect()
}

async fn answer(client: &mut StreamClient, question: &ReceivedElement, features: &str) {
    let (id, to) = (question.attr("id").unwrap(), question.attr("from").unwrap_or_else(|| bare(client)));
    client
        .send(format!(
            "<iq type='result' id='{id}' to='{to}'><query xmlns='http://jabber.org/protocol/disco#info' \
             node='http://code.google.com/p/exodus#{HASH}'>{features}</query></iq>"
        ))
        .await;
    client.sync().await;
}

#[tokio::test]
async fn mismatching_features_are_not_cached() {
    let lies = [
        "<identity category='client' type='pc' name='Exodus 0.9.1'/><feature var='evil+notify'/>".to_owned(),
        format!("{GOOD}<feature var='evil+notify'/>"),
        GOOD.replace("Exodus 0.9.1", "Exodus 0.9.1&lt;evil+notify"),
        String::new(),
        GOOD.repeat(2),
    ];
    for lie in lies {
        let server = start_server();
        let (mut mallory, mut juliet) = pair(&server).await;
        let asked = announce(&mut mallory, "hash='sha-1'").await;
        assert_eq!(asked.len(), 1, "the first with a hash is asked: {asked:?}");
        answer(&mut mallory, &asked[0], &lie).await;
        // The right response twice is invalid too, so the next client is queried and its response accepted.
        let asked = announce(&mut juliet, "hash='sha-1'").await;
        assert_eq!(asked.len(), 1, "{lie}: the lie was believed");
        answer(&mut juliet, &asked[0], GOOD).await;
        let mut third = server.login("juliet", "third").await;
        assert_eq!(announce(&mut third, "hash='sha-1'").await, [], "{lie}: a verified answer is kept");
    }
}

#[tokio::test]
async fn missing_or_unsupported_hashes_are_not_queried() {
    let server = start_server();
    let (mut mallory, _juliet) = pair(&server).await;
    for extra in ["", "ext='evil'", "hash=''", "hash='md2'", "hash='none'"] {
        assert_eq!(announce(&mut mallory, extra).await, [], "{extra}");
    }
}
