//! Small payloads that more than one feature writes.

pub mod delay;
pub mod stanza_id;
pub mod time;
