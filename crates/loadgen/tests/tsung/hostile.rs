//! Tests with hostile scenario files: entity bombs, depth, size, malformed XML, other root elements.
//!
//! Not implemented: limits on the reading of further files, which are up to the caller's `files`.

use std::fmt::Write as _;
use std::io;

use throng_loadgen::plan::PlanOverrides;
use throng_loadgen::tsung;

use super::{read_text, text_of};

/// All messages that are returned.
fn sentences(text: &str) -> String {
    match read_text(text, &PlanOverrides::default()) {
        Ok(_) => "accepted".to_owned(),
        Err(errors) => errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"),
    }
}

#[test]
fn an_entity_bomb_is_refused_before_expansion() {
    let mut text = "<!DOCTYPE tsung [<!ENTITY a0 \"ha\">".to_owned();
    for n in 1..=30 {
        let before = n - 1;
        let _ = write!(text, "<!ENTITY a{n} \"&a{before};&a{before};&a{before};\">");
    }
    text.push_str("]><tsung>&a30;</tsung>");
    assert_eq!(sentences(&text), "its entities would grow to more than 32 MB");
}

#[test]
fn repeated_references_to_a_long_entity_are_limited() {
    let long = "x".repeat(100_000);
    let often = "&a;".repeat(10_000);
    let text = format!("<!DOCTYPE tsung [<!ENTITY a \"{long}\">]><tsung>{often}</tsung>");
    assert_eq!(sentences(&text), "its entities would grow to more than 32 MB");
}

#[test]
fn a_recursive_entity_is_refused() {
    let text = "<!DOCTYPE tsung [<!ENTITY a \"&b;\"><!ENTITY b \"&a;\">]><tsung>&a;</tsung>";
    let messages = sentences(text);
    assert!(messages.contains("the XML is not well-formed"), "{messages}");
}

#[test]
fn mutually_including_files_are_refused() {
    let text = "<!DOCTYPE tsung [<!ENTITY a SYSTEM \"a.xml\">]>\n<tsung>\n&a;</tsung>";
    let mut read = 0;
    let mut files = |_: &str| -> io::Result<String> {
        read += 1;
        Ok("<x>\n&a;</x>".to_owned())
    };
    let errors = tsung::read(text, "x", &PlanOverrides::default(), &mut files).unwrap_err();
    assert_eq!(errors[0].to_string(), "line 2: a.xml: a.xml: more than 4 files within files");
    assert_eq!(read, 4);
}

#[test]
fn a_missing_file_is_reported_with_its_line() {
    let text = "<!DOCTYPE tsung [<!ENTITY a SYSTEM \"none.xml\">]>\n<tsung>\n\n&a;</tsung>";
    assert_eq!(sentences(text), "line 4: none.xml: there is no such file");
}

#[test]
fn deep_nesting_does_not_overflow_the_stack() {
    let deep = 50_000;
    let inner = format!("{}{}", "<for var=\"i\" from=\"1\" to=\"2\">".repeat(deep), "</for>".repeat(deep));
    let text = text_of("simple.xml").replace("<thinktime value=\"2\"/>", &inner);
    assert_eq!(sentences(&text), "line 34: for: more than 40 elements within elements");
}

#[test]
fn ten_megabytes_are_read_to_the_end() {
    let mut many = String::with_capacity(11 << 20);
    while many.len() < 10 << 20 {
        many.push_str(
            "<request><jabber type=\"chat\" ack=\"no_ack\" destination=\"online\" size=\"-1\"/></request>\n",
        );
    }
    let text = text_of("simple.xml").replace("<thinktime value=\"2\"/>", &many);
    let messages = sentences(&text);
    assert_eq!(messages.lines().count(), 101);
    assert!(messages.ends_with("more errors"), "{}", messages.lines().last().unwrap());
    let good = text.replace("size=\"-1\"", "size=\"1\"");
    let (plan, _) = read_text(&good, &PlanOverrides::default()).unwrap();
    assert!(plan.sessions[0].steps.len() > 100_000);
}

#[test]
fn files_above_the_limit_are_refused_immediately() {
    let text = format!("<tsung>{}</tsung>", " ".repeat(33 << 20));
    assert_eq!(sentences(&text), "the file has more than 32 MB");
}

#[test]
fn unterminated_references_are_not_quadratic() {
    let text = format!(
        "<!DOCTYPE tsung [<!ENTITY a \"b\"><!ENTITY f SYSTEM \"f\">]><tsung>{}</tsung>",
        "&".repeat(8 << 20)
    );
    assert!(sentences(&text).contains("the XML is not well-formed"));
}

#[test]
fn a_file_that_is_no_scenario_is_reported() {
    assert_eq!(sentences("<html/>"), "line 1: html: not a Tsung scenario: the root element is not \"tsung\"");
    assert!(sentences("").contains("the XML is not well-formed"));
    assert!(sentences("<tsung>").contains("the XML is not well-formed"));
    assert!(sentences("<tsung>\n<clients>\n</tsung>").starts_with("line 3: the XML is not well-formed"));
    assert!(sentences("\u{0}\u{1}").contains("the XML is not well-formed"));
    assert!(sentences("<!DOCTYPE tsung [").contains("the XML is not well-formed"));
    assert!(sentences("<!DOCTYPE tsung [ <!ENTITY").contains("the XML is not well-formed"));
    assert!(sentences("<!DOCTYPE tsung [ <!ENTITY a SYSTEM").contains("the XML is not well-formed"));
}

#[test]
fn an_empty_scenario_reports_all_missing_parts() {
    let messages = sentences("<tsung/>");
    assert_eq!(
        messages,
        "line 1: sessions: no session is defined\nline 1: tsung: the element load is missing\n\
         no server is defined"
    );
}

#[test]
fn a_scenario_is_distinguished_from_other_files() {
    assert!(tsung::is_scenario(&text_of("simple.xml")));
    assert!(tsung::is_scenario(&text_of("included.xml")));
    assert!(tsung::is_scenario("<!DOCTYPE tsung [<!ENTITY a \"]>\">]>\n<!-- <x> --><tsung loglevel='x'/>"));
    assert!(!tsung::is_scenario("<html><tsung/></html>"));
    assert!(!tsung::is_scenario("[target]\nhost = \"<tsung>\""));
    assert!(!tsung::is_scenario(""));
}

#[test]
fn a_scenario_cut_anywhere_or_with_a_byte_changed_is_only_refused() {
    let text = text_of("included.xml");
    for (at, _) in text.char_indices() {
        let _ = sentences(&text[..at]);
        let mut changed = text.as_bytes().to_vec();
        changed[at] = b'"';
        let _ = sentences(&String::from_utf8_lossy(&changed));
    }
}
