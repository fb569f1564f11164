//! Patterns matched against responses, and conditions on the captured values.
//!
//! Regular expressions are plain text here; the engine compiles them and refuses invalid ones.

use serde::{Deserialize, Serialize};

use super::TextTemplate;

/// Pattern for a received stanza.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum StanzaPattern {
    /// Name, `type` and namespace of a child; `None` matches any.
    Stanza {
        /// `message`, `presence`, `iq` or another element's name.
        name: Option<String>,
        /// Value of `type`.
        kind: Option<String>,
        /// Namespace of a child.
        namespace: Option<String>,
    },
    /// Contains this text.
    Contains(TextTemplate),
    /// Matches this regular expression.
    Regex(String),
}

/// Conditions on a response, and values captured from it (Tsung's `match` and `dyn_variable`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ResponseChecks {
    /// Evaluated in order. `Continue` and `Log` count and pass to the next; of the others, the first that applies
    /// decides.
    pub matches: Vec<ResponseMatch>,
    /// Variables and the regular expressions whose first group they receive.
    pub captures: Vec<(String, String)>,
}

/// One condition on a response.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResponseMatch {
    /// Regular expression to find.
    pub regex: String,
    /// Applies if the expression is found (`true`) or not found (`false`).
    pub when: bool,
    /// Resulting action.
    pub action: MatchAction,
    /// For `Loop` and `Restart`: maximum number of times.
    pub max: u32,
    /// For `Loop`: pause before the request is sent again.
    pub pause_ms: u64,
    /// Name of its counter.
    pub name: Option<String>,
}

/// Action of a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MatchAction {
    /// Only counts.
    Continue,
    /// Counts and writes the response to the log of the run.
    Log,
    /// Sends the request again after the pause.
    Loop,
    /// Ends the session.
    Abort,
    /// Ends the run.
    AbortRun,
    /// Restarts the session.
    Restart,
}

/// A condition on a variable.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VariableCondition {
    /// Variable.
    pub variable: String,
    /// Operator; compares numerically if both sides are numbers.
    pub compare: ComparisonOperator,
    /// Right-hand side.
    pub value: TextTemplate,
}

/// Comparison operator.
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
