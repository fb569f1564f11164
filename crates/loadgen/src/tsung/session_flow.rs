//! Static knowledge about a session while it is read from its first request to its last.
//!
//! Nothing is executed; where two paths join (`if`), only facts that hold on both are known.
//!
//! # Pitfalls
//!
//! A variable that is read before it is set has the value `undefined` in Tsung, so it is initialised to that.

use hashbrown::{HashMap, HashSet};

use crate::plan::TextTemplate;

/// Whether the stream is open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum StreamKnowledge {
    /// Nothing has been sent yet, or `close` was.
    #[default]
    Closed,
    /// Open; reopening after TLS or SASL has already been done.
    Open,
    /// Depends on what happened at run time.
    Unknown,
}

/// Knowledge at one point of a session.
#[derive(Debug, Default)]
pub(super) struct SessionFlow {
    pub(super) stream: StreamKnowledge,
    /// Number of enclosing elements.
    pub(super) depth: usize,
    /// A first request has been read.
    pub(super) started: bool,
    /// Regular expression of the last request that had one; Tsung keeps it for `ack="parse"`.
    pub(super) regexp: Option<String>,
    /// Name and password that replace the account's.
    pub(super) credentials: Option<(TextTemplate, TextTemplate)>,
    /// Variables that have been set.
    pub(super) set: HashSet<String>,
    /// Variables that are read before they are set, with the line of the first use.
    pub(super) early: Vec<(String, u32)>,
    /// Table and column from which variables were last set.
    pub(super) rows: HashMap<String, (u16, u16)>,
    /// Table whose row is the account, and the variable with the name.
    pub(super) account_row: Option<(u16, String)>,
    /// `xmpp_authenticate` named the user.
    pub(super) given: bool,
    /// A contact has been added to the roster.
    pub(super) contact: bool,
    /// A message has been sent.
    pub(super) message: bool,
    /// The session logs in anonymously.
    pub(super) anonymous: bool,
    /// The session logs in with an account.
    pub(super) login: bool,
}

impl SessionFlow {
    /// Records a use of a variable.
    pub(super) fn uses(&mut self, name: &str, line: u32) {
        if !self.set.contains(name) && !self.early.iter().any(|(early, _)| early == name) {
            self.early.push((name.to_owned(), line));
        }
    }
}
