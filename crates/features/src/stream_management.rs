//! Stream Management: XEP-0198 1.6.3, announcement and limits of a host.
//!
//! The streams implement the protocol (`streams/src/stream_management.rs`), the session's outbox stores sent stanzas
//! (`outbox/src/stream_management/mod.rs`). This feature announces it and provides the limits; if it is disabled,
//! no stream offers it. Messages that a dead stream did not acknowledge go to other resources or to the offline
//! store, with the time at which they were first sent (required by section 4).
//!
//! Not implemented: streams between servers.
//!
//! # Pitfalls
//!
//! A session may hold `unacked_bytes` in addition to the limits of its queue, even while it is detached.

use feature_api::feature::{Feature, FeatureBuilder, OptionKind, OptionSpec, OptionValue, Spec};
use stanza::{append_child, payload::delay};
use throng_core::provided::AddDelay;
use throng_core::session::StreamManagementConfig;
use throng_core::{SharedStanza, StreamFeature};
use xml::{Ns, Writer};

/// Stream management.
pub static FEATURE: Feature = Feature {
    name: "stream_management",
    summary: "Acknowledges stanzas and lets clients resume lost streams.",
    specs: &[Spec {
        name: "XEP-0198",
        title: "Stream Management",
        version: "1.6.3",
        not_implemented: "streams between servers",
    }],
    stream_features: &[
        StreamFeature::authenticated("sm", Ns::Sm3),
        StreamFeature::authenticated("sm", Ns::Sm2),
    ],
    options: &[
        OptionSpec {
            key: "resume_seconds",
            kind: OptionKind::Int(0, 86_400),
            default: OptionValue::Int(300),
            doc: "Seconds during which a lost stream can be resumed; 0 disables resumption but not \
             acknowledgements.",
        },
        OptionSpec {
            key: "unacked_bytes",
            kind: OptionKind::Int(4_096, 67_108_864),
            default: OptionValue::Int(262_144),
            doc: "Maximum size of unacknowledged stanzas, in bytes; above it nothing more is sent to a \
             client.",
        },
        OptionSpec {
            key: "location",
            kind: OptionKind::Text,
            default: OptionValue::Text(std::borrow::Cow::Borrowed("")),
            doc: "Preferred address for resumption, as host or host:port; empty for none.",
        },
    ],
    build,
    ..Feature::EMPTY
};

fn build(builder: &mut FeatureBuilder<'_>) {
    let number = |key: &str| u32::try_from(builder.options.int(key)).unwrap_or(0);
    let management = StreamManagementConfig {
        resume_seconds: number("resume_seconds"),
        unacked_bytes: number("unacked_bytes"),
        location: builder.options.text("location").to_owned(),
    };
    builder.provide(management);
    builder.provide(AddDelay(with_delay));
}

