//! Tests of RFC 7622 by example: its two tables (section 3.5), then each rule of sections 3.1 to 3.4.

#![allow(clippy::panic, reason = "a failed check ends the test")]

use throng_jid::{
    Jid, JidError, JidPart, JidRef, MAX_PART, ParsedJid, parse, prepare_domain, prepare_local,
    prepare_resource,
};

type Parts<'a> = (Option<&'a str>, &'a str, Option<&'a str>);

fn check(text: &str, expect: Parts<'_>) {
    let parsed = parse(text).unwrap_or_else(|error| panic!("{text:?}: {error}"));
    let jid = parsed.as_ref();
    assert_eq!((jid.local(), jid.domain(), jid.resource()), expect, "{text:?}");
    // Normal forms are stable, and both constructors agree.
    let owned = parsed.clone().into_jid();
    assert_eq!(Jid::from_parts(expect.0, expect.1, expect.2), Ok(owned.clone()), "{text:?}");
    assert!(matches!(parse(owned.as_str()), Ok(ParsedJid::Borrowed(again)) if again == owned), "{text:?}");
    assert_eq!(JidRef::from_normalised(owned.as_str()), Some(owned.as_ref()), "{text:?}");
    assert_eq!(Jid::from_stored(text), Ok(owned), "{text:?}");
}

fn refuse(text: &str, expect: JidError) {
    assert_eq!(parse(text).map(ParsedJid::into_jid), Err(expect), "{text:?}");
}

const FORBIDDEN_LOCAL: JidError = JidError::Forbidden(JidPart::Local);
const FORBIDDEN_DOMAIN: JidError = JidError::Forbidden(JidPart::Domain);
const FORBIDDEN_RESOURCE: JidError = JidError::Forbidden(JidPart::Resource);

/// Table 1.
#[test]
fn the_legal_samples_of_the_rfc_are_accepted() {
    check("juliet@example.com", (Some("juliet"), "example.com", None));
    check("juliet@example.com/foo", (Some("juliet"), "example.com", Some("foo")));
    check("juliet@example.com/foo bar", (Some("juliet"), "example.com", Some("foo bar")));
    check("juliet@example.com/foo@bar", (Some("juliet"), "example.com", Some("foo@bar")));
    check(r"foo\20bar@example.com", (Some(r"foo\20bar"), "example.com", None));
    check("fussball@example.com", (Some("fussball"), "example.com", None));
    check("fu\u{df}ball@example.com", (Some("fu\u{df}ball"), "example.com", None));
    check("\u{3c0}@example.com", (Some("\u{3c0}"), "example.com", None));
    check("\u{3a3}@example.com/foo", (Some("\u{3c3}"), "example.com", Some("foo")));
    check("\u{3c3}@example.com/foo", (Some("\u{3c3}"), "example.com", Some("foo")));
    check("\u{3c2}@example.com/foo", (Some("\u{3c2}"), "example.com", Some("foo")));
    check("king@example.com/\u{265a}", (Some("king"), "example.com", Some("\u{265a}")));
    check("example.com", (None, "example.com", None));
    check("example.com/foobar", (None, "example.com", Some("foobar")));
    check("a.example.com/b@example.net", (None, "a.example.com", Some("b@example.net")));
}

/// The remarks below table 1: which of examples 6, 7, 9, 10 and 11 are the same account.
#[test]
fn sharp_s_and_final_sigma_are_letters_of_their_own() {
    let local = |text| prepare_local(text).unwrap().into_owned();
    assert_ne!(local("fussball"), local("fu\u{df}ball"));
    assert_eq!(local("\u{3a3}"), local("\u{3c3}"));
    assert_ne!(local("\u{3a3}"), local("\u{3c2}"));
    assert_ne!(local("\u{3c3}"), local("\u{3c2}"));
    // Also at the end of a word, where Unicode's full lower-casing would produce a final sigma.
    assert_eq!(local("\u{39f}\u{394}\u{39f}\u{3a3}"), "\u{3bf}\u{3b4}\u{3bf}\u{3c3}");
}

