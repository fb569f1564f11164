//! Statements on a connection to a server, whose types of connection, row and bound values differ.

/// Defines `execute`, `execute_text`, `fetch_all` and `fetch_text` for these types of connection and row, with the function
/// `bind` of the surrounding module.
macro_rules! server_statements {
    ($connection:ty, $row:ty) => {
        pub(super) fn execute<'a>(
            conn: &'a mut $connection,
            sql: &'a str,
            args: &[Arg<'_>],
        ) -> BoxFuture<'a, Result<u64, sqlx::Error>> {
            let bound = bind(args);
            Box::pin(async move { Ok(sqlx::query_with(sql, bound?).execute(conn).await?.rows_affected()) })
        }

        pub(super) fn execute_text<'a>(
            conn: &'a mut $connection,
            sql: &'a str,
        ) -> BoxFuture<'a, Result<u64, sqlx::Error>> {
            // Without values a text goes to the server as it is, unprepared.
            let done = sqlx::Executor::execute(conn, sql);
            Box::pin(async move { Ok(done.await?.rows_affected()) })
        }

        pub(super) fn fetch_all<'a>(
            conn: &'a mut $connection,
            sql: &'a str,
            args: &[Arg<'_>],
        ) -> BoxFuture<'a, Result<Vec<$row>, sqlx::Error>> {
            let bound = bind(args);
            Box::pin(async move { sqlx::query_with(sql, bound?).fetch_all(conn).await })
        }

        pub(super) fn fetch_text<'a>(
            conn: &'a mut $connection,
            sql: &'a str,
        ) -> BoxFuture<'a, Result<Vec<$row>, sqlx::Error>> {
            // Without values a text goes to the server as it is, unprepared.
            sqlx::Executor::fetch_all(conn, sql)
        }
    };
}

pub(super) use server_statements;
