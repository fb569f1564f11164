//! Property test on 20 000 generated and mutated stanzas: reading, rewriting and extending never panics, and the result
//! reads back with the head that the rewriting returned (RFC 6120, section 8.1.2.1).
//!
//! The same property runs in `fuzz/`, without a seed.
//!
//! # Pitfalls
//!
//! The property only applies to valid stanzas, so the test counts how many the generator produces.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail by panicking")]

mod property;

use property::check;

/// Seeded choices, so that a failure can be reproduced.
struct Random(fastrand::Rng);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0.usize(..n)
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }
}

const NAMES: [&str; 4] = ["message", "presence", "iq", "message"];
const BLANKS: [&str; 5] = [" ", " ", "  ", "\n", "\t "];
const ADDRESSES: [&str; 6] = [
    "juliet@example.com",
    "romeo@example.net/orchard",
    "",
    "a&amp;b@example.com/x&apos;y",
    "é@example.com/é",
    "&#x4a;",
];
const VALUES: [&str; 6] = ["1", "", "a&lt;b", "it&quot;s", "ünïcode", "&#10;"];
const TYPES: [&str; 10] =
    ["chat", "get", "set", "result", "error", "subscribe", "unavailable", "headline", "groupchat", "none"];
const CHILDREN: [&str; 12] = [
    "<body>Wherefore art thou?</body>",
    "<body/>",
    "<active xmlns='http://jabber.org/protocol/chatstates'/>",
    "<query xmlns='jabber:iq:roster'><item jid='a@b'/></query>",
    "<x:y xmlns:x='urn:x' x:z='1'><x:y/></x:y>",
    "<delay xmlns='urn:xmpp:delay' stamp='x'/>",
    "text",
    "\n  ",
    "<![CDATA[</message><body>]]>",
    "&amp;&#x3c;",
    "<ping xmlns=\"urn:xmpp:ping\"/>",
    "<error type='cancel'><gone xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'>xmpp:a@b</gone></error>",
];

fn attribute(random: &mut Random, name: &str, value: &str, out: &mut String) {
    let quote = random.one(&["'", "\""]);
    out.push_str(random.one(&BLANKS));
    out.push_str(&format!(
        "{name}{}={}{quote}{value}{quote}",
        random.one(&["", "", " "]),
        random.one(&["", "", "\n"])
    ));
}

fn stanza(random: &mut Random) -> String {
    let name = random.one(&NAMES);
    let mut out = format!("<{name}");
    let mut attributes = vec!["to", "from", "id", "type", "xml:lang", "xmlns", "other", "tom", "xmlns:q"];
    for _ in 0..random.below(7) {
        let attribute_name = attributes.remove(random.below(attributes.len()));
        let value = match attribute_name {
            "to" | "from" => random.one(&ADDRESSES),
            "type" => random.one(&TYPES),
            "xmlns" => "jabber:client",
            "xmlns:q" => "urn:q",
            _ => random.one(&VALUES),
        };
        attribute(random, attribute_name, value, &mut out);
    }
    out.push_str(random.one(&["", "", " ", "\n"]));
    if random.below(5) == 0 {
        out.push_str("/>");
        return out;
    }
    out.push('>');
    for _ in 0..random.below(5) {
        out.push_str(random.one(&CHILDREN));
    }
    out.push_str(&format!("</{name}{}>", random.one(&["", "", " "])));
    out
}

/// Applies one to three small mutations.
fn spoil(random: &mut Random, text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..=random.below(3) {
        let at = random.below(bytes.len().max(1));
        match random.below(4) {
            0 if !bytes.is_empty() => drop(bytes.remove(at)),
            1 => bytes.insert(at, b"<>/'\"=& \0x\xff"[random.below(11)]),
            2 if !bytes.is_empty() => bytes[at] = b"<>/'\"=& toax"[random.below(12)],
            _ => {
                let end = (at + random.below(12)).min(bytes.len());
                let piece = bytes[at.min(end)..end].to_vec();
                let place = random.below(bytes.len() + 1);
                bytes.splice(place..place, piece);
            }
        }
    }
    bytes
}

#[test]
fn rewritten_stanzas_read_back_the_same() {
    let mut random = Random(fastrand::Rng::with_seed(6121));
    let (mut good, mut spoiled) = (0, 0);
    for _ in 0..10_000 {
        let text = stanza(&mut random);
        good += usize::from(check(text.as_bytes()));
        spoiled += usize::from(check(&spoil(&mut random, &text)));
    }
    assert!(good == 10_000, "only {good} of the generated stanzas are stanzas");
    assert!(spoiled > 1_000, "only {spoiled} of the spoiled stanzas are still stanzas");
}

#[test]
fn the_seeds_of_the_fuzz_target_are_stanzas() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/head");
    let seeds = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path());
    let seeds: Vec<_> =
        seeds.filter(|p| p.file_name().unwrap().to_string_lossy().starts_with("seed-")).collect();
    assert!(seeds.len() >= 6, "{seeds:?}");
    for seed in seeds {
        assert!(check(&std::fs::read(&seed).unwrap()), "{}", seed.display());
    }
}