/// Table 2, except for number 18: see `spaces_in_resources`.
#[test]
fn the_illegal_samples_of_the_rfc_are_refused() {
    refuse("\"juliet\"@example.com", FORBIDDEN_LOCAL);
    refuse("foo bar@example.com", FORBIDDEN_LOCAL);
    refuse("@example.com/", JidError::Empty(JidPart::Local));
    refuse("henry\u{2163}@example.com", FORBIDDEN_LOCAL);
    refuse("\u{265a}@example.com", FORBIDDEN_LOCAL);
    refuse("juliet@", JidError::Empty(JidPart::Domain));
    refuse("/foobar", JidError::Empty(JidPart::Domain));
}

/// No rule of the text rejects number 18 of table 2, and other servers deliver such addresses.
#[test]
fn spaces_are_allowed_in_resources() {
    check("juliet@example.com/ foo", (Some("juliet"), "example.com", Some(" foo")));
    check("juliet@example.com/ ", (Some("juliet"), "example.com", Some(" ")));
    check("juliet@example.com/a\u{a0}\u{3000}b", (Some("juliet"), "example.com", Some("a  b")));
}

/// Section 3.2: split at the first `/`, then at the first `@`.
#[test]
fn the_first_slash_is_split_off_before_the_first_at_sign() {
    check("a@b/c/d@e//", (Some("a"), "b", Some("c/d@e//")));
    check("b//", (None, "b", Some("/")));
    refuse("a@b@c", FORBIDDEN_DOMAIN);
    refuse("", JidError::Empty(JidPart::Domain));
    refuse("@", JidError::Empty(JidPart::Local));
    refuse("a@/r", JidError::Empty(JidPart::Domain));
    refuse("a@b/", JidError::Empty(JidPart::Resource));
    refuse("b/", JidError::Empty(JidPart::Resource));
}

/// Section 3.1: a separator that mapping produces is not a separator.
#[test]
fn mapped_separators_are_refused_not_cut_at() {
    refuse("a\u{ff20}b@example.com", FORBIDDEN_LOCAL);
    refuse("a\u{ff0f}b@example.com", FORBIDDEN_LOCAL);
    refuse("example\u{ff0f}com", FORBIDDEN_DOMAIN);
    refuse("user\u{ff20}example.com", FORBIDDEN_DOMAIN);
}

//= https://www.rfc-editor.org/rfc/rfc6121#section-9
//= type=test
//# in the 'from' and 'to' addresses of an XML stanza) MUST NOT be prepended with a Uniform Resource Identifier
//# [URI] scheme.
/// Section 3.3.1.
#[test]
fn excluded_characters_of_localparts_are_refused() {
    for c in "\"&':<>".chars() {
        refuse(&format!("a{c}b@example.com"), FORBIDDEN_LOCAL);
        let wide = char::from_u32(u32::from(c) + 0xfee0).unwrap();
        refuse(&format!("a{wide}b@example.com"), FORBIDDEN_LOCAL);
    }
    assert_eq!(prepare_local("a/b"), Err(FORBIDDEN_LOCAL));
    assert_eq!(prepare_local("a@b"), Err(FORBIDDEN_LOCAL));
    assert_eq!(prepare_local(""), Err(JidError::Empty(JidPart::Local)));
}

/// RFC 8265, section 3.3: width, case, normalisation, direction; RFC 8264, appendix A: context rules.
#[test]
fn localparts_are_usernames_case_mapped() {
    let accept =
        |text: &str, expect: &str| assert_eq!(prepare_local(text).as_deref(), Ok(expect), "{text:?}");
    accept("JULIET", "juliet");
    accept("\u{ff2a}\u{ff35}liet", "juliet");
    accept("u\u{308}ber", "\u{fc}ber");
    accept("\u{130}stanbul", "i\u{307}stanbul");
    accept("l\u{b7}l", "l\u{b7}l");
    accept("\u{5d0}\u{5d1}\u{5d2}", "\u{5d0}\u{5d1}\u{5d2}");
    // Unicode 14, newer than the tables of precis-core.
    accept("\u{2c2f}\u{a7c0}", "\u{2c5f}\u{a7c1}");
    for wrong in [
        "\u{212b}ngstrom",
        "a\u{b7}b",
        "\u{5d0}a",
        "a\u{ad}b",
        "a\u{200b}b",
        "\u{fb01}",
        "a\u{a0}b",
        "\u{e000}",
        "\u{378}",
        "a\tb",
        "\u{1f600}",
    ] {
        assert_eq!(prepare_local(wrong), Err(FORBIDDEN_LOCAL), "{wrong:?}");
    }
}

