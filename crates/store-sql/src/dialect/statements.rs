//! Statements in several lengths, and the texts that they consist of.

use super::{Arg, Dialect, MAX_ROWS_BYTES};

/// Appends a value to the text of a statement.
pub(crate) type LiteralRows = fn(&mut String, &Arg<'_>);

/// An insert without its rows.
pub(crate) struct InsertParts {
    pub(super) table: String,
    pub(super) columns: Vec<String>,
    pub(super) suffix: String,
}

impl InsertParts {
    /// The text before the rows.
    pub(super) fn head(&self) -> String {
        format!("INSERT INTO {} ({}) ", self.table, self.columns.join(", "))
    }
}

/// A statement that writes any number of rows.
pub(crate) struct RowsStatement {
    pub(super) sizes: SizedStatement,
    /// For a server.
    pub(super) literal: Option<(LiteralRows, InsertParts)>,
}

impl RowsStatement {
    /// Inserts rows; fails with `Conflict` if the key of one exists.
    pub(crate) fn insert(d: &dyn Dialect, table: &str, columns: &[&str]) -> RowsStatement {
        let sizes = SizedStatement::new(|n| d.insert(table, columns, n));
        RowsStatement::new(d, sizes, table, columns, String::new())
    }

    /// Inserts rows and ignores those whose key exists.
    pub(crate) fn insert_new(d: &dyn Dialect, table: &str, columns: &[&str]) -> RowsStatement {
        let sizes = SizedStatement::new(|n| d.insert_new(table, columns, n));
        RowsStatement::new(d, sizes, table, columns, d.insert_new_suffix(columns))
    }

    /// Inserts rows and replaces all other columns of those whose key exists. A key occurs once.
    pub(crate) fn upsert(d: &dyn Dialect, table: &str, key: &[&str], others: &[&str]) -> RowsStatement {
        let columns: Vec<&str> = key.iter().chain(others).copied().collect();
        let sizes = SizedStatement::new(|n| d.upsert(table, key, others, n));
        RowsStatement::new(d, sizes, table, &columns, d.upsert_suffix(key, others))
    }

    fn new(
        d: &dyn Dialect,
        sizes: SizedStatement,
        table: &str,
        columns: &[&str],
        suffix: String,
    ) -> RowsStatement {
        let columns = columns.iter().map(|column| (*column).to_owned()).collect();
        let parts = InsertParts { table: table.to_owned(), columns, suffix };
        RowsStatement { sizes, literal: d.literal_rows().map(|push| (push, parts)) }
    }
}

/// A statement that runs once for each of several rows of values. A server gets all of them in one text.
pub(crate) struct RowStatement {
    pub(super) prepared: String,
    /// The text between the values, and how to write those, for a server.
    pub(super) literal: Option<(LiteralRows, Vec<String>)>,
    pub(super) width: usize,
}

impl RowStatement {
    pub(crate) fn new(d: &dyn Dialect, text: &str) -> RowStatement {
        let between: Vec<String> = text.split('?').map(str::to_owned).collect();
        RowStatement {
            prepared: d.sql(text),
            width: between.len() - 1,
            literal: d.literal_rows().map(|push| (push, between)),
        }
    }

    /// The text of one row.
    #[cfg(test)]
    pub(crate) fn text(&self) -> &str {
        &self.prepared
    }
}

/// A statement for each row of values, joined by a separator.
pub(super) fn literal_statements(
    (push, between): &(LiteralRows, Vec<String>),
    separator: &str,
    values: &[Arg<'_>],
) -> String {
    let mut text = String::new();
    for row in values.chunks(between.len().saturating_sub(1).max(1)) {
        if !text.is_empty() {
            text.push_str(separator);
        }
        for (number, part) in between.iter().enumerate() {
            text.push_str(part);
            if let Some(arg) = row.get(number) {
                push(&mut text, arg);
            }
        }
    }
    text
}

/// A statement with literal values.
pub(super) fn literal_rows(
    push: LiteralRows,
    parts: &InsertParts,
    width: usize,
    values: &[Arg<'_>],
) -> String {
    let mut text = parts.head() + "VALUES ";
    for (number, row) in values.chunks(width).enumerate() {
        text.push_str(if number == 0 { "(" } else { ",(" });
        for (column, arg) in row.iter().enumerate() {
            if column > 0 {
                text.push(',');
            }
            push(&mut text, arg);
        }
        text.push(')');
    }
    text.push_str(&parts.suffix);
    text
}

/// How many of the values are in the first statement: those of the rows up to [`MAX_ROWS_BYTES`], and at least one row's.
pub(super) fn part_of_rows(values: &[Arg<'_>], width: usize) -> usize {
    let (mut bytes, mut end) = (0, 0);
    for row in values.chunks(width) {
        if bytes >= MAX_ROWS_BYTES {
            break;
        }
        let size = |arg: &Arg<'_>| match arg {
            Arg::Text(text) | Arg::AnyText(text) | Arg::ForeignText(text) => text.len() + 8,
            Arg::Bytes(bytes) => bytes.len() + 8,
            Arg::Int(_) | Arg::Null => 8,
        };
        bytes += row.iter().map(size).sum::<usize>();
        end += row.len();
    }
    end
}

pub(super) fn plain_insert(table: &str, columns: &[&str], rows: usize) -> String {
    let row = format!("({})", placeholders(columns.len()));
    format!("INSERT INTO {table} ({}) VALUES {}", columns.join(", "), vec![row; rows].join(", "))
}

/// Replaces `?` by `$1`, `$2` and so on. No statement contains a question mark otherwise.
pub(super) fn number_placeholders(text: &str) -> String {
    let mut numbered = String::with_capacity(text.len() + 32);
    let mut parts = text.split('?');
    numbered += parts.next().unwrap_or_default();
    for (number, part) in (1..).zip(parts) {
        numbered += &format!("${number}{part}");
    }
    numbered
}

/// Appends bytes in hexadecimal.
pub(super) fn push_hex(to: &mut String, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    to.reserve(bytes.len() * 2);
    for byte in bytes {
        to.push(char::from(DIGITS[usize::from(byte >> 4)]));
        to.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
}

/// `n` placeholders, separated by commas.
pub(crate) fn placeholders(n: usize) -> String {
    vec!["?"; n].join(", ")
}

/// One statement in several lengths, the powers of two.
pub(crate) struct SizedStatement([(usize, String); 9]);

impl SizedStatement {
    /// The longest length.
    pub(crate) const MAX: usize = 256;

    pub(crate) fn new(text: impl Fn(usize) -> String) -> SizedStatement {
        SizedStatement(std::array::from_fn(|power| (1 << power, text(1 << power))))
    }

    /// The shortest length that holds `n` values; the caller pads by repeating the last value. `n` is at most
    /// [`Self::MAX`].
    pub(crate) fn at_least(&self, n: usize) -> (usize, &str) {
        let found = self.0.iter().find(|(size, _)| *size >= n).unwrap_or(&self.0[8]);
        (found.0, &found.1)
    }

    /// The longest length that `n` values fill. `n` is at least 1.
    pub(crate) fn at_most(&self, n: usize) -> (usize, &str) {
        let found = self.0.iter().rev().find(|(size, _)| *size <= n).unwrap_or(&self.0[0]);
        (found.0, &found.1)
    }
}

pub(super) fn pad_with_last<'a>(part: &[Arg<'a>], size: usize) -> Vec<Arg<'a>> {
    let mut args = part.to_vec();
    if let Some(last) = part.last() {
        args.resize(size, *last);
    }
    args
}

pub(super) fn pad_with_last_pair<'a>(part: &[Arg<'a>], size: usize) -> Vec<Arg<'a>> {
    let mut args = part.to_vec();
    if let [.., first, second] = part {
        while args.len() < size * 2 {
            args.extend([*first, *second]);
        }
    }
    args
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_gets_a_statement_for_each_row_in_one_text() {
        let push: LiteralRows = |text, arg| match arg {
            Arg::Int(number) => text.push_str(&number.to_string()),
            _ => text.push_str("NULL"),
        };
        let between = ["DELETE FROM t WHERE a = ", " AND b = ", ""].map(str::to_owned).to_vec();
        let values = [Arg::Int(1), Arg::Int(2), Arg::Int(3), Arg::Null];
        let text = literal_statements(&(push, between), "; ", &values);
        assert_eq!(text, "DELETE FROM t WHERE a = 1 AND b = 2; DELETE FROM t WHERE a = 3 AND b = NULL");
    }

    #[test]
    fn rows_are_split_by_their_bytes_and_never_within_a_row() {
        let large = vec![0; MAX_ROWS_BYTES];
        let values = [Arg::Int(1), Arg::Bytes(&large), Arg::Int(2), Arg::Null, Arg::Int(3), Arg::Null];
        assert_eq!(part_of_rows(&values, 2), 2);
        assert_eq!(part_of_rows(&values[2..], 2), 4);
        assert_eq!(part_of_rows(&[], 2), 0);
    }
}
