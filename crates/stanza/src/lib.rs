//! stanza.
