//! What a token for programs may be for, coarse enough to be understood. Doors that know such tokens ask for the scope of
//! a command; people and the admin socket have no scopes.

/// What a token is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
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

impl Scope {
    /// All of them.
    pub const ALL: [Scope; 7] = [
        Scope::Read,
        Scope::Metrics,
        Scope::Accounts,
        Scope::Sessions,
        Scope::Messages,
        Scope::Node,
        Scope::Admin,
    ];

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Scope::Read => "read",
            Scope::Metrics => "metrics",
            Scope::Accounts => "accounts",
            Scope::Sessions => "sessions",
            Scope::Messages => "messages",
            Scope::Node => "node",
            Scope::Admin => "admin",
        }
    }
    /// The one with this name.
    pub fn named(name: &str) -> Option<Scope> {
        Scope::ALL.into_iter().find(|scope| scope.as_str() == name)
    }
}
