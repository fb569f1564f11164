//! Storage conformance suite on SQLite.

mod support;
store::conformance_suite!(crate::support::SqliteBackend);
