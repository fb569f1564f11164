//! Text with variables, their values, and spans of time.
//!
//! Trap: text is escaped when it is sent, where it becomes XML, and never before.

use serde::{Deserialize, Serialize};

/// What a variable gets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum VariableValue {
    /// Text with variables.
    Text(TextTemplate),
    /// So many random letters.
    RandomString(u32),
    /// A random number between these, both included.
    RandomNumber(i64, i64),
    /// A column of a line of a list, in order or at random. Lines are split when the plan is read.
    Row {
        /// Index into [`Options::tables`].
        table: u16,
        /// Column.
        column: u16,
        /// A random line instead of the next one. Columns of one `Set` come from the same line.
        random: bool,
    },
    /// A column of the line with the own number, for files that hold the accounts.
    OwnRow {
        /// Index into [`Options::tables`].
        table: u16,
        /// Column.
        column: u16,
    },
}

/// Text with variables: pieces of it in order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TextTemplate(pub Vec<TemplatePart>);

/// A piece of text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum TemplatePart {
    /// As it is.
    Literal(String),
    /// The value of a variable (a missing one is empty and counted as error `unknown-variable`).
    Variable(String),
    /// The own user name.
    User,
    /// The own number.
    Number,
    /// The own password.
    Password,
    /// The domain.
    Domain,
    /// The own full address.
    Jid,
    /// A number that nobody else in the run has.
    Unique,
    /// The destination of this step, or of the last that had one (bare).
    Destination,
}

impl TextTemplate {
    /// Text without variables.
    pub fn literal(text: impl Into<String>) -> Self {
        Self(vec![TemplatePart::Literal(text.into())])
    }
}

/// A span of time, perhaps random.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum TimeSpan {
    /// Always this, in milliseconds.
    Fixed(f64),
    /// Exponentially distributed with this mean.
    Exponential(f64),
    /// Evenly distributed between these.
    Uniform(f64, f64),
}

impl TimeSpan {
    /// The same span on a clock that runs `scale` times faster.
    pub fn scaled(self, scale: f64) -> Self {
        match self {
            Self::Fixed(ms) => Self::Fixed(ms / scale),
            Self::Exponential(ms) => Self::Exponential(ms / scale),
            Self::Uniform(from, to) => Self::Uniform(from / scale, to / scale),
        }
    }
}
