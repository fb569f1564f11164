//! Small payloads written by more than one feature.

pub mod data_form;
pub mod datetime;
pub mod delay;
pub mod forward;
pub mod rsm;
pub mod stanza_content;
pub mod stanza_id;
