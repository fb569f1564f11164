//! [`Exchange`]: one authentication of one client, for every mechanism (RFC 6120, section 6.4; RFC 4422).
//!
//! The caller decodes base 64 ([`crate::encoding`]), passes messages in and carries out the returned [`ExchangeStep`]:
//! send it, or look something up and call the method that accepts the result. Where the client sent no initial
//! response, an empty challenge requests it, as RFC 6120, section 6.3.10, requires of servers.
//!
//! Not implemented: timeouts, since the caller drops an abandoned exchange; the limit on attempts (section 6.4.5: 2 to
//! 5); the decision whether an authzid is permitted, which [`ExchangeStep::Done`] passes on.
//!
//! # Pitfalls
//!
//! `Done` means that the client proved its identity. The caller must still refuse disabled accounts (only then, so that
//! only the owner learns of it) and foreign authzids, and then sends a failure instead.

use base::Secret;

use crate::channel_binding::ChannelBindingData;
use crate::credentials::Credentials;
use crate::decoy::Decoy;
use crate::failure::{Failure, FailureReason};
use crate::mechanism::{Mechanism, MechanismSet};
use crate::scram::{AwaitingCredentials, AwaitingProof, ScramParams, ScramSuccess, is_server_nonce};
use crate::{anonymous, external, oauth_bearer, plain};

/// Next step of the caller.
#[derive(Debug, PartialEq, Eq)]
pub enum ExchangeStep {
    /// Send `<challenge/>` with this data, and call [`Exchange::step`] with the response.
    Challenge(Vec<u8>),
    /// Look up the credentials of this user and call [`Exchange::credentials`].
    NeedCredentials {
        /// User name of the client, after SASLprep.
        username: String,
    },
    /// Verify the password on a thread for blocking work ([`Credentials::verify_password`]; for a missing account with
    /// the credentials of the [`Decoy`]), and call [`Exchange::password_checked`].
    NeedPasswordCheck {
        /// User name of the client, after SASLprep.
        username: String,
        /// As the client sent it.
        password: Secret,
    },
    /// Check the bearer token and call [`Exchange::token_checked`].
    NeedTokenCheck {
        /// Requested identity, as the client wrote it; `None` for that of the token.
        authzid: Option<String>,
        /// As the client sent it.
        token: Secret,
    },
    /// Match the certificate of the TLS session with the requested identity (XEP-0178) and call
    /// [`Exchange::certificate`].
    NeedCertificate {
        /// Requested identity; `None` for that of the certificate.
        authzid: Option<String>,
    },
    /// The client has proved its identity. Send `<success/>` after the last checks (see the module).
    Done {
        /// User name, after SASLprep. Empty for ANONYMOUS: the caller makes a name.
        username: String,
        /// Identity to act as; the caller checks it, [`Failure::InvalidAuthzid`] if not permitted.
        authzid: Option<String>,
        /// Additional data of `<success/>`.
        additional: Option<Vec<u8>>,
    },
    /// Send `<failure/>` with this condition. The exchange is over; a new one may be tried.
    Failed(Failure),
}

/// One authentication of one client.
pub struct Exchange {
    mechanism: Mechanism,
    offered_plus: bool,
    /// Mechanisms that were offered, for XEP-0474.
    announced: Option<MechanismSet>,
    state: ExchangeState,
    reason: Option<FailureReason>,
    binding: ChannelBindingData,
    nonce: String,
}

/// Input that the exchange waits for.
enum ExchangeState {
    /// The client's first message; `asked` if the empty challenge was sent.
    AwaitingFirstMessage { asked: bool },
    /// [`Exchange::credentials`].
    Credentials(Box<AwaitingCredentials>),
    /// The client's proof.
    Proof(Box<AwaitingProof>),
    /// [`Exchange::password_checked`].
    Password { username: String, authzid: Option<String> },
    /// [`Exchange::certificate`].
    Certificate { authzid: Option<String> },
    /// [`Exchange::token_checked`].
    Token { authzid: Option<String> },
    /// The client's answer to the error about its token.
    TokenRefused,
    /// No input: the exchange has ended.
    Finished,
}

impl Exchange {
    /// Starts an exchange of `mechanism`, which the caller has found in its offer ([`Failure::InvalidMechanism`]
    /// otherwise).
    ///
    /// `offered_plus`: whether the offer had any `-PLUS`, to detect an offer that was shortened in transit. `binding`:
    /// the channel binding data of this stream. `nonce`: from [`crate::nonce`]; at least 16 visible ASCII characters
    /// without comma, never used before. Only SCRAM uses the three.
    pub fn new(
        mechanism: Mechanism,
        offered_plus: bool,
        binding: ChannelBindingData,
        nonce: String,
    ) -> Exchange {
        Exchange {
            mechanism,
            offered_plus,
            announced: None,
            state: ExchangeState::AwaitingFirstMessage { asked: false },
            reason: None,
            binding,
            nonce,
        }
    }

