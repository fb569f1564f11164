//! The protocol between nodes, without input and output: it is given frames, records and the time, and returns frames to send.
//!
//! [`core::Core`] is the interface; [`state`] knows the other nodes, [`link`] is the channel to one of them, [`directory`] has the
//! claims of all.

pub(crate) mod core;
pub(crate) mod directory;
pub(crate) mod entry;
pub(crate) mod frame;
mod link;
pub(crate) mod member_record;
pub(crate) mod property;
mod receipts;
pub(crate) mod state;
pub(crate) mod statistics;
mod version_range;