/// Section 3.4 and RFC 8265, section 4.2.
#[test]
fn resourceparts_are_opaque_strings() {
    let accept =
        |text: &str, expect: &str| assert_eq!(prepare_resource(text).as_deref(), Ok(expect), "{text:?}");
    accept("Mixed CASE <&>'\"", "Mixed CASE <&>'\"");
    accept("u\u{308}", "\u{fc}");
    accept("\u{ff21}\u{fb01}\u{2163}", "\u{ff21}\u{fb01}\u{2163}");
    accept("\u{1f98a} fox", "\u{1f98a} fox"); // Unicode 9
    accept("\u{1f44d}\u{1f3fd}", "\u{1f44d}\u{1f3fd}"); // with a skin tone, Unicode 8
    accept("\u{5d0}a1", "\u{5d0}a1"); // no bidi rule here
    for wrong in [
        "\u{7f}", "a\nb", "\0", "\u{200b}", "\u{fe0f}", "\u{202e}", "\u{e000}", "\u{ffff}", "\u{378}",
        "\u{180f}",
    ] {
        assert_eq!(prepare_resource(wrong), Err(FORBIDDEN_RESOURCE), "{wrong:?}");
    }
    assert_eq!(prepare_resource(""), Err(JidError::Empty(JidPart::Resource)));
}

/// Section 3.2.
#[test]
fn domains_lose_one_final_dot() {
    check("example.com.", (None, "example.com", None));
    check("juliet@EXAMPLE.com./r", (Some("juliet"), "example.com", Some("r")));
    assert!(
        matches!(parse("juliet@example.com."), Ok(ParsedJid::Borrowed(jid)) if jid.domain() == "example.com")
    );
    refuse("example.com..", FORBIDDEN_DOMAIN);
    refuse(".", JidError::Empty(JidPart::Domain));
    refuse("a..b", FORBIDDEN_DOMAIN);
    refuse(".a", FORBIDDEN_DOMAIN);
}

/// Section 3.2.1: NR-LDH labels and U-labels; A-labels become U-labels.
#[test]
fn domains_are_idna2008() {
    check("xn--fuball-cta.example", (None, "fu\u{df}ball.example", None));
    check("XN--Fuball-CTA.example", (None, "fu\u{df}ball.example", None));
    check("FU\u{df}BALL.example", (None, "fu\u{df}ball.example", None));
    check("B\u{dc}CHER.example", (None, "b\u{fc}cher.example", None));
    check("\u{ff45}xample.com", (None, "example.com", None));
    check(
        "\u{43f}\u{440}\u{438}\u{43c}\u{435}\u{440}.\u{440}\u{444}",
        (None, "\u{43f}\u{440}\u{438}\u{43c}\u{435}\u{440}.\u{440}\u{444}", None),
    );
    check("localhost", (None, "localhost", None));
    check("a-b.c", (None, "a-b.c", None));
    for wrong in [
        "a_b.example",
        "-a.example",
        "a-.example",
        "ab--c.example",
        "xn--a.example",
        "xn--.example",
        "xn---.example",
        "\u{2603}.example",
        "\u{1f600}.example",
        "a b.example",
        "a\tb",
        "a!b",
        "xn--n3h.example",
        "\u{5d0}a.example",
        "a\u{b7}b.example",
        "xn--abc-.example",
        "xn--example-.com",
        "a\0b",
    ] {
        assert_eq!(prepare_domain(wrong), Err(FORBIDDEN_DOMAIN), "{wrong:?}");
    }
}

