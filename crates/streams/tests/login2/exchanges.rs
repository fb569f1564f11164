//! Tests of XEP-0388 (1.0.4): features, exchanges, and elements out of order. Includes XEP-0474 and XEP-0440.

use super::*;

#[tokio::test]
async fn section_3_1_the_offered_mechanisms_and_inline_features() {
    let server = node().await;
    let mut client = server.connect();
    let (_, features) = client.open().await;
    assert!(!features.has("urn:xmpp:sasl:2"), "section 4: only under TLS");
    client.start_tls(&TlsClientSettings::default()).await;
    let (_, features) = client.open().await;
    let start = features.0.find("<authentication").unwrap();
    let end = features.0.find("</authentication>").unwrap();
    assert_eq!(
        &features.0[start..end],
        "<authentication xmlns='urn:xmpp:sasl:2'><mechanism>SCRAM-SHA-512-PLUS</mechanism>\
         <mechanism>SCRAM-SHA-256-PLUS</mechanism><mechanism>SCRAM-SHA-1-PLUS</mechanism>\
         <mechanism>SCRAM-SHA-512</mechanism><mechanism>SCRAM-SHA-256</mechanism><mechanism>SCRAM-SHA-1</mechanism>\
         <mechanism>PLAIN</mechanism><inline><bind xmlns='urn:xmpp:bind:0'><inline>\
         <feature var='urn:xmpp:carbons:2'/><feature var='urn:xmpp:csi:0'/></inline></bind>\
         <fast xmlns='urn:xmpp:fast:0'><mechanism>HT-SHA-256-EXPR</mechanism><mechanism>HT-SHA-256-ENDP</mechanism>\
         <mechanism>HT-SHA-256-NONE</mechanism></fast></inline>\
         <upgrade xmlns='urn:xmpp:sasl:upgrade:0'>UPGR-SCRAM-SHA-1</upgrade>\
         <upgrade xmlns='urn:xmpp:sasl:upgrade:0'>UPGR-SCRAM-SHA-256</upgrade>\
         <upgrade xmlns='urn:xmpp:sasl:upgrade:0'>UPGR-SCRAM-SHA-512</upgrade>"
    );
    assert!(
        features.has("urn:xmpp:sasl-cb:0")
            && features.has("<mechanisms xmlns='urn:ietf:params:xml:ns:xmpp-sasl'>")
    );
}

#[tokio::test]
async fn offered_mechanisms_do_not_depend_on_the_account() {
    let server = node().await;
    let mut seen = Vec::new();
    for from in ["", "from='juliet@example.com'", "from='nobody@example.com'"] {
        let mut client = server.connect();
        client.open().await;
        client.start_tls(&TlsClientSettings::default()).await;
        let header = testkit::server::STREAM_HEADER.replace("to=", &format!("{from} to="));
        seen.push(client.open_with(&header).await.1);
    }
    assert_eq!(seen[0], seen[1]);
    assert_eq!(seen[1], seen[2]);
}

#[tokio::test]
async fn a_disabled_module_is_not_offered() {
    let server = juliet(|setup| setup.features = vec![]).await;
    let (mut client, features) = encrypted(&server).await;
    assert!(!features.has("urn:xmpp:sasl:2") && !features.has("urn:xmpp:iap:0"));
    ends(&mut client, &plain("juliet", PASSWORD, ""), StreamCondition::UnsupportedStanzaType).await;
    let server = juliet(|setup| setup.features = vec![&MODULES[0]]).await;
    let (mut client, features) = encrypted(&server).await;
    assert!(features.has("urn:xmpp:sasl:2") && !features.has("<inline>") && !features.has("<upgrade"));
    client.send(plain("juliet", PASSWORD, &format!("{PHONE}{BIND}"))).await;
    let (success, features) = succeeds(&mut client).await;
    assert_eq!(identity(&success), "juliet@example.com");
    assert!(features.has("urn:ietf:params:xml:ns:xmpp-bind"));
}

#[tokio::test]
async fn section_6_1_plain_followed_by_legacy_binding() {
    let server = node().await;
    let (mut client, _) = encrypted(&server).await;
    client.send(plain("juliet", PASSWORD, PHONE)).await;
    client
        .expect(
            "<success xmlns='urn:xmpp:sasl:2'><authorization-identifier>juliet@example.com\
             </authorization-identifier></success>",
        )
        .await;
    // Section 3.6.1: features follow immediately, without a new stream.
    let features = client.element().await;
    assert!(
        features.name() == "features" && features.has("<bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/>")
    );
    assert!(!features.has("urn:xmpp:sasl:2"));
    assert_eq!(client.bind("balcony").await.unwrap(), "juliet@example.com/balcony");
    assert!(client.sync().await.is_empty());
}

#[tokio::test]
async fn every_scram_with_the_list_protected() {
    let server = node().await;
    for mechanism in Mechanism::ALL.into_iter().filter(|m| m.hash().is_some()) {
        let (mut client, features) = encrypted(&server).await;
        let success = scram(&mut client, mechanism, &features, PHONE).await;
        assert_eq!(identity(&success), "juliet@example.com", "{mechanism}");
        assert_eq!(client.element().await.name(), "features");
    }
}

