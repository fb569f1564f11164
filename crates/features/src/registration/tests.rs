//! Tests of XEP-0077 as logged-in users and unauthenticated clients see it.

use std::net::IpAddr;

use feature_api::EnabledFeature;
use feature_api::feature::FeatureOptions;
use feature_api::feature_state::FeatureState;
use feature_api::stream_elements::StreamElements;
use stanza::{Element, Head};
use testkit::{NodeClient, TestNode, assert_same};
use throng_core::account_provider::memory::{ALL_CAPABILITIES, MemoryAccounts};
use throng_core::account_provider::{ProviderErrorKind, SharedAccountProvider};
use throng_core::session::flags;
use throng_core::{NodeLimits, StreamFeatureStage};

use super::*;

fn engine(set: &[(&str, OptionValue)]) -> TestNode {
    let mut options = FeatureOptions::defaults(FEATURE.options);
    for (key, value) in set {
        options.set(FEATURE.options, key, value.clone()).unwrap();
    }
    let plain = |feature: &'static Feature| EnabledFeature {
        feature,
        options: FeatureOptions::defaults(feature.options),
    };
    let engine = TestNode::start(
        &[
            plain(&crate::rfc6121::roster::FEATURE),
            plain(&crate::rfc6121::subscription::FEATURE),
            plain(&crate::rfc6121::presence::FEATURE),
            EnabledFeature { feature: &FEATURE, options },
        ],
        NodeLimits::default(),
    );
    engine.create_user("bill");
    engine
}

fn open() -> TestNode {
    engine(&[("open", OptionValue::Bool(true))])
}

fn secure(engine: &TestNode, user: &str, resource: &str) -> NodeClient {
    let client = engine.connect(user, resource);
    client.session.flags.set(flags::SECURE);
    client
}

/// An unauthenticated client's request as the streams pass it on; returns the payload or the condition.
fn unauthenticated_request(
    engine: &TestNode,
    peer: &str,
    secure: bool,
    text: &str,
) -> Result<String, String> {
    let scope = xml::NamespaceContext::client();
    let limits = engine.node.limits().negotiation();
    let Ok(Element::Stanza(head)) = Element::read(text.as_bytes(), &scope, &limits) else { panic!("{text}") };
    let peer: IpAddr = peer.parse().unwrap();
    let host = engine.node.host("example.com").unwrap();
    let handler = StreamElements::of(&host).pre_auth(Ns::Register, "query").unwrap().clone();
    let ask = |head: &Head| {
        handler.answer(&PreAuthRequest {
            node: &engine.node,
            host: &host,
            peer,
            secure,
            head,
            bytes: text.as_bytes(),
        })
    };
    let answer = match ask(&head) {
        IqFlow::Reply(answer) => answer,
        deferred => engine.block_on(deferred.into_future()).0,
    };
    engine.run_tasks();
    answer.map(|payload| String::from_utf8(payload).unwrap()).map_err(|error| {
        assert!(error.omit_request, "the request must not come back");
        format!("{} {}", error.kind.as_str(), error.condition.as_str())
    })
}

fn register(engine: &TestNode, peer: &str, name: &str, password: &str) -> Result<String, String> {
    unauthenticated_request(
        engine,
        peer,
        true,
        &format!(
            "<iq type='set' id='reg2'><query xmlns='jabber:iq:register'><username>{name}</username>\
             <password>{password}</password></query></iq>"
        ),
    )
}
const GET: &str = "<iq type='get' id='reg1'><query xmlns='jabber:iq:register'/></iq>";
const GOOD: &str = "C4lliope+co";

fn set(client: &NodeClient, content: &str) -> String {
    let answer = client.request(&format!(
        "<iq type='set' to='example.com' id='change1'><query xmlns='jabber:iq:register'>{content}</query></iq>"
    ));
    answer.join("")
}

fn password(engine: &TestNode, user: &str) -> Vec<u8> {
    let jid = Jid::parse(&format!("{user}@example.com")).unwrap();
    engine.block_on(engine.stores.logins.secrets(jid.as_ref())).unwrap().unwrap().credentials
}

#[test]
fn registration_is_closed_unless_it_is_opened() {
    let engine = engine(&[]);
    let unavailable = Err("cancel service-unavailable".to_owned());
    assert_eq!(unauthenticated_request(&engine, "192.0.2.1", true, GET), unavailable);
    assert_eq!(register(&engine, "192.0.2.1", "hamlet", GOOD), unavailable);
    let host = engine.node.host("example.com").unwrap();
    assert!(host.stream_features.to_xml(StreamFeatureStage::Unauthenticated).is_empty());
}

