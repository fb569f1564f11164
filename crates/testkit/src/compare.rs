//! Comparison of stanzas by meaning: the order of attributes, prefixes, kind of quotes and white space between elements
//! do not count (the idea of Canonical XML, not its exact form).
//!
//! The reader is roxmltree, so that a mistake that the server's XML reader and writer share is seen.

use std::fmt::Write;

use roxmltree::{Document, Node};

/// Canonical form of an element: attributes sorted, namespaces declared where they change, no blank text between
/// elements.
///
/// # Panics
/// If the text is not one element.
pub fn canonical(text: &str) -> String {
    let text = text.trim();
    let stream = format!(
        "<stream:stream xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams'>{text}</stream:stream>"
    );
    let document =
        Document::parse(&stream).unwrap_or_else(|error| panic!("not an element ({error}): {text}"));
    let mut children = document.root_element().children();
    let (Some(element), None) = (children.next().filter(Node::is_element), children.next()) else {
        panic!("not one element: {text}")
    };
    let mut out = String::new();
    write(element, "jabber:client", &mut out);
    out
}

fn write(node: Node<'_, '_>, ns: &str, out: &mut String) {
    let (name, own) = (node.tag_name().name(), node.tag_name().namespace().unwrap_or_default());
    out.push('<');
    out.push_str(name);
    let mut attrs: Vec<(String, &str)> = node
        .attributes()
        .map(|a| {
            let name = a.namespace().map_or(a.name().to_owned(), |ns| format!("{{{ns}}}{}", a.name()));
            (name, a.value())
        })
        .collect();
    if own != ns {
        attrs.push(("xmlns".into(), own));
    }
    attrs.sort();
    for (name, value) in attrs {
        let _ = write!(out, " {name}='{}'", escape(value));
    }
    let elements = node.children().any(|child| child.is_element());
    let before = out.len();
    out.push('>');
    for child in node.children() {
        match child.text() {
            _ if child.is_element() => write(child, own, out),
            Some(text) if child.is_text() && elements && text.trim().is_empty() => {}
            Some(text) if child.is_text() => out.push_str(&escape(text)),
            // RFC 6120, section 11.1: neither comments nor processing instructions.
            _ => panic!("restricted XML: {child:?}"),
        }
    }
    if out.len() == before + 1 {
        out.truncate(before);
        out.push_str("/>");
    } else {
        let _ = write!(out, "</{name}>");
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('\'', "&apos;")
}

/// Asserts that two lists of stanzas have the same meaning, in this order.
///
/// # Panics
/// If they do not.
#[track_caller]
pub fn assert_same<A: AsRef<str>, B: AsRef<str>>(got: &[A], want: &[B]) {
    let got: Vec<String> = got.iter().map(|s| canonical(s.as_ref())).collect();
    let want: Vec<String> = want.iter().map(|s| canonical(s.as_ref())).collect();
    assert!(got == want, "\n got: {got:#?}\nwant: {want:#?}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attribute_order_and_whitespace_are_ignored() {
        let a = "<iq to='a' id=\"1\"><q xmlns='u:v'>\n  <i n='1'/> </q></iq>";
        assert_eq!(canonical(a), "<iq id='1' to='a'><q xmlns='u:v'><i n='1'/></q></iq>");
        assert_eq!(canonical("<message><body> x </body></message>"), "<message><body> x </body></message>");
        assert_ne!(canonical("<iq id='1'/>"), canonical("<iq id='2'/>"));
        assert_eq!(canonical("<a x='&lt;&#39;'>&gt;<![CDATA[&]]></a>"), "<a x='&lt;&apos;'>&gt;&amp;</a>");
        assert_eq!(canonical("<p:a xmlns:p='u' xml:lang='en'/>"), canonical("<a xml:lang='en' xmlns='u'/>"));
    }
}
