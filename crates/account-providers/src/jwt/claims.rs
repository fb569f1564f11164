//! Claims of a token (RFC 7519, section 4.1): whether it is for this server, valid at this time, and whose it is.
//!
//! # Pitfalls
//!
//! A valid signature only says who issued the token. One that the same issuer made for another service must be refused
//! (RFC 8725, section 3.9), so a token must name this server as its audience, unless the configuration says that its issuer
//! serves nobody else.

use jid::Jid;
use serde_json::{Map, Value};

/// Difference of clocks that is tolerated, in seconds.
pub const LEEWAY_SECONDS: u64 = 60;

/// The claim with the user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UserClaim(pub String);

impl Default for UserClaim {
    fn default() -> UserClaim {
        UserClaim("sub".to_owned())
    }
}

/// Rules for the claims of a token.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ClaimRules {
    /// `iss` must be this.
    pub issuer: Option<String>,
    /// `aud` must name one of these. Empty: the domain.
    pub audiences: Vec<String>,
    /// With no `audiences`, a token without `aud` is for this server: nobody else has its key.
    pub without_audience: bool,
    /// The user: a user name of the domain, or a bare address of it.
    pub user: UserClaim,
}

impl ClaimRules {
    /// The account of `domain` that the token authorises at `now`, in seconds since 1970.
    ///
    /// # Errors
    /// The reason for the log, without the values of the claims.
    pub fn account(&self, claims: &Map<String, Value>, domain: &str, now: u64) -> Result<Jid, &'static str> {
        let issuer = claims.get("iss").and_then(Value::as_str);
        if self.issuer.is_some() && issuer != self.issuer.as_deref() {
            return Err("iss is not the configured issuer");
        }
        if !self.is_for_us(claims.get("aud"), domain) {
            return Err("aud names neither the domain nor one of the configured audiences");
        }
        // Without an end, a token would be a password that cannot be changed.
        let expires = claims.get("exp").and_then(seconds).ok_or("exp is missing or not a number")?;
        if now >= expires.saturating_add(LEEWAY_SECONDS) {
            return Err("the token has expired");
        }
        if let Some(begins) = claims.get("nbf") {
            let begins = seconds(begins).ok_or("nbf is not a number")?;
            if now.saturating_add(LEEWAY_SECONDS) < begins {
                return Err("the token is not valid yet");
            }
        }
        let user = claims.get(&self.user.0).and_then(Value::as_str);
        let user = user.ok_or("the claim user_claim is missing or not a string")?;
        let jid = match user.contains('@') {
            true => Jid::parse(user),
            false => Jid::from_parts(Some(user), domain, None),
        };
        jid.ok()
            .filter(|jid| jid.domain() == domain && jid.local().is_some() && jid.as_ref().is_bare())
            .ok_or("the claim user_claim is not a user name, nor an address of the domain")
    }

    /// RFC 7519, section 4.1.3: a string, or an array of strings.
    fn is_for_us(&self, audience: Option<&Value>, domain: &str) -> bool {
        let is_ours = |name: &Value| {
            let name = name.as_str();
            match self.audiences.as_slice() {
                [] => {
                    name == Some(domain) || name.and_then(|name| name.strip_prefix("xmpp:")) == Some(domain)
                }
                ours => ours.iter().any(|our| name == Some(our.as_str())),
            }
        };
        match audience {
            None => self.audiences.is_empty() && self.without_audience,
            Some(Value::Array(names)) => names.iter().any(is_ours),
            Some(name) => is_ours(name),
        }
    }
}

