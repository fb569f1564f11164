//! Seeded generator of streams with unusual but mostly legal XML, and of mutations.

use super::Random;

const NAMES: &[&str] =
    &["message", "a", "b", "body", "x-1", "_", "é", "a.b", "iq", "query", "item", "x\u{300}", "日本"];
const ATTRS: &[&str] = &["to", "from", "id", "type", "a", "b", "name", "é", "x-y", "_1", "id2", "tt"];
const PREFIXES: &[&str] = &["p", "q", "stream", "p1", "é"];
const URIS: &[&str] = &[
    "urn:a",
    "urn:b",
    "jabber:client",
    "urn:a&amp;b",
    "urn:&#97;",
    "http://etherx.jabber.org/streams",
    "urn:xmpp:receipts",
    "jabber:x:data",
    "urn:[&#x7e;]",
    "é",
];
const TEXTS: &[&str] = &[
    "Wherefore art thou",
    " ",
    "\n\t",
    "&amp;",
    "&lt;&gt;&quot;&apos;",
    "&#x1F600;",
    "&#10;",
    "é日本😀",
    "]]",
    "]",
    ">",
    "a'b\"c",
    "<![CDATA[]]>",
    "<![CDATA[<&]]]]>",
    "<![CDATA[x]>y]]>",
    "\r\n",
    "\r",
    "\u{FFFD}",
    "\u{7F}\u{85}",
    "&#xD;",
];
const VALUES: &[&str] = &[
    "",
    "romeo@montague.example/orchard",
    "&amp;&#x41;",
    "a>b",
    "\t\n x",
    "é😀",
    "]]>",
    "/",
    "\r\n",
    "&#9;",
];
const HEADERS: &[&str] = &[
    "<stream:stream xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams' version='1.0'>",
    "<?xml version='1.0'?><stream:stream xmlns='jabber:server' xmlns:stream='http://etherx.jabber.org/streams' xmlns:q='urn:q' to='a'>",
    "<stream xmlns='http://etherx.jabber.org/streams'>",
    "<?xml version=\"1.0\" encoding='utf-8' ?>\n<s:stream xml:lang='en' xmlns:s=\"http://etherx.jabber.org/streams\" s:a='1'>",
    "<s>",
];

/// Fragments that usually break a document when inserted.
const SPOILS: &[&[u8]] = &[
    b"<",
    b">",
    b"/",
    b"&",
    b"'",
    b"\"",
    b"=",
    b" ",
    b":",
    b"]]>",
    b"<!--",
    b"-->",
    b"<!-- c -->",
    b"<?pi x?>",
    b"<?",
    b"<!",
    b"<!DOCTYPE a>",
    b"<![CDATA[",
    b"<![CDATA[ ]]>",
    b"&nbsp;",
    b"&#0;",
    b"&#x1F;",
    b"&#xFFFE;",
    b"&#xD800;",
    b"&#",
    b"&amp",
    b"&#x110000;",
    b"\0",
    b"\x01",
    b"\x0b",
    b"\x1f",
    b"\x7f",
    b"\x80",
    b"\xff",
    b"\xc0\xaf",
    b"\xed\xa0\x80",
    b"\xf4\x90\x80\x80",
    b"\xef\xbf\xbe",
    b"\xef\xbf\xbf",
    b"\xef\xbb\xbf",
    b" xmlns=''",
    b" xmlns:p=''",
    b" xmlns:p='urn:a'",
    b" xmlns:xml='urn:x'",
    b" xmlns:xmlns='urn:x'",
    b" a='1'",
    b" p:a='1'",
    b" q:a='1'",
    b" xmlns:x='http://www.w3.org/2000/xmlns/'",
    b" xmlns:xml='http://www.w3.org/XML/1998/namespace'",
    b" xml:lang='x'",
    b"<p:a/>",
    b"<xml:a/>",
    b"<xmlns:a/>",
    b"<a:b:c/>",
    b"<:a/>",
    b"<a:/>",
    b"<1/>",
    b"<-a/>",
    b"<a",
    b"</a>",
    b"</",
    b"/>",
    b"\r",
    b"\xc3\xa9",
    b"\xc3\x97",
    b"<a b=c/>",
    b"<a b/>",
    b"<a b='<'/>",
    b"< a/>",
    b"<a / >",
    b"</ a>",
    b"x",
    b"<?xml version='1.0'?>",
    b"&p:a;",
    b"xmlns",
    b"1",
];

