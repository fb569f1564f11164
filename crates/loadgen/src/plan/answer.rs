//! What is looked for in answers, and conditions on what was kept of them.
//!
//! Regular expressions are text here; who runs them compiles them and refuses those that it cannot.

use serde::{Deserialize, Serialize};

use super::TextTemplate;

/// What to look for in a stanza that arrived.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum StanzaPattern {
    /// Name, `type` and namespace of a child; `None`: any.
    Stanza {
        /// `message`, `presence`, `iq` or another element's name.
        name: Option<String>,
        /// Value of `type`.
        kind: Option<String>,
        /// Namespace of a child.
        namespace: Option<String>,
    },
    /// A piece of text.
    Contains(TextTemplate),
    /// A regular expression.
    Regex(String),
}

/// Conditions on an answer, and what is kept of it (Tsung's `match` and `dyn_variable`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ResponseChecks {
    /// In order. `Continue` and `Log` count and go on to the next; of the others, the first that applies decides.
    pub matches: Vec<ResponseMatch>,
    /// Variable and the regular expression whose first group it gets.
    pub captures: Vec<(String, String)>,
}

/// One condition on an answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResponseMatch {
    /// What to look for.
    pub regex: String,
    /// Applies when it is found (`true`) or when it is not.
    pub when: bool,
    /// What then happens.
    pub action: MatchAction,
    /// For `Loop` and `Restart`: how often at most.
    pub max: u32,
    /// For `Loop`: pause before sending again.
    pub pause_ms: u64,
    /// Counted under this name.
    pub name: Option<String>,
}

/// What a match does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MatchAction {
    /// Only counts.
    Continue,
    /// Counts and writes the answer to the log of the run.
    Log,
    /// Sends the request again after the pause.
    Loop,
    /// Ends the session.
    Abort,
    /// Ends the run.
    AbortRun,
    /// Begins the session again.
    Restart,
}

/// A condition on a variable.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VariableCondition {
    /// The variable.
    pub variable: String,
    /// How it is compared; numbers as numbers where both are.
    pub compare: ComparisonOperator,
    /// With what.
    pub value: TextTemplate,
}

/// Comparisons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "their names say it")]
pub enum ComparisonOperator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}
