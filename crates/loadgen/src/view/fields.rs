//! Figures with their names, packed into as many lines as there may be; the least important are left out.
//!
//! Trap: what matters changes with the value: no duplicates are hardly news, one is. Give `keep` accordingly.

use super::line::{StyledLine, TextStyle, columns};

/// One figure.
pub(super) struct StatusField {
    name: String,
    value: String,
    style: TextStyle,
    /// 0 stays longest.
    keep: u8,
}

impl StatusField {
    /// A figure; `keep` 0 stays longest where there is little room.
    pub(super) fn new(keep: u8, name: &str, value: impl Into<String>) -> Self {
        Self { name: name.to_owned(), value: value.into(), style: TextStyle::Normal, keep }
    }

    /// A count of something that should not be: bad and important unless it is zero.
    pub(super) fn unwanted(keep: u8, name: &str, count: u64, value: impl Into<String>) -> Self {
        let field = Self::new(if count > 0 { 0 } else { keep }, name, value);
        Self { style: if count > 0 { TextStyle::Bad } else { TextStyle::Normal }, ..field }
    }

    /// The same, beyond its limit.
    pub(super) fn bad_if(self, bad: bool) -> Self {
        if bad { Self { style: TextStyle::Bad, keep: 0, ..self } } else { self }
    }

    fn columns(&self) -> usize {
        columns(&self.name)
            + usize::from(!self.name.is_empty() && !self.value.is_empty())
            + columns(&self.value)
    }
}

/// Between two figures.
const GAP: usize = 2;

/// At most `most` lines of `width` columns, the first behind `label`, the others as far in.
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

/// Which fields stand in which line.
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
