//! Entity Capabilities: XEP-0115 1.6.0, the server's own (sections 5.1, 6.2 and 6.3).
//!
//! The domain's disco information is hashed once, when the host is complete, and announced as a stream feature, so
//! that clients which know the hash need not ask. [`verification`] is the algorithm itself, for others' hashes as well.
//!
//! Left out: caps optimization (section 8.4) and caching what clients announce; nothing in the server asks for it yet.
//!
//! The trap: what is hashed must be exactly what disco answers. Both read [`DiscoInfo`]; whoever adds something to the
//! answer (a form of XEP-0128) adds it there and hands it to [`verification`].

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use throng_core::disco::DiscoInfo;
use throng_core::feature::{Announced, Disco, Feature, Spec};
use xml::{Ns, Writer};

/// Entity Capabilities.
pub static FEATURE: Feature = Feature {
    name: "caps",
    summary: "Announces a hash of the server's features, so that clients need not ask for them.",
    specs: &[Spec {
        name: "XEP-0115",
        title: "Entity Capabilities",
        version: "1.6.0",
        left_out: "section 8.4: caps optimization",
    }],
    disco: &[Disco::Server(Ns::Caps.as_str())],
    announce: Some(announce),
    needs: &["disco"],
    ..Feature::EMPTY
};

/// Names the software (section 4 wants a URI). The project has no site to name; a UUID is nobody else's.
const NODE: &str = "urn:uuid:3f6c1c1e-5b0a-4f0e-9d53-7468726f6e67";

/// The stream feature of section 6.3, and the node of section 6.2 under which disco answers for it.
fn announce(info: &DiscoInfo) -> Announced {
    let identities: Vec<_> = info
        .identities
        .iter()
        .map(|i| Identity { category: i.category, kind: i.kind, lang: "", name: i.name })
        .collect();
    let forms: Vec<_> = info.forms.iter().map(Form::of).collect();
    let ver = verification(&identities, &info.features, &forms);
    let mut element = Vec::new();
    let mut w = Writer::new(&mut element);
    w.start_ns("c", Ns::Caps).attr("hash", "sha-1").attr("node", NODE).attr("ver", &ver).end();
    Announced { element, node: format!("{NODE}#{ver}") }
}

/// An identity with all that is hashed of it. An absent language or name is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Identity<'a> {
    /// Category.
    pub category: &'a str,
    /// Type.
    pub kind: &'a str,
    /// `xml:lang`.
    pub lang: &'a str,
    /// Name for people.
    pub name: &'a str,
}

/// A form of extended information (XEP-0128).
#[derive(Clone, Debug)]
pub struct Form<'a> {
    /// Value of the field `FORM_TYPE`.
    pub form_type: &'a str,
    /// The other fields: name and values.
    pub fields: Vec<(&'a str, Vec<&'a str>)>,
}

impl<'a> Form<'a> {
    fn of(form: &'a throng_core::disco::Form) -> Form<'a> {
        let fields = form.fields.iter();
        let fields = fields.map(|(var, values)| (var.as_str(), values.iter().map(String::as_str).collect()));
        Form { form_type: &form.form_type, fields: fields.collect() }
    }
}

/// The verification string of section 5.1 with SHA-1, in base64. The order of the arguments does not matter.
pub fn verification(identities: &[Identity<'_>], features: &[&str], forms: &[Form<'_>]) -> String {
    // `str` compares bytes, which is the collation `i;octet` that the section demands.
    let mut s = String::new();
    let mut add = |text: &str| {
        s.push_str(text);
        s.push('<');
    };
    for Identity { category, kind, lang, name } in sorted(identities) {
        add(&format!("{category}/{kind}/{lang}/{name}"));
    }
    for feature in sorted(features) {
        add(feature);
    }
    let mut forms: Vec<&Form<'_>> = forms.iter().collect();
    forms.sort_by_key(|form| form.form_type);
    for form in forms {
        add(form.form_type);
        let mut fields: Vec<_> = form.fields.iter().collect();
        fields.sort_by_key(|(var, _)| *var);
        for (var, values) in fields {
            add(var);
            for value in sorted(values) {
                add(value);
            }
        }
    }
    let digest = ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, s.as_bytes());
    BASE64_STANDARD.encode(digest.as_ref())
}

fn sorted<T: Ord + Copy>(list: &[T]) -> Vec<T> {
    let mut list = list.to_vec();
    list.sort_unstable();
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::Engine;

    const FEATURES: [&str; 4] = [
        "http://jabber.org/protocol/muc",
        "http://jabber.org/protocol/disco#items",
        "http://jabber.org/protocol/disco#info",
        "http://jabber.org/protocol/caps",
    ];

    #[test]
    fn section_5_2_simple_example() {
        let exodus = Identity { category: "client", kind: "pc", lang: "", name: "Exodus 0.9.1" };
        assert_eq!(verification(&[exodus], &FEATURES, &[]), "QgayPKawpkPSDYmwT/WM94uAlu0=");
    }

    #[test]
    fn section_5_3_languages_and_a_form() {
        let psi = |lang, name| Identity { category: "client", kind: "pc", lang, name };
        let form = Form {
            form_type: "urn:xmpp:dataforms:softwareinfo",
            fields: vec![
                ("software_version", vec!["0.11"]),
                ("software", vec!["Psi"]),
                ("os_version", vec!["10.5.1"]),
                ("os", vec!["Mac"]),
                ("ip_version", vec!["ipv6", "ipv4"]),
            ],
        };
        let identities = [psi("en", "Psi 0.11"), psi("el", "Ψ 0.11")];
        assert_eq!(verification(&identities, &FEATURES, &[form]), "q07IKJEyjvHSyhy//CH0CxmKi8w=");
    }

    #[test]
    fn forms_are_sorted_by_type() {
        let form = |form_type| Form { form_type, fields: Vec::new() };
        let hash = |forms: &[Form<'_>]| verification(&[], &[], forms);
        assert_eq!(hash(&[form("a"), form("b")]), hash(&[form("b"), form("a")]));
        assert_ne!(hash(&[form("a"), form("b")]), hash(&[form("a"), form("c")]));
    }

    #[test]
    fn section_6_3_the_stream_feature_names_a_node_that_disco_answers() {
        let engine = Engine::new(&[&crate::disco::FEATURE, &FEATURE]);
        engine.user("juliet");
        let host = engine.node.host("example.com").unwrap();
        let feature = String::from_utf8(host.stream_features.clone()).unwrap();
        let identity = Identity { category: "server", kind: "im", lang: "", name: "Throng" };
        let ver = verification(&[identity], &host.disco_server.features, &[]);
        assert_eq!(
            feature,
            format!("<c xmlns='http://jabber.org/protocol/caps' hash='sha-1' node='{NODE}' ver='{ver}'/>")
        );
        let answer = engine.connect("juliet", "balcony").ask(&format!(
            "<iq to='example.com' id='1' type='get'>\
             <query xmlns='http://jabber.org/protocol/disco#info' node='{NODE}#{ver}'/></iq>"
        ));
        assert!(answer[0].contains("<feature var='http://jabber.org/protocol/caps'/>"), "{answer:?}");
    }
}
