//! Values written as Prosody and Erlang write them are read again; arbitrary bytes never panic.

use std::fmt::Write;

use proptest::prelude::*;
use throng_transfer::erlang::{ErlangTerm, TermReader, TermText, parse_term};
use throng_transfer::lua::{LuaTable, LuaValue, parse_value};
use throng_transfer::lua_list::{LuaListItem, LuaListReader};
use throng_transfer::markup::MarkupReader;
use throng_transfer::{SourceElement, SourceNode};

fn lua_values() -> impl Strategy<Value = LuaValue> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(LuaValue::Boolean),
        (-1e15..1e15f64).prop_map(LuaValue::Number),
        (0..1_000_000i32).prop_map(|number| LuaValue::Number(f64::from(number))),
        proptest::collection::vec(any::<u8>(), 0..20).prop_map(LuaValue::Text),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        let key = proptest::collection::vec(any::<u8>(), 0..8).prop_map(LuaValue::Text);
        proptest::collection::vec((key, inner), 0..6).prop_map(|pairs| LuaValue::Table(LuaTable::new(pairs)))
    })
}

/// As `util.serialization` writes a value.
fn lua_text(value: &LuaValue, out: &mut String) {
    match value {
        LuaValue::Nil => out.push_str("nil"),
        LuaValue::Boolean(value) => out.push_str(if *value { "true" } else { "false" }),
        LuaValue::Number(number) => write!(out, "{number:?}").unwrap(),
        LuaValue::Text(bytes) => {
            out.push('"');
            for byte in bytes {
                match byte {
                    b'\n' => out.push_str("\\n"),
                    b'"' => out.push_str("\\\""),
                    b'\\' => out.push_str("\\\\"),
                    b' '..=b'~' => out.push(char::from(*byte)),
                    byte => write!(out, "\\{byte:03}").unwrap(),
                }
            }
            out.push('"');
        }
        LuaValue::Table(table) => {
            out.push_str("{\n");
            for (key, value) in table.pairs() {
                out.push_str("\t[");
                lua_text(key, out);
                out.push_str("] = ");
                lua_text(value, out);
                out.push_str(";\n");
            }
            out.push('}');
        }
    }
}

fn erlang_terms() -> impl Strategy<Value = ErlangTerm> {
    let leaf = prop_oneof![
        "[a-z][a-zA-Z0-9_]{0,8}".prop_map(ErlangTerm::Atom),
        "[ -~]{1,8}".prop_map(ErlangTerm::Atom),
        any::<i64>().prop_map(ErlangTerm::Integer),
        proptest::collection::vec(any::<u8>(), 0..20).prop_map(ErlangTerm::Binary),
        "[ -~\n]{0,12}".prop_map(ErlangTerm::Text),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        let terms = proptest::collection::vec(inner.clone(), 0..6);
        prop_oneof![
            terms.clone().prop_map(ErlangTerm::Tuple),
            terms.prop_map(ErlangTerm::List),
            proptest::collection::vec((inner.clone(), inner), 0..3).prop_map(ErlangTerm::Map),
        ]
    })
}

fn quoted(text: &str, quote: char) -> String {
    let escaped = text.replace('\\', "\\\\").replace(quote, &format!("\\{quote}")).replace('\n', "\\n");
    format!("{quote}{escaped}{quote}")
}

