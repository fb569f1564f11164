//! The table of another program with accounts, in a database of `store-sql`.

use account_providers::sql::{ForeignRow, ForeignTable, SqlParameter, SqlStatement};
use base::spawn::BoxFuture;
use store::{StoreError, StoreErrorKind};
use store_sql::{ForeignDatabase, is_duplicate_key, refusal_code};
use throng_core::account_provider::{ProviderError, ProviderErrorKind};

/// A table that the statements of the configuration name.
pub(crate) struct SqlForeignTable(pub(crate) ForeignDatabase);

impl SqlForeignTable {
    fn text(&self, statement: &SqlStatement) -> String {
        statement.text(|number| self.0.placeholder(number))
    }

    fn failed(&self, statement: &SqlStatement, error: &StoreError) -> ProviderError {
        let kind = match error.kind {
            _ if is_duplicate_key(error) => ProviderErrorKind::AlreadyExists,
            StoreErrorKind::Timeout => ProviderErrorKind::Timeout,
            StoreErrorKind::Overloaded => ProviderErrorKind::Overloaded,
            StoreErrorKind::Internal | StoreErrorKind::Corrupt | StoreErrorKind::TooLarge => {
                ProviderErrorKind::InvalidResponse
            }
            _ => ProviderErrorKind::Unavailable,
        };
        // Some messages repeat the value that is wrong, which may be the hash of a password.
        let cause = match statement.parameters().contains(&SqlParameter::Password) {
            true => refusal_code(error).map(|code| format!(", SQLSTATE or number {code}")),
            false => std::error::Error::source(error).map(|cause| format!(": {cause}")),
        };
        let (database, message) = (self.0.name(), error.message());
        ProviderError::new(kind, format!("{database}: {message}{}", cause.unwrap_or_default()))
    }
}

impl ForeignTable for SqlForeignTable {
    fn rows(
        &self,
        statement: &SqlStatement,
        values: Vec<String>,
    ) -> BoxFuture<'_, Result<Vec<ForeignRow>, ProviderError>> {
        let statement = statement.clone();
        Box::pin(async move {
            let rows = self.0.rows(&self.text(&statement), &values).await;
            rows.map_err(|error| self.failed(&statement, &error))
        })
    }

    fn execute(
        &self,
        statement: &SqlStatement,
        values: Vec<String>,
    ) -> BoxFuture<'_, Result<u64, ProviderError>> {
        let statement = statement.clone();
        Box::pin(async move {
            let changed = self.0.execute(&self.text(&statement), &values).await;
            changed.map_err(|error| self.failed(&statement, &error))
        })
    }
}
