//! CSV parser (RFC 4180) for the separators `;`, `,` and tab (whichever the line contains first, in this order).
//!
//! Empty lines are skipped.
//!
//! Not implemented: line breaks inside quotes.
//!
//! # Pitfalls
//!
//! A password with a comma needs `;` or quotes.

/// Splits a text into rows.
pub(crate) fn rows(text: &str) -> Vec<Vec<String>> {
    text.lines().filter(|line| !line.trim().is_empty()).map(row).collect()
}

fn row(line: &str) -> Vec<String> {
    let separator = [';', ',', '\t'].into_iter().find(|c| line.contains(*c)).unwrap_or(',');
    let mut columns = Vec::new();
    let mut rest = line;
    loop {
        let (column, after) = column(rest, separator);
        columns.push(column);
        match after {
            Some(after) => rest = after,
            None => return columns,
        }
    }
}

/// Splits off the first column; the rest follows its separator.
fn column(text: &str, separator: char) -> (String, Option<&str>) {
    let Some(quoted) = text.strip_prefix('"') else {
        return match text.split_once(separator) {
            Some((column, after)) => (column.to_owned(), Some(after)),
            None => (text.to_owned(), None),
        };
    };
    let mut column = String::new();
    let mut rest = quoted;
    while let Some((before, after)) = rest.split_once('"') {
        column.push_str(before);
        match after.strip_prefix('"') {
            Some(after) => {
                column.push('"');
                rest = after;
            }
            None => {
                let after = after.split_once(separator);
                return (column, after.map(|(_, after)| after));
            }
        }
    }
    // An unclosed quote extends to the end of the line.
    column.push_str(rest);
    (column, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_every_kind() {
        let text = "a,b\n\nc;d,e\r\n\"x\"\"y, z\",\tw\nalone\nf\tg\n\"open,";
        let expected: Vec<Vec<&str>> = vec![
            vec!["a", "b"],
            vec!["c", "d,e"],
            vec!["x\"y, z", "\tw"],
            vec!["alone"],
            vec!["f", "g"],
            vec!["open,"],
        ];
        assert_eq!(rows(text), expected);
    }
}