#[tokio::test]
async fn xep_0474_both_profiles_hash_the_offered_mechanisms() {
    let server = node().await;
    // Without TLS there is no XEP-0388, and no list of channel bindings.
    let mut client = server.connect();
    client.open().await;
    let mut careful = ScramClient::new(ScramHash::Sha256, Gs2::None, "juliet", PASSWORD)
        .require_offer(&["SCRAM-SHA-1", "SCRAM-SHA-256", "SCRAM-SHA-512"], None);
    client.auth(Mechanism::ScramSha256, &careful.client_first()).await;
    let challenge = client.element().await;
    careful.client_final(&encoding::decode_response(&challenge.text()).unwrap(), None).unwrap();
    // An attacker in the middle has removed the strong mechanisms.
    let (mut client, _) = encrypted(&server).await;
    let mut fooled = ScramClient::new(ScramHash::Sha1, Gs2::None, "juliet", PASSWORD)
        .require_offer(&["SCRAM-SHA-1", "PLAIN"], Some(&["tls-exporter", "tls-server-end-point"]));
    client.send(authenticate("SCRAM-SHA-1", &fooled.client_first(), "")).await;
    let challenge = client.element().await;
    let noticed = fooled.client_final(&encoding::decode_sasl2(&challenge.text()).unwrap(), None);
    assert_eq!(noticed, Err(sasl::client::ClientError::Downgrade));
}

#[tokio::test]
async fn section_3_2_no_initial_response() {
    let server = node().await;
    let (mut client, _) = encrypted(&server).await;
    client.send(format!("<authenticate {SASL2} mechanism='PLAIN'>{PHONE}</authenticate>")).await;
    client.expect("<challenge xmlns='urn:xmpp:sasl:2'/>").await;
    // White space as in the examples.
    client.send(format!("<response {SASL2}>\n  AGp1bGlldAByMG0zMG15cjBtMzA=\n</response>")).await;
    succeeds(&mut client).await;
}

#[tokio::test]
async fn after_a_failure_the_stream_is_unchanged() {
    let server = node().await;
    let (mut client, features) = encrypted(&server).await;
    assert_eq!(
        fails(&mut client, &plain("juliet", "wrong", &format!("{PHONE}{BIND}"))).await,
        "not-authorized"
    );
    assert_eq!(fails(&mut client, &authenticate("BLURDYBLOOP", b"", "")).await, "invalid-mechanism");
    let empty = format!("<authenticate {SASL2}/>");
    assert_eq!(fails(&mut client, &empty).await, "invalid-mechanism");
    let wrong = format!(
        "<authenticate {SASL2} mechanism='PLAIN'><initial-response>=</initial-response></authenticate>"
    );
    assert_eq!(fails(&mut client, &wrong).await, "incorrect-encoding");
    let success = scram(&mut client, Mechanism::ScramSha256Plus, &features, BIND).await;
    assert!(identity(&success).starts_with("juliet@example.com/AwesomeXMPP/"));
}

#[tokio::test]
async fn too_many_failures_end_the_stream() {
    let server = node().await;
    let limit = server.node.limits().auth_attempts;
    let (mut client, _) = encrypted(&server).await;
    for _ in 0..limit {
        assert_eq!(fails(&mut client, &plain("juliet", "wrong", "")).await, "not-authorized");
    }
    client.expect_stream_error(StreamCondition::PolicyViolation).await;
}

#[tokio::test]
async fn section_5_5_an_aborted_exchange_fails_with_aborted() {
    let server = node().await;
    let (mut client, features) = encrypted(&server).await;
    client.send(format!("<authenticate {SASL2} mechanism='PLAIN'/>")).await;
    assert_eq!(client.element().await.name(), "challenge");
    let abort = format!("<abort {SASL2}><text>changed my mind</text></abort>");
    assert_eq!(fails(&mut client, &abort).await, "aborted");
    scram(&mut client, Mechanism::ScramSha1, &features, "").await;
}

#[tokio::test]
async fn without_tls_a_login_fails_with_encryption_required() {
    let server = node().await;
    let mut client = server.connect();
    client.open().await;
    assert_eq!(fails(&mut client, &plain("juliet", PASSWORD, "")).await, "encryption-required");
    // Offered where the listener's configuration declares other encryption.
    let server = juliet(|setup| setup.policy.allow_plain_without_tls = true).await;
    let mut client = server.connect();
    assert!(client.open().await.1.has("urn:xmpp:sasl:2"));
}

#[tokio::test]
async fn a_response_without_an_exchange_fails() {
    let server = node().await;
    let (mut client, _) = encrypted(&server).await;
    for element in ["response", "next", "task-data"] {
        assert_eq!(
            fails(&mut client, &format!("<{element} {SASL2}/>")).await,
            "malformed-request",
            "{element}"
        );
    }
    assert_eq!(fails(&mut client, &format!("<abort {SASL2}/>")).await, "aborted");
    ends(&mut client, &format!("<challenge {SASL2}/>"), StreamCondition::UnsupportedStanzaType).await;
}

