//! Table of a part: a row for each figure, a column for each server.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::servers::RoomServerKind;

/// Values of one part.
pub(in super::super) struct RoomBenchTable {
    title: String,
    servers: Vec<RoomServerKind>,
    /// In the order in which they were first set.
    rows: Vec<Row>,
}

struct Row {
    name: &'static str,
    values: BTreeMap<RoomServerKind, f64>,
}

impl RoomBenchTable {
    pub(in super::super) fn new(title: String, servers: &[RoomServerKind]) -> Self {
        Self { title, servers: servers.to_vec(), rows: Vec::new() }
    }

    /// Sets the value of a server.
    pub(in super::super) fn set(&mut self, server: RoomServerKind, name: &'static str, value: f64) {
        match self.rows.iter_mut().find(|row| row.name == name) {
            Some(row) => _ = row.values.insert(server, value),
            None => self.rows.push(Row { name, values: BTreeMap::from([(server, value)]) }),
        }
    }

    /// The value of a server.
    pub(in super::super) fn value(&self, server: RoomServerKind, name: &str) -> Option<f64> {
        self.rows.iter().find(|row| row.name == name)?.values.get(&server).copied()
    }

    /// Throng's value divided by the loop's.
    pub(in super::super) fn ratio(&self, name: &str) -> Option<f64> {
        let (ours, floor) =
            (self.value(RoomServerKind::Throng, name)?, self.value(RoomServerKind::Loop, name)?);
        (floor > 0.0).then_some(ours / floor)
    }

    /// The table in Markdown, with a title above it.
    pub(in super::super) fn markdown(&self) -> String {
        let names: Vec<&str> = self.servers.iter().map(|server| server.name()).collect();
        let mut text = format!(
            "\n{}\n\n| | {} |\n| --- |{}\n",
            self.title,
            names.join(" | "),
            " ---: |".repeat(names.len())
        );
        for row in &self.rows {
            let cell = |server| row.values.get(server).map_or_else(|| "–".into(), |value| cell(*value));
            let cells: Vec<String> = self.servers.iter().map(cell).collect();
            let _ = writeln!(text, "| {} | {} |", row.name, cells.join(" | "));
        }
        text
    }
}

/// Whole numbers from 100 on.
fn cell(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 || value.fract() == 0.0 => format!("{value:.0}"),
        v if v >= 1.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::servers::RoomServerKind::{Ejabberd, Loop, Throng};
    use super::RoomBenchTable;

    #[test]
    fn missing_values_are_dashes() {
        let mut table = RoomBenchTable::new("Rooms".into(), &[Loop, Throng, Ejabberd]);
        table.set(Throng, "CPU", 7.25);
        table.set(Loop, "CPU", 5.0);
        table.set(Throng, "lost", 0.0);
        assert_eq!(table.ratio("CPU"), Some(1.45));
        assert_eq!(table.ratio("lost"), None);
        let text = table.markdown();
        assert!(text.contains("| | loop | throng | ejabberd |\n| --- | ---: | ---: | ---: |\n"), "{text}");
        assert!(text.contains("| CPU | 5 | 7.2 | – |\n| lost | – | 0 | – |\n"), "{text}");
    }
}
