//! XML elements as other servers store them: Prosody as Lua tables (`util.stanza.preserialize`), ejabberd as `xmlel` tuples.
//!
//! # Pitfalls
//!
//! Both repeat the namespace on children, so it is written only where it changes. Names are the source's; the bytes must
//! be read by [`xml::Tree`] before they are used, which [`SourceElement::to_xml`] does.

use limits::FRAGMENT_LIMITS;
use xml::{NamespaceContext, Tree, Writer};

use crate::erlang::ErlangTerm;
use crate::lua::{LuaTable, LuaValue};

/// An element.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct SourceElement {
    /// Its name, possibly with a prefix.
    pub name: String,
    /// Attributes, namespace declarations included.
    pub attributes: Vec<(String, String)>,
    /// Content.
    pub children: Vec<SourceNode>,
}

/// A child of an element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceNode {
    /// An element.
    Element(SourceElement),
    /// Character data.
    Text(String),
}

impl SourceElement {
    /// An element of Prosody: `{ name = "…", attr = { … }, child, "text" }`. Attributes are sorted by name, since tables
    /// have no order.
    pub fn from_lua(table: &LuaTable) -> Option<SourceElement> {
        let name = table.text("name")?.to_owned();
        let mut attributes = Vec::new();
        let stored = table.get("attr").and_then(LuaValue::as_table);
        for (key, value) in stored.map(LuaTable::pairs).unwrap_or_default() {
            let (key, value) = (key.as_str()?, value.as_str()?);
            // An attribute with a namespace is stored as namespace, separator, name.
            match key.split_once(['\u{1}', '|']) {
                Some((ns, name)) => {
                    let prefix = format!("a{}", attributes.len());
                    attributes.push((format!("xmlns:{prefix}"), ns.to_owned()));
                    attributes.push((format!("{prefix}:{name}"), value.to_owned()));
                }
                None => attributes.push((key.to_owned(), value.to_owned())),
            }
        }
        attributes.sort();
        let mut children = Vec::new();
        for child in table.sequence() {
            children.push(match child {
                LuaValue::Table(element) => SourceNode::Element(SourceElement::from_lua(element)?),
                text => SourceNode::Text(text.as_str()?.to_owned()),
            });
        }
        Some(SourceElement { name, attributes, children })
    }

    /// An element of ejabberd: `{xmlel, Name, [{Name, Value}], [Child]}`, where a text is `{xmlcdata, Text}`. Old versions
    /// write `xmlelement`.
    pub fn from_erlang(term: &ErlangTerm) -> Option<SourceElement> {
        let [tag, name, attributes, children] = term.as_tuple()? else { return None };
        if !matches!(tag.as_atom()?, "xmlel" | "xmlelement") {
            return None;
        }
        let attribute = |term: &ErlangTerm| match term.as_tuple()? {
            [name, value] => Some((name.to_text()?, value.to_text()?)),
            _ => None,
        };
        let child = |term: &ErlangTerm| match term.as_tuple()? {
            [tag, text] if tag.as_atom() == Some("xmlcdata") => Some(SourceNode::Text(text.to_text()?)),
            _ => SourceElement::from_erlang(term).map(SourceNode::Element),
        };
        Some(SourceElement {
            name: name.to_text()?,
            attributes: attributes.as_list()?.iter().map(attribute).collect::<Option<_>>()?,
            children: children.as_list()?.iter().map(child).collect::<Option<_>>()?,
        })
    }

    /// The value of an attribute.
    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// Removes an attribute and returns its value.
    pub fn remove_attribute(&mut self, name: &str) -> Option<String> {
        let at = self.attributes.iter().position(|(found, _)| found == name)?;
        Some(self.attributes.remove(at).1)
    }