/// A stream: header, some elements, usually the end tag.
pub fn stream(random: &mut Random) -> Vec<u8> {
    let header = random.pick(HEADERS);
    let mut out = header.to_owned();
    for _ in 0..=random.below(2) {
        if random.chance(30) {
            out.push_str(random.pick(&[" ", "\n", "\r\n\t"]));
        }
        element(random, &mut out, 1);
    }
    let name = header[header.rfind('<').unwrap() + 1..].split([' ', '>']).next().unwrap();
    out.push_str("</");
    out.push_str(name);
    out.push_str(random.pick(&["", "", " ", "\n"]));
    out.push('>');
    out.into_bytes()
}

/// One element. Most prefixes are declared, so that most documents are valid.
pub fn element(random: &mut Random, out: &mut String, depth: usize) {
    let mut name = String::new();
    let mut tag = String::new();
    let mut declared: Vec<&str> = Vec::new();
    if random.chance(25) {
        tag.push_str(&format!("{} xmlns={}", random.pick(&["", " ", "\n"]), quoted(random, URIS)));
    }
    for _ in 0..random.below(3) {
        if random.chance(40) {
            let prefix = random.pick(PREFIXES);
            if !declared.contains(&prefix) || random.chance(3) {
                tag.push_str(&format!(" xmlns:{prefix}={}", quoted(random, URIS)));
                declared.push(prefix);
            }
        }
    }
    let prefix = |random: &mut Random, percent: usize| -> String {
        if !declared.is_empty() && random.chance(percent) {
            format!("{}:", random.pick(&declared))
        } else if random.chance(1) {
            format!("{}:", random.pick(PREFIXES))
        } else {
            String::new()
        }
    };
    name.push_str(&prefix(random, 50));
    name.push_str(random.pick(NAMES));
    let mut used: Vec<String> = Vec::new();
    for _ in 0..random.below(5) {
        let attr = match random.below(20) {
            0 => "xml:lang".to_owned(),
            _ => prefix(random, 30) + random.pick(ATTRS),
        };
        if !used.contains(&attr) || random.chance(3) {
            let equals = random.pick(&["=", "=", "=", " = ", "=\n"]);
            tag.push_str(&format!(" {attr}{equals}{}", quoted(random, VALUES)));
            used.push(attr);
        }
    }
    tag.push_str(random.pick(&["", "", "", " ", "\n"]));
    out.push_str(&format!("<{name}{tag}"));
    if random.chance(25) {
        out.push_str("/>");
        return;
    }
    out.push('>');
    for _ in 0..random.below(4) {
        if depth < 6 && random.chance(40) {
            element(random, out, depth + 1);
        } else {
            out.push_str(random.pick(TEXTS));
        }
    }
    out.push_str(&format!("</{name}{}>", random.pick(&["", "", "", " "])));
}

fn quoted(random: &mut Random, from: &[&str]) -> String {
    let quote = random.pick(&["'", "\""]);
    format!("{quote}{}{quote}", random.pick(from))
}

/// Mutates a document in one to three places.
pub fn mutate(random: &mut Random, bytes: &mut Vec<u8>) {
    for _ in 0..=random.below(3) {
        if bytes.is_empty() {
            return;
        }
        let at = random.below(bytes.len());
        match random.below(10) {
            0..=4 => {
                let piece = SPOILS[random.below(SPOILS.len())];
                bytes.splice(at..at, piece.iter().copied());
            }
            5 => {
                bytes.remove(at);
            }
            6 => bytes[at] = b" <>/'\"=&:a1"[random.below(11)],
            7 => bytes[at] ^= 1 << random.below(8),
            8 => {
                let to = (at + random.below(12)).min(bytes.len());
                let copy = bytes[at..to].to_vec();
                let target = random.below(bytes.len());
                bytes.splice(target..target, copy);
            }
            _ => {
                let to = (at + random.below(12)).min(bytes.len());
                bytes.drain(at..to);
            }
        }
    }
}
