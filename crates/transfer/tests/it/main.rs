//! Imports of each source into the memory store, and exports from it.
#![allow(clippy::unwrap_used, reason = "clippy sees helpers outside of #[test] as ordinary code")]

mod account_limits;
mod dump_of_ejabberd;
mod folder_of_prosody;
mod folder_of_prosody_13;
mod interrupted;
mod memory;
mod owners;
mod properties;
mod provided_passwords;
mod pubsub_nodes;
mod round_trip;
mod support;
