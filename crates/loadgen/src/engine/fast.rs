//! Logins with SASL2 (XEP-0388, version 1.0), inline resource binding (XEP-0386, version 1.0) and FAST tokens
//! (XEP-0484, version 0.2).
//!
//! The first login of an account requests a token and takes the round trips of its mechanism. Later logins prove the
//! token in the same flight as the stream header, once the connection has the security that the plan requires. Stream
//! management is enabled and resumed inline (XEP-0198, section 10).
//!
//! Not implemented: channel binding of tokens (HT-SHA-256-EXPR and -ENDP), one flight over BOSH and WebSocket, tasks.
//!
//! # Pitfalls
//!
//! A token belongs to an account of this worker until the run ends, not to a session: the next user of the account uses
//! it.

use ring::hmac;
use sasl::Mechanism;
use sasl::client::Gs2;
use xml::{Tree, TreeNode};

use super::bytecode::Instruction;
use super::connection::LIMITS;
use super::event_loop::WorkerEngine;
use super::slot::UserSlot;
use super::virtual_user::{StreamManagementState, WaitState};
use crate::clock::now_us;
use crate::measure::{Counter, Timing};
use crate::plan::{StreamTransport, TransportSecurity};
use crate::sasl::{ClientExchange, choose, from_base64, parse_mechanism, to_base64};

pub(super) const SASL2: &str = "urn:xmpp:sasl:2";
const FAST: &str = "urn:xmpp:fast:0";
const SM: &str = "urn:xmpp:sm:3";
/// Token mechanism without channel binding (draft-schmaus-kitten-sasl-ht-09).
const HT: &str = "HT-SHA-256-NONE";

/// Token of an account.
pub(super) struct Token(hmac::Key);

impl Token {
    fn new(token: &str) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, token.as_bytes()))
    }

    /// The initial response: name, NUL and the client's proof.
    fn initial(&self, name: &str) -> Vec<u8> {
        let mut message = [name.as_bytes(), b"\0"].concat();
        message.extend_from_slice(hmac::sign(&self.0, b"Initiator").as_ref());
        message
    }

    /// Verifies the server's proof of the token.
    fn is_proved(&self, proof: &[u8]) -> bool {
        hmac::verify(&self.0, b"Responder", proof).is_ok()
    }
}