/// Adds the time at which the message was first sent (XEP-0203).
fn with_delay(frame: &SharedStanza, domain: &str, millis: u64) -> Option<SharedStanza> {
    let mut child = Vec::with_capacity(96);
    delay::write(&mut Writer::new(&mut child), domain, millis);
    let mut out = Vec::new();
    append_child(frame.bytes(), frame.head(), &child, Ns::Delay, &mut out).ok()?;
    SharedStanza::delayed(&out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::{TestNode, assert_same};
    use throng_core::StreamFeatureStage;
    use throng_core::session::StreamManagementTerms;

    fn host(options: &[(&str, OptionValue)]) -> std::sync::Arc<throng_core::Host> {
        TestNode::with_options(&FEATURE, options).node.host("example.com").unwrap()
    }

    #[test]
    fn options_become_limits() {
        let defaults = host(&[]);
        let management: &StreamManagementConfig = defaults.extensions.get().unwrap();
        assert_eq!((management.resume_seconds, management.unacked_bytes), (300, 262_144));
        assert_eq!(management.location, "");
        let other = host(&[
            ("resume_seconds", OptionValue::Int(0)),
            ("location", OptionValue::Text("[2001:db8::1]:5222".into())),
        ]);
        let management: &StreamManagementConfig = other.extensions.get().unwrap();
        assert_eq!((management.resume_seconds, management.location.as_str()), (0, "[2001:db8::1]:5222"));
        assert_eq!(
            other.stream_features.to_xml(StreamFeatureStage::Authenticated),
            "<sm xmlns='urn:xmpp:sm:3'/><sm xmlns='urn:xmpp:sm:2'/>"
        );
        let mut managed = Vec::new();
        other.stream_features.write_managed(&mut Writer::new(&mut managed));
        assert!(managed.is_empty(), "an enabled feature is not offered again");
    }

    //= https://xmpp.org/extensions/xep-0198.html#acking
    //= type=test
    //# Before the session state is discarded, implementations SHOULD take alternative action regarding any
    //# unhandled stanzas (i.e., stanzas sent after the most recent 'h' value received):
    //= https://xmpp.org/extensions/xep-0198.html#acking
    //= type=test
    //# A server SHOULD treat unacknowledged stanzas in the same way that it would treat a stanza sent to an
    //# unavailable resource
    //= https://xmpp.org/extensions/xep-0198.html#acking
    //= type=test
    //# (Note that servers SHOULD add a delay element with the original (failed) delivery timestamp, as per
    //# XEP-0203).
    #[test]
    fn section_4_unacknowledged_messages_are_redelivered_to_another_resource_with_a_delay() {
        let engine = TestNode::new(&[
            &FEATURE,
            &crate::rfc6121::presence::FEATURE,
            &crate::rfc6121::roster::FEATURE,
            &crate::rfc6121::subscription::FEATURE,
        ]);
        engine.create_user("romeo");
        engine.create_user("juliet");
        let romeo = engine.connect("romeo", "orchard");
        let phone = engine.connect("juliet", "phone");
        phone.session.outbox.enable_management(
            StreamManagementTerms { resume_seconds: 60, unacked_bytes: 10_000, sm2: false },
            [1; 16],
        );
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
    fn a_message_to_two_resources_is_undelivered_only_when_both_fail() {
        let engine = TestNode::new(&[
            &FEATURE,
            &crate::rfc6121::presence::FEATURE,
            &crate::rfc6121::roster::FEATURE,
            &crate::rfc6121::subscription::FEATURE,
        ]);
        engine.create_user("romeo");
        engine.create_user("juliet");
        let romeo = engine.connect("romeo", "orchard");
        let managed = |resource| {
            let client = engine.connect("juliet", resource);
            client.session.outbox.enable_management(
                StreamManagementTerms { resume_seconds: 60, unacked_bytes: 10_000, sm2: false },
                [1; 16],
            );
            client.send("<presence/>");
            client
        };
        let (phone, laptop) = (managed("phone"), managed("laptop"));
        for id in ["1", "2"] {
            romeo.send(&format!("<message to='juliet@example.com' type='chat' id='{id}'/>"));
        }
        let messages = |client: &testkit::engine::NodeClient| {
            let got = client.recv();
            got.iter().filter(|s| s.starts_with("<message")).cloned().collect::<Vec<_>>()
        };
        assert_eq!((messages(&phone).len(), messages(&laptop).len()), (2, 2));
        // Only the first message has arrived, and only at the laptop: presence counts as well.
        laptop.session.outbox.acknowledge(sent_count(&laptop) - 1).unwrap();
        phone.close();
        assert!(messages(&laptop).is_empty(), "the laptop has the one and will see to the other");
        laptop.close();
        // Without an offline store the sender gets an error.
        let errors = romeo.recv();
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(errors[0].contains("id='2'") && errors[0].contains("<service-unavailable "), "{errors:?}");
    }

    /// Number of stanzas sent to a client, found by trial.
    fn sent_count(client: &testkit::engine::NodeClient) -> u32 {
        (0..100).rev().find(|h| client.session.outbox.request_takeover(&[1; 16], *h, 0).is_ok()).unwrap()
    }
}
