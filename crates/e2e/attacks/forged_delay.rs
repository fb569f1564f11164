//! Forged delay stamps.
//!
//! Done: a contact sends messages and presence with `<delay/>` (XEP-0203) and its legacy form `jabber:x:delay`
//! (XEP-0091) by the domain or by the victim's own account, so that the client shows new messages as old ones; and
//! with elements that only rooms and archives write.
//!
//! Rule: XEP-0203, section 2: the entity that delayed a stanza writes its address as `from`; similarly XEP-0421,
//! section 3, and XEP-0313, section 5.1. Clients trust these elements by that address.
//!
//! Right: no such element by a domain of this server or by the recipient's account arrives unless the server wrote
//! it. Those of other users are quotations: clients trust only their own server's (XEP-0203, section 5).

use crate::support::{ClientTransport, assert_well_formed, friends};

#[tokio::test]
async fn forged_delay_stamps_of_this_server_are_removed() {
    for transport in ClientTransport::ALL {
        let server = transport.start();
        let (mut romeo, mut juliet) = friends(&server).await;
        let stamp = "stamp='2002-09-10T23:08:25Z'";
        let mut forged = Vec::new();
        for from in ["example.com", "EXAMPLE.com", "juliet@example.com", "juliet@example.com/x"] {
            forged.push(format!("<delay xmlns='urn:xmpp:delay' from='{from}' {stamp}/>"));
            forged.push(format!("<d:delay xmlns:d='urn:xmpp:delay' {stamp} from='{from}'>text</d:delay>"));
            forged.push(format!("<x xmlns='jabber:x:delay' from='{from}' stamp='20020910T23:08:25'/>"));
        }
        forged.push("<occupant-id xmlns='urn:xmpp:occupant-id:0' id='1'/>".into());
        forged.push(
            "<result xmlns='urn:xmpp:mam:2' id='1'><forwarded xmlns='urn:xmpp:forward:0'/></result>".into(),
        );
        for (n, claim) in forged.iter().enumerate() {
            for to in ["juliet@example.com", "juliet@example.com/balcony"] {
                romeo
                    .send(format!(
                        "<message to='{to}' type='chat' id='{n}'><body>now</body>{claim}</message>"
                    ))
                    .await;
            }
            romeo.send(format!("<presence id='{n}'>{claim}</presence>")).await;
        }
        romeo.sync().await;
        let seen = juliet.sync().await;
        let arrived = seen.iter().filter(|seen| seen.name() == "message").count();
        assert_eq!(arrived, 2 * forged.len(), "{transport:?}: they arrive without it");
        for seen in seen {
            assert_well_formed(&seen.0);
            for part in ["delay", "occupant-id", "urn:xmpp:mam"] {
                assert!(!seen.0.contains(part), "{transport:?}: {}", seen.0);
            }
        }
    }
}
