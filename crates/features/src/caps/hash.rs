//! Hash inputs of capabilities: XEP-0115 1.6.0, section 5.1; XEP-0390 0.3.2, section 4.1.
//!
//! Both take the same three lists, in any order. `str` compares bytes, which is the collation `i;octet` that both
//! require.
//!
//! # Pitfalls
//!
//! XEP-0115 separates parts with `<`, which may also occur inside of parts, so two different clients can have the
//! same hash. Code that caches clients' replies must reject such parts first (see `super::verification`).

use ring::digest::{Algorithm as Ring, SHA1_FOR_LEGACY_USE_ONLY, SHA256, SHA512, digest};

/// An identity with all hashed parts. An absent language or name is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HashedIdentity<'a> {
    /// Category.
    pub category: &'a str,
    /// Type.
    pub kind: &'a str,
    /// `xml:lang`.
    pub lang: &'a str,
    /// Human-readable name.
    pub name: &'a str,
}

/// A form of extended information (XEP-0128).
#[derive(Clone, Debug)]
pub struct HashedForm<'a> {
    /// Value of the field `FORM_TYPE`.
    pub form_type: &'a str,
    /// Name and values of the other fields.
    pub fields: Vec<(&'a str, Vec<&'a str>)>,
}

impl<'a> HashedForm<'a> {
    /// Converts a form of the domain.
    pub fn from_disco(form: &'a feature_api::disco::DiscoForm) -> HashedForm<'a> {
        let fields = form.fields.iter();
        let fields = fields.map(|(var, values)| (var.as_str(), values.iter().map(String::as_str).collect()));
        HashedForm { form_type: &form.form_type, fields: fields.collect() }
    }
}

/// A supported hash function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapsAlgorithm {
    /// SHA-1, which XEP-0115 makes mandatory.
    Sha1,
    /// SHA-256.
    Sha256,
    /// SHA-512.
    Sha512,
}

impl CapsAlgorithm {
    /// Finds a function by its name in XEP-0300.
    pub fn from_name(name: &str) -> Option<CapsAlgorithm> {
        [CapsAlgorithm::Sha1, CapsAlgorithm::Sha256, CapsAlgorithm::Sha512]
            .into_iter()
            .find(|a| a.name() == name)
    }

    /// Name in XEP-0300.
    pub const fn name(self) -> &'static str {
        match self {
            CapsAlgorithm::Sha1 => "sha-1",
            CapsAlgorithm::Sha256 => "sha-256",
            CapsAlgorithm::Sha512 => "sha-512",
        }
    }

    fn ring(self) -> &'static Ring {
        match self {
            CapsAlgorithm::Sha1 => &SHA1_FOR_LEGACY_USE_ONLY,
            CapsAlgorithm::Sha256 => &SHA256,
            CapsAlgorithm::Sha512 => &SHA512,
        }
    }

    /// Length of a digest in bytes.
    pub fn digest_len(self) -> usize {
        self.ring().output_len()
    }

    /// Computes the digest.
    pub fn digest(self, input: &[u8]) -> Vec<u8> {
        digest(self.ring(), input).as_ref().to_vec()
    }
}

/// Hash input of XEP-0115.
pub fn xep_0115_input(
    identities: &[HashedIdentity<'_>],
    features: &[&str],
    forms: &[HashedForm<'_>],
) -> Vec<u8> {
    let mut s = String::new();
    let mut add = |text: &str| {
        s.push_str(text);
        s.push('<');
    };
    for HashedIdentity { category, kind, lang, name } in sorted(identities) {
        add(&format!("{category}/{kind}/{lang}/{name}"));
    }
    for feature in sorted(features) {
        add(feature);
    }
    let mut forms: Vec<&HashedForm<'_>> = forms.iter().collect();
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
    s.into_bytes()
}

/// Hash input of XEP-0390. Its separators cannot occur in XML.
pub fn xep_0390_input(
    identities: &[HashedIdentity<'_>],
    features: &[&str],
    forms: &[HashedForm<'_>],
) -> Vec<u8> {
    const VALUE: &str = "\u{1f}";
    const GROUP: &str = "\u{1e}";
    const FORM: &str = "\u{1d}";
    const PART: &str = "\u{1c}";
    let joined = |mut pieces: Vec<String>, end: &str| {
        pieces.sort_unstable();
        pieces.concat() + end
    };
    let values = |values: &[&str]| joined(values.iter().map(|v| format!("{v}{VALUE}")).collect(), "");
    let field = |var: &str, all: &[&str]| format!("{var}{VALUE}{}{GROUP}", values(all));
    let features = joined(features.iter().map(|f| format!("{f}{VALUE}")).collect(), PART);
    let identity = |i: &HashedIdentity<'_>| {
        format!("{}{VALUE}{}{VALUE}{}{VALUE}{}{VALUE}{GROUP}", i.category, i.kind, i.lang, i.name)
    };
    let identities = joined(identities.iter().map(identity).collect(), PART);
    let form = |form: &HashedForm<'_>| {
        let mut fields: Vec<String> = form.fields.iter().map(|(var, all)| field(var, all)).collect();
        fields.push(field("FORM_TYPE", &[form.form_type]));
        joined(fields, FORM)
    };
    let forms = joined(forms.iter().map(form).collect(), PART);
    (features + &identities + &forms).into_bytes()
}

fn sorted<T: Copy + Ord>(list: &[T]) -> Vec<T> {
    let mut list = list.to_vec();
    list.sort_unstable();
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine;
    use base64::prelude::BASE64_STANDARD;

    const FEATURES: [&str; 4] = [
        "http://jabber.org/protocol/muc",
        "http://jabber.org/protocol/disco#items",
        "http://jabber.org/protocol/disco#info",
        "http://jabber.org/protocol/caps",
    ];

    fn one(identities: &[HashedIdentity<'_>], features: &[&str], forms: &[HashedForm<'_>]) -> String {
        BASE64_STANDARD.encode(CapsAlgorithm::Sha1.digest(&xep_0115_input(identities, features, forms)))
    }

    #[test]
    fn xep_0115_section_5_2_simple_example() {
        let exodus = HashedIdentity { category: "client", kind: "pc", lang: "", name: "Exodus 0.9.1" };
        assert_eq!(one(&[exodus], &FEATURES, &[]), "QgayPKawpkPSDYmwT/WM94uAlu0=");
    }

    #[test]
    fn xep_0115_section_5_3_languages_and_a_form() {
        let psi = |lang, name| HashedIdentity { category: "client", kind: "pc", lang, name };
        let form = HashedForm {
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
        assert_eq!(one(&identities, &FEATURES, &[form]), "q07IKJEyjvHSyhy//CH0CxmKi8w=");
    }

    #[test]
    fn forms_are_sorted_by_type() {
        let form = |form_type| HashedForm { form_type, fields: Vec::new() };
        for input in [xep_0115_input, xep_0390_input] {
            let hash = |forms: &[HashedForm<'_>]| input(&[], &[], forms);
            assert_eq!(hash(&[form("a"), form("b")]), hash(&[form("b"), form("a")]));
            assert_ne!(hash(&[form("a"), form("b")]), hash(&[form("a"), form("c")]));
        }
    }

    #[test]
    fn algorithms_have_their_names() {
        assert_eq!(CapsAlgorithm::from_name("sha-256"), Some(CapsAlgorithm::Sha256));
        assert_eq!((CapsAlgorithm::from_name("md5"), CapsAlgorithm::from_name("SHA-1")), (None, None));
        assert_eq!((CapsAlgorithm::Sha1.digest_len(), CapsAlgorithm::Sha512.digest_len()), (20, 64));
    }
}
