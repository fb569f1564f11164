//! Tests of the compliance checks with valid and invalid sources, lists and comments.

use super::markup::paragraphs;
use super::review::Review;
use super::sentences::requirements;
use super::{SPECIFICATIONS, Specification, page, quotes};
use crate::tidy::Finding;
use crate::tidy::files::SourceFile;

const RFC: &str = r#"<!DOCTYPE rfc SYSTEM "rfc2629.dtd">
<rfc><front><title>MUST not count</title></front><middle>
<!-- A client MUST NOT read this. -->
<section title="One" anchor="one"><t>Nothing of note, e.g. This.</t>
  <section title="Sub" anchor="one-sub">
    <t>The server MUST do as <xref target='two'/> says (see <xref target="REF"/>).  It is free otherwise.  A
    &lt;message/&gt; SHOULD NOT wait.</t>
    <t><list style='hanging'>
      <t hangText="Feature:">a-feature</t><t hangText="Description:">Do it</t>
      <t hangText="Roles:">Server MUST.</t>
    </list></t>
    <figure><artwork><![CDATA[ You MUST skip </t> this ]]></artwork></figure>
  </section>
</section>
<section title="Two" anchor="two"><t>MUSTARD is no keyword.</t></section>
</middle><back><references><t>MUST skip.</t></references>
<section title="Last" anchor="last"><t>An appendix is REQUIRED.</t></section></back></rfc>"#;

fn file(path: &str, text: &str) -> SourceFile {
    SourceFile { path: path.to_owned(), text: text.to_owned() }
}

fn specification() -> &'static Specification {
    &SPECIFICATIONS[1]
}

/// A list with one requirement of section 1.1 and this review.
fn list(review: &str) -> Review {
    let text = "[[requirement]]\nid = \"1.1-1\"\nanchor = \"one-sub\"\ntext = \"The server MUST do it.\"\n";
    Review::parse(&format!("{text}{review}")).unwrap()
}

fn findings(review: &str, files: &[SourceFile]) -> Vec<Finding> {
    let review = list(review);
    let found = quotes::all(files);
    let mut findings = review.check(specification(), files, &found);
    findings.extend(quotes::check(&found, &[(specification(), review)]));
    findings
}

/// A Rust test with a citation of this sentence above it.
fn quoting(section: &str, sentence: &str) -> SourceFile {
    let url = format!("{}#section-{section}", specification().url);
    file("a.rs", &format!("//= {url}\n//= type=test\n//# {sentence}\n#[test]\nfn it_does() {{}}\n"))
}

#[test]
fn sentences_with_a_keyword_are_numbered_by_their_sections() {
    let found: Vec<_> = requirements(RFC).into_iter().map(|s| (s.id, s.anchor, s.text)).collect();
    let expected = [
        ("1.1-1", "one-sub", "The server MUST do as Section 2 says (see [REF])."),
        ("1.1-2", "one-sub", "A <message/> SHOULD NOT wait."),
        ("1.1-3", "one-sub", "Feature: a-feature. Description: Do it. Roles: Server MUST."),
        ("A-1", "last", "An appendix is REQUIRED."),
    ];
    assert_eq!(found, expected.map(|(id, anchor, text)| (id.into(), anchor.into(), text.into())));
}

#[test]
fn paragraphs_of_a_xep_have_its_entities() {
    let xep = "<xep><header><remark>MUST skip</remark></header><section1 topic='A' anchor='a'>\
               <p>As in &xep0203;, 2<span class='super'>32</span> &IQ; &#x159; &VNOTE;.</p>\
               <ul><li>One</li></ul><example>MUST skip</example></section1></xep>";
    let texts: Vec<_> = paragraphs(xep).into_iter().map(|paragraph| paragraph.text).collect();
    assert_eq!(texts, ["As in XEP-0203, 2^32 <iq/> \u{159}.", "One"]);
}

#[test]
fn a_review_is_retained_until_its_sentence_changes() {
    let mut review = list("who = \"server\"\nmissing = \"Not yet.\"\n");
    review.update(requirements(&RFC.replace("An appendix is REQUIRED", "The server MUST do it")));
    let reviewed: Vec<_> = review.requirements.iter().map(|r| (r.id.as_str(), r.who.as_str())).collect();
    assert_eq!(reviewed, [("1.1-1", ""), ("1.1-2", ""), ("1.1-3", ""), ("A-1", "server")]);
    assert_eq!(Review::parse(&review.to_toml(specification())).unwrap().requirements, review.requirements);
}