    /// Repeats the offer, signed, to a SCRAM client: these mechanisms, and the channel binding types if any of them is
    /// `-PLUS` (XEP-0474, see [`crate::downgrade_protection`]).
    #[must_use]
    pub fn with_downgrade_protection(mut self, announced: MechanismSet) -> Exchange {
        self.announced = Some(announced);
        self
    }

    /// Handles the initial response (`None` if there was none) or the next response of the client.
    pub fn step(&mut self, input: Option<&[u8]>) -> ExchangeStep {
        let result = match (self.take_state(), input) {
            (ExchangeState::AwaitingFirstMessage { .. }, None) if self.mechanism == Mechanism::Anonymous => {
                self.first(&[])
            }
            (ExchangeState::AwaitingFirstMessage { asked: false }, None) => {
                self.state = ExchangeState::AwaitingFirstMessage { asked: true };
                Ok(ExchangeStep::Challenge(Vec::new()))
            }
            (ExchangeState::AwaitingFirstMessage { .. }, Some(message)) => self.first(message),
            (ExchangeState::Proof(proof), Some(message)) => proof.check(message).map(done),
            // RFC 7628, section 3.2.3: whatever the client answers, the exchange has failed.
            (ExchangeState::TokenRefused, Some(_)) => Err(FailureReason::InvalidToken),
            _ => Err(FailureReason::UnexpectedMessage),
        };
        result.unwrap_or_else(|reason| self.failed(reason))
    }

    /// Completes [`ExchangeStep::NeedCredentials`] with the stored credentials, or `None` if there is no such account.
    ///
    /// `account` is the normalised address of the user name, with its domain. The decoy is derived from it. Where the
    /// user name is no valid localpart, pass the user name itself.
    ///
    /// An account without keys for this mechanism's hash is treated as a missing one.
    pub fn credentials(&mut self, found: Option<&Credentials>, decoy: &Decoy, account: &str) -> ExchangeStep {
        match self.take_state() {
            ExchangeState::Credentials(waiting) => {
                let (proof, challenge) = waiting.challenge(found, decoy, account);
                self.state = ExchangeState::Proof(Box::new(proof));
                ExchangeStep::Challenge(challenge)
            }
            _ => self.failed(FailureReason::UnexpectedMessage),
        }
    }

    /// Completes [`ExchangeStep::NeedPasswordCheck`].
    pub fn password_checked(&mut self, valid: bool) -> ExchangeStep {
        match self.take_state() {
            ExchangeState::Password { username, authzid } if valid => {
                ExchangeStep::Done { username, authzid, additional: None }
            }
            ExchangeState::Password { .. } => self.failed(FailureReason::InvalidProof),
            _ => self.failed(FailureReason::UnexpectedMessage),
        }
    }

    /// Completes [`ExchangeStep::NeedCertificate`] with the user that the certificate stands for, or with the failure
    /// of XEP-0178, section 2: [`Failure::InvalidAuthzid`] if it does not name the requested identity, or names several
    /// and none was requested; [`Failure::NotAuthorized`] if it names none.
    pub fn certificate(&mut self, user: Result<String, Failure>) -> ExchangeStep {
        match (self.take_state(), user) {
            (ExchangeState::Certificate { authzid }, Ok(username)) => {
                ExchangeStep::Done { username, authzid, additional: None }
            }
            (ExchangeState::Certificate { .. }, Err(failure)) => self.fail(failure),
            _ => self.failed(FailureReason::UnexpectedMessage),
        }
    }

    /// Completes [`ExchangeStep::NeedTokenCheck`] with the user name of the account that the token authorises, or `None` if
    /// it is invalid. The caller has compared the requested identity with that account, or does so after
    /// [`ExchangeStep::Done`].
    pub fn token_checked(&mut self, user: Option<String>) -> ExchangeStep {
        match (self.take_state(), user) {
            (ExchangeState::Token { authzid }, Some(username)) => {
                ExchangeStep::Done { username, authzid, additional: None }
            }
            (ExchangeState::Token { .. }, None) => self.refuse_token(),
            _ => self.failed(FailureReason::UnexpectedMessage),
        }
    }

    /// Ends the exchange from outside: `<abort/>` was received ([`Failure::Aborted`]), the database is unavailable
    /// ([`Failure::TemporaryAuthFailure`]), policy forbids it ([`Failure::MechanismTooWeak`]).
    pub fn fail(&mut self, failure: Failure) -> ExchangeStep {
        self.state = ExchangeState::Finished;
        self.reason = Some(FailureReason::EndedByCaller);
        ExchangeStep::Failed(failure)
    }

