//! Fuzz target for the reader: reading one element never panics, its offsets are valid, and the scanner sees one
//! element in whatever the reader accepts.
#![no_main]

use libfuzzer_sys::fuzz_target;
use xml::{Error, Event, Limits, NamespaceContext, Reader, ScanOutcome, Scanner, Tree};

fn read(data: &[u8], scope: &NamespaceContext) -> Result<usize, Error> {
    let limits = Limits::DEFAULT;
    let mut reader = Reader::new(data, scope, &limits)?;
    let (mut nodes, mut depth, mut position) = (0, 0, 0);
    while let Some(event) = reader.next()? {
        match event {
            Event::Start(start) => {
                (nodes, depth) = (nodes + 1, depth + 1);
                assert!(data[start.tag.start] == b'<' && data[start.tag.end - 1] == b'>');
                for attr in start.attrs().chain(start.declarations()) {
                    assert!(attr.name_start < attr.value_range.start);
                    assert_eq!(&data[attr.value_range.clone()], attr.raw.as_bytes());
                    assert!(attr.prefix.is_none() || !attr.ns.is_none());
                    attr.value();
                }
            }
            Event::Text(text) => {
                nodes += 1;
                assert_eq!(&data[text.range()], text.raw().as_bytes());
                text.unescape();
            }
            Event::End => depth -= 1,
        }
        assert!(reader.depth() == depth && reader.position() >= position);
        position = reader.position();
    }
    assert!(depth == 0 && position == data.len());
    Ok(nodes)
}

fuzz_target!(|data: &[u8]| {
    let limits = Limits::DEFAULT;
    let scope = NamespaceContext::client();
    let nodes = read(data, &scope);
    assert_eq!(Tree::parse(data, &scope, &limits).map(|tree| tree.node_count()), nodes);
    if nodes.is_ok() {
        let found = Scanner::fragment().scan(data, &limits);
        assert_eq!(found, Ok(ScanOutcome::Element { start: 0, end: data.len() }));
    }
    if let Ok(scope) = NamespaceContext::from_open_tag(data, &limits) {
        assert!(scope.default_namespace().text.len() <= data.len().max(64));
    }
});
