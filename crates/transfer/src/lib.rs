//! Data of accounts that moves in and out: from Prosody's data folder, from the text dump of ejabberd's Mnesia database,
//! and from and to XEP-0227 1.1 (Portable Import/Export Format for XMPP-IM Servers).
//!
//! A source is a [`TransferSource`]: it yields [`SourceRecord`]s, each a small part of one account, so that nothing larger
//! than one value is in memory. [`import()`] writes the records of any source into [`store::Stores`], [`export()`] writes
//! accounts as XEP-0227. Parsers ([`lua`], [`erlang`], [`markup`]) know neither servers nor storage.
//!
//! Persistent rooms are imported as well, without their histories, and PubSub nodes of services and accounts.
//!
//! Not implemented: archives, export of rooms and PubSub nodes, privacy rules that do more than block an address; [`SkippedData`] lists
//! them. Sources in SQL databases are another crate's, which implements [`TransferSource`].
//!
//! # Pitfalls
//!
//! A file of another server is input as any other: every parser bounds depth and size, and what a record contains is
//! validated before it is stored.

#![cfg_attr(not(test), deny(clippy::cast_possible_truncation))]

mod concurrent_calls;
pub mod ejabberd;
pub mod erlang;
mod export;
mod import;
pub mod lua;
pub mod lua_list;
pub mod markup;
pub mod prosody;
mod pubsub;
mod record;
mod room;
pub mod scram_keys;
pub mod server_data;
mod source_element;
mod stanza_form;

pub use export::{ExportCounts, ExportDomain, ExportError, ExportOptions, export};
pub use import::{
    AccountLimits, DerivePasswords, FeatureFormats, ImportCounts, ImportDomain, ImportError, ImportObserver,
    ImportOptions, IndexedVcard, LocatedPubSubState, NewPubSubNode, NewPubSubState, import, key_shapes,
};
pub use pubsub::{
    FormFields, PubSubNodeAddress, PubSubRecord, SourcePubSubItem, SourcePubSubNode, SourcePubSubState,
    SourceSubscription, item_seq,
};
pub use record::{
    AccountItem, AccountPassword, ContactData, ContactRequest, OfflineData, SkippedData, SourceError,
    SourceRecord, TransferSource,
};
pub use room::{SourceAffiliation, SourceRoom};
pub use source_element::{SourceElement, SourceNode};
