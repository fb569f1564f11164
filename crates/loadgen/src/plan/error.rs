//! Errors in a plan: each is one sentence that states its place, the problem and the fix.

use std::fmt;

/// One error. `Display` gives the line shown to the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanError {
    /// Line of the file, from 1; `None` if it has no line.
    pub line: Option<u32>,
    /// Path of the key, such as `session[0].steps[2].message`; empty if it has no key.
    pub key: String,
    /// The problem and the fix.
    pub text: String,
}

impl PlanError {
    /// An error of the plan as a whole.
    pub fn of_plan(text: impl Into<String>) -> Self {
        Self { line: None, key: String::new(), text: text.into() }
    }

    /// An error of one part of the plan.
    pub fn at(key: impl Into<String>, text: impl Into<String>) -> Self {
        Self { line: None, key: key.into(), text: text.into() }
    }
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.text)
    }
}

impl std::error::Error for PlanError {}

/// `; did you mean "x"?`, or nothing if no name is similar.
pub(crate) fn nearest<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    match names.into_iter().map(|n| (strsim::levenshtein(name, n), n)).min() {
        Some((d, near)) if d <= 1 + name.len() / 3 => format!("; did you mean \"{near}\"?"),
        _ => String::new(),
    }
}