#[test]
fn section_5_closed_registration_redirects_to_a_page() {
    let engine = engine(&[("url", OptionValue::Text("https://example.com/join".into()))]);
    let answer = unauthenticated_request(&engine, "192.0.2.1", true, GET).unwrap();
    assert!(answer.contains("<x xmlns='jabber:x:oob'><url>https://example.com/join</url></x>"), "{answer}");
    assert!(register(&engine, "192.0.2.1", "hamlet", GOOD).is_err());
}

#[test]
fn section_3_1_an_unauthenticated_client_registers() {
    let engine = open();
    let host = engine.node.host("example.com").unwrap();
    assert_eq!(
        host.stream_features.to_xml(StreamFeatureStage::Unauthenticated),
        "<register xmlns='http://jabber.org/features/iq-register'/>"
    );
    assert_same(
        &[unauthenticated_request(&engine, "192.0.2.1", true, GET).unwrap()],
        &["<query xmlns='jabber:iq:register'><instructions>Choose a user name and a password.</instructions>\
           <username/><password/><x xmlns='jabber:x:data' type='form'><title>Registration</title>\
           <instructions>Choose a user name and a password.</instructions>\
           <field type='hidden' var='FORM_TYPE'><value>jabber:iq:register</value></field>\
           <field var='username' type='text-single' label='User name'><required/></field>\
           <field var='password' type='text-private' label='Password'><required/></field></x></query>"
            .to_owned()],
    );
    assert_eq!(register(&engine, "192.0.2.1", "Hamlet", GOOD), Ok(String::new()));
    assert_eq!(password(&engine, "hamlet"), GOOD.as_bytes());
    assert_eq!(register(&engine, "192.0.2.1", "hamlet", GOOD), Err("cancel conflict".to_owned()));
    let form = format!(
        "<iq type='set' id='1'><query xmlns='jabber:iq:register'><x xmlns='jabber:x:data' type='submit'>\
         <field var='FORM_TYPE'><value>jabber:iq:register</value></field>\
         <field var='username'><value>yorick</value></field><field var='password'><value>{GOOD}</value></field>\
         </x></query></iq>"
    );
    assert_eq!(unauthenticated_request(&engine, "192.0.2.1", true, &form), Ok(String::new()));
    assert_eq!(password(&engine, "yorick"), GOOD.as_bytes());
}

#[test]
fn reserved_existing_and_invalid_names_are_refused() {
    let engine = open();
    engine.node.set_admins([Jid::parse("boss@example.com").unwrap()]);
    let modify = |c: &str| Err(format!("modify {c}"));
    // A separate address for each, so that the limit of attempts is not reached.
    for (n, (name, secret, want)) in [
        ("", GOOD, "not-acceptable"),
        ("hamlet", "", "not-acceptable"),
        ("hamlet", "short", "not-acceptable"),
        ("hamlet", "hamlet1234", "not-acceptable"),
        ("a", GOOD, "not-acceptable"),
        (&"x".repeat(65), GOOD, "not-acceptable"),
        ("ham let", GOOD, "not-acceptable"),
        ("hamlet@example.com", GOOD, "not-acceptable"),
    ]
    .into_iter()
    .enumerate()
    {
        let peer = format!("192.0.2.{n}");
        assert_eq!(register(&engine, &peer, name, secret), modify(want), "{name} {secret}");
    }
    for taken in ["bill", "boss", "BOSS", "postmaster", "admin"] {
        assert_eq!(
            register(&engine, "198.51.100.1", taken, GOOD),
            Err("cancel conflict".to_owned()),
            "{taken}"
        );
    }
    assert_eq!(
        unauthenticated_request(&engine, "198.51.100.2", false, GET),
        modify("not-authorized"),
        "without TLS"
    );
    let remove = "<iq type='set' id='1'><query xmlns='jabber:iq:register'><remove/></query></iq>";
    assert_eq!(
        unauthenticated_request(&engine, "198.51.100.2", true, remove),
        Err("wait unexpected-request".to_owned())
    );
    let nothing = "<iq type='set' id='1'><query xmlns='jabber:iq:register'/></iq>";
    assert_eq!(unauthenticated_request(&engine, "198.51.100.2", true, nothing), modify("not-acceptable"));
    let fields: String = (0..2_000).map(|n| format!("<field var='f{n}'/>")).collect();
    let huge = format!(
        "<iq type='set' id='1'><query xmlns='jabber:iq:register'><x xmlns='jabber:x:data' type='submit'>{fields}\
         </x></query></iq>"
    );
    let scope = xml::NamespaceContext::client();
    let read = Element::read(huge.as_bytes(), &scope, &engine.node.limits().negotiation());
    assert!(
        read.is_err()
            || unauthenticated_request(&engine, "198.51.100.2", true, &huge) == modify("not-acceptable")
    );
}

