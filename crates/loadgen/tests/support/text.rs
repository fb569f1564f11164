//! Minimal XML scanner for the scripted server: ends of elements and values of attributes.
//!
//! Not implemented: comments, CDATA, processing instructions except the declaration.
//!
//! # Pitfalls
//!
//! Input is trusted; only output of the generator and plans of the tests may be passed.

/// First piece of the input.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum StreamPiece {
    /// A stream header.
    Header(String),
    /// A complete element.
    Element(String),
    /// The end of the stream.
    End,
}

/// Removes the first complete piece from `input`. `open`: the stream header has been read.
pub(crate) fn cut(input: &mut Vec<u8>, open: bool) -> Option<StreamPiece> {
    let blank = input.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
    input.drain(..blank);
    if input.starts_with(b"<?") {
        let end = input.windows(2).position(|pair| pair == b"?>")? + 2;
        input.drain(..end);
        return cut(input, open);
    }
    let end = tag_end(input, 0)?;
    if input.starts_with(b"</") {
        input.drain(..end);
        return Some(StreamPiece::End);
    }
    if input.starts_with(b"<stream:stream") && !open {
        return Some(StreamPiece::Header(take(input, end)));
    }
    let end = element_end(input)?;
    Some(StreamPiece::Element(take(input, end)))
}

/// Sibling elements in `xml`.
pub(crate) fn elements(xml: &str) -> Vec<String> {
    let mut input = xml.as_bytes().to_vec();
    std::iter::from_fn(|| match cut(&mut input, true) {
        Some(StreamPiece::Element(element)) => Some(element),
        _ => None,
    })
    .collect()
}

fn take(input: &mut Vec<u8>, end: usize) -> String {
    String::from_utf8(input.drain(..end).collect()).expect("the generator writes UTF-8")
}

/// Position after the `>` of the tag that begins at or after `from`.
fn tag_end(input: &[u8], from: usize) -> Option<usize> {
    let mut quote = None;
    for (at, &byte) in input.iter().enumerate().skip(from) {
        match (quote, byte) {
            (Some(open), _) if byte == open => quote = None,
            (None, b'\'' | b'"') => quote = Some(byte),
            (None, b'>') => return Some(at + 1),
            _ => {}
        }
    }
    None
}

fn element_end(input: &[u8]) -> Option<usize> {
    let (mut at, mut depth) = (0, 0);
    loop {
        at += input.get(at..)?.iter().position(|byte| *byte == b'<')?;
        let end = tag_end(input, at)?;
        if input.get(at + 1) == Some(&b'/') {
            depth -= 1;
        } else if input.get(end.checked_sub(2)?) != Some(&b'/') {
            depth += 1;
        }
        if depth == 0 {
            return Some(end);
        }
        at = end;
    }
}

/// Name of an element, including its prefix.
pub(crate) fn name(element: &str) -> &str {
    let end = element
        .find(|byte: char| byte.is_whitespace() || byte == '>' || byte == '/')
        .unwrap_or(element.len());
    element[..end].trim_start_matches('<')
}

/// Whether it is `message`, `presence` or `iq`.
pub(crate) fn is_stanza(element: &str) -> bool {
    matches!(name(element).rsplit(':').next(), Some("message" | "presence" | "iq"))
}

/// Value of an attribute in the start tag of an element.
pub(crate) fn attr(element: &str, name: &str) -> Option<String> {
    let tag = &element[..tag_end(element.as_bytes(), 0)?];
    for quote in ['\'', '"'] {
        let begin = format!(" {name}={quote}");
        if let Some(at) = tag.find(&begin) {
            let rest = &tag[at + begin.len()..];
            return Some(unescape(&rest[..rest.find(quote)?]));
        }
    }
    None
}

/// Text of the first child with this literal name, without regard to namespaces.
pub(crate) fn child_text(element: &str, name: &str) -> Option<String> {
    let at = element.find(&format!("<{name}>"))? + name.len() + 2;
    let rest = &element[at..];
    Some(unescape(&rest[..rest.find('<')?]))
}

/// Text of an element without children.
pub(crate) fn own_text(element: &str) -> &str {
    let Some(begin) = element.find('>') else { return "" };
    element[begin + 1..].split('<').next().unwrap_or_default()
}

/// Escapes an attribute value or text.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('\'', "&apos;")
        .replace('"', "&quot;")
}

fn unescape(text: &str) -> String {
    text.replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&apos;", "'")
        .replace("&quot;", "\"")
        .replace("&amp;", "&")
}

/// Sets `from` of a stanza.
pub(crate) fn with_from(stanza: &str, from: &str) -> String {
    let end =
        stanza.find(|byte: char| byte.is_whitespace() || byte == '>' || byte == '/').unwrap_or(stanza.len());
    format!("{} from='{}'{}", &stanza[..end], escape(from), &stanza[end..])
}

/// Appends children to a stanza.
pub(crate) fn with_child(stanza: &str, child: &str) -> String {
    if let Some(tag) = stanza.strip_suffix("/>") {
        return format!("{tag}>{child}</{}>", name(stanza));
    }
    let end = stanza.rfind("</").unwrap_or(stanza.len());
    format!("{}{child}{}", &stanza[..end], &stanza[end..])
}

/// The part before `/`.
pub(crate) fn bare(address: &str) -> &str {
    address.split('/').next().unwrap_or_default()
}
