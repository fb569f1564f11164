//! Storage conformance suite on MySQL.

mod support;
store::conformance_suite!(crate::support::servers::MySqlBackend);
