//! Comparison of received with expected elements, by meaning and with wildcards.
//!
//! # Pitfalls
//!
//! Children match greedily in any order; an expected child with wildcards may match what a later, stricter one needs.
//! Write the stricter one first.

use std::collections::BTreeMap;

use xml::{Limits, NamespaceContext, Tree, TreeNode};

/// Namespace of [`ANY_CHILDREN`]; declared for every XML block of a scenario.
const SCENARIO_NS: &str = "urn:throng:scenario";
const ANY_CHILDREN: &str = "{urn:throng:scenario}more";

/// Named values of a scenario.
pub(super) type Variables = BTreeMap<String, String>;

/// Element reduced to what is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ExpectedElement {
    pub(super) ns: String,
    pub(super) name: String,
    pub(super) attrs: BTreeMap<String, String>,
    pub(super) children: Vec<ExpectedElement>,
    pub(super) text: String,
    more: bool,
}

impl ExpectedElement {
    /// Parses the elements of a text.
    pub(super) fn read_all(text: &str) -> Result<Vec<ExpectedElement>, String> {
        let whole = format!("<all xmlns='jabber:client' xmlns:scenario='{SCENARIO_NS}'>{text}</all>");
        let (scope, limits) =
            (NamespaceContext::client(), Limits { element_bytes: 17 << 20, ..Limits::CEILING });
        let tree = Tree::parse(whole.as_bytes(), &scope, &limits)
            .map_err(|error| format!("the XML below cannot be read ({error})"))?;
        let all = ExpectedElement::of(&tree.root());
        if !all.text.trim().is_empty() {
            return Err(format!("\"{}\" stands outside of the elements", all.text.trim()));
        }
        Ok(all.children)
    }

    /// Parses a text of one element.
    pub(super) fn read(text: &str) -> Result<ExpectedElement, String> {
        let mut all = ExpectedElement::read_all(text)?;
        match (all.pop(), all.is_empty()) {
            (Some(one), true) => Ok(one),
            _ => Err(format!("this is not one element: {text}")),
        }
    }

    fn of(node: &TreeNode<'_>) -> ExpectedElement {
        let mut attrs: BTreeMap<String, String> = node
            .attrs()
            .map(|a| {
                let name = match a.prefix {
                    Some("xml") => format!("xml:{}", a.name),
                    Some(_) => format!("{{{}}}{}", a.ns.name(), a.name),
                    None => a.name.to_owned(),
                };
                (name, a.value().into_owned())
            })
            .collect();
        let more = attrs.remove(ANY_CHILDREN).is_some();
        let children: Vec<ExpectedElement> = node.child_elements().map(|c| ExpectedElement::of(&c)).collect();
        let text = node.text().into_owned();
        let blank = !children.is_empty() && text.trim().is_empty();
        let ns = node.namespace().name().into_owned();
        ExpectedElement {
            ns,
            name: node.name().to_owned(),
            attrs,
            children,
            text: if blank { String::new() } else { text },
            more,
        }
    }

    /// First child of this name.
    pub(super) fn child(&self, name: &str) -> Option<&ExpectedElement> {
        self.children.iter().find(|c| c.name == name)
    }

    /// Whether `got` matches this element. Words of `{keep:…}` are stored only if it does.
    pub(super) fn matches(
        &self,
        got: &ExpectedElement,
        words: &mut Variables,
        ignores: &[String],
    ) -> Result<(), String> {
        let mut kept = words.clone();
        self.compare(got, &mut kept, ignores)?;
        *words = kept;
        Ok(())
    }

    fn compare(
        &self,
        got: &ExpectedElement,
        words: &mut Variables,
        ignores: &[String],
    ) -> Result<(), String> {
        if (&self.ns, &self.name) != (&got.ns, &got.name) {
            return Err(format!(
                "<{} xmlns='{}'/> where <{} xmlns='{}'/> is written",
                got.name, got.ns, self.name, self.ns
            ));
        }
        let here = &self.name;
        for (name, want) in &self.attrs {
            let Some(value) = got.attrs.get(name) else { return Err(format!("<{here}/> has no {name}")) };
            matches_text(want, value, words).map_err(|why| format!("{name} of <{here}/> {why}"))?;
        }
        if let Some((name, value)) = got.attrs.iter().find(|(name, _)| !self.attrs.contains_key(*name))
            && !self.more
        {
            return Err(format!("<{here}/> has {name}='{value}', which is not written"));
        }
        matches_text(&self.text, &got.text, words).map_err(|why| format!("text of <{here}/> {why}"))?;
        let mut rest: Vec<&ExpectedElement> = got.children.iter().collect();
        for want in &self.children {
            let mut why = format!("<{here}/> has no <{}/>", want.name);
            let found = rest.iter().position(|child| match want.matches(child, words, ignores) {
                Ok(()) => true,
                Err(reason) => {
                    if child.name == want.name {
                        why = reason;
                    }
                    false
                }
            });
            rest.remove(found.ok_or(why)?);
        }
        rest.retain(|child| !ignores.contains(&child.ns));
        match rest.first() {
            Some(child) if !self.more => {
                Err(format!("<{here}/> has <{} xmlns='{}'/>, which is not written", child.name, child.ns))
            }
            _ => Ok(()),
        }
    }
}

