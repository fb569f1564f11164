//! Tests that addresses valid only under RFC 6122 are readable from storage, and only from there.

#![allow(clippy::panic, reason = "a failed check ends the test")]

use throng_jid::{Jid, parse};

fn check(text: &str, expect: &str) {
    assert!(parse(text).is_err(), "{text:?} is legal now");
    let jid = Jid::from_stored(text).unwrap_or_else(|error| panic!("{text:?}: {error}"));
    assert_eq!(jid.as_str(), expect);
    assert_eq!(Jid::from_stored(expect), Ok(jid));
}

#[test]
fn localparts_are_mapped_by_nodeprep() {
    check("\u{265a}@example.com", "\u{265a}@example.com");
    check("henry\u{2163}@example.com", "henryiv@example.com");
    check("ro\u{ad}meo@example.com", "romeo@example.com");
    check("\u{265a}@Example.COM./Home", "\u{265a}@example.com/Home");
}

#[test]
fn domains_are_mapped_by_nameprep() {
    check("a@\u{2603}.example", "a@\u{2603}.example");
    check("my_host", "my_host");
    check("My_Host.", "my_host");
}

#[test]
fn resources_are_mapped_by_resourceprep() {
    check("a@b/x\u{fe0f}y", "a@b/xy");
    check("a@b/x\u{ad}", "a@b/x");
}

#[test]
fn addresses_valid_under_both_have_the_form_of_rfc_7622() {
    assert_eq!(
        Jid::from_stored("fu\u{df}ball@FU\u{df}BALL.example").unwrap().as_str(),
        "fu\u{df}ball@fu\u{df}ball.example"
    );
    assert_eq!(Jid::from_stored("a@b/\u{2163}").unwrap().as_str(), "a@b/\u{2163}");
}

#[test]
fn addresses_valid_under_neither_rfc_are_refused() {
    for wrong in [
        "",
        "@b",
        "a@",
        "b/",
        "a b@c",
        "a:b@c",
        "a\u{ff20}b@c",
        "a@b c",
        "a@b@c",
        "a@b\u{ff0f}c",
        "a@b\u{7f}",
        "a@b/\u{7}",
        "a@b..c",
        "a@.",
        "\u{ad}@b",
        "a@b/\u{ad}",
    ] {
        assert!(Jid::from_stored(wrong).is_err(), "{wrong:?}");
    }
    assert!(Jid::from_stored(&format!("{}@b", "\u{265a}".repeat(342))).is_err());
}
