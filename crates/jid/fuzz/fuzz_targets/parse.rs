//! Fuzz target for addresses: any parsed text is within the limits, has the parts it reports, is stable, and reads from
//! storage in the same form; whatever reads from storage stays readable.
#![no_main]

use jid::{Jid, JidRef, MAX_JID, ParsedJid, parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(parsed) = parse(text) {
        let jid = parsed.as_ref();
        assert!(jid.as_str().len() <= MAX_JID);
        assert!(matches!(parse(jid.as_str()), Ok(ParsedJid::Borrowed(again)) if again == jid));
        assert_eq!(
            Jid::from_parts(jid.local(), jid.domain(), jid.resource()).as_ref().map(Jid::as_str),
            Ok(jid.as_str())
        );
        let trusted = JidRef::from_normalised(jid.as_str()).expect("a normal form has the shape of one");
        assert_eq!(
            (trusted.local(), trusted.domain(), trusted.resource()),
            (jid.local(), jid.domain(), jid.resource())
        );
        assert_eq!(Jid::from_stored(text).as_ref().map(Jid::as_str), Ok(jid.as_str()));
    }
    if let Ok(stored) = Jid::from_stored(text) {
        assert!(stored.as_str().len() <= MAX_JID);
        assert!(JidRef::from_normalised(stored.as_str()).is_some());
    }
});
