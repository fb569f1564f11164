//! Differential test: on 100 000 generated and mutated streams this crate, rxml and quick-xml must agree on validity
//! and content.
//!
//! rxml is strict, so it must agree both ways. quick-xml is lax by design: what it rejects must be rejected here, and
//! what is accepted here it must read with the same content. Each known difference is a branch of `excused`, with its
//! reason.
//!
//! # Pitfalls
//!
//! An excuse must depend on our own error or on the input, never on rejection by the oracle.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests fail by panicking"
)]

mod support;

use quick_xml::XmlVersion;
use quick_xml::events::Event as Quick;
use quick_xml::name::ResolveResult;
use rxml::{Parse as _, WithOptions as _};
use support::{ParsedContent, Random, generate, read_stream};
use throng_xml::{Error, Limits};

const CASES: u64 = 120_000;

fn ours(input: &[u8]) -> Result<Option<ParsedContent>, Error> {
    read_stream(input, &Limits::DEFAULT, || input.len())
}

/// Content of the whole document, and whether anything other than white space occurs between elements.
fn by_rxml(input: &[u8]) -> Result<(ParsedContent, bool), String> {
    let options = rxml::Options { max_token_length: 1 << 20, ..Default::default() };
    let mut parser = rxml::Parser::with_options(options);
    // It mishandles a lone carriage return, which XML 1.0, section 2.11, reads as a line feed; so it gets a line feed.
    let mut input = input.to_vec();
    for i in 0..input.len() {
        if input[i] == b'\r' && input.get(i + 1) != Some(&b'\n') {
            input[i] = b'\n';
        }
    }
    let mut rest = &input[..];
    let mut content = ParsedContent::default();
    let (mut depth, mut stray) = (0, false);
    loop {
        match parser.parse(&mut rest, true).map_err(|e| format!("{e:?}"))? {
            None => return Ok((content, stray)),
            Some(rxml::Event::XmlDeclaration(..)) => {}
            Some(rxml::Event::StartElement(_, (ns, name), attrs)) => {
                depth += 1;
                let attrs = attrs
                    .iter()
                    .map(|((ns, name), v)| (ns.to_string(), name.to_string(), v.clone()))
                    .collect();
                content.start(&ns, &name, attrs);
            }
            Some(rxml::Event::EndElement(_)) => {
                depth -= 1;
                content.end();
            }
            // White space between elements is ignored; anything else is not a stream.
            Some(rxml::Event::Text(_, text)) if depth == 1 => stray |= !text.is_empty() && !only_space(&text),
            Some(rxml::Event::Text(_, text)) => content.text(&text),
        }
    }
}

fn only_space(text: &str) -> bool {
    text.bytes().all(|b| b" \t\r\n".contains(&b))
}

fn by_quick(input: &str) -> Result<ParsedContent, String> {
    let mut reader = quick_xml::NsReader::from_str(input);
    let config = reader.config_mut();
    config.check_comments = true;
    config.check_end_names = true;
    config.expand_empty_elements = true;
    let mut content = ParsedContent::default();
    let mut depth = 0;
    let name = |ns: ResolveResult<'_>| match ns {
        ResolveResult::Unbound => Ok(String::new()),
        // It returns the declaration as written, without the normalisation of XML 1.0, section 3.3.3.
        ResolveResult::Bound(ns) => {
            let spaces = ns.0.replace("\r\n", " ").replace(['\t', '\r', '\n'], " ");
            quick_xml::escape::unescape(&spaces).map(String::from).map_err(|e| e.to_string())
        }
        ResolveResult::Unknown(prefix) => Err(format!("prefix {prefix}")),
    };
    loop {
        let (ns, event) = reader.read_resolved_event().map_err(|e| e.to_string())?;
        match event {
            Quick::Start(tag) => {
                let ns = name(ns)?;
                depth += 1;
                let mut attrs = Vec::new();
                for attr in tag.attributes() {
                    let attr = attr.map_err(|e| e.to_string())?;
                    let value = attr.normalized_value(XmlVersion::Implicit1_0).map_err(|e| e.to_string())?;
                    let (ns, local) = reader.resolver().resolve_attribute(attr.key);
                    if attr.key.as_namespace_binding().is_none() {
                        attrs.push((name(ns)?, local.into_inner().to_owned(), value.into_owned()));
                    }
                }
                content.start(&ns, tag.local_name().into_inner(), attrs);
            }
            Quick::End(_) => {
                depth -= 1;
                content.end();
            }
            Quick::Text(text) if depth > 1 => content.text(&text.xml_content(XmlVersion::Implicit1_0)),
            Quick::CData(text) if depth > 1 => content.text(&text.xml_content(XmlVersion::Implicit1_0)),
            Quick::GeneralRef(r) if depth > 1 => match r.resolve_char_ref().map_err(|e| e.to_string())? {
                Some(c) => content.text(c.encode_utf8(&mut [0; 4])),
                None => content.text(
                    quick_xml::escape::resolve_predefined_entity(r.as_ref()).ok_or("an unknown entity")?,
                ),
            },
            Quick::Eof => return if depth == 0 { Ok(content) } else { Err("unfinished".into()) },
            _ => {}
        }
    }
}

