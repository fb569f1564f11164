//! The storage suite on SQLite.
mod support;
store::conformance_suite!(crate::support::SqliteBackend);
