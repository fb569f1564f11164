//! Templates with variables, values of variables, and time spans.
//!
//! # Pitfalls
//!
//! Text is escaped when it is sent as XML, and never before.

use serde::{Deserialize, Serialize};

/// Value assigned to a variable.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum VariableValue {
    /// A template.
    Text(TextTemplate),
    /// This many random letters.
    RandomString(u32),
    /// A random number in this inclusive range.
    RandomNumber(i64, i64),
    /// A column of a table row, in order or at random. Rows are split when the plan is read.
    Row {
        /// Index into [`super::PlanOptions::tables`].
        table: u16,
        /// Column index.
        column: u16,
        /// A random row instead of the next one. Columns of one `Set` come from the same row.
        random: bool,
    },
    /// A column of the row with the user's own number, for files that contain the accounts.
    OwnRow {
        /// Index into [`super::PlanOptions::tables`].
        table: u16,
        /// Column index.
        column: u16,
    },
}

/// A template: parts in order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TextTemplate(pub Vec<TemplatePart>);

/// A part of a template.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum TemplatePart {
    /// Literal text.
    Literal(String),
    /// Value of a variable (a missing one is empty and counted as error `unknown-variable`).
    Variable(String),
    /// User name of the user itself.
    User,
    /// Number of the user itself.
    Number,
    /// Password of the user itself.
    Password,
    /// The domain.
    Domain,
    /// Full JID of the user itself.
    Jid,
    /// A number that is unique in the run.
    Unique,
    /// Destination of this step, or of the last that had one (bare JID).
    Destination,
}

impl TextTemplate {
    /// A template without variables.
    pub fn literal(text: impl Into<String>) -> Self {
        Self(vec![TemplatePart::Literal(text.into())])
    }
}

/// A fixed or random time span.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum TimeSpan {
    /// Fixed, in milliseconds.
    Fixed(f64),
    /// Exponentially distributed with this mean.
    Exponential(f64),
    /// Uniformly distributed in this range.
    Uniform(f64, f64),
}

impl TimeSpan {
    /// The same span on a clock that runs `scale` times faster.
    #[must_use]
    pub fn scaled(self, scale: f64) -> Self {
        match self {
            Self::Fixed(ms) => Self::Fixed(ms / scale),
            Self::Exponential(ms) => Self::Exponential(ms / scale),
            Self::Uniform(from, to) => Self::Uniform(from / scale, to / scale),
        }
    }
}