#[test]
fn domains_may_be_ip_literals() {
    check("127.0.0.1", (None, "127.0.0.1", None));
    check("u@[::1]/r", (Some("u"), "[::1]", Some("r")));
    check("[2001:DB8:0::1]", (None, "[2001:db8::1]", None));
    check("[fe80::1%25eth0]", (None, "[fe80::1%25eth0]", None));
    for wrong in [
        "[]",
        "[",
        "[::1",
        "::1",
        "[127.0.0.1]",
        "[fe80::1%eth0]",
        "[fe80::1%25]",
        "[fe80::1%25a b]",
        "[fe80::1%25%zz]",
        "[v1.x]",
        "[::1]x",
    ] {
        assert_eq!(prepare_domain(wrong), Err(FORBIDDEN_DOMAIN), "{wrong:?}");
    }
}

#[test]
fn limits_hold_after_mapping() {
    let full = "a".repeat(MAX_PART);
    let label = "a".repeat(63);
    let name = [&label[..], &label, &label, &label[..61]].join(".");
    check(&format!("{full}@{name}/{full}"), (Some(&full), &name, Some(&full)));
    refuse(&format!("{full}a@b"), JidError::TooLong(JidPart::Local));
    refuse(&format!("b/{full}a"), JidError::TooLong(JidPart::Resource));
    refuse(&format!("{name}a"), JidError::TooLong(JidPart::Domain));
    refuse(&format!("{label}a.example"), JidError::TooLong(JidPart::Domain));
    // Three octets become one, two become three.
    let wide = "\u{ff41}".repeat(MAX_PART);
    assert_eq!(prepare_local(&wide).as_deref(), Ok(&full[..]));
    assert_eq!(prepare_local(&format!("{wide}a")), Err(JidError::TooLong(JidPart::Local)));
    assert_eq!(prepare_local(&"\u{130}".repeat(400)), Err(JidError::TooLong(JidPart::Local)));
    assert_eq!(prepare_resource(&"\u{e9}".repeat(512)), Err(JidError::TooLong(JidPart::Resource)));
    assert_eq!(prepare_domain(&"\u{e9}".repeat(62)), Err(JidError::TooLong(JidPart::Domain)));
}

#[test]
fn parts_can_be_taken_and_replaced() {
    let full = Jid::parse("Romeo@Example.NET/Orchard").unwrap();
    assert_eq!(full.to_string(), "romeo@example.net/Orchard");
    assert_eq!(
        format!("{full:?} {:>12}", full.bare().with_resource("x").unwrap().resource().unwrap()),
        "\"romeo@example.net/Orchard\"            x"
    );
    assert!(full.is_full() && !full.is_bare() && !full.is_domain());
    assert_eq!(full.bare().as_str(), "romeo@example.net");
    assert!(full.bare().is_bare() && full.bare().bare() == full.bare());
    assert!(Jid::parse("example.net").unwrap().is_domain());
    assert_eq!(full.with_resource("u\u{308}").unwrap().as_str(), "romeo@example.net/\u{fc}");
    assert_eq!(full.with_resource(""), Err(JidError::Empty(JidPart::Resource)));
    assert_eq!("A@b".parse::<Jid>().unwrap(), *"a@b");
}

#[test]
fn equal_addresses_are_equal_map_keys() {
    use std::collections::{BTreeMap, HashMap};
    let jid = Jid::parse("a@b/c").unwrap();
    let hashed = HashMap::from([(jid.clone(), 1)]);
    let sorted = BTreeMap::from([(jid.clone(), 1)]);
    assert_eq!(hashed.get(jid.as_ref().as_str()), Some(&1));
    assert_eq!(sorted.get("a@b/c"), Some(&1));
    let borrowed = HashMap::from([(jid.as_ref(), 1)]);
    assert_eq!(borrowed.get(&parse("A@B/c").unwrap().as_ref()), Some(&1));
}

#[test]
fn from_normalised_refuses_misplaced_separators() {
    for wrong in ["", "@", "a@", "@b", "/r", "b/", "a@b/", "a@/r"] {
        assert_eq!(JidRef::from_normalised(wrong), None, "{wrong:?}");
    }
    assert_eq!(JidRef::from_normalised(&"a".repeat(MAX_PART + 1)), None);
}

#[test]
fn addresses_fit_their_size_budget() {
    assert!(size_of::<Jid>() <= 24 && size_of::<Option<Jid>>() <= 24);
    assert!(size_of::<JidRef<'_>>() <= 24 && size_of::<Option<JidRef<'_>>>() <= 24);
    assert!(size_of::<JidError>() <= 2);
}
