//! Hostile input must fail with the right error, as early as possible, whether it arrives whole or byte by byte.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests fail by panicking"
)]

mod support;

use support::read_stream;
use throng_xml::{
    Error, Limits, NamespaceContext, Reader, Restriction, ScanOutcome, Scanner, StreamErrorKind,
};

const HEADER: &str = "<stream:stream xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams'>";

/// The error of a stream whose header is followed by `rest`.
fn refused(rest: &[u8]) -> Error {
    let input = [HEADER.as_bytes(), rest].concat();
    let whole = read_stream(&input, &Limits::DEFAULT, || input.len());
    if input.len() < 10_000 {
        assert_eq!(read_stream(&input, &Limits::DEFAULT, || 1), whole, "{}", input.escape_ascii());
    }
    match whole {
        Err(error) => error,
        Ok(content) => panic!("accepted: {} as {content:?}", rest.escape_ascii()),
    }
}

/// The error of a stream that begins with `start`.
fn refused_start(start: &[u8]) -> Error {
    let whole = read_stream(start, &Limits::DEFAULT, || start.len());
    assert_eq!(read_stream(start, &Limits::DEFAULT, || 1), whole);
    whole.expect_err("refused")
}

#[test]
fn restricted_xml_is_refused_immediately() {
    use Restriction::{Comment, Doctype, Entity, ProcessingInstruction};
    // All of these are incomplete: the error must not wait for the end of a construct.
    for (rest, restriction) in [
        ("<!--", Comment),
        ("<!-", Comment),
        ("<a><!-", Comment),
        ("<a>text<!-- x --></a>", Comment),
        ("<?", ProcessingInstruction),
        ("<a><?", ProcessingInstruction),
        ("<?xml version='1.0'?>", ProcessingInstruction),
        ("<!DOCTYPE", Doctype),
        ("<!D", Doctype),
        ("<a><!ENTITY", Doctype),
        ("<a>&lol;</a>", Entity),
        ("<a b='&lol;'/>", Entity),
        ("<a>&nbsp;</a>", Entity),
    ] {
        assert_eq!(refused(rest.as_bytes()), Error::Restricted(restriction), "{rest}");
        assert_eq!(refused(rest.as_bytes()).kind(), StreamErrorKind::RestrictedXml);
    }
    for (start, restriction) in [
        ("<!DOCTYPE lolz [", Doctype),
        ("<?xml version='1.0'?><!DOCTYPE", Doctype),
        ("<!-- hello -->", Comment),
        ("<?php", ProcessingInstruction),
        ("<?xml-stylesheet", ProcessingInstruction),
        (" <?xml version='1.0'?>", ProcessingInstruction),
    ] {
        assert_eq!(refused_start(start.as_bytes()), Error::Restricted(restriction), "{start}");
    }
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-11.6
//= type=test
//# it MUST interpret that character as a zero width no-break space
#[test]
fn xml_that_is_not_well_formed_is_refused() {
    for rest in [
        "text",
        "&amp;",
        "<a></b>",
        "<a><b></a></b>",
        "<a b='1' b='2'/>",
        "<a b=1/>",
        "<a b/>",
        "<a b='<'/>",
        "<a>]]></a>",
        "<a>&</a>",
        "<a>& b</a>",
        "<a>&amp</a>",
        "<a b='&#x;'/>",
        "<1/>",
        "<a 1='x'/>",
        "< a/>",
        "<a / ></a>",
        "<a b='1'c='2'/>",
        "</a>",
        "</stream>",
        "</stream:streams>",
        "</stream:stream x='1'>",
        "</stream:stream/>",
        "<a></a b='1'>",
        "<a></ a>",
        "<>",
        "</>",
        "<a><></a>",
        "<!x",
        "<a><!x",
        "<a><![cdata[x]]></a>",
        "<a =''/>",
        "<a b=''=''/>",
        "</stream:stream>x",
        "</stream:stream><a/>",
        "\u{FEFF}<a/>",
    ] {
        assert_eq!(refused(rest.as_bytes()).kind(), StreamErrorKind::NotWellFormed, "{rest}");
    }
    for start in
        ["text", "\u{FEFF}<a>", "</a>", "<?xml ?><a>", "<?xml version='1.0'>", "<?xml encoding='UTF-8'?>"]
    {
        assert_eq!(refused_start(start.as_bytes()).kind(), StreamErrorKind::NotWellFormed, "{start}");
    }
}

#[test]
fn xml_that_is_not_namespace_well_formed_is_refused() {
    for rest in [
        "<p:a/>",
        "<a p:b='1'/>",
        "<a:b:c/>",
        "<:a/>",
        "<a:/>",
        "<a :b='1'/>",
        "<a xmlns:p=''/>",
        "<a xmlns:p='urn:x' xmlns:p='urn:y'/>",
        "<a xmlns:xml='urn:x'/>",
        "<a xmlns:p='http://www.w3.org/XML/1998/namespace'/>",
        "<a xmlns='http://www.w3.org/2000/xmlns/'/>",
        "<a xmlns='http://www.w3.org/XML/1998/namespac&#101;'/>",
        "<a xmlns:xmlns='http://www.w3.org/2000/xmlns/'/>",
        "<xmlns:a/>",
        "<a xmlns:p='urn:x' xmlns:q='urn:x' p:b='1' q:b='2'/>",
        "<a xmlns:p='urn:x' xmlns:q='urn:&#x78;' p:b='1' q:b='2'/>",
        "<a xmlns:stream2='http://etherx.jabber.org/streams' stream:b='1' stream2:b='2'/>",
        "<a><p:b xmlns:p='urn:x'/><p:c/></a>",
    ] {
        assert_eq!(refused(rest.as_bytes()).kind(), StreamErrorKind::NotWellFormed, "{rest}");
    }
    assert_eq!(refused_start(b"<stream:stream xmlns='jabber:client'>"), Error::BadNamespacePrefix);
}

/// RFC 6120, section 4.9.3.13, covers violations of XML and its namespaces. Namespaces in XML 1.0, section 2.2,
/// requires a URI reference but not as a constraint of namespace-well-formedness, so the rejection is a policy (section
/// 4.9.3.14). Expat fails on the character that joins the namespace name with a local name.
#[test]
fn section_4_9_3_14_a_namespace_name_that_is_no_uri_is_against_the_policy() {
    for rest in [
        "<a xmlns='urn:x y'/>",
        "<a xmlns='urn:x&#32;y'/>",
        "<a xmlns:p='urn:x\ny'/>",
        "<a xmlns='urn:x}'/>",
        "<a xmlns:p='urn:&#x7C;'/>",
        "<a xmlns='urn:&lt;'/>",
        "<a xmlns='urn:\"'/>",
    ] {
        assert_eq!(refused(rest.as_bytes()).kind(), StreamErrorKind::PolicyViolation, "{rest}");
    }
}

#[test]
fn bytes_that_are_no_characters_are_refused() {
    for bad in [
        &b"\xff"[..],
        b"\xc0\xaf",
        b"\xc1\xbf",
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
        b"\xf8\x88\x80\x80\x80",
        b"\xc3",
        b"\x80",
        b"\xe2\x82",
        b"\0",
        b"\x01",
        b"\x08",
        b"\x0b",
        b"\x0c",
        b"\x0e",
        b"\x1f",
        b"\xef\xbf\xbe",
        b"\xef\xbf\xbf",
        b"&#0;",
        b"&#8;",
        b"&#xB;",
        b"&#xFFFE;",
        b"&#xDFFF;",
        b"&#x110000;",
        b"&#4294967361;",
    ] {
        for (before, after) in [("<a>", "</a>"), ("<a b='", "'/>"), ("<a><![CDATA[", "]]></a>"), ("<a", "/>")]
        {
            if before.ends_with("CDATA[") && bad[0] == b'&' {
                continue;
            }
            let error = refused(&[before.as_bytes(), bad, after.as_bytes()].concat());
            assert_eq!(error.kind(), StreamErrorKind::NotWellFormed, "{} in {before}", bad.escape_ascii());
        }
    }
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-11.5
//= type=test
//# the entity MUST either ignore the standalone document declaration or close the stream with a stream error
#[test]
fn other_encodings_and_versions_are_named() {
    for start in [
        &b"\xfe\xff\0<"[..],
        b"\xff\xfe<\0",
        b"<\0s\0",
        b"\0<\0s",
        b"\0\0\xfe\xff",
        b"<?xml version='1.0' encoding='ISO-8859-1'?>",
        b"<?xml version='1.0' encoding='UTF-16'?>",
        b"<?xml version='1.0' encoding=''?>",
    ] {
        assert_eq!(refused_start(start), Error::UnsupportedEncoding, "{}", start.escape_ascii());
    }
    assert_eq!(refused_start(b"<?xml version='1.1'?>").kind(), StreamErrorKind::InvalidXml);
    assert_eq!(
        refused_start(b"<stream xmlns='http://etherx.jabber.org/streams'/>").kind(),
        StreamErrorKind::InvalidXml
    );
    for good in
        ["<?xml version='1.0'?>", "<?xml version = \"1.0\" encoding='utf-8' standalone='no' ?>\n", "\n", ""]
    {
        let input = format!("{good}{HEADER}</stream:stream>");
        assert!(matches!(read_stream(input.as_bytes(), &Limits::DEFAULT, || 1), Ok(Some(_))), "{good}");
    }
}

#[test]
fn limits_end_the_stream_before_memory_does() {
    let policy = |rest: &str| {
        let error = refused(rest.as_bytes());
        assert_eq!(error.kind(), StreamErrorKind::PolicyViolation, "{}…", &rest[..40.min(rest.len())]);
        error
    };
    let mega = "n".repeat(1 << 20);
    // Unfinished, in every construct that can grow without bound.
    assert_eq!(policy(&format!("<{mega}")), Error::TooLarge);
    assert_eq!(policy(&format!("<a {mega}")), Error::TooLarge);
    assert_eq!(policy(&format!("<a b='{mega}")), Error::TooLarge);
    assert_eq!(policy(&format!("<a b=\"{mega}")), Error::TooLarge);
    assert_eq!(policy(&format!("<a>{mega}")), Error::TooLarge);
    assert_eq!(policy(&format!("<a><![CDATA[{mega}")), Error::TooLarge);
    assert_eq!(policy(&format!("<a></{mega}")), Error::TooLarge);
    assert_eq!(policy(&format!("<a{}", " ".repeat(1 << 20))), Error::TooLarge);
    assert_eq!(policy(&format!("</{mega}")), Error::TooLarge);
    assert_eq!(policy(&format!("</stream:stream{}", " ".repeat(1000))), Error::TooLarge);
    assert_eq!(policy(&"<a>".repeat(100_000)), Error::TooDeep);
    // Complete, but above a limit.
    let name = "n".repeat(300);
    assert_eq!(policy(&format!("<{name}/>")), Error::NameTooLong);
    assert_eq!(policy(&format!("<a {name}='1'/>")), Error::NameTooLong);
    assert_eq!(policy(&format!("<a xmlns='{}'/>", "n".repeat(2000))), Error::NameTooLong);
    let many = |each: &dyn Fn(usize) -> String, n| format!("<a{}/>", (0..n).map(each).collect::<String>());
    assert_eq!(policy(&many(&|i| format!(" a{i}=''"), 1000)), Error::TooManyAttributes);
    assert_eq!(policy(&many(&|i| format!(" xmlns:a{i}='urn:x'"), 1000)), Error::TooManyPrefixes);
    assert_eq!(policy(&many(&|i| format!(" xmlns:a{i}='urn:{i}' a{i}:x=''"), 5)), Error::TooManyPrefixes);
    assert_eq!(
        policy(&(0..40).map(|i| format!("<a xmlns='urn:{i}'>")).collect::<String>().add_ends(40)),
        Error::TooManyPrefixes
    );
    let tag = usize::from(Limits::DEFAULT.start_tag_bytes);
    assert_eq!(policy(&format!("<a b='{}'/>", "v".repeat(tag - 8))), Error::TagTooLong);
    assert_eq!(policy(&format!("<a{}></a>", " ".repeat(tag - 2))), Error::TagTooLong);
    let depth = usize::from(Limits::DEFAULT.depth);
    assert_eq!(policy(&"<a>".repeat(depth + 1).add_ends(depth + 1)), Error::TooDeep);
    assert_eq!(policy(&format!("{}<a/>", "<a>".repeat(depth)).add_ends(depth)), Error::TooDeep);

    let start = format!("<?xml version='1.0' {mega}");
    assert_eq!(read_stream(start.as_bytes(), &Limits::DEFAULT, || 64).expect_err("refused"), Error::TooLarge);
    assert_eq!(
        read_stream(format!("<{mega}").as_bytes(), &Limits::DEFAULT, || 4096).expect_err("refused"),
        Error::TooLarge
    );
    assert_eq!(refused_start(format!("<{}>", "s".repeat(60)).as_bytes()), Error::NameTooLong);
}

trait AddEnds {
    fn add_ends(self, count: usize) -> String;
}

impl AddEnds for String {
    fn add_ends(self, count: usize) -> String {
        self + &"</a>".repeat(count)
    }
}

#[test]
fn elements_exactly_at_the_limits_are_accepted() {
    let accepted = |rest: String| {
        let input = format!("{HEADER}{rest}</stream:stream>");
        let result = read_stream(input.as_bytes(), &Limits::DEFAULT, || 4096);
        assert!(matches!(result, Ok(Some(_))), "{}… {:?}", &rest[..40], result.err());
    };
    let depth = usize::from(Limits::DEFAULT.depth);
    accepted("<a>".repeat(depth).add_ends(depth));
    let tag = usize::from(Limits::DEFAULT.start_tag_bytes);
    accepted(format!("<a b='{}'/>", "v".repeat(tag - 9)));
    accepted(format!("<a><b c='{}'/></a>", "v".repeat(tag)));
    accepted(format!("<a{}/>", (0..64).map(|i| format!(" a{i}=''")).collect::<String>()));
    accepted(format!("<a{}/>", (0..32).map(|i| format!(" xmlns:a{i}='urn:x'")).collect::<String>()));
    accepted(format!(
        "<a{}/>",
        (0..4).map(|i| format!(" xmlns:a{i}='urn:{i}' a{i}:x='' a{i}:y=''")).collect::<String>()
    ));
    accepted(format!("<a{}>{}", " xmlns='urn:x'", "<b xmlns='urn:y'></b>".repeat(1000)) + "</a>");
    accepted(format!("<a>{}</a>", "x".repeat(Limits::DEFAULT.element_bytes as usize - 7)));
}

/// Expat and the clients built on it accept only names of the fourth edition of XML 1.0. RFC 6120 cites the fifth, so
/// such names are well-formed and rejected by policy (section 4.9.3.14).
#[test]
fn rfc_6120_4_9_3_14_names_that_only_the_fifth_edition_allows_are_a_policy_violation() {
    for name in [
        "\u{2C00}",
        "\u{10000}",
        "a\u{203F}",
        "a\u{132}",
        "\u{1E9E}",
        "a\u{300}\u{35C}",
        "\u{FA10}",
        "\u{218F}",
    ] {
        for element in [
            format!("<{name}/>"),
            format!("<p:{name} xmlns:p='urn:p'/>"),
            format!("<{name}:a xmlns:{name}='urn:p'/>"),
            format!("<a {name}=''/>"),
            format!("<a xmlns:{name}='urn:p'/>"),
        ] {
            assert_eq!(refused(element.as_bytes()), Error::NameOfFifthEdition, "{element}");
        }
    }
}

#[test]
fn rfc_6120_4_9_3_13_names_of_no_edition_are_not_well_formed() {
    for element in
        ["<\u{B7}a/>", "<a\u{D7}/>", "<a \u{300}=''/>", "<a b\u{2028}=''/>", "<p:\u{203F} xmlns:p='urn:p'/>"]
    {
        assert_eq!(refused(element.as_bytes()).kind(), StreamErrorKind::NotWellFormed, "{element}");
    }
}

#[test]
fn an_accepted_element_can_be_read_with_the_servers_additions() {
    let (limits, scope) = (Limits::DEFAULT, NamespaceContext::client());
    let (depth, names) = (usize::from(limits.depth), usize::from(limits.attributes - limits.prefixes));
    let inner = format!(
        "<m {}{}>{}</m>",
        (0..limits.prefixes).map(|i| format!(" xmlns:p{i}='urn:{i}'")).collect::<String>(),
        (0..names).map(|i| format!(" a{i}=''")).collect::<String>(),
        "<a>".repeat(depth - 1).add_ends(depth - 1)
    );
    let read = |text: &str, limits: &Limits| {
        let mut reader = Reader::new(text.as_bytes(), &scope, limits)?;
        while reader.next()?.is_some() {}
        Ok::<_, Error>(())
    };
    assert_eq!(read(&inner, &limits), Ok(()));
    let stamped = inner.replacen("<m ", "<m from='a' to='b' xmlns='jabber:client' ", 1);
    let copied = format!("<m><s xmlns='urn:s'><f xmlns='urn:f'>{stamped}</f></s></m>");
    let wrapped = format!("<body xmlns='urn:b' xmlns:stream='urn:s'>{copied}</body>");
    assert!(read(&stamped, &limits).is_err());
    assert_eq!(read(&wrapped, &Limits::CEILING), Ok(()));
}

#[test]
fn an_error_is_final_until_restart() {
    let mut scanner = Scanner::fragment();
    let limits = Limits::DEFAULT;
    assert_eq!(scanner.scan(b"x", &limits), scanner.scan(b"<a/>", &limits));
    scanner.restart();
    assert_eq!(scanner.scan(b"<a/>", &limits), Ok(ScanOutcome::Element { start: 0, end: 4 }));
    let scope = NamespaceContext::client();
    let mut reader = Reader::new(b"<a><b></a></b>", &scope, &limits).expect("the characters are good");
    while reader.next().is_ok() {}
    assert!(reader.next().is_err());
    assert!(reader.skip().is_err());
}

#[test]
fn a_message_is_one_element_optionally_after_a_declaration() {
    let limits = Limits::DEFAULT;
    let scan = |text: &str| Scanner::standalone().scan(text.as_bytes(), &limits);
    assert_eq!(scan("<a b='>'/>"), Ok(ScanOutcome::Element { start: 0, end: 10 }));
    assert_eq!(scan("<?xml version='1.0'?>\n<a></a> "), Ok(ScanOutcome::Element { start: 22, end: 29 }));
    assert_eq!(scan("<a><b/>"), Ok(ScanOutcome::More { skip: 0 }));
    for wrong in ["</a>", "<?x y?>", "<!DOCTYPE a>", "<?xml version='2.0'?><a/>", "text"] {
        assert!(scan(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn the_depth_limit_applies_to_fragments_and_streams() {
    let limits = Limits { depth: 200, ..Limits::DEFAULT };
    let deep = |depth: usize| [b"<a>".repeat(depth), b"</a>".repeat(depth)].concat();
    assert!(matches!(Scanner::fragment().scan(&deep(200), &limits), Ok(ScanOutcome::Element { .. })));
    assert_eq!(Scanner::fragment().scan(&deep(201), &limits), Err(Error::TooDeep));
    let mut stream = Scanner::new();
    assert!(matches!(stream.scan(b"<s>", &limits), Ok(ScanOutcome::Open { .. })));
    let most = usize::from(Limits::CEILING.depth);
    assert!(matches!(stream.scan(&deep(most), &limits), Ok(ScanOutcome::Element { .. })));
    assert_eq!(stream.scan(&deep(most + 1), &limits), Err(Error::TooDeep));
}

#[test]
fn misuse_by_the_caller_does_not_panic() {
    let mut scanner = Scanner::fragment();
    let limits = Limits::DEFAULT;
    assert_eq!(scanner.scan(b"<abcdefghijklmnop x='", &limits), Ok(ScanOutcome::More { skip: 0 }));
    // Fewer bytes than before, or different ones.
    for input in [&b""[..], b"<", b"<a", b"zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz"] {
        let _ = scanner.scan(input, &limits);
    }
    let scope = NamespaceContext::empty();
    for bytes in [
        &b""[..],
        b"<",
        b"<a",
        b"a",
        b"<a/>x",
        b"<a/><b/>",
        b" <a/>",
        b"</a>",
        b"<a></a></a>",
        b"<![CDATA[]]>",
        b"<?a?>",
    ] {
        let outcome = Reader::new(bytes, &scope, &limits).and_then(|mut reader| {
            while reader.next()?.is_some() {}
            Ok(())
        });
        assert!(outcome.is_err(), "{}", bytes.escape_ascii());
    }
    for tag in [&b""[..], b"<", b"<a", b"<a>x", b"a>", b"</a>", b"<a b>"] {
        assert!(Reader::open_tag(tag, &limits).is_err(), "{}", tag.escape_ascii());
    }
}

/// Work must stay proportional to the input. Counts the attributes with equal marks, which must be compared.
#[test]
fn names_that_look_alike_are_distinguished() {
    // Same length, same first and last letter: all of them have the same mark.
    let attrs: String = (0..60).map(|i| format!(" a{i:02}z='{}'", "v".repeat(1000))).collect();
    let input = format!("<a{attrs}/>");
    let limits = Limits { element_bytes: 1 << 20, start_tag_bytes: u16::MAX, ..Limits::DEFAULT };
    let mut reader =
        Reader::new(input.as_bytes(), &throng_xml::NamespaceContext::client(), &limits).map(|_| ());
    assert_eq!(reader, Ok(()));
    let scope = NamespaceContext::client();
    let mut r = Reader::new(input.as_bytes(), &scope, &limits).expect("good characters");
    reader = r.next().map(|_| ());
    assert_eq!(reader, Ok(()));
    let twice = format!("<a{attrs} a31z=''/>");
    let mut r = Reader::new(twice.as_bytes(), &scope, &limits).expect("good characters");
    assert!(r.next().is_err());
}
