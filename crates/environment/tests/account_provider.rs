//! The account provider in memory passes the conformance suite.

use std::sync::Arc;

use base::spawn::BoxFuture;
use environment::account_provider::conformance::{
    ProviderCase, ProviderFixture, ProviderSource, SourceFault, ready,
};
use environment::account_provider::memory::{ALL_CAPABILITIES, MemoryAccounts};
use environment::account_provider::{AccountProvider, ProviderErrorKind};
use jid::Jid;
use throng_environment as environment;

struct MemorySource(Arc<MemoryAccounts>);

impl ProviderSource for MemorySource {
    fn provider(&self) -> Arc<dyn AccountProvider> {
        self.0.clone()
    }

    fn put(&self, account: &Jid, password: &str) -> BoxFuture<'_, ()> {
        self.0.put(account, password, None);
        Box::pin(async {})
    }

    fn disable(&self, account: &Jid) -> BoxFuture<'_, bool> {
        self.0.set_disabled(account, true);
        Box::pin(async { true })
    }

    fn token(&self, account: &Jid) -> BoxFuture<'_, Option<String>> {
        let token = format!("token-of-{account}");
        self.0.put_token(&token, account);
        Box::pin(async move { Some(token) })
    }

    fn set_fault(&self, fault: Option<SourceFault>) -> BoxFuture<'_, bool> {
        self.0.set_fault(fault.map(|fault| match fault {
            SourceFault::Dead => ProviderErrorKind::Unavailable,
            SourceFault::Silent => ProviderErrorKind::Timeout,
            SourceFault::Garbage | SourceFault::Cut => ProviderErrorKind::InvalidResponse,
        }));
        Box::pin(async { true })
    }
}

struct MemoryFixture;

impl ProviderFixture for MemoryFixture {
    fn run(case: ProviderCase) {
        ready(case(Arc::new(MemorySource(Arc::new(MemoryAccounts::new(ALL_CAPABILITIES))))));
    }
}

throng_environment::account_provider_conformance!(crate::MemoryFixture);
