//! Entity Time: XEP-0202 2.0, section 2. The server answers with its clock's time in UTC.
//!
//! Not implemented: an offset other than `Z`. The machine's location is private (section 6), and a service on several
//! machines has none.
//!
//! # Pitfalls
//!
//! `utc` and `tzo` come from the node's clock, never from the operating system, so that tests can control it.

use feature_api::feature::{DiscoFeature, Feature, FeatureBuilder, Spec};
use stanza::payload::datetime::format_utc;
use throng_core::iq::{IqFlow, IqKey, IqRequest, IqTarget};
use xml::Ns;

/// Entity Time.
pub static FEATURE: Feature = Feature {
    name: "entity_time",
    summary: "Reports the server's time.",
    specs: &[Spec {
        name: "XEP-0202",
        title: "Entity Time",
        version: "2.0",
        not_implemented: "offsets other than UTC",
    }],
    disco: &[DiscoFeature::Server(Ns::Time.as_str())],
    iq: &[KEY],
    build,
    ..Feature::EMPTY
};

const KEY: IqKey = IqKey::get(IqTarget::Server, Ns::Time, "time");

fn build(builder: &mut FeatureBuilder<'_>) {
    builder.iq(KEY, |request: &mut IqRequest<'_>| {
        let now = format_utc(request.node.clock.unix_millis(), false);
        IqFlow::result(|w| {
            w.start_ns("time", Ns::Time).text_element("tzo", "Z").text_element("utc", &now).end();
        })
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::{TestNode, assert_same};

    #[test]
    fn section_3_the_reply_has_utc_and_offset() {
        let engine = TestNode::new(&[&FEATURE]);
        engine.create_user("juliet");
        let juliet = engine.connect("juliet", "balcony");
        engine.clock.set_unix_millis(1_166_551_115_700);
        assert_same(
            &juliet.request("<iq type='get' to='example.com' id='time_1'><time xmlns='urn:xmpp:time'/></iq>"),
            &["<iq type='result' from='example.com' to='juliet@example.com/balcony' id='time_1'>\
               <time xmlns='urn:xmpp:time'><tzo>Z</tzo><utc>2006-12-19T17:58:35Z</utc></time></iq>"],
        );
    }
}