#[test]
fn accounts_and_attempts_are_rate_limited() {
    let engine = engine(&[
        ("open", OptionValue::Bool(true)),
        ("accounts_per_hour_per_address", OptionValue::Int(2)),
        ("accounts_per_hour", OptionValue::Int(3)),
    ]);
    let later = || Err("wait not-acceptable".to_owned());
    for n in 0..2 {
        assert!(register(&engine, "192.0.2.1", &format!("one{n}"), GOOD).is_ok());
    }
    assert_eq!(register(&engine, "192.0.2.1", "one2", GOOD), later());
    assert!(register(&engine, "192.0.2.2", "two0", GOOD).is_ok());
    assert_eq!(register(&engine, "192.0.2.2", "two1", GOOD), later(), "the domain has had its three");
    engine.advance(3600);
    assert!(register(&engine, "192.0.2.1", "one2", GOOD).is_ok());
    // Guessing existing names is soon limited, and other clients are not affected.
    let conflicts = (0..50).filter(|_| register(&engine, "192.0.2.3", "bill", GOOD) != later()).count();
    assert_eq!(conflicts, 12);
    assert!(register(&engine, "192.0.2.4", "four", GOOD).is_ok());
}

#[test]
fn a_failing_store_releases_the_reserved_account() {
    let engine =
        engine(&[("open", OptionValue::Bool(true)), ("accounts_per_hour_per_address", OptionValue::Int(1))]);
    engine.set_store_failing(true);
    assert!(register(&engine, "192.0.2.1", "hamlet", GOOD).is_err());
    engine.set_store_failing(false);
    assert!(register(&engine, "192.0.2.1", "hamlet", GOOD).is_ok());
}

#[test]
fn an_account_that_a_provider_may_have_created_stays_counted() {
    let mut options = FeatureOptions::defaults(FEATURE.options);
    options.set(FEATURE.options, "open", OptionValue::Bool(true)).unwrap();
    options.set(FEATURE.options, "accounts_per_hour_per_address", OptionValue::Int(1)).unwrap();
    let engine = TestNode::start(&[], NodeLimits::default());
    let accounts = Arc::new(MemoryAccounts::new(ALL_CAPABILITIES));
    let provider = Some(SharedAccountProvider(accounts.clone()));
    let enabled = [EnabledFeature { feature: &FEATURE, options }];
    let (limits, state) = (NodeLimits::default(), FeatureState::default());
    let host = feature_api::build_host_with("example.com", &enabled, &limits, &state, provider).unwrap();
    engine.node.set_hosts([("example.com".to_owned(), Arc::new(host))].into());
    accounts.set_fault(Some(ProviderErrorKind::PasswordRefused));
    assert!(register(&engine, "192.0.2.1", "hamlet", GOOD).is_err());
    accounts.set_fault(Some(ProviderErrorKind::Timeout));
    assert!(register(&engine, "192.0.2.1", "hamlet", GOOD).is_err());
    accounts.set_fault(None);
    assert_eq!(register(&engine, "192.0.2.1", "hamlet", GOOD), Err("wait not-acceptable".to_owned()));
    assert!(register(&engine, "192.0.2.2", "hamlet", GOOD).is_ok());
}

