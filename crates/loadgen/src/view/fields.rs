//! Named values packed into a limited number of lines; the least important are omitted.
//!
//! # Pitfalls
//!
//! Importance depends on the value: zero duplicates are hardly news, one is. Choose `keep` accordingly.

use super::line::{StyledLine, TextStyle, columns};

/// One named value.
pub(super) struct StatusField {
    name: String,
    value: String,
    style: TextStyle,
    /// Importance; 0 is kept longest.
    keep: u8,
}

impl StatusField {
    /// Creates a field; `keep` 0 is kept longest where space is short.
    pub(super) fn new(keep: u8, name: &str, value: impl Into<String>) -> Self {
        Self { name: name.to_owned(), value: value.into(), style: TextStyle::Normal, keep }
    }

    /// Creates a field for an unwanted count: highlighted and important unless it is zero.
    pub(super) fn unwanted(keep: u8, name: &str, count: u64, value: impl Into<String>) -> Self {
        let field = Self::new(if count > 0 { 0 } else { keep }, name, value);
        Self { style: if count > 0 { TextStyle::Bad } else { TextStyle::Normal }, ..field }
    }

    /// Highlights the field if `bad`.
    pub(super) fn bad_if(self, bad: bool) -> Self {
        if bad { Self { style: TextStyle::Bad, keep: 0, ..self } } else { self }
    }

    fn columns(&self) -> usize {
        columns(&self.name)
            + usize::from(!self.name.is_empty() && !self.value.is_empty())
            + columns(&self.value)
    }
}

/// Columns between two fields.
const GAP: usize = 2;

/// At most `most` lines of `width` columns, the first after `label`, the others indented equally.
pub(super) fn lines(label: &str, mut fields: Vec<StatusField>, width: usize, most: usize) -> Vec<StyledLine> {
    let indent = columns(label);
    let room = width.saturating_sub(indent);
    let rows = loop {
        let rows = packed(&fields, room);
        if rows.len() <= most || fields.len() <= 1 {
            break rows;
        }
        let least = fields.iter().map(|field| field.keep).max().unwrap_or(0);
        if let Some(index) = fields.iter().rposition(|field| field.keep == least) {
            fields.remove(index);
        }
    };
    let mut lines = Vec::new();
    for row in rows {
        let label = if lines.is_empty() { label.to_owned() } else { " ".repeat(indent) };
        let mut line = StyledLine::of(TextStyle::Dim, &label);
        for (index, field) in fields[row].iter().enumerate() {
            if index > 0 {
                line.add(TextStyle::Normal, &" ".repeat(GAP));
            }
            line.add(TextStyle::Dim, &field.name);
            if !field.name.is_empty() && !field.value.is_empty() {
                line.add(TextStyle::Normal, " ");
            }
            line.add(field.style, &field.value);
        }
        lines.push(line);
    }
    lines
}

/// Distribution of the fields over lines.
fn packed(fields: &[StatusField], room: usize) -> Vec<std::ops::Range<usize>> {
    let mut rows = Vec::new();
    let (mut first, mut used) = (0, 0);
    for (index, field) in fields.iter().enumerate() {
        let more = if index > first { GAP + field.columns() } else { field.columns() };
        if index > first && used + more > room {
            rows.push(first..index);
            (first, used) = (index, field.columns());
        } else {
            used += more;
        }
    }
    if first < fields.len() {
        rows.push(first..fields.len());
    }
    rows
}
