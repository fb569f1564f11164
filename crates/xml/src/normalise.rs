//! Normalisation: rewrites an element so that it declares every namespace that it uses (RFC 6120, section 4.8.4).
//!
//! Not implemented: `xml:lang` of the stream header, which the router adds.
//!
//! # Pitfalls
//!
//! A namespace name declared once can be used by thousands of elements, each of which then repeats it. The result is
//! therefore bounded by the limit for an element, and a larger one is rejected.

use crate::{
    CheckedText, Error, Event, Limits, MAX_DEPTH, Namespace, NamespaceContext, Ns, Reader, StartTag, escape,
};

/// Appends the element in `bytes` to `out` in portable form: no prefixes on elements, every default namespace declared
/// where it changes, every attribute prefix declared on its own element. A root in a content namespace
/// (`jabber:client`, `jabber:server` or a component's) is written without declaration, for a reader whose default is
/// `jabber:client`; so are its direct children in the same namespace. On error `out` is unchanged.
pub fn normalise(
    bytes: &[u8],
    scope: &NamespaceContext,
    limits: &Limits,
    out: &mut Vec<u8>,
) -> Result<(), Error> {
    let before = out.len();
    let result = write(bytes, scope, limits, out);
    if result.is_err() {
        out.truncate(before);
    }
    result
}

/// An open element of the output.
#[derive(Clone, Copy)]
struct OpenElement<'a> {
    name: &'a str,
    /// Whether the name is in the `xml` namespace, which can only be written with its prefix.
    xml: bool,
    /// Default namespace inside.
    default: Namespace<'a>,
}

fn write(bytes: &[u8], scope: &NamespaceContext, limits: &Limits, out: &mut Vec<u8>) -> Result<(), Error> {
    let client = Namespace::known(Ns::Client);
    let most = out.len() + limits.element_bytes as usize;
    let mut reader = Reader::over(CheckedText::new(bytes, limits)?, scope, limits);
    let mut levels = [OpenElement { name: "", xml: false, default: client }; MAX_DEPTH as usize + 1];
    let mut content = None;
    let mut open = false;
    while let Some(event) = reader.next()? {
        // After a start tag the reader is one level deeper; the level of an event is the number of enclosing elements.
        let depth = reader.depth();
        match event {
            Event::Start(start) => {
                close(out, &mut open);
                if depth == 1 {
                    content = start.ns.id.filter(|ns| is_content(*ns));
                }
                let outer = levels[depth - 1].default;
                levels[depth] = element(&start, content, outer, out);
                open = true;
            }
            Event::Text(text) if text.raw().is_empty() => {}
            Event::Text(text) => {
                close(out, &mut open);
                if text.is_cdata() {
                    escape::text(&text.unescape(), out);
                } else {
                    // A bare > is allowed in text, but not after a section that ended with ]] and is text in the
                    // output.
                    for (i, piece) in text.raw().split('>').enumerate() {
                        out.extend_from_slice(if i > 0 { b"&gt;" } else { b"" });
                        out.extend_from_slice(piece.as_bytes());
                    }
                }
            }
            Event::End => {
                let level = levels[depth + 1];
                if open {
                    out.extend_from_slice(b"/>");
                    open = false;
                } else {
                    out.extend_from_slice(if level.xml { b"</xml:" } else { b"</" });
                    out.extend_from_slice(level.name.as_bytes());
                    out.push(b'>');
                }
            }
        }
        if out.len() > most {
            return Err(Error::TooLarge);
        }
    }
    Ok(())
}

const fn is_content(ns: Ns) -> bool {
    matches!(ns, Ns::Client | Ns::Server | Ns::ComponentAccept | Ns::ComponentConnect | Ns::Component0)
}

fn close(out: &mut Vec<u8>, open: &mut bool) {
    if *open {
        out.push(b'>');
        *open = false;
    }
}