#[test]
fn section_3_3_users_change_their_own_password() {
    let engine = engine(&[]);
    let bill = secure(&engine, "bill", "globe");
    let answer =
        bill.request("<iq type='get' to='example.com' id='1'><query xmlns='jabber:iq:register'/></iq>");
    assert!(answer[0].contains("<registered/><username>bill</username><password/>"), "{answer:?}");
    let change =
        |name: &str, secret: &str| format!("<username>{name}</username><password>{secret}</password>");
    assert_same(
        &[set(&bill, &change("bill", "newp4ss&word".replace('&', "&amp;").as_str()))],
        &["<iq type='result' from='example.com' to='bill@example.com/globe' id='change1'/>".to_owned()],
    );
    assert_eq!(password(&engine, "bill"), b"newp4ss&word");
    for (content, condition) in [
        (change("romeo", GOOD), "forbidden"),
        (change("bill@example.net", GOOD), "forbidden"),
        (change("bill", ""), "bad-request"),
        ("<username>bill</username>".to_owned(), "bad-request"),
        (format!("<password>{GOOD}</password>"), "bad-request"),
        (change("bill", "short"), "not-acceptable"),
        (String::new(), "bad-request"),
    ] {
        let answer = set(&bill, &content);
        assert!(answer.contains(&format!("<{condition} ")), "{content}: {answer}");
        assert!(!answer.contains("<query"), "nothing of it comes back: {answer}");
    }
    assert_eq!(password(&engine, "bill"), b"newp4ss&word", "it stays");
    let plain = engine.connect("bill", "plain");
    let refused = set(&plain, &change("bill", GOOD));
    assert!(refused.contains("<error type='modify'><not-authorized "), "{refused}");
    // The form with the current password.
    let form = |old: &str, new: &str| {
        format!(
            "<x xmlns='jabber:x:data' type='submit'>\
             <field var='FORM_TYPE'><value>jabber:iq:register:changepassword</value></field>\
             <field var='username'><value>bill@example.com</value></field>\
             <field var='old_password'><value>{old}</value></field>\
             <field var='password'><value>{new}</value></field></x>"
        )
    };
    assert!(set(&bill, &form("wrong", "gr0undlings")).contains("<not-authorized "));
    assert!(set(&bill, &form("newp4ss&amp;word", "gr0undlings")).contains("type='result'"));
    assert_eq!(password(&engine, "bill"), b"gr0undlings");
    // Deriving keys is expensive.
    let refused =
        (0..40).filter(|_| set(&bill, &change("bill", GOOD)).contains("<resource-constraint ")).count();
    assert!(refused >= 20, "{refused}");
}

#[test]
fn section_3_2_removing_an_account_ends_all_its_sessions() {
    let engine = engine(&[]);
    engine.create_user("juliet");
    engine.befriend("bill", "juliet");
    let juliet = engine.connect("juliet", "balcony");
    juliet.send("<iq type='get' id='r'><query xmlns='jabber:iq:roster'/></iq>");
    juliet.send("<presence/>");
    juliet.recv();
    let bill = [secure(&engine, "bill", "globe"), secure(&engine, "bill", "phone")];
    let both = set(&bill[0], "<remove/><username>bill</username>");
    assert!(both.contains("<bad-request "), "{both}");
    let answer = bill[0]
        .request("<iq type='set' id='unreg1'><query xmlns='jabber:iq:register'><remove/></query></iq>");
    assert_same(&answer, &["<iq type='result' to='bill@example.com/globe' id='unreg1'/>"]);
    for client in &bill {
        assert_eq!(client.closed_with().unwrap().condition, stanza::StreamCondition::NotAuthorized);
    }
    assert!(bill[1].session.is_ended(), "the other ends at once, this one behind its answer");
    let jid = Jid::parse("bill@example.com").unwrap();
    assert!(!engine.block_on(engine.stores.accounts.exists(jid.as_ref())).unwrap());
    let received = juliet.recv().join("");
    assert!(
        received.contains("type='unsubscribe'") && received.contains("type='unsubscribed'"),
        "{received}"
    );
}

#[test]
fn disabled_operations_are_not_allowed() {
    let engine =
        engine(&[("password_change", OptionValue::Bool(false)), ("removal", OptionValue::Bool(false))]);
    let bill = secure(&engine, "bill", "globe");
    assert!(set(&bill, "<remove/>").contains("<not-allowed "));
    assert!(set(&bill, "<username>bill</username><password>x</password>").contains("<not-allowed "));
    let guest = engine.connect_anonymous("guest", "x");
    assert!(set(&guest, "<remove/>").contains("<registration-required "));
    engine.create_user("paris@example.net");
    let paris = secure(&engine, "paris@example.net", "x");
    assert!(set(&paris, "<remove/>").contains("<service-unavailable "));
}
