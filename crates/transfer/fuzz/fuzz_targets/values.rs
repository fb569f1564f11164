//! Fuzz target of the parsers of Lua values and Erlang terms, and of the elements made of them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use transfer::SourceElement;
use transfer::erlang::{TermReader, TermText, parse_term};
use transfer::lua::{LuaValue, parse_value};
use transfer::lua_list::LuaListReader;

fuzz_target!(|data: &[u8]| {
    let lua = parse_value(data);
    if let Ok(LuaValue::Table(table)) = &lua {
        let _ = table.sequence();
        if let Some(element) = SourceElement::from_lua(table) {
            let _ = element.to_xml("jabber:client");
        }
    }
    let items = |capacity| {
        let mut reader = LuaListReader::new(std::io::BufReader::with_capacity(capacity, data));
        let mut found = Vec::new();
        while let Ok(Some(item)) = reader.next_item() {
            found.push(format!("{item:?}"));
        }
        found
    };
    // The boundaries do not depend on how the file is split into chunks.
    assert_eq!(items(1), items(data.len().max(1)));
    if let Ok(term) = parse_term(data) {
        let _ = term.to_text();
        if let Some(element) = SourceElement::from_erlang(&term) {
            let _ = element.to_xml("");
        }
    }
    let terms = |capacity| {
        let mut reader = TermReader::new(std::io::BufReader::with_capacity(capacity, data));
        let mut found = Vec::new();
        while let Ok(Some(TermText::Complete(term))) = reader.next_term() {
            found.push(term);
        }
        found
    };
    assert_eq!(terms(1), terms(data.len().max(1)));
});
