//! streams.
