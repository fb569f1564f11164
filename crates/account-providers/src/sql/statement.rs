//! Statements with named parameters, taken apart once: `SELECT hash FROM users WHERE name = :user`.

/// A parameter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SqlParameter {
    /// `:user`, the local part.
    User,
    /// `:domain`
    Domain,
    /// `:address`, both with an `@`.
    Address,
    /// `:password`, the hash of a new password.
    Password,
}

/// A statement, as pieces of text with a parameter between each two.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SqlStatement {
    pieces: Vec<String>,
    parameters: Vec<SqlParameter>,
}

impl SqlStatement {
    /// Takes a statement apart. `writes`: whether it must have `:password`; others must not.
    ///
    /// # Errors
    /// One sentence that says what is wrong.
    pub fn parse(text: &str, writes: bool) -> Result<SqlStatement, String> {
        let mut statement = SqlStatement { pieces: Vec::new(), parameters: Vec::new() };
        let mut piece = String::new();
        let mut quote = None;
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            let after = &rest[c.len_utf8()..];
            match (quote, c) {
                // A doubled quote ends a text and begins another, which is the same.
                (Some(open), c) if open == c => quote = None,
                (Some(_), _) => {}
                (None, '\'' | '"' | '`') => quote = Some(c),
                (None, ':') if after.starts_with(':') => {
                    piece.push_str("::");
                    rest = &after[1..];
                    continue;
                }
                (None, ':') => {
                    let end =
                        after.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(after.len());
                    let parameter = match &after[..end] {
                        "user" => SqlParameter::User,
                        "domain" => SqlParameter::Domain,
                        "address" => SqlParameter::Address,
                        "password" if writes => SqlParameter::Password,
                        other => {
                            return Err(format!(
                                "the statement has the parameter :{other}; known are :user, :domain, :address{}",
                                if writes { " and :password" } else { "" }
                            ));
                        }
                    };
                    statement.pieces.push(std::mem::take(&mut piece));
                    statement.parameters.push(parameter);
                    rest = &after[end..];
                    continue;
                }
                (None, '?' | '$' | ';') => {
                    return Err(format!(
                        "the statement contains {c} outside of quotes; write one statement, with parameters such as :user"
                    ));
                }
                (None, _) => {}
            }
            piece.push(c);
            rest = after;
        }
        if quote.is_some() {
            return Err("a quotation mark in the statement is not closed".to_owned());
        }
        statement.pieces.push(piece);
        let names = |parameter| matches!(parameter, &SqlParameter::User | &SqlParameter::Address);
        if !statement.parameters.iter().any(names) {
            return Err("the statement has no :user; it would be the same for all accounts".to_owned());
        }
        if writes && !statement.parameters.contains(&SqlParameter::Password) {
            return Err("the statement has no :password".to_owned());
        }
        Ok(statement)
    }

    /// The text with the placeholders of a database, which are made from the number of the parameter, beginning with 1.
    pub fn text(&self, placeholder: impl Fn(usize) -> String) -> String {
        let mut text = String::new();
        for (number, piece) in self.pieces.iter().enumerate() {
            if number > 0 {
                text.push_str(&placeholder(number));
            }
            text.push_str(piece);
        }
        text
    }

    /// The parameters in the order of their placeholders.
    pub fn parameters(&self) -> &[SqlParameter] {
        &self.parameters
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_become_placeholders() {
        let text =
            "SELECT a::text, ':user', \"b:domain\" FROM t WHERE n = :user AND d=:domain OR x IN (:address)";
        let statement = SqlStatement::parse(text, false).unwrap();
        assert_eq!(
            statement.text(|number| format!("${number}")),
            "SELECT a::text, ':user', \"b:domain\" FROM t WHERE n = $1 AND d=$2 OR x IN ($3)"
        );
        use SqlParameter::{Address, Domain, Password, User};
        assert_eq!(statement.parameters(), [User, Domain, Address]);
        let update = SqlStatement::parse("UPDATE t SET p=:password WHERE n=:user", true).unwrap();
        assert_eq!(update.parameters(), [Password, User]);
        assert_eq!(update.text(|_| "?".to_owned()), "UPDATE t SET p=? WHERE n=?");
        let quoted = SqlStatement::parse("SELECT 'it''s :user' FROM t WHERE n = :user", false).unwrap();
        assert_eq!(quoted.parameters(), [User]);
    }

    #[test]
    fn statements_that_cannot_be_right_are_refused() {
        for (text, writes, part) in [
            ("SELECT p FROM t", false, "no :user"),
            ("SELECT p FROM t WHERE d = :domain", false, "no :user"),
            ("SELECT p FROM t WHERE n = ?", false, "outside of quotes"),
            ("SELECT p FROM t WHERE n = :user; DROP TABLE t", false, "outside of quotes"),
            ("SELECT p FROM t WHERE n = :username", false, ":username"),
            ("SELECT p FROM t WHERE n = :user AND p = :password", false, ":password"),
            ("UPDATE t SET p = 1 WHERE n = :user", true, "no :password"),
            ("SELECT ' FROM t WHERE n = :user", false, "not closed"),
        ] {
            let error = SqlStatement::parse(text, writes).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