/// As `io:format("~p")` writes a term.
fn erlang_text(term: &ErlangTerm, out: &mut String) {
    let sequence = |terms: &[ErlangTerm], out: &mut String| {
        for (at, term) in terms.iter().enumerate() {
            out.push_str(if at > 0 { ",\n " } else { "" });
            erlang_text(term, out);
        }
    };
    match term {
        ErlangTerm::Atom(name) => out.push_str(&quoted(name, '\'')),
        ErlangTerm::Integer(number) => write!(out, "{number}").unwrap(),
        ErlangTerm::Float(number) => write!(out, "{number:?}").unwrap(),
        ErlangTerm::Binary(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) if !text.is_empty() && text.bytes().all(|byte| matches!(byte, b' '..=b'~')) => {
                // Broken into two literals, as long ones are.
                let (first, second) = text.split_at(text.len() / 2);
                write!(out, "<<{}\n   {}>>", quoted(first, '"'), quoted(second, '"')).unwrap();
            }
            _ => {
                let numbers: Vec<String> = bytes.iter().map(u8::to_string).collect();
                write!(out, "<<{}>>", numbers.join(",")).unwrap();
            }
        },
        ErlangTerm::Text(text) => out.push_str(&quoted(text, '"')),
        ErlangTerm::List(terms) => {
            out.push('[');
            sequence(terms, out);
            out.push(']');
        }
        ErlangTerm::Tuple(terms) => {
            out.push('{');
            sequence(terms, out);
            out.push('}');
        }
        ErlangTerm::Map(pairs) => {
            out.push_str("#{");
            for (at, (key, value)) in pairs.iter().enumerate() {
                out.push_str(if at > 0 { "," } else { "" });
                erlang_text(key, out);
                out.push_str(" => ");
                erlang_text(value, out);
            }
            out.push('}');
        }
        ErlangTerm::Other => out.push_str("<0.1.2>"),
    }
}

fn elements() -> impl Strategy<Value = SourceElement> {
    let element = |children: Vec<SourceNode>, name: String, value: String| SourceElement {
        name,
        attributes: vec![("k".to_owned(), value), ("xmlns".to_owned(), "urn:x".to_owned())],
        children,
    };
    let leaf = ("[a-z]{1,5}", "\\PC{0,10}").prop_map(move |(name, value)| element(Vec::new(), name, value));
    leaf.prop_recursive(4, 20, 4, move |inner| {
        let child =
            prop_oneof![inner.prop_map(SourceNode::Element), "\\PC{1,10}".prop_map(SourceNode::Text),];
        (proptest::collection::vec(child, 0..4), "[a-z]{1,5}", "\\PC{0,10}")
            .prop_map(move |(children, name, value)| element(children, name, value))
    })
}

proptest! {
    #[test]
    fn lua_values_are_read_as_they_were_written(value in lua_values()) {
        let mut text = String::new();
        lua_text(&value, &mut text);
        prop_assert_eq!(parse_value(format!("return {text};\n").as_bytes()), Ok(value.clone()));
        let list = format!("item({text});\nitem({text});\n");
        let mut list = LuaListReader::new(std::io::BufReader::with_capacity(7, list.as_bytes()));
        for _ in 0..2 {
            prop_assert_eq!(list.next_item().unwrap(), Some(LuaListItem::Value(value.clone())));
        }
        prop_assert_eq!(list.next_item().unwrap(), None);
    }

    #[test]
    fn terms_are_read_as_they_were_written(terms in proptest::collection::vec(erlang_terms(), 1..4)) {
        let mut file = String::new();
        for term in &terms {
            erlang_text(term, &mut file);
            file.push_str(".\n");
        }
        let mut reader = TermReader::new(std::io::BufReader::with_capacity(7, file.as_bytes()));
        for term in &terms {
            let found = reader.next_term().unwrap();
            prop_assert!(matches!(&found, Some(TermText::Complete(_))), "{:?} in {}", found, file);
            if let Some(TermText::Complete(text)) = found {
                prop_assert_eq!(&parse_term(&text).unwrap(), term);
            }
        }
        prop_assert_eq!(reader.next_term().unwrap(), None);
    }

    #[test]
    fn elements_are_written_as_xml_that_can_be_read(element in elements()) {
        prop_assert!(element.to_xml("").is_some(), "{:?}", element);
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse_value(&bytes);
        let mut list = LuaListReader::new(bytes.as_slice());
        while list.next_item().unwrap().is_some() {}
        let _ = parse_term(&bytes);
        let mut markup = MarkupReader::new(bytes.as_slice());
        while let Ok(Some(_)) = markup.next_token() {}
        let mut terms = TermReader::new(bytes.as_slice());
        while terms.next_term().unwrap().is_some() {}
    }
}
