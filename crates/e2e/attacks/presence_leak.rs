//! Presence that reaches unauthorised users.
//!
//! Done: a user sends directed presence to a user who is not a contact, then changes and ends presence; a user
//! whose subscription was refused or cancelled observes, probes, and requests last activity and resources.
//!
//! Rule: RFC 6121, sections 4.6.3 to 4.6.6, 4.3.2 and 8.5; XEP-0012, section 4.
//!
//! Right: broadcasts reach subscribers only; recipients of directed presence get that and the unavailable presence;
//! after a subscription ends nothing arrives, and a probe is answered as for an account that does not exist.

use testkit::server::{ReceivedElement, StreamClient, TestServer};

use crate::support::{ClientTransport, ask, befriend, start_server};

async fn available(server: &TestServer, name: &str) -> StreamClient {
    server.create_user(name).await;
    let mut client = server.login(name, "x").await;
    client.send("<presence/>").await;
    client.sync().await;
    client
}

/// The elements that come from a user.
fn of<'a>(seen: &'a [ReceivedElement], user: &str) -> Vec<&'a ReceivedElement> {
    seen.iter().filter(|one| one.attr("from").is_some_and(|from| from.starts_with(user))).collect()
}

//= https://www.rfc-editor.org/rfc/rfc6121#section-11
//= type=test
//# When a server processes an outbound presence stanza with no type or of type "unavailable", it MUST follow the
//# rules defined under Section 4 in order to ensure that such presence information is not sent to entities that are
//# not authorized to know such information.
#[tokio::test]
async fn a_non_contact_receives_only_directed_presence_and_its_end() {
    for transport in ClientTransport::ALL {
        let server = transport.start();
        let (mut romeo, mut mallory) =
            (available(&server, "romeo").await, available(&server, "mallory").await);
        romeo.send("<presence to='mallory@example.com'><status>hello</status></presence>").await;
        romeo.send("<presence><show>away</show><status>secret</status></presence>").await;
        romeo.send("<presence to='nobody@example.com'/>").await;
        romeo.sync().await;
        let seen = mallory.sync().await;
        assert_eq!(of(&seen, "romeo@").len(), 1, "{transport:?}: {seen:?}");
        romeo.send("<presence type='unavailable'><status>good bye</status></presence>").await;
        romeo.send("<presence><status>back</status></presence>").await;
        romeo.sync().await;
        let seen = mallory.sync().await;
        let kinds: Vec<_> = of(&seen, "romeo@").iter().map(|one| one.attr("type")).collect();
        assert_eq!(kinds, [Some("unavailable".to_owned())], "{transport:?}");
        assert!(seen.iter().all(|one| !one.has("back") && !one.has("secret")), "{transport:?}: {seen:?}");
    }
}

#[tokio::test]
async fn a_cancelled_subscription_ends_at_once() {
    let server = start_server();
    let (mut romeo, mut mallory) = (available(&server, "romeo").await, available(&server, "mallory").await);
    befriend(&mut romeo, &mut mallory).await;
    romeo.send("<presence type='unsubscribed' to='mallory@example.com'/>").await;
    romeo.sync().await;
    mallory.sync().await;
    romeo.send("<presence><status>secret</status></presence>").await;
    romeo.sync().await;
    mallory.send("<presence type='probe' to='romeo@example.com'/>").await;
    mallory.send("<presence type='probe' to='romeo@example.com/x'/>").await;
    let seen = mallory.sync().await;
    assert!(
        of(&seen, "romeo@").iter().all(|one| one.attr("type").is_some() && !one.has("secret")),
        "{seen:?}"
    );
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-8.3.3.7
//= type=test
//# Security Warning: An application MUST NOT return this error if doing so would provide information about the
//# intended recipient's network availability to an entity that is not authorized to know such information (for a
//# more detailed discussion of presence authorization, refer to the discussion of presence subscriptions in
//# [XMPP-IM]); instead it MUST return a <service-unavailable/> stanza error (Section 8.3.3.19).
//= https://www.rfc-editor.org/rfc/rfc6120#section-8.3.3.19
//= type=test
//# Security Warning: An application MUST return a <service-unavailable/> stanza error (Section 8.3.3.19) instead of
//# <item-not-found/>
//= https://www.rfc-editor.org/rfc/rfc6120#section-13.10.2
//= type=test
//# Although presence is discussed more fully in [XMPP-IM], it is important to note that an XMPP server MUST NOT
//# leak presence.
//= https://www.rfc-editor.org/rfc/rfc6120#section-13.10.2
//= type=test
//# To help prevent such a presence leak, a server MUST NOT return different stanza errors depending on whether a
//# potential attacker sends XML stanzas to the entity's bare JID
//= https://www.rfc-editor.org/rfc/rfc6121#section-11
//= type=test
//# the server MUST NOT reveal the user's presence if the sender is an entity that is not authorized to receive that
//# information as determined by presence subscriptions
//= https://www.rfc-editor.org/rfc/rfc6121#section-11
//= type=test
//# A user's server MUST NOT leak the user's network availability to entities who are not authorized to know the
//# user's presence.
#[tokio::test]
async fn existence_and_availability_of_an_account_are_not_disclosed() {
    let server = start_server();
    let mut mallory = available(&server, "mallory").await;
    let _online = available(&server, "online").await;
    server.create_user("offline").await;
    let mut answers = Vec::new();
    for name in ["online", "offline", "nobody"] {
        let mut all = Vec::new();
        for to in
            [format!("{name}@example.com"), format!("{name}@example.com/x"), format!("{name}@example.com/y")]
        {
            for payload in [
                "<query xmlns='jabber:iq:last'/>",
                "<query xmlns='jabber:iq:version'/>",
                "<query xmlns='http://jabber.org/protocol/disco#info'/>",
                "<query xmlns='http://jabber.org/protocol/disco#items'/>",
                "<vCard xmlns='vcard-temp'/>",
                "<ping xmlns='urn:xmpp:ping'/>",
                "<time xmlns='urn:xmpp:time'/>",
                "<query xmlns='jabber:iq:private'><x xmlns='urn:x'/></query>",
                "<query xmlns='jabber:iq:roster'/>",
                "<blocklist xmlns='urn:xmpp:blocking'/>",
                "<unknown xmlns='urn:unknown'/>",
            ] {
                let request = format!("<iq type='get' to='{to}' id='q'>{payload}</iq>");
                let answer = ask(&mut mallory, "q", &request).await;
                all.push(format!("{payload}: {}", answer.0.replace(&format!("{name}@"), "NAME@")));
            }
        }
        mallory.send(format!("<presence type='probe' to='{name}@example.com'/>")).await;
        for seen in mallory.sync().await {
            all.push(seen.0.replace(&format!("{name}@"), "NAME@"));
        }
        answers.push(all);
    }
    assert_eq!(answers[0], answers[1], "connected or not");
    assert_eq!(answers[1], answers[2], "there or not");
}
