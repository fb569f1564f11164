//! Verification of a client's disco reply against its announced hash: XEP-0115 1.6.0, section 5.4; XEP-0390 0.3.2,
//! section 4.4.
//!
//! A verified reply is used for every client with that hash, so it must not be possible to construct another reply
//! with the same hash. XEP-0390 ensures this with its separators, XEP-0115 does not (section 9.3 there): features can
//! be disguised as parts of identities or of forms, and so be hidden. Replies are therefore accepted only if they are
//! unambiguous: no `<` in any part, categories and types that do not look like any other part, at least one identity,
//! and no form except the one that clients use. Other replies are rejected for every client.
//!
//! # Pitfalls
//!
//! The language of an identity may be inherited from enclosing elements, and not all clients include it.

use stanza::payload::data_form::{DataForm, FORM_TYPE, FormFieldType};
use xml::{Ns, TreeNode};

use super::announcement::{CapsHash, CapsVersion};
use super::cache::FeatureSet;
use super::hash::{HashedForm, HashedIdentity, xep_0115_input, xep_0390_input};

/// Longest reply that is parsed, in bytes.
pub(super) const MAX_REPLY_BYTES: usize = 48 << 10;
/// The form with which clients describe themselves (XEP-0232).
const SOFTWARE: &str = "urn:xmpp:dataforms:softwareinfo";
const SOFTWARE_FIELDS: [&str; 6] = ["icon", "ip_version", "os", "os_version", "software", "software_version"];

struct DiscoInfoReply {
    /// Category, type, language, name.
    identities: Vec<[String; 4]>,
    features: Vec<String>,
    forms: Vec<DataForm>,
}

/// The features, if the reply matches the announced hash.
pub(super) fn verify(print: &CapsHash, answer: &[u8]) -> Option<FeatureSet> {
    if answer.len() > MAX_REPLY_BYTES {
        return None;
    }
    let tree = throng_core::shared_stanza::tree(answer).ok()?;
    let query = tree.root().child("query", Ns::DiscoInfo)?;
    let lang = query.lang().or_else(|| tree.root().lang());
    let hash_matches =
        |info: &DiscoInfoReply| print.algorithm.digest(&info.hash_input(print.version)) == print.digest;
    let mut info = DiscoInfoReply::read(query, print.version)?;
    if !hash_matches(&info) {
        let lang = lang?;
        for identity in info.identities.iter_mut().filter(|i| i[2].is_empty()) {
            identity[2] = lang.clone().into_owned();
        }
        if !hash_matches(&info) {
            return None;
        }
    }
    let identities = info.identities.iter().map(|[category, kind, ..]| (category.as_str(), kind.as_str()));
    Some(FeatureSet::new(info.features.iter().map(String::as_str), identities))
}

impl DiscoInfoReply {
    fn read(query: TreeNode<'_>, scheme: CapsVersion) -> Option<DiscoInfoReply> {
        let mut info = DiscoInfoReply { identities: Vec::new(), features: Vec::new(), forms: Vec::new() };
        for child in query.child_elements() {
            match (child.ns(), child.name()) {
                (Some(Ns::DiscoInfo), "identity") => {
                    let attr = |name| child.attr(name).unwrap_or_default().into_owned();
                    let lang = child.lang().unwrap_or_default().into_owned();
                    info.identities.push([attr("category"), attr("type"), lang, attr("name")]);
                }
                (Some(Ns::DiscoInfo), "feature") => info.features.push(child.attr("var")?.into_owned()),
                (Some(Ns::DataForms), "x") => {
                    let form = DataForm::read(child).ok()?;
                    let typed = form.get(FORM_TYPE).is_some_and(|field| {
                        field.kind == Some(FormFieldType::Hidden) && field.values.len() == 1
                    });
                    match scheme {
                        _ if typed => info.forms.push(form),
                        // XEP-0115, section 5.4, rule 3.6: such a form is ignored.
                        CapsVersion::Xep0115 => {}
                        CapsVersion::Xep0390 => return None,
                    }
                }
                // XEP-0390, section 4.1, rule 1.
                _ if scheme == CapsVersion::Xep0390 => return None,
                _ => {}
            }
        }
        let sound = match scheme {
            CapsVersion::Xep0115 => info.is_unambiguous(),
            CapsVersion::Xep0390 => {
                info.forms.iter().all(|form| form.reported.is_empty() && form.items.is_empty())
            }
        };
        (sound && info.is_unique()).then_some(info)
    }

    /// XEP-0115, section 5.4, rules 3.3 to 3.5: no duplicates.
    fn is_unique(&self) -> bool {
        let types: Vec<_> = self.forms.iter().map(DataForm::form_type).collect();
        all_differ(self.identities.iter().collect())
            && all_differ(self.features.iter().collect())
            && all_differ(types)
    }

    /// Whether no other client's parts could have the same hash.
    fn is_unambiguous(&self) -> bool {
        let word = |text: &str| {
            !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
        };
        let identities = self.identities.iter().all(|[category, kind, lang, name]| {
            word(category) && word(kind) && (lang.is_empty() || word(lang)) && !name.contains('<')
        });
        // An identity disguised as a feature has this shape.
        let like_identity = |text: &str| {
            let mut parts = text.split('/');
            parts.next().is_some_and(word) && parts.next().is_some_and(word) && parts.count() >= 2
        };
        let features = self
            .features
            .iter()
            .all(|f| !f.is_empty() && !f.contains('<') && *f != SOFTWARE && !like_identity(f));
        let forms = self.forms.iter().all(|form| {
            form.form_type() == Some(SOFTWARE)
                && form.fields.iter().all(|field| {
                    (field.var == FORM_TYPE || SOFTWARE_FIELDS.contains(&field.var.as_str()))
                        && field.values.iter().all(|value| !value.contains('<'))
                })
        });
        identities && features && forms && !self.identities.is_empty()
    }

    fn hash_input(&self, scheme: CapsVersion) -> Vec<u8> {
        let identities: Vec<HashedIdentity<'_>> = self
            .identities
            .iter()
            .map(|[category, kind, lang, name]| HashedIdentity { category, kind, lang, name })
            .collect();
        let features: Vec<&str> = self.features.iter().map(String::as_str).collect();
        let forms: Vec<HashedForm<'_>> = self.forms.iter().map(to_hashed_form).collect();
        match scheme {
            CapsVersion::Xep0115 => xep_0115_input(&identities, &features, &forms),
            CapsVersion::Xep0390 => xep_0390_input(&identities, &features, &forms),
        }
    }
}

fn to_hashed_form(form: &DataForm) -> HashedForm<'_> {
    let fields = form.fields.iter().filter(|field| field.var != FORM_TYPE);
    HashedForm {
        form_type: form.form_type().unwrap_or_default(),
        fields: fields.map(|f| (f.var.as_str(), f.values.iter().map(String::as_str).collect())).collect(),
    }
}

fn all_differ<T: Ord>(mut list: Vec<T>) -> bool {
    list.sort_unstable();
    list.windows(2).all(|pair| pair[0] != pair[1])
}