/// A NumericDate (section 2), which may have a fraction.
fn seconds(value: &Value) -> Option<u64> {
    match value.as_u64() {
        Some(seconds) => Some(seconds),
        None => {
            let seconds = value.as_f64().filter(|seconds| (0.0..9e15).contains(seconds))?;
            #[allow(
                clippy::cast_possible_truncation,
                reason = "it is in range, and the fraction does not matter"
            )]
            Some(seconds as u64)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const NOW: u64 = 1_800_000_000;

    fn any() -> ClaimRules {
        ClaimRules { without_audience: true, ..ClaimRules::default() }
    }

    fn account(rules: &ClaimRules, claims: Value) -> Option<String> {
        rules.account(claims.as_object().unwrap(), "example.net", NOW).ok().map(|jid| jid.to_string())
    }

    #[test]
    fn the_user_is_a_name_or_an_address_of_the_domain() {
        let of = |sub: Value| account(&any(), json!({ "sub": sub, "exp": NOW + 1 }));
        for same in ["romeo", "Romeo", "romeo@example.net", "romeo@EXAMPLE.net"] {
            assert_eq!(of(json!(same)).as_deref(), Some("romeo@example.net"), "{same}");
        }
        for wrong in [
            "",
            "romeo@other.example",
            "romeo@example.net/x",
            "@example.net",
            "a b",
            "romeo@",
            "a@b@example.net",
        ] {
            assert_eq!(of(json!(wrong)), None, "{wrong}");
        }
        assert_eq!(of(json!(7)), None);
        assert_eq!(of(json!(["romeo"])), None);
        let rules = ClaimRules { user: UserClaim("preferred_username".into()), ..any() };
        let claims = json!({ "sub": "0815", "preferred_username": "romeo", "exp": NOW + 1 });
        assert_eq!(account(&rules, claims).as_deref(), Some("romeo@example.net"));
        assert_eq!(account(&rules, json!({ "sub": "romeo", "exp": NOW + 1 })), None);
    }

    #[test]
    fn a_token_is_valid_between_its_times_and_must_have_an_end() {
        let at = |claims: Value| account(&any(), claims).is_some();
        assert!(at(json!({ "sub": "romeo", "exp": NOW + 1 })));
        assert!(at(json!({ "sub": "romeo", "exp": NOW - LEEWAY_SECONDS + 1 })), "clocks differ");
        assert!(!at(json!({ "sub": "romeo", "exp": NOW - LEEWAY_SECONDS })));
        assert!(!at(json!({ "sub": "romeo" })));
        assert!(at(json!({ "sub": "romeo", "exp": 1_800_000_001.5 })));
        assert!(at(json!({ "sub": "romeo", "exp": u64::MAX })));
        for wrong in [json!("1800000001"), json!(-1), json!(null), json!(1e300), json!([NOW + 1])] {
            assert!(!at(json!({ "sub": "romeo", "exp": wrong })));
        }
        assert!(at(json!({ "sub": "romeo", "exp": NOW + 1, "nbf": NOW + LEEWAY_SECONDS })));
        assert!(!at(json!({ "sub": "romeo", "exp": NOW + 1, "nbf": NOW + LEEWAY_SECONDS + 1 })));
        assert!(!at(json!({ "sub": "romeo", "exp": NOW + 1, "nbf": "now" })));
    }

    #[test]
    fn a_token_for_another_service_is_refused() {
        let with = |rules: &ClaimRules, aud: Value| {
            account(rules, json!({ "sub": "romeo", "exp": NOW + 1, "aud": aud })).is_some()
        };
        let any = any();
        assert!(with(&any, json!("example.net")) && with(&any, json!("xmpp:example.net")));
        assert!(with(&any, json!(["other", "example.net"])));
        for wrong in [json!("other"), json!([]), json!(["other"]), json!(7), json!(null), json!("")] {
            assert!(!with(&any, wrong));
        }
        let unnamed = json!({ "sub": "romeo", "exp": NOW + 1 });
        assert!(account(&any, unnamed.clone()).is_some());
        assert_eq!(account(&ClaimRules::default(), unnamed), None, "its issuer serves others, too");
        assert!(with(&ClaimRules::default(), json!("example.net")));
        let chat = ClaimRules { audiences: vec!["chat".into(), "talk".into()], ..ClaimRules::default() };
        assert!(with(&chat, json!("talk")) && !with(&chat, json!("example.net")));
        assert_eq!(
            account(&chat, json!({ "sub": "romeo", "exp": NOW + 1 })),
            None,
            "an audience is required"
        );
    }

    #[test]
    fn the_issuer_must_be_the_configured_one() {
        let rules = ClaimRules { issuer: Some("https://id.example.net".into()), ..any() };
        let with =
            |iss: Value| account(&rules, json!({ "sub": "romeo", "exp": NOW + 1, "iss": iss })).is_some();
        assert!(with(json!("https://id.example.net")));
        for wrong in [json!("https://id.example.net/"), json!(null), json!(["https://id.example.net"])] {
            assert!(!with(wrong));
        }
        assert_eq!(account(&rules, json!({ "sub": "romeo", "exp": NOW + 1 })), None);
    }
}
