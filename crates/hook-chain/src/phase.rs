//! Phases of a hook chain, in order; they take the place of integer priorities.

/// Phases of a chain, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Adds permanent data, such as a stanza-id.
    Stamp,
    /// Refuses stanzas that are not allowed.
    Police,
    /// Changes the stanza or answers it.
    Rewrite,
    /// Stores the stanza durably.
    Archive,
    /// Sends copies to other sessions.
    Copy,
    /// Notifies others.
    Notify,
}

/// Effect of a panicking handler on the stanza.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// The stanza is refused with `internal-server-error`.
    Closed,
    /// The handler is skipped.
    Open,
}

impl Phase {
    /// Policing and archiving fail closed; copies and notifications fail open.
    pub const fn on_failure(self) -> OnFailure {
        match self {
            Phase::Stamp | Phase::Copy | Phase::Notify => OnFailure::Open,
            Phase::Police | Phase::Rewrite | Phase::Archive => OnFailure::Closed,
        }
    }

    /// The name, as in the golden file.
    pub const fn name(self) -> &'static str {
        match self {
            Phase::Stamp => "stamp",
            Phase::Police => "police",
            Phase::Rewrite => "rewrite",
            Phase::Archive => "archive",
            Phase::Copy => "copy",
            Phase::Notify => "notify",
        }
    }
}
