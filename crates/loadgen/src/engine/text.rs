//! Text templates and variables of a user.

use std::fmt::Write as _;

use super::event_loop::WorkerEngine;
use super::slot::UserSlot;
use super::virtual_user::NOBODY;
use crate::plan::{ComparisonOperator, TemplatePart, TextTemplate, VariableCondition, VariableValue};

/// Separator of the values of a list variable.
pub(super) const BETWEEN: char = '\u{1f}';

impl WorkerEngine<'_> {
    /// Renders a template for this user.
    pub(super) fn text(&mut self, slot: UserSlot, text: &TextTemplate) -> String {
        let mut out = String::new();
        for piece in &text.0 {
            let account = self.users[slot].account;
            match piece {
                TemplatePart::Literal(literal) => out.push_str(literal),
                TemplatePart::Variable(name) => match self.variable(slot, name) {
                    Some(value) => out.push_str(value),
                    None => self.record.error("unknown-variable"),
                },
                TemplatePart::User => self.names.name(account, &mut out),
                TemplatePart::Number => {
                    let _ = write!(out, "{}", self.names.number_of(account));
                }
                TemplatePart::Password => out.push_str(&self.names.password(account)),
                TemplatePart::Domain => out.push_str(self.names.domain()),
                TemplatePart::Jid => self.own_address(slot, &mut out),
                TemplatePart::Unique => self.unique(&mut out),
                TemplatePart::Destination => {
                    let last = self.users[slot].last;
                    if last != NOBODY {
                        self.names.bare(last, &mut out);
                    }
                }
            }
        }
        out
    }

    /// Appends the user's own full JID, as far as it is known.
    pub(super) fn own_address(&self, slot: UserSlot, out: &mut String) {
        let user = &self.users[slot];
        match user.extra.as_ref().and_then(|extra| extra.anonymous.as_ref()) {
            Some(local) => {
                out.push_str(local);
                out.push('@');
                out.push_str(self.names.domain());
            }
            None => self.names.bare(user.account, out),
        }
        if !user.resource.is_empty() {
            out.push('/');
            out.push_str(&user.resource);
        }
    }

    pub(super) fn variable(&self, slot: UserSlot, name: &str) -> Option<&str> {
        let variables = &self.users[slot].extra.as_ref()?.variables;
        variables.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(super) fn set_variable(&mut self, slot: UserSlot, name: &str, value: String) {
        let variables = &mut self.users[slot].extra().variables;
        match variables.iter_mut().find(|(known, _)| known == name) {
            Some((_, old)) => *old = value,
            None => variables.push((name.to_owned(), value)),
        }
    }

    /// Runs a `Set` step.
    pub(super) fn set_variables(&mut self, slot: UserSlot, values: &[(String, VariableValue)]) {
        // Columns set together come from one row of each table.
        let mut lines: Vec<(u16, usize)> = Vec::new();
        for (name, value) in values {
            let value = match value {
                VariableValue::Text(text) => self.text(slot, text),
                VariableValue::RandomString(length) => {
                    (0..*length).map(|_| char::from(b'a' + self.rng.below(26) as u8)).collect()
                }
                VariableValue::RandomNumber(from, to) => {
                    let span = (to - from).clamp(0, i64::from(u32::MAX) - 1) as u32 + 1;
                    (from + i64::from(self.rng.below(span))).to_string()
                }
                VariableValue::Row { table, column, random } => {
                    let line = match lines.iter().find(|(known, _)| known == table) {
                        Some((_, line)) => *line,
                        None => {
                            let line = self.line(*table, *random);
                            lines.push((*table, line));
                            line
                        }
                    };
                    let rows = self.plan.options.tables.get(usize::from(*table)).map(|table| &table.rows);
                    let cell = rows.and_then(|rows| rows.get(line)?.get(usize::from(*column)));
                    self.cell(cell)
                }
                VariableValue::OwnRow { table, column } => {
                    let line = self.users[slot].account as usize;
                    let rows = self.plan.options.tables.get(usize::from(*table)).map(|table| &table.rows);
                    let cell = rows.and_then(|rows| rows.get(line)?.get(usize::from(*column)));
                    self.cell(cell)
                }
            };
            self.set_variable(slot, name, value);
        }
    }

    fn cell(&mut self, cell: Option<&String>) -> String {
        if cell.is_none() {
            self.record.error("no-such-column");
        }
        cell.cloned().unwrap_or_default()
    }

    fn line(&mut self, table: u16, random: bool) -> usize {
        let index = usize::from(table);
        let rows = self.plan.options.tables.get(index).map_or(0, |table| table.rows.len());
        if rows == 0 {
            return 0;
        }
        if random {
            return self.rng.below(rows as u32) as usize;
        }
        // Workers take turns, so that two users never get the same row before all have been used.
        let workers = self.assignment.clocks.len().max(1);
        let line = (self.lines[index] * workers + usize::from(self.assignment.worker)) % rows;
        self.lines[index] += 1;
        line
    }

    /// Whether a condition holds.
    pub(super) fn holds(&mut self, slot: UserSlot, condition: &VariableCondition) -> bool {
        let value = self.text(slot, &condition.value);
        let actual = self.variable(slot, &condition.variable).unwrap_or_default();
        let order = match (actual.parse::<f64>(), value.parse::<f64>()) {
            (Ok(actual), Ok(value)) => actual.partial_cmp(&value),
            _ => Some(actual.cmp(value.as_str())),
        };
        let Some(order) = order else { return false };
        match condition.compare {
            ComparisonOperator::Equal => order.is_eq(),
            ComparisonOperator::NotEqual => order.is_ne(),
            ComparisonOperator::Less => order.is_lt(),
            ComparisonOperator::LessOrEqual => order.is_le(),
            ComparisonOperator::Greater => order.is_gt(),
            ComparisonOperator::GreaterOrEqual => order.is_ge(),
        }
    }
}
