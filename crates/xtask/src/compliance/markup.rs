//! Scanner for the XML source of a specification: paragraphs with the numbers of their sections.
//!
//! RFCs are xml2rfc version 2 (`<section>`, `<t>`), XEPs have a vocabulary of their own (`<section1>`, `<p>`, `<li>`).
//! Both use entities of a DTD that is not available, hence this scanner: the server's parser rejects a DTD, rightly.
//!
//! Not implemented: figures, examples and references, which are not normative.

use std::collections::HashMap;

/// A paragraph, list item or table cell.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Paragraph {
    /// Section number: `8.5.2`, or `A.1` in an appendix.
    pub(crate) section: String,
    /// Anchor of the section in the source.
    pub(crate) anchor: String,
    /// Text with single spaces.
    pub(crate) text: String,
}

enum Token<'a> {
    Open { name: &'a str, attributes: &'a str, empty: bool },
    Close(&'a str),
    Text(&'a str),
}

/// Elements whose content is skipped.
const SKIPPED: [&str; 8] =
    ["artwork", "code", "example", "examples", "header", "front", "references", "remark"];
/// Elements that form a paragraph.
const BLOCKS: [&str; 9] = ["t", "p", "li", "td", "th", "dt", "dd", "preamble", "postamble"];

/// All paragraphs of the source, in order.
pub(crate) fn paragraphs(source: &str) -> Vec<Paragraph> {
    let tokens = tokens(source);
    let numbers = numbers(&tokens);
    let mut walk = Walk::default();
    for token in &tokens {
        walk.take(token, &numbers);
    }
    walk.flush();
    walk.done
}

#[derive(Default)]
struct Walk {
    numbering: Numbering,
    anchors: Vec<String>,
    skipping: Option<String>,
    text: String,
    /// Inside a list that describes one feature (RFC 6120, section 15); its items form one paragraph.
    feature: bool,
    done: Vec<Paragraph>,
}

impl Walk {
    fn take(&mut self, token: &Token<'_>, numbers: &HashMap<String, String>) {
        if let Some(skipped) = &self.skipping {
            if matches!(token, Token::Close(name) if name == skipped) {
                self.skipping = None;
            }
            return;
        }
        match *token {
            Token::Text(text) => self.text.push_str(&entities(text)),
            Token::Open { name, empty: false, .. } if SKIPPED.contains(&name) => {
                self.skipping = Some(name.to_owned());
            }
            Token::Open { name: "back", .. } => self.numbering.appendices(),
            Token::Open { name, attributes, .. } if is_section(name) => {
                self.flush();
                self.numbering.open();
                // A section without an anchor is linked by that of the enclosing section.
                let around = self.anchors.last().map(String::as_str);
                let anchor = attribute(attributes, "anchor").or(around).unwrap_or_default().to_owned();
                self.anchors.push(anchor);
            }
            Token::Close(name) if is_section(name) => {
                self.flush();
                self.numbering.close();
                self.anchors.pop();
            }
            Token::Open { name: "xref", attributes, empty: true } => {
                let target = attribute(attributes, "target").unwrap_or_default();
                let shown = numbers.get(target);
                self.text.push_str(&shown.map_or_else(|| format!("[{target}]"), |n| format!("Section {n}")));
            }
            Token::Open { name, attributes, .. } if BLOCKS.contains(&name) => {
                let hanging = attribute(attributes, "hangText").map(entities);
                let of_feature = hanging.as_ref().is_some_and(|text| {
                    matches!(text.as_str(), "Description:" | "Section:" | "Roles:") && self.feature
                });
                if !of_feature {
                    self.flush();
                }
                if let Some(text) = hanging {
                    self.feature |= text == "Feature:";
                    self.text.push_str(&format!(" {text} "));
                }
            }
            Token::Close(name) if BLOCKS.contains(&name) => {
                if self.feature {
                    self.text.push_str(". ");
                } else {
                    self.flush();
                }
            }
            Token::Open { name: "span", attributes, .. }
                if attribute(attributes, "class") == Some("super") =>
            {
                self.text.push('^');
            }
            Token::Close("list") => self.flush(),
            Token::Open { .. } | Token::Close(_) => {}
        }
    }

    fn flush(&mut self) {
        self.feature = false;
        let text = self.text.split_whitespace().collect::<Vec<_>>().join(" ");
        self.text.clear();
        let text = text.replace(" .", ".").replace("..", ".");
        if !text.is_empty() && !self.anchors.is_empty() {
            let anchor = self.anchors.last().cloned().unwrap_or_default();
            self.done.push(Paragraph { section: self.numbering.number(), anchor, text });
        }
    }
}

/// Section counter: numbers in the body, a leading letter in appendices.
#[derive(Default)]
struct Numbering {
    counts: Vec<usize>,
    depth: usize,
    appendix: bool,
}

impl Numbering {
    fn appendices(&mut self) {
        *self = Numbering { appendix: true, ..Numbering::default() };
    }

    fn open(&mut self) {
        self.counts.truncate(self.depth + 1);
        self.depth += 1;
        match self.counts.get_mut(self.depth - 1) {
            Some(count) => *count += 1,
            None => self.counts.push(1),
        }
    }

    fn close(&mut self) {
        self.counts.truncate(self.depth);
        self.depth = self.depth.saturating_sub(1);
    }

    fn number(&self) -> String {
        let mut parts = Vec::new();
        for (level, count) in self.counts.iter().take(self.depth).enumerate() {
            let letter = (b'A'..=b'Z').nth(count.saturating_sub(1)).filter(|_| self.appendix && level == 0);
            parts.push(letter.map_or_else(|| count.to_string(), |letter| char::from(letter).to_string()));
        }
        parts.join(".")
    }
}

/// Section numbers by anchor.
fn numbers(tokens: &[Token<'_>]) -> HashMap<String, String> {
    let mut numbering = Numbering::default();
    let mut numbers = HashMap::new();
    for token in tokens {
        match token {
            Token::Open { name: "back", .. } => numbering.appendices(),
            Token::Open { name, attributes, .. } if is_section(name) => {
                numbering.open();
                if let Some(anchor) = attribute(attributes, "anchor") {
                    numbers.insert(anchor.to_owned(), numbering.number());
                }
            }
            Token::Close(name) if is_section(name) => numbering.close(),
            _ => {}
        }
    }
    numbers
}

fn is_section(name: &str) -> bool {
    matches!(name, "section" | "section1" | "section2" | "section3" | "section4")
}

fn tokens(source: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut rest = source;
    while let Some(at) = rest.find('<') {
        if at > 0 {
            tokens.push(Token::Text(&rest[..at]));
        }
        rest = &rest[at..];
        let end = if rest.starts_with("<!--") {
            rest.find("-->").map(|end| end + 3)
        } else if rest.starts_with("<![CDATA[") {
            rest.find("]]>").map(|end| end + 3)
        } else if rest.starts_with("<!DOCTYPE") {
            // An internal subset ends with `]>`.
            let close = rest.find('>').unwrap_or(rest.len());
            let subset = rest[..close].contains('[');
            if subset { rest.find("]>").map(|end| end + 2) } else { Some(close + 1) }
        } else {
            tag_end(rest)
        };
        let Some(end) = end else { break };
        let tag = &rest[1..end - 1];
        if let Some(name) = tag.strip_prefix('/') {
            tokens.push(Token::Close(name.trim()));
        } else if !tag.starts_with(['!', '?']) {
            let (tag, empty) = tag.strip_suffix('/').map_or((tag, false), |tag| (tag, true));
            let (name, attributes) = tag.split_once(char::is_whitespace).unwrap_or((tag, ""));
            tokens.push(Token::Open { name, attributes, empty });
            if empty && name != "xref" {
                tokens.push(Token::Close(name));
            }
        }
        rest = &rest[end..];
    }
    tokens
}

/// End of a tag: the first `>` outside quoted attributes.
fn tag_end(rest: &str) -> Option<usize> {
    let mut quote = None;
    for (at, byte) in rest.bytes().enumerate() {
        match (quote, byte) {
            (None, b'>') => return Some(at + 1),
            (None, b'"' | b'\'') => quote = Some(byte),
            (Some(open), _) if open == byte => quote = None,
            _ => {}
        }
    }
    None
}

fn attribute<'a>(attributes: &'a str, name: &str) -> Option<&'a str> {
    let at = attributes.find(&format!("{name}="))?;
    let value = &attributes[at + name.len() + 1..];
    let quote = value.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    value[1..].split(quote).next()
}

