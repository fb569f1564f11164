//! Tests of normalisation: content is preserved, the result needs no stream context, and a second pass changes nothing.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests fail by panicking"
)]

mod support;

use support::{ParsedContent, Random, generate, read_into};
use throng_xml::{Limits, NamespaceContext, Reader, Tree, TreeNode, normalise};

const HEADER: &str =
    "<stream:stream xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams' xmlns:q='urn:q'>";

fn elements(count: u64) -> impl Iterator<Item = (u64, Vec<u8>)> {
    (0..count).map(|seed| {
        let random = &mut Random::new(seed ^ 0x4e0);
        let mut element = String::new();
        generate::element(random, &mut element, 1);
        (seed, element.into_bytes())
    })
}

fn content(bytes: &[u8], scope: &NamespaceContext) -> Option<ParsedContent> {
    let mut content = ParsedContent::default();
    read_into(&mut content, bytes, scope, &Limits::DEFAULT).ok().map(|()| content)
}

fn portable(bytes: &[u8], scope: &NamespaceContext) -> bool {
    let mut reader = Reader::new(bytes, scope, &Limits::DEFAULT).unwrap();
    while reader.next().unwrap().is_some() {}
    reader.is_self_contained()
}

#[test]
fn a_normalised_element_keeps_its_meaning_without_the_stream() {
    let limits = Limits::DEFAULT;
    let header = NamespaceContext::from_open_tag(HEADER.as_bytes(), &limits).unwrap();
    let plain = NamespaceContext::with_default(throng_xml::Ns::Client);
    let mut seen = [0; 2];
    for (seed, element) in elements(20_000) {
        let Some(before) = content(&element, &header) else { continue };
        let mut out = Vec::new();
        normalise(&element, &header, &limits, &mut out).unwrap();
        let shown = || format!("seed {seed}: {} became {}", element.escape_ascii(), out.escape_ascii());
        assert_eq!(content(&out, &plain), Some(before.clone()), "{}", shown());
        assert!(portable(&out, &plain), "{}", shown());
        let mut again = Vec::new();
        normalise(&out, &plain, &limits, &mut again).unwrap();
        assert_eq!(again, out, "{}", shown());
        // An element reported as portable must have the same content without its stream.
        let carried = portable(&element, &header);
        if carried {
            assert_eq!(content(&element, &plain), Some(before), "{}", shown());
        }
        seen[usize::from(carried)] += 1;
    }
    assert!(seen.iter().all(|&n| n > 1000), "both kinds are tested: {seen:?}");
}

#[test]
fn only_prefixes_of_the_header_make_an_element_depend_on_it() {
    let header = NamespaceContext::from_open_tag(HEADER.as_bytes(), &Limits::DEFAULT).unwrap();
    for (element, expected) in [
        ("<message xml:lang='en'><body/></message>", true),
        ("<message><p:x xmlns:p='urn:p' p:a='1'/></message>", true),
        ("<message xmlns:q='urn:other'><q:x/></message>", true),
        ("<message><q:x/></message>", false),
        ("<message><x q:a='1'/></message>", false),
        ("<message><stream:x/></message>", false),
        ("<p:message xmlns:p='jabber:client'/>", false),
    ] {
        assert_eq!(portable(element.as_bytes(), &header), expected, "{element}");
    }
}

#[test]
fn a_tree_and_a_reader_give_the_same_content() {
    fn walk(node: TreeNode<'_>, content: &mut ParsedContent) {
        if !node.is_element() {
            return content.text(&node.text());
        }
        let attrs = node
            .attrs()
            .map(|a| (a.ns.name().into_owned(), a.name.to_owned(), a.value().into_owned()))
            .collect();
        content.start(&node.namespace().name(), node.name(), attrs);
        node.children().for_each(|child| walk(child, content));
        content.end();
    }
    let header = NamespaceContext::from_open_tag(HEADER.as_bytes(), &Limits::DEFAULT).unwrap();
    for (seed, element) in elements(10_000) {
        let read = content(&element, &header);
        let walked = Tree::parse(&element, &header, &Limits::DEFAULT).ok().map(|tree| {
            let mut content = ParsedContent::default();
            walk(tree.root(), &mut content);
            assert_eq!(tree.root().raw(), element);
            content
        });
        assert_eq!(walked, read, "seed {seed}: {}", element.escape_ascii());
    }
}
