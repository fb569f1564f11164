//! Fuzz target of the reader of large XML documents: its tokens are the document without comments, however it is split.
#![no_main]

use libfuzzer_sys::fuzz_target;
use transfer::markup::{Markup, MarkupReader};

fn tokens(data: &[u8], capacity: usize) -> (Vec<u8>, usize, bool) {
    let mut reader = MarkupReader::new(std::io::BufReader::with_capacity(capacity, data));
    let (mut all, mut tags) = (Vec::new(), 0);
    loop {
        match reader.next_token() {
            Ok(Some(Markup::Start { tag, .. } | Markup::End(tag))) => {
                tags += 1;
                all.extend(tag);
            }
            Ok(Some(Markup::Text(text))) => all.extend(text),
            Ok(None) => return (all, tags, true),
            Err(_) => return (all, tags, false),
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let whole = tokens(data, data.len().max(1));
    assert_eq!(tokens(data, 1), whole);
    let has_dropped = data.windows(2).any(|two| two == b"<!" || two == b"<?");
    if whole.2 && !has_dropped {
        assert_eq!(whole.0, data);
    }
    let mut reader = MarkupReader::new(data);
    while let Ok(Some(token)) = reader.next_token() {
        if let Markup::Start { tag, empty } = token
            && reader.collect_element(tag, empty).is_err()
        {
            break;
        }
    }
});