#[tokio::test]
async fn section_3_4_nothing_else_during_an_exchange() {
    const SASL: &str = "xmlns='urn:ietf:params:xml:ns:xmpp-sasl'";
    let server = node().await;
    let first = ScramClient::new(ScramHash::Sha1, Gs2::None, "juliet", PASSWORD).client_first();
    let begin = authenticate("SCRAM-SHA-1", &first, "");
    for other in [
        begin.clone(),
        format!("<auth {SASL} mechanism='PLAIN'>AGp1bGlldAByMG0zMG15cjBtMzA=</auth>"),
        format!("<response {SASL}/>"),
        format!("<abort {SASL}/>"),
        "<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>".to_owned(),
        "<message to='romeo@example.com'/>".to_owned(),
    ] {
        let (mut client, _) = encrypted(&server).await;
        client.send(&begin).await;
        assert_eq!(client.element().await.name(), "challenge");
        ends(&mut client, &other, StreamCondition::PolicyViolation).await;
    }
    // Mixed profiles: an exchange of RFC 6120, then elements of XEP-0388.
    for other in [begin.clone(), format!("<response {SASL2}/>"), format!("<abort {SASL2}/>")] {
        let (mut client, _) = encrypted(&server).await;
        client.auth(Mechanism::ScramSha1, &first).await;
        assert_eq!(client.element().await.name(), "challenge");
        ends(&mut client, &other, StreamCondition::PolicyViolation).await;
    }
}

#[tokio::test]
async fn section_5_8_one_authentication_is_enough() {
    let server = node().await;
    let (mut client, _) = encrypted(&server).await;
    client.send(plain("juliet", PASSWORD, "")).await;
    succeeds(&mut client).await;
    ends(&mut client, &plain("juliet", PASSWORD, ""), StreamCondition::PolicyViolation).await;
    let (mut client, _) = encrypted(&server).await;
    client.send(plain("juliet", PASSWORD, BIND)).await;
    succeeds(&mut client).await;
    ends(&mut client, &plain("juliet", PASSWORD, ""), StreamCondition::UnsupportedStanzaType).await;
}

#[tokio::test]
async fn section_5_4_the_authorization_string_is_the_from_of_the_stream() {
    let server = node().await;
    for (from, authzid, good) in [
        ("juliet@example.com", "juliet@example.com", true),
        ("JULIET@example.com", "juliet@EXAMPLE.com", true),
        ("romeo@example.com", "juliet@example.com", false),
        ("juliet@example.com", "romeo@example.com", false),
    ] {
        let mut client = server.connect();
        client.open().await;
        client.start_tls(&TlsClientSettings::default()).await;
        client.open_with(&testkit::server::STREAM_HEADER.replace("to=", &format!("from='{from}' to="))).await;
        let initial = sasl::client::plain(Some(authzid), "juliet", PASSWORD);
        client.send(authenticate("PLAIN", &initial, "")).await;
        if good {
            succeeds(&mut client).await;
        } else {
            assert_eq!(failure(&mut client).await, "invalid-authzid", "{from} {authzid}");
        }
    }
}

#[tokio::test]
async fn section_3_1_a_from_of_another_domain_is_invalid_from() {
    let server = node().await;
    let mut client = server.connect();
    let header = testkit::server::STREAM_HEADER.replace("to=", "from='juliet@example.org' to=");
    ends(&mut client, &header, StreamCondition::InvalidFrom).await;
}

#[tokio::test]
async fn guests_have_a_bare_address_and_may_bind() {
    let server = juliet(|setup| setup.policy.allow_anonymous = true).await;
    let (mut client, _) = encrypted(&server).await;
    client
        .send(authenticate(
            "ANONYMOUS",
            b"",
            &format!("{PHONE}{BIND}<request-token xmlns='urn:xmpp:fast:0' mechanism='HT-SHA-256-NONE'/>"),
        ))
        .await;
    let (success, _) = succeeds(&mut client).await;
    assert!(identity(&success).starts_with("guest-") && !success.has("<token"), "{}", success.0);
}

#[tokio::test]
async fn account_disabled_is_reported_only_after_the_right_password() {
    let server = node().await;
    server.stores.accounts.set_disabled(server.address("juliet").as_ref(), true).await.unwrap();
    let (mut client, _) = encrypted(&server).await;
    assert_eq!(fails(&mut client, &plain("juliet", "wrong", BIND)).await, "not-authorized");
    assert_eq!(fails(&mut client, &plain("juliet", PASSWORD, BIND)).await, "account-disabled");
    assert!(
        server.node.routing_table.find(server.address("juliet").as_ref()).is_none(),
        "section 3.6.2: nothing inline"
    );
}

#[tokio::test]
async fn a_store_failure_is_temporary_auth_failure() {
    let server = node().await;
    let (mut client, _) = encrypted(&server).await;
    server.set_store_failing(true);
    assert_eq!(fails(&mut client, &plain("juliet", PASSWORD, BIND)).await, "temporary-auth-failure");
    server.set_store_failing(false);
    client.send(plain("juliet", PASSWORD, BIND)).await;
    succeeds(&mut client).await;
}
