//! jid.
