//! Storage conformance suite on PostgreSQL.

mod support;
store::conformance_suite!(crate::support::servers::PostgresBackend);
