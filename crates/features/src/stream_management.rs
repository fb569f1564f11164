//! Stream management: XEP-0198 1.6.3, what a host offers and allows of it.
//!
//! The protocol is spoken by the streams themselves (`streams/src/sm.rs`), what is sent is kept by the session's link
//! (`core/src/session/ack.rs`). This feature announces it and brings the limits; switched off, no stream has it. Messages
//! that a dead stream did not acknowledge go to other resources or to the offline store, with the time at which they were
//! sent first (section 4 asks for that).
//!
//! Left out: streams between servers; resuming on another node of a cluster than the one that has the session.
//!
//! The trap: what a session may keep is `unacked_bytes` beside the limits of its queue, also without a connection.

use stanza::{append_child, payload::delay};
use throng_core::Frame;
use throng_core::feature::{Builder, Feature, Kind, OptionSpec, Spec, Value};
use throng_core::session::Management;
use xml::{Ns, Writer};

/// Stream management.
pub static FEATURE: Feature = Feature {
    name: "stream_management",
    summary: "Acknowledges stanzas and lets clients resume lost streams.",
    specs: &[Spec {
        name: "XEP-0198",
        title: "Stream Management",
        version: "1.6.3",
        left_out: "streams between servers",
    }],
    stream_features: &["<sm xmlns='urn:xmpp:sm:3'/>", "<sm xmlns='urn:xmpp:sm:2'/>"],
    options: &[
        OptionSpec {
            key: "resume_seconds",
            kind: Kind::Int(0, 86_400),
            default: Value::Int(300),
            doc: "Seconds for which a lost stream can be resumed; 0 only acknowledges.",
        },
        OptionSpec {
            key: "unacked_bytes",
            kind: Kind::Int(4_096, 67_108_864),
            default: Value::Int(262_144),
            doc: "Bytes of unacknowledged stanzas beyond which nothing more is sent to a client.",
        },
        OptionSpec {
            key: "location",
            kind: Kind::Text,
            default: Value::Text(std::borrow::Cow::Borrowed("")),
            doc: "Where clients are to come back to, as host or host:port; empty says nothing.",
        },
    ],
    build,
    ..Feature::EMPTY
};

fn build(builder: &mut Builder<'_>) {
    let number = |key: &str| u32::try_from(builder.options.int(key)).unwrap_or(0);
    let management = Management {
        resume_seconds: number("resume_seconds"),
        unacked_bytes: number("unacked_bytes"),
        location: builder.options.text("location").to_owned(),
    };
    builder.management(management, late);
}

/// The message with the time at which it was first sent (XEP-0203).
fn late(frame: &Frame, domain: &str, millis: u64) -> Option<Frame> {
    let mut child = Vec::with_capacity(96);
    delay::write(&mut Writer::new(&mut child), domain, millis);
    let mut out = Vec::new();
    append_child(frame.bytes(), frame.head(), &child, Ns::Delay, &mut out).ok()?;
    Frame::late(&out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::{Engine, assert_same};
    use throng_core::feature::Options;
    use throng_core::session::Terms;
    use throng_core::{Enabled, Limits};

    fn host(options: &[(&str, Value)]) -> std::sync::Arc<throng_core::Host> {
        let mut set = Options::defaults(FEATURE.options);
        for (key, value) in options {
            set.set(FEATURE.options, key, value.clone()).unwrap();
        }
        let engine = Engine::start(&[Enabled { feature: &FEATURE, options: set }], Limits::default());
        engine.node.host("example.com").unwrap()
    }

    #[test]
    fn options_become_limits() {
        let defaults = host(&[]);
        let management = defaults.management.as_ref().unwrap();
        assert_eq!((management.resume_seconds, management.unacked_bytes), (300, 262_144));
        assert_eq!(management.location, "");
        let other = host(&[
            ("resume_seconds", Value::Int(0)),
            ("location", Value::Text("[2001:db8::1]:5222".into())),
        ]);
        let management = other.management.as_ref().unwrap();
        assert_eq!((management.resume_seconds, management.location.as_str()), (0, "[2001:db8::1]:5222"));
        assert_eq!(
            String::from_utf8_lossy(&other.stream_features),
            "<sm xmlns='urn:xmpp:sm:3'/><sm xmlns='urn:xmpp:sm:2'/>"
        );
        assert!(other.managed_features.is_empty(), "what came with the login is not offered again");
    }

    #[test]
    fn section_4_what_was_sent_in_vain_goes_to_another_resource_with_its_time() {
        let engine = Engine::new(&[
            &FEATURE,
            &crate::rfc6121::presence::FEATURE,
            &crate::rfc6121::roster::FEATURE,
            &crate::rfc6121::subscription::FEATURE,
        ]);
        engine.user("romeo");
        engine.user("juliet");
        let romeo = engine.connect("romeo", "orchard");
        let phone = engine.connect("juliet", "phone");
        phone.session.link.enable(Terms { seconds: 60, bytes: 10_000, old: false }, [1; 16]);
        romeo.send("<message to='juliet@example.com/phone' type='chat' id='1'><body>1</body></message>");
        engine.clock.set_unix_millis(1_031_699_305_000);
        engine.node.sweep();
        assert_eq!(phone.recv().len(), 1);
        romeo.send("<message to='juliet@example.com/phone' type='chat' id='2'/>");
        let laptop = engine.connect("juliet", "laptop");
        laptop.send("<presence/>");
        laptop.recv();
        phone.close();
        let got = laptop.recv();
        assert_eq!(got.len(), 2, "{got:?}");
        assert!(got[0].contains("<body>1</body><delay xmlns='urn:xmpp:delay' from='example.com' stamp='"));
        assert_same(
            &got[1..],
            &["<message from='romeo@example.com/orchard' to='juliet@example.com/phone' type='chat' id='2'/>"],
        );
    }

    #[test]
    fn what_two_resources_got_is_lost_only_when_both_lose_it() {
        let engine = Engine::new(&[
            &FEATURE,
            &crate::rfc6121::presence::FEATURE,
            &crate::rfc6121::roster::FEATURE,
            &crate::rfc6121::subscription::FEATURE,
        ]);
        engine.user("romeo");
        engine.user("juliet");
        let romeo = engine.connect("romeo", "orchard");
        let managed = |resource| {
            let client = engine.connect("juliet", resource);
            client.session.link.enable(Terms { seconds: 60, bytes: 10_000, old: false }, [1; 16]);
            client.send("<presence/>");
            client
        };
        let (phone, laptop) = (managed("phone"), managed("laptop"));
        for id in ["1", "2"] {
            romeo.send(&format!("<message to='juliet@example.com' type='chat' id='{id}'/>"));
        }
        let messages = |client: &testkit::engine::Client| {
            let got = client.recv();
            got.iter().filter(|s| s.starts_with("<message")).cloned().collect::<Vec<_>>()
        };
        assert_eq!((messages(&phone).len(), messages(&laptop).len()), (2, 2));
        // Only the first message has arrived, and only at the laptop: presence counts as well.
        laptop.session.link.acknowledge(laptop_sent(&laptop) - 1).unwrap();
        phone.close();
        assert!(messages(&laptop).is_empty(), "the laptop has the one and will see to the other");
        laptop.close();
        // Without a store the sender is told.
        let errors = romeo.recv();
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(errors[0].contains("id='2'") && errors[0].contains("<service-unavailable "), "{errors:?}");
    }

    /// What was sent to a client, found by trying.
    fn laptop_sent(client: &testkit::engine::Client) -> u32 {
        (0..100).rev().find(|h| client.session.link.claim(&[1; 16], *h, 0).is_ok()).unwrap()
    }
}