fn element<'a>(
    start: &StartTag<'a>,
    content: Option<Ns>,
    outer: Namespace<'a>,
    out: &mut Vec<u8>,
) -> OpenElement<'a> {
    let ns =
        if start.ns.id.is_some() && start.ns.id == content { Namespace::known(Ns::Client) } else { start.ns };
    let xml = ns.id == Some(Ns::Xml);
    out.extend_from_slice(if xml { b"<xml:" } else { b"<" });
    out.extend_from_slice(start.name.as_bytes());
    let default = if xml || ns == outer { outer } else { ns };
    if default != outer {
        attribute("", "xmlns", default.text, out);
    }
    for (i, attr) in start.attrs().enumerate() {
        let prefix = attr.prefix.unwrap_or_default();
        if !matches!(prefix, "" | "xml") && !start.attrs().take(i).any(|a| a.prefix == Some(prefix)) {
            attribute("xmlns", prefix, attr.ns.text, out);
        }
        attribute(prefix, attr.name, attr.raw, out);
    }
    OpenElement { name: start.name, xml, default }
}

/// Writes an attribute whose value is already escaped.
fn attribute(prefix: &str, name: &str, raw: &str, out: &mut Vec<u8>) {
    out.push(b' ');
    if !prefix.is_empty() {
        out.extend_from_slice(prefix.as_bytes());
        out.push(b':');
    }
    out.extend_from_slice(name.as_bytes());
    escape::raw_attr_value(raw, out);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(scope: &NamespaceContext, input: &str, expected: &str) {
        let mut out = Vec::new();
        normalise(input.as_bytes(), scope, &Limits::DEFAULT, &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn prefixes_become_default_namespaces() {
        let header = b"<stream:stream xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams' xmlns:q='urn:q'>";
        let scope = NamespaceContext::from_open_tag(header, &Limits::DEFAULT).unwrap();
        check(
            &scope,
            "<iq type='get'><q:a b='1'><q:c/>t</q:a></iq>",
            "<iq type='get'><a xmlns='urn:q' b='1'><c/>t</a></iq>",
        );
        check(&scope, "<iq><a q:b='1' q:c=\"'\"/></iq>", "<iq><a xmlns:q='urn:q' q:b='1' q:c=\"'\"/></iq>");
        check(
            &scope,
            "<c:iq xmlns:c='jabber:client'><q:a><c:b/></q:a></c:iq>",
            "<iq><a xmlns='urn:q'><b xmlns='jabber:client'/></a></iq>",
        );
        check(&scope, "<stream:error/>", "<error xmlns='http://etherx.jabber.org/streams'/>");
    }

    #[test]
    fn the_content_namespace_becomes_that_of_clients() {
        check(&NamespaceContext::server(), "<message><body/></message>", "<message><body/></message>");
        check(
            &NamespaceContext::empty(),
            "<message xmlns='jabber:component:accept'><x xmlns='urn:x'><y xmlns=''/></x></message>",
            "<message><x xmlns='urn:x'><y xmlns=''/></x></message>",
        );
    }

    #[test]
    fn text_and_sections_keep_their_meaning() {
        check(&NamespaceContext::client(), "<a>x &amp; <![CDATA[<&]]></a>", "<a>x &amp; &lt;&amp;</a>");
        check(&NamespaceContext::client(), "<a><![CDATA[]]]]>></a>", "<a>]]&gt;</a>");
        check(
            &NamespaceContext::client(),
            "<a><xml:b xml:lang='x'><c/></xml:b></a>",
            "<a><xml:b xml:lang='x'><c/></xml:b></a>",
        );
    }

    #[test]
    fn a_long_name_used_often_is_refused() {
        let input = format!("<a xmlns:p='{}'>{}</a>", "n".repeat(1000), "<p:b/>".repeat(1000));
        let mut out = b"kept".to_vec();
        let result = normalise(input.as_bytes(), &NamespaceContext::client(), &Limits::DEFAULT, &mut out);
        assert_eq!((result, out.as_slice()), (Err(Error::TooLarge), b"kept".as_slice()));
    }
}
