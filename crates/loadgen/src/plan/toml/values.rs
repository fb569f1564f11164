//! Value syntaxes within the strings of a plan: time spans, amounts, placeholders, destinations, addresses.
//!
//! Not implemented: arithmetic beyond `connections * 5`.
//!
//! # Pitfalls
//!
//! A host name is resolved to one address only, IPv4 before IPv6, or every second connection would fail at a server
//! that listens on one of them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};

use super::super::error::nearest;
use super::super::{Destination, TemplatePart, TextTemplate, TimeSpan};
use super::reader::TomlNode;

/// Maximum number of source addresses in one range; more is likely a typo.
const MOST_SOURCES: u32 = 65_536;

/// `"250ms"`, `"5s"`, `"1m30s"`, `"2h"` in milliseconds.
pub(super) fn span(text: &str) -> Option<f64> {
    let mut rest = text.trim();
    if rest == "0" {
        return Some(0.0);
    }
    let mut total = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').filter(|n| *n > 0)?;
        let (number, after) = rest.split_at(digits);
        let letters = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(letters);
        let unit = match unit {
            "ms" => 1.0,
            "s" => 1_000.0,
            "m" | "min" => 60_000.0,
            "h" => 3_600_000.0,
            _ => return None,
        };
        total += number.parse::<f64>().ok()? * unit;
        rest = after;
    }
    (!text.trim().is_empty() && total.is_finite()).then_some(total)
}

/// A span, or `"5s..10s"` (uniform) or `"~5s"` (exponential with this mean).
pub(super) fn time(text: &str) -> Option<TimeSpan> {
    if let Some(mean) = text.trim().strip_prefix('~') {
        return span(mean).map(TimeSpan::Exponential);
    }
    let Some((from, to)) = text.split_once("..") else { return span(text).map(TimeSpan::Fixed) };
    let (from, to) = (span(from)?, span(to)?);
    (from <= to).then_some(TimeSpan::Uniform(from, to))
}

const SPAN_FORM: &str =
    "must be a time such as \"250ms\", \"5s\", \"1m30s\", \"2h\" or \"connections * 100ms\"";
const TIME_FORM: &str = "must be a time such as \"5s\" or \"1m30s\", between two such as \"5s..10s\", or random around one such as \"~5s\"";

impl TomlNode<'_> {
    /// A fixed span in whole milliseconds.
    pub(super) fn span_ms(&self) -> Option<u64> {
        self.span_exact().map(|ms| ms.round() as u64)
    }

    /// A fixed span in milliseconds, including fractions.
    pub(super) fn span_exact(&self) -> Option<f64> {
        if !self.is_text() {
            return self.none(SPAN_FORM);
        }
        let text = self.text()?;
        let each = text.strip_prefix("connections").and_then(|rest| rest.trim().strip_prefix('*'));
        let ms = match each {
            Some(each) => span(each).map(|ms| ms * f64::from(self.context.connections)),
            None => span(text),
        };
        ms.or_else(|| self.none(format!("{SPAN_FORM}; not \"{text}\"")))
    }

    /// A fixed or random span.
    pub(super) fn time(&self) -> Option<TimeSpan> {
        if !self.is_text() {
            return self.none(TIME_FORM);
        }
        let text = self.text()?;
        match time(text) {
            Some(time) => Some(time),
            None => self.none(format!("{TIME_FORM}; not \"{text}\"")),
        }
    }

    /// A number of users: a number, or `"connections"`, optionally multiplied or divided by a number. Rounded up; at
    /// least 1.
    pub(super) fn amount(&self) -> Option<u32> {
        const FORM: &str = "must be a number of at least 1, \"connections\", or such as \"connections * 5\"";
        if !self.is_text() {
            let number = self.integer().and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0);
            return number.or_else(|| self.none(FORM));
        }
        let text = self.text()?;
        let amount = amount(text, self.context.connections);
        amount.or_else(|| self.none(format!("{FORM}; not \"{text}\"")))
    }

    /// Text with placeholders.
    pub(super) fn template(&self) -> Option<TextTemplate> {
        let text = self.text()?;
        match template(text) {
            Ok(text) => Some(text),
            Err(what) => self.none(what),
        }
    }

    pub(super) fn destination(&self) -> Option<Destination> {
        let text = self.text()?;
        match destination(text) {
            Ok(destination) => Some(destination),
            Err(what) => self.none(what),
        }
    }
}

