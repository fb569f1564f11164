//! Tests of names and other XML that this server admits but expat, which many clients use, would reject: XML 1.0
//! (fourth edition), appendix B, Namespaces in XML 1.0.
//!
//! Not implemented: XML that expat accepts and this server refuses; `crates/xml/tests` covers it.
//!
//! # Pitfalls
//!
//! A client that fails on one stanza loses its stream, and with stream management (XEP-0198) it receives the same
//! stanza again at each login.

#[path = "../../../xml/tests/support/mod.rs"]
mod support;

use support::{Random, generate, read_stream};
use testkit::expat::Expat;
use xml::{Limits, NamespaceContext, Tree};

fn admits(element: &str) -> bool {
    Tree::parse(element.as_bytes(), &NamespaceContext::client(), &Limits::DEFAULT).is_ok()
}

#[test]
fn a_name_is_admitted_exactly_when_expat_reads_it() {
    let expat = Expat::start().names();
    let mut letters = 0;
    for (code, (start, inside)) in (0..).zip(expat) {
        // Surrogates are not characters, a colon separates a prefix, and the others end a name.
        let Some(c) = char::from_u32(code).filter(|c| !":/> \t\r\n".contains(*c)) else { continue };
        letters += u32::from(start);
        assert_eq!(admits(&format!("<{c}/>")), start, "U+{code:04X} as the first character of a name");
        assert_eq!(admits(&format!("<a{c}/>")), inside, "U+{code:04X} in a name");
        assert_eq!(admits(&format!("<a b{c}=''/>")), inside, "U+{code:04X} in the name of an attribute");
        assert_eq!(admits(&format!("<p{c}:a xmlns:p{c}='u'/>")), inside, "U+{code:04X} in a prefix");
    }
    assert!(letters > 30_000, "expat knows {letters} letters");
    for c in ['\u{10000}', '\u{1F600}', '\u{20000}', '\u{EFFFF}'] {
        assert!(!admits(&format!("<{c}/>")) && !admits(&format!("<a{c}/>")));
    }
}

#[test]
fn expat_reads_every_stream_that_is_admitted() {
    let mut expat = Expat::start();
    let mut admitted = 0;
    for seed in 0..6_000 {
        let random = &mut Random::new(seed);
        let mut stream = generate::stream(random);
        if seed % 2 == 1 {
            generate::mutate(random, &mut stream);
        }
        if matches!(read_stream(&stream, &Limits::DEFAULT, || stream.len()), Ok(Some(_))) {
            admitted += 1;
            let read = expat.read(&stream);
            assert_eq!(read, Ok(()), "seed {seed}: {}", stream.escape_ascii());
        }
    }
    assert!(admitted > 2_000, "only {admitted} of the streams are good");
}

#[test]
fn expat_reads_every_declaration_that_is_admitted() {
    let mut expat = Expat::start();
    let (mut admitted, mut refused) = (0, 0);
    let mut names = vec![
        String::new(),
        "http://www.w3.org/XML/1998/namespace".to_owned(),
        "http://www.w3.org/2000/xmlns/".to_owned(),
        "http://www.w3.org/2000/xmlns".to_owned(),
        "http://www.w3.org/XML/1998/namespac&#101;".to_owned(),
        "é".to_owned(),
        "\u{FFFD}".to_owned(),
        "\u{FFFE}".to_owned(),
    ];
    for c in '\t'..'\u{A1}' {
        names.push(format!("urn:{c}:x"));
        names.push(format!("urn:&#{};x", u32::from(c)));
    }
    for name in names {
        for prefix in ["", ":p", ":xml", ":xmlns", ":xmlp", ":XML", ":é"] {
            for quote in ['\'', '"'] {
                let element = format!("<a xmlns{prefix}={quote}{name}{quote}/>");
                if admits(&element) {
                    admitted += 1;
                    assert_eq!(expat.read(element.as_bytes()), Ok(()), "{element}");
                } else {
                    refused += 1;
                }
            }
        }
    }
    assert!(admitted > 1_000 && refused > 1_000, "{admitted} admitted, {refused} refused");
}