impl WorkerEngine<'_> {
    /// Sends `<authenticate/>` right after the stream header if the account has a token and the next step logs in with
    /// it.
    pub(super) fn prove_token_at_once(&mut self, slot: UserSlot) {
        let user = &self.users[slot];
        let secure = user.socket.as_ref().is_some_and(crate::socket::Socket::is_secure);
        let protected = secure || self.security(slot) == TransportSecurity::None;
        if !protected || self.plan.target.web.transport != StreamTransport::Tcp {
            return;
        }
        let resuming = user.login.as_ref().is_some_and(|login| login.resuming);
        let manage = match user.program(&self.programs).ops.get(usize::from(user.pc)) {
            _ if resuming => false,
            Some(Instruction::FastLogin { manage, .. }) => *manage,
            _ => return,
        };
        self.prove_token(slot, manage);
    }

    /// Logs in with the token of the account. Returns false without one.
    fn prove_token(&mut self, slot: UserSlot, manage: bool) -> bool {
        let account = self.users[slot].account;
        let Some(token) = self.tokens.get(&account) else { return false };
        let mut name = String::new();
        self.names.name(account, &mut name);
        let initial = token.initial(&name);
        self.send_authenticate(slot, HT, &initial, manage, "<fast xmlns='urn:xmpp:fast:0'/>");
        true
    }

    /// Logs in with SASL2: with the token of the account, or with a mechanism and a request for a token.
    pub(super) fn fast_login(&mut self, slot: UserSlot, wanted: &[String], manage: bool) {
        if self.prove_token(slot, manage) {
            return;
        }
        let wanted: Vec<Mechanism> = wanted.iter().filter_map(|name| parse_mechanism(name)).collect();
        let (name, password) = self.credentials(slot, None);
        let login = self.users[slot].login();
        let Some(choice) = choose(login.features.sasl2.iter().map(String::as_str), &wanted, false) else {
            return self.login_failed(
                slot,
                "login:no-mechanism",
                "the server offers none of the requested SASL2 mechanisms (XEP-0388)",
            );
        };
        let nonce = sasl::nonce();
        let begun = ClientExchange::begin(choice.mechanism, &name, &password, None, Gs2::None, &nonce);
        let (exchange, initial) = match begun {
            Ok(begun) => begun,
            Err(error) => return self.login_failed(slot, "login:credentials", &error.to_string()),
        };
        login.exchange = Some(exchange);
        let request = format!("<request-token xmlns='{FAST}' mechanism='{HT}'/>");
        self.send_authenticate(slot, choice.mechanism.name(), &initial, manage, &request);
    }

    /// Writes `<authenticate/>`, with `<resume/>` instead of `<bind/>` for a stream that was cut.
    fn send_authenticate(
        &mut self,
        slot: UserSlot,
        mechanism: &'static str,
        initial: &[u8],
        manage: bool,
        more: &str,
    ) {
        let user = &mut self.users[slot];
        let mut text = format!("<authenticate xmlns='{SASL2}' mechanism='{mechanism}'><initial-response>");
        to_base64(initial, "=", &mut text);
        // One client per account; XEP-0388, section 2.4.1 requires a UUID.
        text.push_str(&format!(
            "</initial-response><user-agent id='{:08x}-0000-4000-8000-000000000000'/>",
            user.account
        ));
        let login = user.login.get_or_insert_default();
        let management = user.extra.as_ref().and_then(|extra| extra.management.as_ref());
        match management.filter(|_| login.resuming) {
            Some(management) => {
                let id = management.id.as_deref().unwrap_or_default();
                text.push_str(&format!("<resume xmlns='{SM}' h='{}' previd='", management.received));
                let mut escaped = Vec::new();
                xml::escape::attr(id, &mut escaped);
                text.push_str(&String::from_utf8_lossy(&escaped));
                text.push_str("'/>");
            }
            None => {
                let enable = if manage { "<enable xmlns='urn:xmpp:sm:3' resume='true'/>" } else { "" };
                text.push_str(&format!("<bind xmlns='urn:xmpp:bind:0'><tag>load</tag>{enable}</bind>"));
            }
        }
        text.push_str(more);
        text.push_str("</authenticate>");
        login.mechanism = mechanism;
        login.sasl2 = true;
        login.since = now_us();
        user.wait = WaitState::Sasl;
        user.out.extend_from_slice(text.as_bytes());
        self.mark_dirty(slot);
        self.set_response_timeout(slot, self.plan.options.answer_timeout_ms);
    }

    /// Handles `<success/>` of SASL2.
    pub(super) fn sasl2_success(&mut self, slot: UserSlot, bytes: &[u8]) {
        let now = now_us();
        let scope = self.users[slot].scope.clone();
        let Ok(tree) = Tree::parse(bytes, &scope, &LIMITS) else { return };
        let root = tree.root();
        let proof = child(root, SASL2, "additional-data").map(|data| from_base64(data.text().trim()));
        let proof = match proof.transpose() {
            Ok(proof) => proof.unwrap_or_default(),
            Err(error) => return self.login_failed(slot, "login:sasl", &error.to_string()),
        };
        let user = &mut self.users[slot];
        let account = user.account;
        let login = user.login();
        let since = login.since;
        let proved = match login.exchange.take() {
            Some(mut exchange) => exchange.success(&proof).map_err(|error| error.to_string()),
            None if self.tokens.get(&account).is_some_and(|token| token.is_proved(&proof)) => Ok(()),
            None => Err("the server does not prove that it knows the token".to_owned()),
        };
        if let Err(reason) = proved {
            return self.login_failed(slot, "login:sasl", &reason);
        }
        self.record.time(Timing::Authenticate, now.saturating_sub(since));
        self.record.add(Counter::AuthenticateBytes, self.answer_bytes as u64);
        self.record_acceptable(slot, now.saturating_sub(since));
        if let Some(token) = child(root, FAST, "token").and_then(|token| token.attr("token")) {
            self.tokens.insert(account, Token::new(&token));
        }
        if self.users[slot].login().resuming {
            return match child(root, SM, "resumed") {
                Some(resumed) => self.resumed(slot, resumed.attr("h").and_then(|h| h.parse().ok()), now),
                None => self.not_resumed(slot),
            };
        }
        let address = child(root, SASL2, "authorization-identifier")
            .and_then(|address| jid::Jid::parse(address.text().trim()).ok());
        let Some(resource) = address.as_ref().and_then(|address| address.resource()) else {
            return self.login_failed(slot, "login:bind", "the server did not bind a resource (XEP-0386)");
        };
        let enabled = child(root, "urn:xmpp:bind:0", "bound").and_then(|bound| child(bound, SM, "enabled"));
        self.record_unacknowledged(slot);
        let user = &mut self.users[slot];
        user.resource = resource.into();
        if let Some(extra) = &mut user.extra {
            extra.management = None;
        }
        if let Some(enabled) = enabled {
            let resumable = enabled.attr("resume").is_some_and(|value| value == "true" || value == "1");
            let id = enabled.attr("id").filter(|_| resumable).map(|id| id.into_owned().into());
            let management =
                StreamManagementState { enabled: true, id, lost_at: now, ..StreamManagementState::default() };
            user.extra().management = Some(Box::new(management));
            self.resend_messages(slot);
        }
        self.ready(slot, now);
    }
}

fn child<'t>(node: TreeNode<'t>, ns: &str, name: &str) -> Option<TreeNode<'t>> {
    node.child_elements().find(|child| child.ns_text() == ns && child.name() == name)
}

#[cfg(test)]
mod tests {
    use super::Token;

    /// draft-schmaus-kitten-sasl-ht-09, section 3: the name, NUL, and an HMAC with the token as the key.
    #[test]
    fn a_token_proves_both_sides() {
        let token = Token::new("secret-token:fast-x");
        let initial = token.initial("juliet");
        assert_eq!(initial.len(), "juliet".len() + 1 + 32);
        assert!(initial.starts_with(b"juliet\0"));
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, b"secret-token:fast-x");
        assert_eq!(&initial[7..], ring::hmac::sign(&key, b"Initiator").as_ref());
        assert!(token.is_proved(ring::hmac::sign(&key, b"Responder").as_ref()));
        assert!(!token.is_proved(&initial[7..]), "the client's own proof is not the server's");
        assert!(!token.is_proved(b""));
    }
}