fn amount(text: &str, connections: u32) -> Option<u32> {
    let rest = text.trim().strip_prefix("connections")?.trim();
    let exact = if rest.is_empty() {
        f64::from(connections)
    } else if let Some(factor) = rest.strip_prefix('*') {
        f64::from(connections) * factor.trim().parse::<f64>().ok()?
    } else {
        f64::from(connections) / rest.strip_prefix('/')?.trim().parse::<f64>().ok().filter(|d| *d > 0.0)?
    };
    // Slightly below, so that 3 * (1/3) is not rounded up to 2.
    let whole = (exact - 1e-6).ceil().max(1.0);
    (whole.is_finite() && whole <= f64::from(u32::MAX)).then_some(whole as u32)
}

/// Placeholders and their template parts.
const PLACEHOLDERS: &[(&str, TemplatePart)] = &[
    ("user", TemplatePart::User),
    ("n", TemplatePart::Number),
    ("password", TemplatePart::Password),
    ("domain", TemplatePart::Domain),
    ("jid", TemplatePart::Jid),
    ("unique", TemplatePart::Unique),
    ("to", TemplatePart::Destination),
];

/// Text with `{user}`, `{n}`, `{password}`, `{domain}`, `{jid}`, `{unique}`, `{to}` and `{var:NAME}`; `{{` and `}}` are
/// literal braces.
pub(super) fn template(text: &str) -> Result<TextTemplate, String> {
    let mut pieces = Vec::new();
    let mut literal = String::new();
    let mut rest = text;
    while let Some(place) = rest.find(['{', '}']) {
        let (before, brace) = rest.split_at(place);
        literal.push_str(before);
        if let Some(after) = brace.strip_prefix("{{").or_else(|| brace.strip_prefix("}}")) {
            literal.push_str(&brace[..1]);
            rest = after;
            continue;
        }
        let Some(inside) = brace.strip_prefix('{') else {
            return Err("has a \"}\" without its \"{\"; write a literal brace twice: \"}}\"".to_owned());
        };
        let Some((name, after)) = inside.split_once('}') else {
            return Err("has a \"{\" without its \"}\"; write a literal brace twice: \"{{\"".to_owned());
        };
        let piece = if let Some(variable) = name.strip_prefix("var:").filter(|v| !v.is_empty()) {
            TemplatePart::Variable(variable.to_owned())
        } else if let Some((_, piece)) = PLACEHOLDERS.iter().find(|(known, _)| *known == name) {
            piece.clone()
        } else {
            let near = nearest(name, PLACEHOLDERS.iter().map(|(known, _)| *known));
            let fix = if near.is_empty() {
                "; known are {user}, {n}, {password}, {domain}, {jid}, {unique}, {to} and {var:NAME}"
            } else {
                near.as_str()
            };
            return Err(format!("has the unknown placeholder \"{{{name}}}\"{fix}"));
        };
        if !literal.is_empty() {
            pieces.push(TemplatePart::Literal(std::mem::take(&mut literal)));
        }
        pieces.push(piece);
        rest = after;
    }
    literal.push_str(rest);
    if !literal.is_empty() {
        pieces.push(TemplatePart::Literal(literal));
    }
    Ok(TextTemplate(pieces))
}

/// Words for destinations; anything else is an address.
const DESTINATIONS: &[(&str, Destination)] = &[
    ("online", Destination::Online),
    ("offline", Destination::Offline),
    ("random", Destination::Random),
    ("unique", Destination::Unique),
    ("previous", Destination::Previous),
    ("last_contact", Destination::LastContact),
    ("first", Destination::First),
    ("contact", Destination::Contact),
    ("online_contact", Destination::OnlineContact),
    ("partner", Destination::Partner),
    ("self", Destination::Myself),
    ("server", Destination::Server),
];

