//! Test support: seeded documents, mutations, and the whole path from bytes to content.
//!
//! Not implemented: coverage guidance, which the fuzz targets have.
//!
//! # Pitfalls
//!
//! Every document follows from its seed, so a failing test only prints the seed.
#![allow(unreachable_pub, reason = "a module of tests has no outside")]
#![allow(dead_code, reason = "each test file uses another part of it")]

pub mod generate;

use throng_xml::{Error, Event, Limits, NamespaceContext, Reader, ScanOutcome, Scanner};

/// Seeded choices, the same on every platform.
pub struct Random(fastrand::Rng);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(fastrand::Rng::with_seed(seed))
    }

    pub fn below(&mut self, n: usize) -> usize {
        self.0.usize(..n)
    }

    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len())]
    }
}

/// Content of a stream in comparable form. Text is joined, attributes are sorted, an empty namespace is `{}`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParsedContent {
    pub lines: Vec<String>,
    text: String,
}

impl ParsedContent {
    pub fn start(&mut self, ns: &str, name: &str, mut attrs: Vec<(String, String, String)>) {
        self.flush();
        attrs.sort();
        self.lines.push(format!("<{{{ns}}}{name} {attrs:?}"));
    }

    pub fn end(&mut self) {
        self.flush();
        self.lines.push(">".into());
    }

    pub fn text(&mut self, text: &str) {
        self.text.push_str(text);
    }

    pub fn flush(&mut self) {
        if !self.text.is_empty() {
            self.lines.push(format!("{:?}", std::mem::take(&mut self.text)));
        }
    }
}

/// Adds the content of one element.
pub fn read_into(
    content: &mut ParsedContent,
    bytes: &[u8],
    scope: &NamespaceContext,
    limits: &Limits,
) -> Result<(), Error> {
    let mut reader = Reader::new(bytes, scope, limits)?;
    while let Some(event) = reader.next()? {
        match event {
            Event::Start(start) => content.start(&start.ns.name(), start.name, attributes(&start)),
            Event::Text(text) => content.text(&text.unescape()),
            Event::End => content.end(),
        }
    }
    content.flush();
    Ok(())
}

fn attributes(start: &throng_xml::StartTag<'_>) -> Vec<(String, String, String)> {
    start.attrs().map(|a| (a.ns.name().into_owned(), a.name.to_owned(), a.value().into_owned())).collect()
}

/// Reads a whole stream in chunks of the lengths that `piece` returns. `Ok(None)`: valid so far, but unfinished.
pub fn read_stream(
    input: &[u8],
    limits: &Limits,
    mut piece: impl FnMut() -> usize,
) -> Result<Option<ParsedContent>, Error> {
    let mut scanner = Scanner::new();
    let mut scope = NamespaceContext::empty();
    let mut content = ParsedContent::default();
    let (mut from, mut fed, mut closed) = (0, 0, false);
    loop {
        match scanner.scan(&input[from..fed], limits)? {
            ScanOutcome::More { skip } => {
                from += skip;
                if fed == input.len() {
                    return Ok(closed.then_some(content));
                }
                fed = (fed + piece().max(1)).min(input.len());
            }
            ScanOutcome::Open { start, end } => {
                let tag = &input[from + start..from + end];
                let open = Reader::open_tag(tag, limits)?;
                content.start(&open.ns.name(), open.name, attributes(&open));
                scope = NamespaceContext::from_open_tag(tag, limits)?;
                from += end;
            }
            ScanOutcome::Element { start, end } => {
                read_into(&mut content, &input[from + start..from + end], &scope, limits)?;
                from += end;
            }
            ScanOutcome::Close { end } => {
                content.end();
                closed = true;
                from += end;
            }
        }
    }
}
