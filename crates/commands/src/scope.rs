//! Scopes of tokens for programs, few enough to be understood. Interfaces with such tokens require the scope of
//! a command; people and the admin socket have no scopes.

/// Right that a token grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TokenScope {
    /// Read anything that is not a secret.
    Read,
    /// Read `/metrics`.
    Metrics,
    /// Create, change and remove accounts.
    Accounts,
    /// End sessions.
    Sessions,
    /// Send messages to users.
    Messages,
    /// Change how the node runs, and stop it.
    Node,
    /// Change permissions; includes all of the above.
    Admin,
}

impl TokenScope {
    /// All of them.
    pub const ALL: [TokenScope; 7] = [
        TokenScope::Read,
        TokenScope::Metrics,
        TokenScope::Accounts,
        TokenScope::Sessions,
        TokenScope::Messages,
        TokenScope::Node,
        TokenScope::Admin,
    ];

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            TokenScope::Read => "read",
            TokenScope::Metrics => "metrics",
            TokenScope::Accounts => "accounts",
            TokenScope::Sessions => "sessions",
            TokenScope::Messages => "messages",
            TokenScope::Node => "node",
            TokenScope::Admin => "admin",
        }
    }

    /// The scope with this name.
    pub fn from_name(name: &str) -> Option<TokenScope> {
        TokenScope::ALL.into_iter().find(|scope| scope.as_str() == name)
    }
}