fn destination(text: &str) -> Result<Destination, String> {
    if let Some((_, destination)) = DESTINATIONS.iter().find(|(word, _)| *word == text) {
        return Ok(destination.clone());
    }
    if let Some((word, resource)) = text.split_once('/')
        && (word.starts_with("ring") || DESTINATIONS.iter().any(|(known, _)| *known == word))
    {
        if resource.is_empty() {
            return Err(format!("\"{text}\" has no resource; write such as \"{word}/phone\""));
        }
        return Ok(Destination::Full(Box::new(destination(word)?), template(resource)?));
    }
    if let Some(distance) = text.strip_prefix("ring") {
        let digits = distance.strip_prefix('+').unwrap_or(distance);
        let number = digits.parse::<i32>().ok().filter(|n| *n != 0 && !digits.starts_with('+'));
        return number.map(Destination::Ring).ok_or_else(|| {
            format!("\"{text}\" is not a position in the ring; write one such as \"ring+1\" or \"ring-25\"")
        });
    }
    if text.contains(['@', '.', '{']) {
        return template(text).map(Destination::Jid);
    }
    let words: Vec<&str> = DESTINATIONS.iter().map(|(word, _)| *word).collect();
    let near = nearest(text, words.iter().copied());
    if near.is_empty() {
        return Err(format!(
            "\"{text}\" is not a recipient; write one of {}, ring+1, or an address such as \
             \"alice@example.org\"",
            words.join(", ")
        ));
    }
    Err(format!("\"{text}\" is not a recipient{near}"))
}

/// Resolves addresses from `HOST:PORT` (5222 without a port); an error is one sentence.
pub fn addresses(text: &str) -> Result<Vec<SocketAddr>, String> {
    let text = text.trim();
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(vec![address]);
    }
    let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(text);
    if let Ok(address) = bare.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, 5222)]);
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) => (host, port.parse::<u16>().ok().filter(|p| *p > 0)),
        None => (text, Some(5222)),
    };
    let Some(port) = port.filter(|_| !host.is_empty()) else {
        return Err(format!("\"{text}\" is not HOST:PORT, such as 127.0.0.1:5222"));
    };
    let found: Vec<SocketAddr> = match (host, port).to_socket_addrs() {
        Ok(found) => found.collect(),
        Err(error) => {
            return Err(format!(
                "the host \"{host}\" is not found ({error}); give an address such as 127.0.0.1:{port}"
            ));
        }
    };
    // One address per host: a server that listens on IPv4 only must not fail every second connection.
    match found.iter().find(|a| a.is_ipv4()).or(found.first()) {
        Some(first) => Ok(vec![*first]),
        None => Err(format!("the host \"{host}\" has no address; give one such as 127.0.0.1:{port}")),
    }
}

/// Source addresses from `127.0.0.2`, `127.0.0.2-127.0.0.60` or `10.1.0.0/28` (the whole network), separated by
/// commas.
pub fn sources(text: &str) -> Result<Vec<IpAddr>, String> {
    let mut list = Vec::new();
    for part in text.split(',').map(str::trim) {
        let wrong = || {
            format!(
                "\"{part}\" is not a range of local addresses; write one such as 127.0.0.2-127.0.0.60 or \
                 10.1.0.0/28"
            )
        };
        let (from, to) = if let Some((from, to)) = part.split_once('-') {
            (v4(from).ok_or_else(wrong)?, v4(to).ok_or_else(wrong)?)
        } else if let Some((network, bits)) = part.split_once('/') {
            let bits = bits.parse::<u32>().ok().filter(|b| *b <= 32).ok_or_else(wrong)?;
            let hosts = u32::MAX.checked_shr(bits).unwrap_or(0);
            let network = v4(network).ok_or_else(wrong)? & !hosts;
            (network, network | hosts)
        } else {
            list.push(part.parse().map_err(|_| wrong())?);
            continue;
        };
        if to < from {
            return Err(format!("the range {part} ends before it begins"));
        }
        if to - from >= MOST_SOURCES {
            return Err(format!("the range {part} has more than {MOST_SOURCES} addresses; name fewer"));
        }
        list.extend((from..=to).map(|n| IpAddr::V4(Ipv4Addr::from_bits(n))));
    }
    Ok(list)
}

