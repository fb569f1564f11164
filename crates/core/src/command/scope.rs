//! What a token for programs may be for, coarse enough to be understood. Doors that know such tokens ask for the scope of
//! a command; people and the admin socket have no scopes.

/// What a token is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TokenScope {
    /// To look at anything that is not a secret.
    Read,
    /// To read `/metrics`.
    Metrics,
    /// To create, change and remove accounts.
    Accounts,
    /// To end sessions.
    Sessions,
    /// To write to users.
    Messages,
    /// To change how the node runs, and to stop it.
    Node,
    /// To change who may do what; and all of the above.
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
    /// The one with this name.
    pub fn from_name(name: &str) -> Option<TokenScope> {
        TokenScope::ALL.into_iter().find(|scope| scope.as_str() == name)
    }
}