fn matches_text(want: &str, got: &str, words: &mut Variables) -> Result<(), String> {
    if want == "{any}" {
        return Ok(());
    }
    if let Some(word) = want.strip_prefix("{keep:").and_then(|rest| rest.strip_suffix('}')) {
        words.insert(word.to_owned(), got.to_owned());
        return Ok(());
    }
    let want = substitute(want, words, false)?;
    if want == got { Ok(()) } else { Err(format!("is \"{got}\" where \"{want}\" is written")) }
}

/// Replaces words in braces by their values, escaped as XML if requested.
pub(super) fn substitute(text: &str, words: &Variables, xml: bool) -> Result<String, String> {
    let (mut out, mut rest) = (String::new(), text);
    while let Some((before, behind)) = rest.split_once('{') {
        let Some((word, behind)) = behind.split_once('}') else { break };
        let value = words.get(word).ok_or_else(|| {
            let known: Vec<_> = words.keys().map(String::as_str).collect();
            format!("nobody knows {{{word}}}; known are {}", known.join(", "))
        })?;
        out.push_str(before);
        if xml {
            let mut escaped = Vec::new();
            xml::escape::attr(value, &mut escaped);
            out.push_str(&String::from_utf8_lossy(&escaped));
        } else {
            out.push_str(value);
        }
        rest = behind;
    }
    out.push_str(rest);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn against(want: &str, got: &str) -> Result<Variables, String> {
        let mut words = Variables::from([("romeo".to_owned(), "romeo@a".to_owned())]);
        ExpectedElement::read(want)?.matches(
            &ExpectedElement::read(got)?,
            &mut words,
            &["urn:i".to_owned()],
        )?;
        Ok(words)
    }

    #[test]
    fn elements_match_by_meaning() {
        let got = "<iq id=\"1\" to='romeo@a'><x:q xmlns:x='urn:q'><x:b/>\n<x:a n='&lt;'/></x:q><s xmlns='urn:i'/></iq>";
        let want = "<iq to='{romeo}' id='1'><q xmlns='urn:q'> <a n='&lt;'/><b/> </q></iq>";
        assert!(against(want, got).is_ok());
        for wrong in [
            "<iq to='{romeo}'><q xmlns='urn:q'><a n='&lt;'/><b/></q></iq>",
            "<iq to='romeo@b' id='1'><q xmlns='urn:q'><a n='&lt;'/><b/></q></iq>",
            "<iq to='{romeo}' id='1'><q xmlns='urn:r'><a n='&lt;'/><b/></q></iq>",
            "<iq to='{romeo}' id='1'><q xmlns='urn:q'><a n='&lt;'/></q></iq>",
            "<iq to='{romeo}' id='1'><q xmlns='urn:q'><a n='&lt;'/><b/><b/></q></iq>",
            "<iq to='{romeo}' id='1' x='y'><q xmlns='urn:q'><a n='&lt;'/><b/></q></iq>",
        ] {
            assert!(against(wrong, got).is_err(), "{wrong}");
        }
    }

    #[test]
    fn wildcards_capture_and_ignore() {
        let got = "<message id='7' from='x'><body>Neither</body><other xmlns='urn:o'/></message>";
        let words =
            against("<message id='{keep:n}' scenario:more='y'><body>{keep:text}</body></message>", got)
                .unwrap();
        assert_eq!((words["n"].as_str(), words["text"].as_str()), ("7", "Neither"));
        assert!(against("<message id='{any}' from='{any}'><body>{any}</body></message>", got).is_err());
        assert!(
            against("<message id='{any}' to='{any}' scenario:more='y'/>", got).is_err(),
            "any value, but a value"
        );
        assert_eq!(
            substitute("<a b='{n}'/>", &Variables::from([("n".into(), "'<".into())]), true).unwrap(),
            "<a b='&apos;&lt;'/>"
        );
        assert!(
            substitute("{nobody}", &Variables::new(), false).unwrap_err().contains("nobody knows {nobody}")
        );
    }

    #[test]
    fn a_failed_match_sets_no_variables() {
        let got = "<iq id='1'><a n='1'/><a n='2'/></iq>";
        let words = against("<iq id='1'><a n='2'/><a n='{keep:n}'/></iq>", got).unwrap();
        assert_eq!(words["n"], "1");
    }
}