/// Replaces entities; those of the XEPs' DTD by their text, or by nothing.
fn entities(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let Some((name, after)) = rest.split_once(';') else { break };
        rest = after;
        match name {
            "lt" => out.push('<'),
            "gt" => out.push('>'),
            "amp" => out.push('&'),
            "quot" => out.push('"'),
            "apos" => out.push('\''),
            "nbsp" => out.push(' '),
            "nbhy" => out.push('-'),
            "IQ" => out.push_str("<iq/>"),
            "MESSAGE" => out.push_str("<message/>"),
            "PRESENCE" => out.push_str("<presence/>"),
            "xmppcore" => out.push_str("XMPP Core"),
            "feature" => out.push_str("<feature-not-implemented/>"),
            "notfound" => out.push_str("<item-not-found/>"),
            _ => out.push_str(&reference(name)),
        }
    }
    out.push_str(rest);
    out
}

/// Expands `xep0203`, `rfc6120` and `#x159`; other names, which are footnotes, yield nothing.
fn reference(name: &str) -> String {
    let numbered = |prefix: &str| {
        name.strip_prefix(prefix).filter(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    };
    if let Some(number) = numbered("xep") {
        return format!("XEP-{number}");
    }
    if let Some(number) = numbered("rfc") {
        return format!("RFC {number}");
    }
    let code = name.strip_prefix("#x").and_then(|hex| u32::from_str_radix(hex, 16).ok());
    let code = code.or_else(|| name.strip_prefix('#').and_then(|decimal| decimal.parse().ok()));
    code.and_then(char::from_u32).map(String::from).unwrap_or_default()
}
