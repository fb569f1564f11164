//! Comparison of stanzas by meaning: the order of attributes, prefixes, kind of quotes and white space between elements
//! do not count (the idea of Canonical XML, not its exact form).

use xml::{Limits, NamespaceContext, Tree, TreeNode};

/// Canonical form of an element: attributes sorted, namespaces declared where they change, no blank text between
/// elements.
///
/// # Panics
/// If the text is not one element.
pub fn canonical(text: &str) -> String {
    let scope = NamespaceContext::client();
    let text = text.trim();
    let tree = Tree::parse(text.as_bytes(), &scope, &Limits::DEFAULT)
        .unwrap_or_else(|error| panic!("not an element ({error}): {text}"));
    let mut out = Vec::new();
    write(&tree.root(), "jabber:client", &mut out);
    String::from_utf8(out).expect("written from text")
}

fn write(node: &TreeNode<'_>, ns: &str, out: &mut Vec<u8>) {
    out.push(b'<');
    out.extend_from_slice(node.name().as_bytes());
    let own = node.namespace().name().into_owned();
    let mut attrs: Vec<(String, String)> = node
        .attrs()
        .map(|a| {
            let name = match a.prefix {
                Some(_) => format!("{{{}}}{}", a.ns.name(), a.name),
                None => a.name.to_owned(),
            };
            (name, a.value().into_owned())
        })
        .collect();
    if own != ns {
        attrs.push(("xmlns".into(), own.clone()));
    }
    attrs.sort();
    for (name, value) in attrs {
        out.push(b' ');
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b"='");
        xml::escape::attr(&value, out);
        out.push(b'\'');
    }
    let elements = node.child_elements().next().is_some();
    let before = out.len();
    out.push(b'>');
    for child in node.children() {
        if child.is_element() {
            write(&child, &own, out);
        } else if !(elements && child.text().trim().is_empty()) {
            xml::escape::text(&child.text(), out);
        }
    }
    if out.len() == before + 1 {
        out.truncate(before);
        out.extend_from_slice(b"/>");
    } else {
        out.extend_from_slice(b"</");
        out.extend_from_slice(node.name().as_bytes());
        out.push(b'>');
    }
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
    }
}