    /// The element as XML for a place where `ns` is the default namespace. `None` if that is not well-formed or beyond the
    /// limits of stored elements.
    pub fn to_xml(&self, ns: &str) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        let mut writer = Writer::new(&mut out);
        self.write(&mut writer, ns)?;
        let client = NamespaceContext::client();
        Tree::parse(&out, &client, &FRAGMENT_LIMITS).ok()?;
        Some(out)
    }

    fn write(&self, writer: &mut Writer<'_>, inherited: &str) -> Option<()> {
        if !is_plain_name(&self.name) {
            return None;
        }
        writer.start(&self.name);
        let own = self.attribute("xmlns").unwrap_or(inherited);
        if own != inherited {
            writer.xmlns(own);
        }
        for (name, value) in &self.attributes {
            if name == "xmlns" {
                continue;
            }
            if !is_plain_name(name) {
                return None;
            }
            writer.attr(name, value);
        }
        for child in &self.children {
            match child {
                SourceNode::Element(element) => element.write(writer, own)?,
                SourceNode::Text(text) => {
                    writer.text(text);
                }
            }
        }
        writer.end();
        Some(())
    }
}

/// Whether a name contains nothing that would end it in XML. The reader checks the rest.
fn is_plain_name(name: &str) -> bool {
    let plain = |c: char| !c.is_ascii() || c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ':');
    !name.is_empty() && name.chars().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::erlang::parse_term;
    use crate::lua::parse_value;

    fn lua(source: &str) -> Option<SourceElement> {
        SourceElement::from_lua(parse_value(source.as_bytes()).unwrap().as_table().unwrap())
    }

    fn xml(element: &SourceElement, ns: &str) -> Option<String> {
        element.to_xml(ns).map(|bytes| String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn an_element_of_prosody_is_written_with_namespaces_where_they_change() {
        let element = lua(
            "{ name = \"message\"; attr = { type = \"chat\"; [\"from\"] = \"a@b\"; [\"urn:x|k\"] = \"1\" };
               { name = \"body\"; attr = {}; \"a<b\" };
               { name = \"x\"; attr = { xmlns = \"urn:d\" }; { name = \"y\"; attr = { xmlns = \"urn:d\" } } } }",
        );
        assert_eq!(
            xml(&element.unwrap(), "jabber:client").unwrap(),
            "<message a2:k='1' from='a@b' type='chat' xmlns:a2='urn:x'><body>a&lt;b</body>\
             <x xmlns='urn:d'><y/></x></message>"
        );
    }

    #[test]
    fn an_element_of_ejabberd_is_written_as_xml() {
        let term = parse_term(
            b"{xmlel,<<\"vCard\">>,[{<<\"xmlns\">>,<<\"vcard-temp\">>}],
               [{xmlel,<<\"FN\">>,[],[{xmlcdata,<<\"J & R\">>}]},{xmlcdata,<<\"\\n\">>}]}",
        );
        let element = SourceElement::from_erlang(&term.unwrap()).unwrap();
        assert_eq!(xml(&element, "").unwrap(), "<vCard xmlns='vcard-temp'><FN>J &amp; R</FN>\n</vCard>");
        assert_eq!(xml(&element, "vcard-temp").unwrap(), "<vCard><FN>J &amp; R</FN>\n</vCard>");
    }

    #[test]
    fn names_cannot_inject_markup() {
        for name in ["a b", "a><c", "a='1'", "", "a/", "1a", "a:b:c"] {
            let element = SourceElement { name: name.to_owned(), ..SourceElement::default() };
            assert_eq!(element.to_xml(""), None, "{name}");
            let element = SourceElement {
                name: "a".to_owned(),
                attributes: vec![(name.to_owned(), "v".to_owned())],
                ..SourceElement::default()
            };
            assert_eq!(element.to_xml(""), None, "{name}");
        }
    }

    #[test]
    fn what_is_no_element_is_refused() {
        assert_eq!(lua("{ attr = {} }"), None);
        assert_eq!(lua("{ name = \"a\"; attr = { k = 1 } }"), None);
        assert_eq!(lua("{ name = \"a\"; attr = {}; 5 }"), None);
        for term in ["{xmlel,<<\"a\">>,[]}", "{other,<<\"a\">>,[],[]}", "{xmlel,<<\"a\">>,[],[{x,1}]}", "a"] {
            assert_eq!(SourceElement::from_erlang(&parse_term(term.as_bytes()).unwrap()), None, "{term}");
        }
    }
}