#[test]
fn each_requirement_has_exactly_one_review() {
    for good in [
        "who = \"server\"\nmissing = \"Not yet.\"\n",
        "who = \"both\"\ninapplicable = \"It cannot be.\"\n",
        "who = \"server\"\ncite = [\"play\"]\n",
        "who = \"server\"\ncite = [\"play\"]\nmissing = \"The other half.\"\n",
        "who = \"client\"\nreason = \"A client's.\"\n",
    ] {
        assert_eq!(findings(good, &[file("play", "")]), [], "{good}");
    }
    for bad in [
        "",
        "who = \"nobody\"\nreason = \"x\"\n",
        "who = \"server\"\n",
        "who = \"client\"\n",
        "who = \"server\"\nmissing = \"a\"\ninapplicable = \"b\"\n",
        "who = \"server\"\ncite = [\"play\"]\ninapplicable = \"b\"\n",
        "who = \"client\"\nreason = \"x\"\ncite = [\"play\"]\n",
    ] {
        assert_eq!(findings(bad, &[file("play", "")]).len(), 1, "{bad}");
    }
}

#[test]
fn a_cited_item_must_be_declared_in_its_file() {
    let code = file("a.rs", "// fn gone\nasync fn here() {}\npub struct There;\n");
    for (item, wrong) in
        [("a.rs", 0), ("a.rs::here", 0), ("a.rs::There", 0), ("a.rs::gone", 1), ("b.rs", 1), ("a.rs::her", 1)]
    {
        let review = format!("who = \"server\"\ncite = [\"{item}\"]\n");
        assert_eq!(findings(&review, std::slice::from_ref(&code)).len(), wrong, "{item}");
    }
}

#[test]
fn a_quote_in_a_comment_is_a_citation() {
    let server = "who = \"server\"\n";
    for good in ["The server MUST do it.", "MUST do it", "The server\n    //# MUST do it."] {
        assert_eq!(findings(server, &[quoting("1.1", good)]), [], "{good}");
    }
    // The citation does not match the sentence, and the sentence has no citation.
    for (section, bad) in [("1.1", "The server MUST NOT do it."), ("1.1", "do it"), ("1.2", "MUST do it")] {
        assert_eq!(findings(server, &[quoting(section, bad)]).len(), 2, "{bad}");
    }
    let unknown = file("a.rs", "//= https://example.org/rfc1#section-1\n//# MUST\nfn f() {}\n");
    assert_eq!(findings("who = \"server\"\nmissing = \"x\"\n", &[unknown]).len(), 1);
}

#[test]
fn several_citations_can_precede_one_item() {
    let url = specification().url;
    let text = format!(
        "//= {url}#section-1.1\n//# a\n//# b\n//= {url}#section-1.2\n//= type=test\n//# c\n/// Text.\n#[test]\nfn it() {{}}\n"
    );
    let found = quotes::all(&[file("a.rs", &text)]);
    let seen: Vec<_> = found.iter().map(|q| (q.line, q.text.as_str(), q.test, q.item.as_str())).collect();
    assert_eq!(seen, [(1, "a b", false, "it"), (4, "c", true, "it")]);
}

#[test]
fn the_page_counts_tests_code_and_missing_requirements() {
    let files = [quoting("1.1", "MUST do it")];
    let found = quotes::all(&files);
    let cited = page::page(&[(specification(), list("who = \"server\"\n"))], &found, &files);
    assert!(cited.contains("| 1 | 1 | 1 | 0 | 0 | 0 | 0 |"), "{cited}");
    assert!(cited.contains("The server MUST do it. | [`it_does`](../a.rs) |"), "{cited}");
    let missing = list("who = \"server\"\nmissing = \"Not yet.\"\n");
    let missing = page::page(&[(specification(), missing)], &[], &[]);
    assert!(missing.contains("| 1 | 1 | 0 | 0 | 0 | 1 | 0 |"), "{missing}");
    assert!(missing.contains("* Not yet.\n  * [1.1]("), "{missing}");
}
