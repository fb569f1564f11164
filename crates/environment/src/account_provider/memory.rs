//! Account provider in memory, for tests of logins and commands: with faults that a test switches on.
//!
//! # Pitfalls
//!
//! Passwords are plain text. It is not for domains of a running node.

use std::collections::BTreeMap;

use base::Secret;
use base::lock::LeafMutex;
use jid::{Jid, JidRef};

use super::{
    AccountProvider, PasswordCheck, ProvidedAccount, ProvidedKeys, ProviderCapabilities, ProviderError,
    ProviderErrorKind, ProviderFuture, ScramParameters, TokenCheck, check_new_password,
};

/// Every operation.
pub const ALL_CAPABILITIES: ProviderCapabilities = ProviderCapabilities {
    passwords: true,
    tokens: true,
    lookup: true,
    scram: &["SCRAM-SHA-1", "SCRAM-SHA-256", "SCRAM-SHA-512"],
    versions: true,
    create: true,
    set_password: true,
    remove: true,
};

/// Accounts in memory.
pub struct MemoryAccounts {
    capabilities: ProviderCapabilities,
    state: LeafMutex<MemoryState>,
}

#[derive(Default)]
struct MemoryState {
    accounts: BTreeMap<String, MemoryAccount>,
    /// Address by token.
    tokens: BTreeMap<String, Jid>,
    fault: Option<ProviderErrorKind>,
    scram: Option<ScramParameters>,
    calls: usize,
}

#[derive(Clone)]
struct MemoryAccount {
    password: Secret,
    changes: u64,
    disabled: bool,
    credentials: Option<ProvidedKeys>,
}

impl MemoryAccount {
    fn provided(&self) -> ProvidedAccount {
        ProvidedAccount {
            disabled: self.disabled,
            credentials: self.credentials.clone(),
            version: Some(self.changes.to_be_bytes().to_vec()),
        }
    }
}

impl MemoryAccounts {
    /// No accounts yet.
    pub fn new(capabilities: ProviderCapabilities) -> MemoryAccounts {
        MemoryAccounts { capabilities, state: LeafMutex::default() }
    }

    /// Adds an account or replaces its password, with SCRAM keys if there are any.
    pub fn put(&self, account: &Jid, password: &str, credentials: Option<Vec<u8>>) {
        let mut state = self.state.lock();
        let changes = state.accounts.get(account.as_str()).map_or(0, |account| account.changes + 1);
        let credentials = credentials.map(ProvidedKeys);
        let added = MemoryAccount { password: Secret::from(password), changes, disabled: false, credentials };
        state.accounts.insert(account.to_string(), added);
    }

    /// Disables or enables an account.
    pub fn set_disabled(&self, account: &Jid, disabled: bool) {
        if let Some(account) = self.state.lock().accounts.get_mut(account.as_str()) {
            account.disabled = disabled;
        }
    }

    /// Removes an account as its owner would do it, without a call of this server.
    pub fn forget(&self, account: &Jid) {
        self.state.lock().accounts.remove(account.as_str());
    }

    /// Issues a token.
    pub fn put_token(&self, token: &str, account: &Jid) {
        self.state.lock().tokens.insert(token.to_owned(), account.clone());
    }

    /// Lets all calls fail, or none.
    pub fn set_fault(&self, fault: Option<ProviderErrorKind>) {
        self.state.lock().fault = fault;
    }

    /// Declares the parameters of the SCRAM keys.
    pub fn set_scram_parameters(&self, parameters: ScramParameters) {
        self.state.lock().scram = Some(parameters);
    }

    /// Number of calls so far.
    pub fn calls(&self) -> usize {
        self.state.lock().calls
    }

    fn call<T: Send + 'static>(
        &self,
        able: bool,
        operation: &'static str,
        call: impl FnOnce(&mut MemoryState) -> Result<T, ProviderErrorKind>,
    ) -> ProviderFuture<'_, T> {
        let mut state = self.state.lock();
        state.calls += 1;
        let result = match state.fault {
            _ if !able => Err(ProviderError::not_supported(self.name(), operation)),
            Some(kind) => Err(ProviderError::new(kind, "a test wants this call to fail")),
            None => call(&mut state).map_err(|kind| ProviderError::new(kind, kind.name())),
        };
        Box::pin(std::future::ready(result))
    }
}

impl AccountProvider for MemoryAccounts {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn capabilities(&self) -> ProviderCapabilities {
        self.capabilities
    }

    fn scram_parameters(&self) -> Option<ScramParameters> {
        self.state.lock().scram
    }

    fn find(&self, account: JidRef<'_>) -> ProviderFuture<'_, Option<ProvidedAccount>> {
        let account = account.bare().to_jid();
        self.call(self.capabilities.lookup, "look up accounts", |state| {
            Ok(state.accounts.get(account.as_str()).map(MemoryAccount::provided))
        })
    }

    fn check_password(&self, account: JidRef<'_>, password: Secret) -> ProviderFuture<'_, PasswordCheck> {
        let account = account.bare().to_jid();
        self.call(self.capabilities.passwords, "check passwords", |state| {
            let found = state.accounts.get(account.as_str()).filter(|found| found.password == password);
            Ok(found.map_or(PasswordCheck::Invalid, |found| PasswordCheck::Valid(found.provided())))
        })
    }

    fn check_token(&self, domain: &str, token: Secret) -> ProviderFuture<'_, TokenCheck> {
        self.call(self.capabilities.tokens, "check tokens", |state| {
            let named = token.expose_str().ok().and_then(|token| state.tokens.get(token));
            let named = named.filter(|jid| jid.domain() == domain);
            let found =
                named.and_then(|jid| Some((jid.clone(), state.accounts.get(jid.as_str())?.provided())));
            Ok(found.map_or(TokenCheck::Invalid, |(jid, account)| TokenCheck::Valid(jid, account)))
        })
    }

    fn create(&self, account: JidRef<'_>, password: Secret) -> ProviderFuture<'_, ()> {
        let account = account.bare().to_jid();
        self.call(self.capabilities.create, "create accounts", |state| {
            check_new_password(&password).map_err(|error| error.kind)?;
            if state.accounts.contains_key(account.as_str()) {
                return Err(ProviderErrorKind::AlreadyExists);
            }
            let added = MemoryAccount { password, changes: 0, disabled: false, credentials: None };
            state.accounts.insert(account.to_string(), added);
            Ok(())
        })
    }

    fn set_password(&self, account: JidRef<'_>, password: Secret) -> ProviderFuture<'_, ()> {
        let account = account.bare().to_jid();
        self.call(self.capabilities.set_password, "change passwords", |state| {
            check_new_password(&password).map_err(|error| error.kind)?;
            let found = state.accounts.get_mut(account.as_str()).ok_or(ProviderErrorKind::NotFound)?;
            *found = MemoryAccount {
                password,
                changes: found.changes + 1,
                disabled: found.disabled,
                credentials: None,
            };
            Ok(())
        })
    }

    fn remove(&self, account: JidRef<'_>) -> ProviderFuture<'_, ()> {
        let account = account.bare().to_jid();
        self.call(self.capabilities.remove, "remove accounts", |state| {
            state.accounts.remove(account.as_str()).map(drop).ok_or(ProviderErrorKind::NotFound)
        })
    }
}