    /// The mechanism in use.
    pub const fn mechanism(&self) -> Mechanism {
        self.mechanism
    }

    /// Reason of the failure, for logs and counters; `None` if it did not fail.
    pub const fn reason(&self) -> Option<FailureReason> {
        self.reason
    }

    /// Whether the exchange has ended.
    pub const fn is_finished(&self) -> bool {
        matches!(self.state, ExchangeState::Finished)
    }

    fn first(&mut self, message: &[u8]) -> Result<ExchangeStep, FailureReason> {
        match self.mechanism {
            Mechanism::Plain => {
                let plain::PlainMessage { authzid, username, password } = plain::parse(message)?;
                self.state = ExchangeState::Password { username: username.clone(), authzid };
                Ok(ExchangeStep::NeedPasswordCheck { username, password })
            }
            Mechanism::OauthBearer => {
                let oauth_bearer::BearerMessage { authzid, token } = oauth_bearer::parse(message)?;
                // RFC 7628, section 4.3: the client asks what it needs, and nothing is checked.
                let Some(token) = token else { return Ok(self.refuse_token()) };
                self.state = ExchangeState::Token { authzid: authzid.clone() };
                Ok(ExchangeStep::NeedTokenCheck { authzid, token })
            }
            Mechanism::External => {
                let authzid = external::parse(message)?;
                self.state = ExchangeState::Certificate { authzid: authzid.clone() };
                Ok(ExchangeStep::NeedCertificate { authzid })
            }
            Mechanism::Anonymous => {
                anonymous::check(message)?;
                Ok(ExchangeStep::Done { username: String::new(), authzid: None, additional: None })
            }
            _ => self.first_scram(message),
        }
    }

    fn refuse_token(&mut self) -> ExchangeStep {
        self.state = ExchangeState::TokenRefused;
        ExchangeStep::Challenge(oauth_bearer::REFUSED.to_vec())
    }

    fn first_scram(&mut self, message: &[u8]) -> Result<ExchangeStep, FailureReason> {
        let plus = self.mechanism.is_plus();
        // Both are errors of the caller; neither may result in a login.
        let Some(hash) = self.mechanism.hash().filter(|_| is_server_nonce(&self.nonce)) else {
            return Ok(self.fail(Failure::TemporaryAuthFailure));
        };
        if plus && self.binding.is_empty() {
            return Ok(self.fail(Failure::InvalidMechanism));
        }
        let terms = ScramParams {
            hash,
            plus,
            offered_plus: self.offered_plus,
            announced: self.announced,
            binding: &self.binding,
            nonce: &self.nonce,
        };
        let waiting = AwaitingCredentials::new(&terms, message)?;
        let username = waiting.username.clone();
        self.state = ExchangeState::Credentials(Box::new(waiting));
        Ok(ExchangeStep::NeedCredentials { username })
    }

    fn take_state(&mut self) -> ExchangeState {
        std::mem::replace(&mut self.state, ExchangeState::Finished)
    }

    fn failed(&mut self, reason: FailureReason) -> ExchangeStep {
        self.state = ExchangeState::Finished;
        self.reason = Some(reason);
        ExchangeStep::Failed(reason.failure())
    }
}

fn done(success: ScramSuccess) -> ExchangeStep {
    let ScramSuccess { username, authzid, additional } = success;
    ExchangeStep::Done { username, authzid, additional: Some(additional) }
}

const _: () = assert!(size_of::<Exchange>() <= 168);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{Gs2, ScramClient};
    use crate::hash::{ScramHash, count};

    /// As the crate promises: a login costs the server a handful of HMACs, whether the account exists or not.
    #[test]
    fn a_scram_login_costs_five_hmacs_and_no_pbkdf2() {
        let decoy = Decoy::new(&Secret::new(*b"secret"), 64);
        let stored = Credentials::derive_for(&[ScramHash::Sha256], "pencil", 64, b"salt").unwrap();
        for (found, expected) in [(Some(&stored), 5), (None, 4)] {
            let mut client = ScramClient::new(ScramHash::Sha256, Gs2::None, "user", "pencil");
            let first = client.client_first();
            let mut exchange =
                Exchange::new(Mechanism::ScramSha256, false, ChannelBindingData::default(), crate::nonce());
            let mut challenge = Vec::new();
            let before = count::of(|| {
                exchange.step(Some(&first));
                match exchange.credentials(found, &decoy, "user@example.org") {
                    ExchangeStep::Challenge(bytes) => challenge = bytes,
                    other => panic!("{other:?}"),
                }
            });
            let last = client.client_final(&challenge, None).unwrap();
            let after = count::of(|| drop(exchange.step(Some(&last))));
            assert_eq!((before, after), ((3, 0), (expected - 3, 0)));
        }
    }
}