fn v4(text: &str) -> Option<u32> {
    text.trim().parse::<Ipv4Addr>().ok().map(Ipv4Addr::to_bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_spans_are_parsed() {
        let cases = [
            ("250ms", 250.0),
            ("5s", 5_000.0),
            ("1m30s", 90_000.0),
            ("2h24m", 8_640_000.0),
            ("4.5ms", 4.5),
            ("1.5min", 90_000.0),
            ("0", 0.0),
            ("0s", 0.0),
        ];
        for (text, ms) in cases {
            assert_eq!(span(text), Some(ms), "{text}");
        }
        for text in ["", "5", "s", "5 s", "-5s", "5d", "5s3", "..", "1.2.3s", "5s..6s"] {
            assert_eq!(span(text), None, "{text}");
        }
    }

    #[test]
    fn fixed_and_random_times_are_parsed() {
        assert_eq!(time("5s"), Some(TimeSpan::Fixed(5_000.0)));
        assert_eq!(time("~5s"), Some(TimeSpan::Exponential(5_000.0)));
        assert_eq!(time("5s..10s"), Some(TimeSpan::Uniform(5_000.0, 10_000.0)));
        for text in ["10s..5s", "~", "5s..", "~5s..6s"] {
            assert_eq!(time(text), None, "{text}");
        }
    }

    #[test]
    fn amounts_are_rounded_up() {
        assert_eq!(amount("connections", 7), Some(7));
        assert_eq!(amount("connections * 5", 7), Some(35));
        assert_eq!(amount("connections*6.6668", 30_000), Some(200_004));
        assert_eq!(amount("connections / 3", 7), Some(3));
        assert_eq!(amount("connections / 100", 7), Some(1));
        for text in
            ["connection", "connections + 1", "connections * x", "connections / 0", "connections * 1e9"]
        {
            assert_eq!(amount(text, 7), None, "{text}");
        }
    }

    #[test]
    fn placeholders_become_template_parts() {
        let text = template("<a to='{domain}' x='{var:x}'>{{{user}}}</a>").unwrap();
        assert_eq!(
            text,
            TextTemplate(vec![
                TemplatePart::Literal("<a to='".into()),
                TemplatePart::Domain,
                TemplatePart::Literal("' x='".into()),
                TemplatePart::Variable("x".into()),
                TemplatePart::Literal("'>{".into()),
                TemplatePart::User,
                TemplatePart::Literal("}</a>".into()),
            ])
        );
        assert_eq!(template("").unwrap(), TextTemplate(vec![]));
    }

    #[test]
    fn destination_words_are_parsed() {
        assert_eq!(destination("ring+1"), Ok(Destination::Ring(1)));
        assert_eq!(destination("ring-25"), Ok(Destination::Ring(-25)));
        assert_eq!(destination("a@b"), Ok(Destination::Jid(TextTemplate::literal("a@b"))));
        for text in ["ring", "ring+0", "ring++1", "ringx"] {
            assert!(destination(text).unwrap_err().contains("not a position in the ring"), "{text}");
        }
    }

    #[test]
    fn addresses_of_every_form() {
        let one = |text: &str| addresses(text).map(|list| list[0].to_string());
        assert_eq!(one("127.0.0.1:5223"), Ok("127.0.0.1:5223".to_owned()));
        assert_eq!(one("127.0.0.1"), Ok("127.0.0.1:5222".to_owned()));
        assert_eq!(one("[::1]:5222"), Ok("[::1]:5222".to_owned()));
        assert_eq!(one("::1"), Ok("[::1]:5222".to_owned()));
        assert_eq!(one("localhost:5222"), Ok("127.0.0.1:5222".to_owned()));
        assert!(addresses("localhost:x").unwrap_err().contains("is not HOST:PORT"));
        assert!(addresses(":5222").unwrap_err().contains("is not HOST:PORT"));
    }

    #[test]
    fn ranges_of_sources() {
        let count = |text: &str| sources(text).map(|list| list.len());
        assert_eq!(count("127.0.0.2-127.0.0.60"), Ok(59));
        assert_eq!(count("10.1.0.0/28, ::1"), Ok(17));
        assert_eq!(count("127.0.0.1/32"), Ok(1));
        assert!(sources("127.0.0.9-127.0.0.2").unwrap_err().contains("ends before it begins"));
        assert!(sources("127.0.0.0/8").unwrap_err().contains("name fewer"));
        assert!(sources("x").unwrap_err().contains("not a range"));
    }
}