#[test]
fn agrees_with_rxml_and_quick_xml() {
    let mut accepted = 0;
    let mut failures = Vec::new();
    for seed in 0..CASES {
        let random = &mut Random::new(seed);
        let mut input = generate::stream(random);
        if seed % 5 > 1 {
            generate::mutate(random, &mut input);
        }
        let ours = ours(&input);
        accepted += u64::from(matches!(ours, Ok(Some(_))));
        if let Err(why) = compare(&input, &ours) {
            failures.push(format!("seed {seed}: {why}\n  {}\n  {ours:?}", input.escape_ascii()));
        }
    }
    let share = accepted * 100 / CASES;
    assert!((30..70).contains(&share), "{share} % of the documents are good; the test should see both kinds");
    let shown: Vec<_> = failures.iter().take(10).cloned().collect();
    assert!(failures.is_empty(), "{} differences\n{}", failures.len(), shown.join("\n"));
}

fn compare(input: &[u8], ours: &Result<Option<ParsedContent>, Error>) -> Result<(), String> {
    match (by_rxml(input), ours) {
        (Ok((theirs, false)), Ok(Some(ours))) if theirs == *ours => {}
        (Ok((_, true)), Err(_)) | (Err(_), Err(_) | Ok(None)) => {}
        (theirs, ours) if excused(input, &theirs, ours) => {}
        (theirs, _) => return Err(format!("rxml differs: {theirs:?}")),
    }
    let Ok(text) = std::str::from_utf8(input) else { return Ok(()) };
    match (by_quick(text), ours) {
        (Ok(theirs), Ok(Some(ours))) if theirs == *ours => Ok(()),
        (_, Err(_) | Ok(None)) => Ok(()),
        (theirs, _) => Err(format!("quick-xml differs: {theirs:?}")),
    }
}

/// Whether the input contains a character that the fifth edition of XML 1.0 allows in names and the fourth does not.
fn fifth_edition(input: &[u8]) -> bool {
    std::str::from_utf8(input).is_ok_and(|text| {
        text.chars().any(|c| {
            !c.is_ascii() && rxml::Parser::default().parse(&mut format!("<a{c}>").as_bytes(), false).is_ok()
        })
    })
}

/// Known differences from rxml.
fn excused(
    input: &[u8],
    theirs: &Result<(ParsedContent, bool), String>,
    ours: &Result<Option<ParsedContent>, Error>,
) -> bool {
    let has = |what: &str| input.windows(what.len()).any(|w| w == what.as_bytes());
    match (theirs, ours) {
        // It rejects white space before the first tag, which is allowed without a declaration (XML 1.0, section 2.8).
        (Err(_), Ok(_)) => input.first().is_some_and(u8::is_ascii_whitespace),
        // It does not treat the default namespace as an attribute when checking for duplicates.
        (Ok(_), Err(Error::NotWellFormed("an attribute appears twice"))) => {
            let defaults = |tag: &[u8]| {
                tag.windows(6).filter(|w| w.starts_with(b"xmlns") && b"= \t\r\n".contains(&w[5])).count()
            };
            input.split(|byte| *byte == b'<').any(|tag| defaults(tag) > 1)
        }
        // RFC 6120, section 4.4, allows white space between elements; a CDATA section is rejected even if it holds only
        // that.
        (Ok(_), Err(Error::NotWellFormed("a CDATA section between elements"))) => true,
        // Namespaces in XML 1.0, section 3: no prefix may be bound to the namespace of xmlns; rxml allows it.
        (Ok(_), Err(Error::BadNamespace("a reserved prefix or namespace"))) => {
            has("http://www.w3.org/2000/xmlns/")
        }
        // Namespaces in XML 1.0, section 2.2; rxml accepts any text as a namespace name.
        (Ok(_), Err(Error::BadNamespaceName)) => true,
        // It accepts names of the fifth edition.
        (Ok(_), Err(Error::NameOfFifthEdition)) => fifth_edition(input),
        _ => false,
    }
}
