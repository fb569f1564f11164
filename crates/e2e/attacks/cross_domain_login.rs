//! Login at one domain, session at another.
//!
//! Done: a user of one domain authenticates there, then opens the stream after SASL for another domain of the same
//! server and binds; the same with a name of another domain in the user name, and with an address of another domain
//! in `from`.
//!
//! Rule: RFC 6120, section 6.4.6 (the stream after SASL belongs to the authenticated entity); Prosody opened
//! sessions of users of the other domain (CVE-2018-10847).
//!
//! Right: the stream ends, or the session is that of the authenticated user. Nobody is bound at the other domain.

use sasl::Mechanism;
use testkit::server::{PASSWORD, STREAM_HEADER, TestServerConfig};

use crate::support::{ClientTransport, read_until_end, stream_error};

#[tokio::test]
async fn the_domain_of_a_login_is_the_domain_of_its_session() {
    for transport in ClientTransport::ALL {
        let server =
            TestServerConfig { domains: vec!["example.com", "bank.example"], ..transport.setup() }.start();
        server.create_user("romeo").await;
        server.create_user_with_password("romeo@bank.example", "another password").await;
        for header in [
            STREAM_HEADER.replace("example.com", "bank.example"),
            STREAM_HEADER.replace("to='example.com'", "to='bank.example' from='romeo@bank.example'"),
            STREAM_HEADER.replace("to='example.com'", "to='example.com' from='romeo@bank.example'"),
            STREAM_HEADER.replace("to='example.com'", "to='BANK.example.'"),
        ] {
            let mut client = server.connect();
            client.open().await;
            client.authenticate(Mechanism::ScramSha256, "romeo", PASSWORD).await.expect("a login");
            client.restart();
            client.send(header).await;
            let seen = read_until_end(&mut client).await;
            assert!(stream_error(&seen).is_some(), "{transport:?}: {seen:?}");
            assert_eq!(server.node.routing_table.sessions(), 0, "{transport:?}");
        }
    }
}

#[tokio::test]
async fn a_user_name_of_another_domain_cannot_log_in() {
    let server =
        TestServerConfig { domains: vec!["example.com", "bank.example"], ..ClientTransport::Tcp.setup() }
            .start();
    server.create_user_with_password("romeo@bank.example", PASSWORD).await;
    for name in
        ["romeo", "romeo@bank.example", "romeo@bank.example/x", "romeo\\40bank.example", "bank.example"]
    {
        let mut client = server.connect();
        client.open().await;
        let refused = client.authenticate(Mechanism::ScramSha1, name, PASSWORD).await;
        assert!(refused.is_err(), "{name}");
    }
}
