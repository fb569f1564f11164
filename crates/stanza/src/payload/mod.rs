//! Small payloads that more than one feature writes.

pub mod data_form;
pub mod delay;
pub mod forward;
pub mod inner;
pub mod rsm;
pub mod stanza_id;
pub mod time;
