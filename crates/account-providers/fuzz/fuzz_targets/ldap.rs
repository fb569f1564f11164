//! Fuzz target of what a directory sends, and of user names in filters. A name that changes anything but the value of its
//! assertion is a crash.
#![no_main]

use account_providers::ber::{BerReader, OCTET_STRING};
use account_providers::ldap::filter::FilterValues;
use account_providers::ldap::message::{decode, message_length};
use account_providers::ldap::{Filter, FilterTemplate};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(Some(length)) = message_length(data)
        && let Some(message) = data.get(..length)
    {
        let _ = decode(message);
    }
    let _ = decode(data);
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(filter) = Filter::parse(text) {
        filter.write(&mut Vec::new());
    }
    let template = FilterTemplate::parse("(&(cn=*)(uid={user}))").expect("a constant");
    let mut written = Vec::new();
    template.fill(FilterValues { user: text, domain: "a.org" }).write(&mut written);
    let mut all = BerReader::new(&written).enter(0xa0).expect("AND");
    assert_eq!(all.expect(0x87), Ok(&b"cn"[..]));
    let mut assertion = all.enter(0xa3).expect("an equality");
    assert_eq!(assertion.expect(OCTET_STRING), Ok(&b"uid"[..]));
    assert_eq!(assertion.expect(OCTET_STRING), Ok(data));
    assert!(assertion.is_empty() && all.is_empty());
});
