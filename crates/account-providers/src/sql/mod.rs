//! Accounts in a table of another program, read and written with SQL statements of the operator.
//!
//! A statement has the named parameters `:user`, `:domain`, `:address` and, where it writes, `:password`, the hash of the new
//! one. They become placeholders of the database, so an address is never a part of a statement. The password column has one of
//! the forms of [`password_hash`].
//!
//! Not implemented: the connection, which is a [`ForeignTable`] of the program, so that the database clients stay in
//! `store-sql`.
//!
//! # Pitfalls
//!
//! A colon in a text or a cast (`::text`) is no parameter.

pub mod password_hash;
pub mod provider;
pub mod statement;

pub use password_hash::{NewPasswordHash, PasswordHash};
pub use provider::{ForeignRow, ForeignTable, SqlAccounts, SqlSettings};
pub use statement::{SqlParameter, SqlStatement};
