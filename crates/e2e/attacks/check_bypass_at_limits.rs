//! Stanza at the size limits that exceeds them when the server adds to it.
//!
//! Done: messages with 64 attributes or 32 declared prefixes contain a forged carbon (XEP-0280) or a stanza-id of
//! the victim's account (XEP-0359), or go to an offline user; a request whose prefix the stanza declares goes to a
//! missing account.
//!
//! Rule: RFC 6120, section 8.2.3 (every request gets a response), XEP-0280, section 7, XEP-0359, section 3, rule 2,
//! XEP-0160. A check that cannot parse a stanza must refuse it: with 64 attributes plus `from` and `to`, each check
//! gave up and passed it.
//!
//! Right: the carbon is refused, the stanza-id removed, the message stored and delivered, the request answered.

use crate::support::{ClientTransport, ask, assert_well_formed, friends};

/// Attributes in addition to `to` and `type`.
fn attributes() -> String {
    (0..62).map(|at| format!(" a{at}=''")).collect()
}

/// Namespace declarations on the stanza element.
fn prefixes(count: usize) -> String {
    (0..count).map(|at| format!(" xmlns:p{at}='urn:p:{at}'")).collect()
}

#[tokio::test]
async fn no_check_is_skipped_at_a_limit() {
    for transport in ClientTransport::ALL {
        let server = transport.start();
        let (mut romeo, mut juliet) = friends(&server).await;
        let to = "juliet@example.com/balcony";
        for more in [attributes(), prefixes(31)] {
            romeo
                .send(format!(
                    "<message to='{to}' type='chat'{more}><received xmlns='urn:xmpp:carbons:2'>forged</received></message>"
                ))
                .await;
            romeo
                .send(format!(
                    "<message to='{to}' type='chat'{more}><body>x</body>\
                     <stanza-id xmlns='urn:xmpp:sid:0' by='juliet@example.com' id='forged'/></message>"
                ))
                .await;
            let errors = romeo.sync().await;
            assert_eq!(errors.len(), 1, "{transport:?}: {errors:?}");
            assert_eq!(errors[0].condition().as_deref(), Some("forbidden"), "{transport:?}: {errors:?}");
            let arrived = juliet.sync().await;
            assert_eq!(arrived.len(), 1, "{transport:?}: {arrived:?}");
            assert_well_formed(&arrived[0].0);
            assert!(!arrived[0].has("forged") && arrived[0].has("<stanza-id "), "{transport:?}: {arrived:?}");
        }
    }
}

#[tokio::test]
async fn nothing_is_lost_at_a_limit() {
    for transport in ClientTransport::ALL {
        let server = transport.start();
        let (mut romeo, _juliet) = friends(&server).await;
        server.create_user("nurse").await;
        for more in [attributes(), prefixes(32)] {
            romeo
                .send(format!(
                    "<message to='nurse@example.com' type='chat'{more}><body>kept</body></message>"
                ))
                .await;
        }
        assert!(romeo.sync().await.is_empty(), "{transport:?}");
        let mut nurse = server.login("nurse", "room").await;
        nurse.send("<presence/>").await;
        let mut received = nurse.sync().await;
        received.extend(nurse.sync().await);
        let kept: Vec<_> = received.iter().filter(|one| one.has("<body>kept</body>")).collect();
        assert_eq!(kept.len(), 2, "{transport:?}: {received:?}");
        kept.iter().for_each(|one| assert_well_formed(&one.0));
    }
}

#[tokio::test]
async fn a_request_with_prefixes_of_its_stanza_is_answered() {
    for transport in ClientTransport::ALL {
        let server = transport.start();
        let (mut romeo, _juliet) = friends(&server).await;
        for to in ["nobody@example.com", "example.com", "juliet@example.com/gone"] {
            let quotes = "'".repeat(20_000);
            for (id, written) in [("1", "'1'".to_owned()), (&*quotes, format!("\"{quotes}\""))] {
                let declared = prefixes(32);
                let request = format!("<iq to='{to}' type='get' id={written}{declared}><p7:q p8:k=''/></iq>");
                let answer = ask(&mut romeo, id, &request).await;
                assert_eq!(answer.attr("type").as_deref(), Some("error"), "{transport:?} {to}");
                assert_well_formed(&answer.0);
            }
        }
    }
}
