//! Scopes of tokens. An administrator who signed in has all of them.

use throng_commands::TokenScope;

/// A set of scopes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scopes(u8);

impl Scopes {
    /// No scope.
    pub const NONE: Scopes = Scopes(0);
    /// All scopes: `admin` includes the others.
    pub const ALL: Scopes = Scopes(1 << TokenScope::Admin as u8);

    /// The set of these scopes.
    pub fn from_scopes(list: impl IntoIterator<Item = TokenScope>) -> Scopes {
        Scopes(list.into_iter().fold(0, |bits, scope| bits | 1 << scope as u8))
    }

    /// Whether the set grants this scope.
    pub const fn allow(self, scope: TokenScope) -> bool {
        self.0 & (1 << scope as u8 | 1 << TokenScope::Admin as u8) != 0
    }

    /// Whether the set grants all scopes of the other.
    pub fn include(self, other: Scopes) -> bool {
        TokenScope::ALL.into_iter().filter(|s| other.allow(*s)).all(|s| self.allow(s))
    }

    /// The names of the scopes in the set.
    pub fn names(self) -> Vec<&'static str> {
        TokenScope::ALL.into_iter().filter(|s| self.0 & 1 << *s as u8 != 0).map(TokenScope::as_str).collect()
    }

    /// Parses names of scopes.
    ///
    /// # Errors
    /// The first unknown name.
    pub fn parse<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Scopes, String> {
        let mut list = Vec::new();
        for name in names {
            list.push(TokenScope::from_name(name).ok_or_else(|| name.chars().take(32).collect::<String>())?);
        }
        Ok(Scopes::from_scopes(list))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scope_admin_includes_all_scopes_and_no_other_scope_does() {
        for scope in TokenScope::ALL {
            assert!(Scopes::ALL.allow(scope));
            assert!(!Scopes::NONE.allow(scope));
            assert_eq!(
                Scopes::from_scopes([scope]).allow(TokenScope::Read),
                matches!(scope, TokenScope::Read | TokenScope::Admin)
            );
            assert_eq!(Scopes::parse(Scopes::from_scopes([scope]).names()), Ok(Scopes::from_scopes([scope])));
        }
        let two = Scopes::from_scopes([TokenScope::Read, TokenScope::Accounts]);
        assert_eq!(two.names(), ["read", "accounts"]);
        assert!(Scopes::ALL.include(two) && two.include(Scopes::from_scopes([TokenScope::Read])));
        assert!(!two.include(Scopes::ALL) && !two.include(Scopes::from_scopes([TokenScope::Node])));
        assert_eq!(Scopes::parse(["read", "all"]), Err("all".to_owned()));
    }
}
