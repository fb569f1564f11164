//! Stream features (RFC 6120, section 4.3.2) that features of the server declare, and the ordered set of a host.
//!
//! A stream feature is identified by its namespace and name. The set contains each one once, in the order in
//! which it is sent: registry order, then those that are derived from the finished host.
//!
//! Not implemented: the features of negotiation itself (STARTTLS, SASL, resource binding), which depend on the
//! state of one stream; the crate `streams` writes them before those of the host.

use xml::{Ns, Writer};

/// When a stream feature is offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StreamFeatureStage {
    /// Before authentication, unless TLS is required and missing.
    Unauthenticated,
    /// After authentication.
    Authenticated,
}

/// A child of `<stream:features/>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamFeature {
    /// When it is offered.
    pub stage: StreamFeatureStage,
    /// Its namespace.
    pub ns: Ns,
    /// Its name.
    pub name: &'static str,
    /// The whole element; `None` for one without attributes and children.
    element: Option<Vec<u8>>,
}

impl StreamFeature {
    /// An empty element that is offered before authentication.
    pub const fn unauthenticated(name: &'static str, ns: Ns) -> StreamFeature {
        StreamFeature { stage: StreamFeatureStage::Unauthenticated, ns, name, element: None }
    }

    /// An empty element that is offered after authentication.
    pub const fn authenticated(name: &'static str, ns: Ns) -> StreamFeature {
        StreamFeature { stage: StreamFeatureStage::Authenticated, ns, name, element: None }
    }

    /// The feature with the attributes and children that `content` writes.
    #[must_use]
    pub fn with_content(mut self, content: impl FnOnce(&mut Writer<'_>)) -> StreamFeature {
        let mut element = Vec::new();
        let mut w = Writer::new(&mut element);
        w.start_ns(self.name, self.ns);
        content(&mut w);
        w.end();
        self.element = Some(element);
        self
    }

    /// Whether it belongs to stream management (XEP-0198).
    const fn is_stream_management(&self) -> bool {
        matches!(self.ns, Ns::Sm2 | Ns::Sm3)
    }

    fn write(&self, w: &mut Writer<'_>) {
        match &self.element {
            Some(element) => w.raw(element),
            None => w.empty_element(self.name, self.ns),
        };
    }
}

/// The stream features of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamFeatures(Vec<(StreamFeature, &'static str)>);

impl StreamFeatures {
    /// Adds a stream feature at the end.
    ///
    /// # Errors
    /// The owner of the same stream feature, if there is one at the same stage.
    pub fn insert(&mut self, feature: StreamFeature, owner: &'static str) -> Result<(), &'static str> {
        let key = |f: &StreamFeature| (f.stage, f.ns, f.name);
        if let Some((_, first)) = self.0.iter().find(|(present, _)| key(present) == key(&feature)) {
            return Err(first);
        }
        self.0.push((feature, owner));
        Ok(())
    }

    /// The stream features of a stage, in the order in which they are sent.
    pub fn iter(&self, stage: StreamFeatureStage) -> impl Iterator<Item = &StreamFeature> {
        self.0.iter().map(|(feature, _)| feature).filter(move |feature| feature.stage == stage)
    }

    /// Writes the stream features of a stage.
    pub fn write(&self, w: &mut Writer<'_>, stage: StreamFeatureStage) {
        self.iter(stage).for_each(|feature| feature.write(w));
    }

    /// Writes the stream features of an authenticated stream that has enabled stream management: without
    /// XEP-0198, because only features that still apply are offered (XEP-0388, section 4), and xmpp.js 0.14
    /// immediately uses whatever is offered.
    pub fn write_managed(&self, w: &mut Writer<'_>) {
        let still_apply =
            self.iter(StreamFeatureStage::Authenticated).filter(|feature| !feature.is_stream_management());
        still_apply.for_each(|feature| feature.write(w));
    }

    /// The elements of a stage as text, for documentation and tests.
    pub fn to_xml(&self, stage: StreamFeatureStage) -> String {
        let mut out = Vec::new();
        self.write(&mut Writer::new(&mut out), stage);
        String::from_utf8_lossy(&out).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use StreamFeatureStage::{Authenticated, Unauthenticated};

    fn set(features: &[StreamFeature]) -> StreamFeatures {
        let mut set = StreamFeatures::default();
        features.iter().for_each(|feature| set.insert(feature.clone(), "test").unwrap());
        set
    }

    #[test]
    fn features_are_written_at_their_stage_in_the_order_of_registration() {
        let caps = StreamFeature::authenticated("c", Ns::Caps).with_content(|w| {
            w.attr("ver", "a'b");
        });
        let set = set(&[
            StreamFeature::authenticated("ver", Ns::RosterVer),
            StreamFeature::unauthenticated("register", Ns::RegisterFeature),
            StreamFeature::authenticated("sm", Ns::Sm3),
            StreamFeature::authenticated("sm", Ns::Sm2),
            caps,
        ]);
        assert_eq!(set.to_xml(Unauthenticated), "<register xmlns='http://jabber.org/features/iq-register'/>");
        assert_eq!(
            set.to_xml(Authenticated),
            "<ver xmlns='urn:xmpp:features:rosterver'/><sm xmlns='urn:xmpp:sm:3'/><sm xmlns='urn:xmpp:sm:2'/>\
             <c xmlns='http://jabber.org/protocol/caps' ver='a&apos;b'/>"
        );
        let mut managed = Vec::new();
        set.write_managed(&mut Writer::new(&mut managed));
        assert_eq!(
            String::from_utf8(managed).unwrap(),
            "<ver xmlns='urn:xmpp:features:rosterver'/>\
             <c xmlns='http://jabber.org/protocol/caps' ver='a&apos;b'/>"
        );
    }

    #[test]
    fn each_feature_is_offered_once() {
        let mut set = set(&[StreamFeature::authenticated("c", Ns::Caps)]);
        assert_eq!(set.insert(StreamFeature::authenticated("c", Ns::Caps), "other"), Err("test"));
        assert_eq!(set.insert(StreamFeature::authenticated("c", Ns::Caps2), "other"), Ok(()));
        assert_eq!(set.insert(StreamFeature::unauthenticated("c", Ns::Caps), "other"), Ok(()));
        assert_eq!(set.iter(Authenticated).count(), 2);
    }
}
