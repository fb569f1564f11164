//! Generator of stanzas at a limit, just below or just above it, in one property or two.
//!
//! Not implemented: rates, queues and counts of an account, which have tests of their own.
//!
//! # Pitfalls
//!
//! Every property contributes to others; a stanza is built so that each number is met exactly.

use std::fmt::Write as _;

use throng_core::NodeLimits;

/// Properties of a stanza; `None` stands for a small value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StanzaShape {
    /// Attributes of the stanza, including namespace declarations.
    attributes: Option<usize>,
    /// Nested elements, including the stanza.
    depth: Option<usize>,
    /// Prefixes declared by the stanza.
    prefixes: Option<usize>,
    /// Size of the start tag in bytes.
    start_tag: Option<usize>,
    /// Total size in bytes.
    bytes: Option<usize>,
    /// Length of a child's name in bytes.
    name: Option<usize>,
    /// Length of a child's namespace in bytes.
    namespace: Option<usize>,
    /// Prefixes on the attributes of a child.
    attribute_prefixes: Option<usize>,
    /// Quotes in the id, each of which becomes six bytes when escaped.
    quotes: Option<usize>,
    /// Without children and end tag, unless another property requires children.
    empty: bool,
}

type SetProperty = fn(&mut StanzaShape, usize);

/// Properties and their limits. Quotes have no limit of their own.
fn limited_properties() -> [(SetProperty, usize); 9] {
    let limits = NodeLimits::default().stanza();
    [
        (|s, n| s.attributes = Some(n), limits.attributes.into()),
        (|s, n| s.depth = Some(n), limits.depth.into()),
        (|s, n| s.prefixes = Some(n), limits.prefixes.into()),
        (|s, n| s.start_tag = Some(n), limits.start_tag_bytes.into()),
        (|s, n| s.bytes = Some(n), limits.element_bytes as usize),
        (|s, n| s.name = Some(n), limits.name_bytes.into()),
        (|s, n| s.namespace = Some(n), xml::MAX_NAMESPACE_BYTES),
        (|s, n| s.attribute_prefixes = Some(n), xml::MAX_ATTRIBUTE_PREFIXES),
        (|s, n| s.quotes = Some(n), 30_000),
    ]
}

/// Every property at its limit, one below and one above, and every pair of them.
pub(crate) fn shapes() -> Vec<StanzaShape> {
    let mut all = vec![StanzaShape::default(), StanzaShape { empty: true, ..StanzaShape::default() }];
    let respects = limited_properties();
    for (at, (one, most)) in respects.iter().enumerate() {
        for n in most - 1..=most + 1 {
            let mut shape = StanzaShape::default();
            one(&mut shape, n);
            all.extend([shape, StanzaShape { empty: true, ..shape }]);
            for (other, most) in &respects[at + 1..] {
                for n in most - 1..=most + 1 {
                    let mut shape = shape;
                    other(&mut shape, n);
                    all.push(shape);
                }
            }
        }
    }
    // Start tags around the limit of 16-bit offsets, 65 536 bytes, and twice that.
    for length in (65_490..65_540).step_by(3).chain([65_496, 65_528, 65_535, 65_536, 131_072]) {
        for empty in [false, true] {
            all.push(StanzaShape { start_tag: Some(length), empty, ..StanzaShape::default() });
        }
    }
    all
}

impl StanzaShape {
    /// Whether it is within every limit.
    pub(crate) fn is_allowed(&self, payload: &str) -> bool {
        let limits = NodeLimits::default().stanza();
        let within = |what: Option<usize>, most: usize| what.is_none_or(|n| n <= most);
        // Declarations of children are in scope together with those of the stanza.
        let payload = usize::from(payload.contains(" xmlns=") && !self.is_bare());
        let prefixes = self.prefixes.unwrap_or(0) + payload + self.own_declarations();
        within(self.attributes, limits.attributes.into())
            && within(self.depth, limits.depth.into())
            && prefixes <= usize::from(limits.prefixes)
            && within(self.start_tag, limits.start_tag_bytes.into())
            && within(self.bytes, limits.element_bytes as usize)
            && within(self.name, limits.name_bytes.into())
            && within(self.namespace, xml::MAX_NAMESPACE_BYTES)
            && within(self.attribute_prefixes, xml::MAX_ATTRIBUTE_PREFIXES)
            && self.quotes.unwrap_or(0) < 30_000 + 200
    }

    fn own_declarations(&self) -> usize {
        usize::from(self.namespace.is_some()).max(self.attribute_prefixes.unwrap_or(0))
    }

    /// Writes such a stanza. `None` if these properties exclude one another. `payload` is its child.
    pub(crate) fn write(&self, name: &str, to: &str, id: &str, kind: &str, payload: &str) -> Option<String> {
        let quotes = "'".repeat(self.quotes.unwrap_or(0));
        let mut tag = format!("<{name} to='{to}' id=\"{id}{quotes}\"");
        let mut count = 2;
        if !kind.is_empty() {
            write!(tag, " type='{kind}'").ok()?;
            count += 1;
        }
        for at in 0..self.prefixes.unwrap_or(0) {
            write!(tag, " xmlns:p{at}='urn:p:{at}'").ok()?;
            count += 1;
        }
        if let Some(wanted) = self.attributes {
            let filling = usize::from(self.start_tag.is_some());
            for at in 0..wanted.checked_sub(count + filling)? {
                write!(tag, " a{at}=''").ok()?;
            }
        }
        let content = self.content(payload);
        let end = if content.is_empty() { "/>" } else { ">" };
        if let Some(wanted) = self.start_tag {
            let filling = wanted.checked_sub(tag.len() + " f=''".len() + end.len())?;
            write!(tag, " f='{}'", "f".repeat(filling)).ok()?;
        }
        tag += end;
        if content.is_empty() {
            return (self.bytes.is_none()).then_some(tag);
        }
        let close = format!("</{name}>");
        let text = match self.bytes {
            None => String::new(),
            // Text fills the size, so that a request still has a single child.
            Some(wanted) => "t".repeat(wanted.checked_sub(tag.len() + content.len() + close.len())?),
        };
        // Text may stand inside or beside the payload, because it is not a child element.
        Some(format!("{tag}{content}{text}{close}"))
    }

    /// Whether there are no children.
    fn is_bare(&self) -> bool {
        let inside = StanzaShape { attributes: None, prefixes: None, start_tag: None, quotes: None, ..*self };
        inside == StanzaShape { empty: true, ..StanzaShape::default() }
    }

    /// The payload with all other content inside it.
    fn content(&self, payload: &str) -> String {
        if self.is_bare() {
            return String::new();
        }
        let mut inner = String::new();
        if self.prefixes.is_some_and(|n| n > 0) {
            inner += "<p0:u p0:k=''/>";
        }
        if let Some(length) = self.name {
            write!(inner, "<{}/>", "n".repeat(length)).expect("a string");
        }
        if let Some(length) = self.namespace {
            write!(inner, "<y xmlns='urn:{}'/>", "y".repeat(length - 4)).expect("a string");
        }
        if let Some(count) = self.attribute_prefixes {
            inner += "<z";
            for at in 0..count {
                write!(inner, " xmlns:z{at}='urn:z:{at}' z{at}:k=''").expect("a string");
            }
            inner += "/>";
        }
        if let Some(depth) = self.depth {
            // The stanza and the payload are the outer two levels.
            write!(inner, "{}{}", "<d>".repeat(depth - 2), "</d>".repeat(depth - 2)).expect("a string");
        }
        payload.replace("{}", &inner)
    }
}
