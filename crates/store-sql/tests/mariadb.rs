//! Storage conformance suite on MariaDB.

mod support;
store::conformance_suite!(crate::support::servers::MariaDbBackend);
