//! store-sql.
