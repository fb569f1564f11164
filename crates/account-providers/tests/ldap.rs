//! The LDAP provider against a directory in the test: the conformance suite, results that are no logins, connections.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test code outside of test functions")]

mod support;

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use account_providers::ber::{self, BerReader};
use account_providers::ldap::message::message_length;
use account_providers::ldap::{FilterTemplate, LdapAccounts, LdapServer, LdapSettings};
use account_providers::limiter::RequestLimits;
use base::lock::LeafMutex;
use base::spawn::BoxFuture;
use base::{ManualClock, Secret};
use environment::account_provider::conformance::{
    ProviderCase, ProviderFixture, ProviderSource, SourceFault,
};
use environment::account_provider::{AccountProvider, PasswordCheck, ProviderErrorKind};
use jid::Jid;
use support::{FaultyServer, Protocol, block_on};
use throng_account_providers as account_providers;

const SERVICE: &str = "cn=throng,dc=example,dc=net";
const INVALID_CREDENTIALS: u32 = 49;

#[derive(Clone)]
struct Entry {
    uid: String,
    password: Vec<u8>,
    changes: u32,
    disabled: bool,
}

/// How a directory without accents compares.
fn without_accents(name: &str) -> String {
    name.replace('é', "e").replace('ö', "o")
}

#[derive(Default)]
struct Directory {
    /// By distinguished name.
    entries: LeafMutex<BTreeMap<String, Entry>>,
    /// Result of binds of users, instead of what is right.
    bind_result: LeafMutex<Option<u32>>,
    /// Names of the binds.
    binds: LeafMutex<Vec<String>>,
    /// Time that a bind of a user takes.
    bind_time: LeafMutex<Duration>,
    /// Entries have no `pwdChangedTime`.
    without_version: AtomicBool,
    /// Further values of `nsAccountLock` and `pwdChangedTime`, before the usual ones.
    more_values: LeafMutex<Vec<(&'static str, &'static str)>>,
    /// The service account may not read `uid`.
    hidden_names: AtomicBool,
}

fn done(out: &mut Vec<u8>, id: u32, tag: u8, code: u32) {
    ber::write_constructed(out, ber::SEQUENCE, |out| {
        ber::write_number(out, ber::INTEGER, id);
        ber::write_constructed(out, tag, |out| {
            ber::write_number(out, ber::ENUMERATED, code);
            ber::write(out, ber::OCTET_STRING, b"");
            ber::write(out, ber::OCTET_STRING, b"as the test wants it");
        });
    });
}

impl Directory {
    fn bind(&self, name: &str, password: &[u8]) -> u32 {
        self.binds.lock().push(name.to_owned());
        // RFC 4513, section 5.1.2: what makes empty passwords dangerous.
        if password.is_empty() || (name == SERVICE && password == b"s3rvice") {
            return 0;
        }
        let time = *self.bind_time.lock();
        std::thread::sleep(time);
        if let Some(result) = *self.bind_result.lock() {
            return result;
        }
        let entries = self.entries.lock();
        let right = entries.get(name).is_some_and(|entry| entry.password == password);
        if right { 0 } else { INVALID_CREDENTIALS }
    }

    fn search(&self, out: &mut Vec<u8>, id: u32, uid: &[u8]) {
        let more = self.more_values.lock().clone();
        for (name, entry) in &*self.entries.lock() {
            if without_accents(&entry.uid) != without_accents(std::str::from_utf8(uid).unwrap()) {
                continue;
            }
            let mut attributes =
                vec![("nsAccountLock", if entry.disabled { "TRUE" } else { "FALSE" }.to_owned())];
            if !self.without_version.load(Ordering::SeqCst) {
                attributes.push(("pwdChangedTime", entry.changes.to_string()));
            }
            if !self.hidden_names.load(Ordering::SeqCst) {
                attributes.push(("uid", entry.uid.clone()));
            }
            ber::write_constructed(out, ber::SEQUENCE, |out| {
                ber::write_number(out, ber::INTEGER, id);
                ber::write_constructed(out, 0x64, |out| {
                    ber::write(out, ber::OCTET_STRING, name.as_bytes());
                    ber::write_constructed(out, ber::SEQUENCE, |out| {
                        for (attribute, value) in &attributes {
                            ber::write_constructed(out, ber::SEQUENCE, |out| {
                                ber::write(out, ber::OCTET_STRING, attribute.as_bytes());
                                ber::write_constructed(out, ber::SET, |out| {
                                    for (_, value) in more.iter().filter(|(name, _)| name == attribute) {
                                        ber::write(out, ber::OCTET_STRING, value.as_bytes());
                                    }
                                    ber::write(out, ber::OCTET_STRING, value.as_bytes());
                                });
                            });
                        }
                    });
                });
            });
        }
        done(out, id, 0x65, 0);
    }

    fn set_password(&self, mut request: BerReader<'_>) -> u32 {
        assert_eq!(request.expect(0x80).unwrap(), b"1.3.6.1.4.1.4203.1.11.1");
        let mut change = request.enter(0x81).unwrap().enter(ber::SEQUENCE).unwrap();
        let name = String::from_utf8(change.expect(0x80).unwrap().to_vec()).unwrap();
        let password = change.expect(0x82).unwrap();
        match self.entries.lock().get_mut(&name) {
            Some(entry) => {
                entry.password = password.to_vec();
                entry.changes += 1;
                0
            }
            None => 32,
        }
    }
}

impl Protocol for Directory {
    fn read(&self, stream: &mut TcpStream) -> io::Result<Vec<u8>> {
        let mut request = Vec::new();
        let mut byte = [0];
        loop {
            stream.read_exact(&mut byte)?;
            request.push(byte[0]);
            if message_length(&request).unwrap().is_some() {
                return Ok(request);
            }
        }
    }

    fn answer(&self, request: &[u8]) -> Vec<u8> {
        let mut message = BerReader::new(request).enter(ber::SEQUENCE).unwrap();
        let id = message.number(ber::INTEGER).unwrap();
        let (tag, content) = message.element().unwrap();
        let mut content = BerReader::new(content);
        let mut out = Vec::new();
        match tag {
            0x60 => {
                assert_eq!(content.number(ber::INTEGER), Ok(3));
                let name = String::from_utf8(content.expect(ber::OCTET_STRING).unwrap().to_vec()).unwrap();
                let code = self.bind(&name, content.expect(0x80).unwrap());
                done(&mut out, id, 0x61, code);
            }
            0x63 => {
                assert_eq!(content.expect(ber::OCTET_STRING).unwrap(), b"ou=people,dc=example,dc=net");
                for _ in 0..5 {
                    content.element().unwrap();
                }
                let mut filter = content.enter(0xa3).unwrap();
                assert_eq!(filter.expect(ber::OCTET_STRING).unwrap(), b"uid");
                self.search(&mut out, id, filter.expect(ber::OCTET_STRING).unwrap());
            }
            0x77 => {
                let code = self.set_password(content);
                done(&mut out, id, 0x78, code);
            }
            _ => {}
        }
        out
    }
}

struct DirectorySource {
    directory: Arc<Directory>,
    server: FaultyServer,
    clock: Arc<ManualClock>,
    provider: Arc<LdapAccounts>,
}

fn settings_of(server: &FaultyServer, cache_seconds: u64) -> LdapSettings {
    LdapSettings {
        server: LdapServer::parse(&format!("ldap://{}", server.address), false).unwrap(),
        bind: Some((SERVICE.to_owned(), Secret::from("s3rvice"))),
        base_dn: "ou=people,dc=example,dc=net".to_owned(),
        filter: FilterTemplate::parse("(uid={user})").unwrap(),
        disabled_attribute: Some("nsaccountlock".to_owned()),
        version_attribute: Some("pwdChangedTime".to_owned()),
        set_password: true,
        cache: Duration::from_secs(cache_seconds),
        limits: RequestLimits { deadline: Duration::from_millis(700), ..RequestLimits::default() },
    }
}

impl DirectorySource {
    fn new(cache_seconds: u64) -> DirectorySource {
        let directory = Arc::new(Directory::default());
        let server = FaultyServer::start(directory.clone());
        let clock = Arc::new(ManualClock::new());
        let provider = Arc::new(LdapAccounts::new(settings_of(&server, cache_seconds), clock.clone()));
        DirectorySource { directory, server, clock, provider }
    }

    fn settings(&self, cache_seconds: u64) -> LdapSettings {
        settings_of(&self.server, cache_seconds)
    }

    fn name(account: &Jid) -> String {
        format!("cn=entry of {},ou=people,dc=example,dc=net", account.local().unwrap())
    }

    fn add(&self, account: &Jid, password: &str) {
        let mut entries = self.directory.entries.lock();
        let changes = entries.get(&DirectorySource::name(account)).map_or(0, |entry| entry.changes + 1);
        let uid = account.local().unwrap().to_owned();
        let entry = Entry { uid, password: password.as_bytes().to_vec(), changes, disabled: false };
        entries.insert(DirectorySource::name(account), entry);
    }

    async fn check(&self, password: &str) -> Result<PasswordCheck, ProviderErrorKind> {
        let checked = self.provider.check_password(romeo().as_ref(), Secret::from(password)).await;
        checked.map_err(|error| error.kind)
    }
}

impl ProviderSource for DirectorySource {
    fn provider(&self) -> Arc<dyn AccountProvider> {
        self.provider.clone()
    }

    fn put(&self, account: &Jid, password: &str) -> BoxFuture<'_, ()> {
        self.add(account, password);
        Box::pin(async {})
    }

    fn disable(&self, account: &Jid) -> BoxFuture<'_, bool> {
        self.directory.entries.lock().get_mut(&DirectorySource::name(account)).unwrap().disabled = true;
        Box::pin(async { true })
    }

    fn set_fault(&self, fault: Option<SourceFault>) -> BoxFuture<'_, bool> {
        self.server.set_fault(fault);
        Box::pin(async { true })
    }

    fn expire_caches(&self) -> BoxFuture<'_, ()> {
        self.clock.advance(60_000);
        Box::pin(async {})
    }
}

fn romeo() -> Jid {
    Jid::parse("romeo@example.net").unwrap()
}

struct Cached;

impl ProviderFixture for Cached {
    fn run(case: ProviderCase) {
        block_on(async { case(Arc::new(DirectorySource::new(60))).await });
    }
}

environment::account_provider_conformance!(crate::Cached);

#[tokio::test]
async fn results_of_a_bind_that_are_no_success_never_authenticate() {
    let source = DirectorySource::new(0);
    source.add(&romeo(), "0rchard");
    for (code, expected) in [
        (1, Err(ProviderErrorKind::InvalidResponse)),
        (8, Err(ProviderErrorKind::InvalidResponse)),
        (10, Err(ProviderErrorKind::InvalidResponse)),
        (14, Err(ProviderErrorKind::InvalidResponse)),
        (32, Ok(PasswordCheck::Invalid)),
        (48, Ok(PasswordCheck::Invalid)),
        (49, Ok(PasswordCheck::Invalid)),
        (50, Ok(PasswordCheck::Invalid)),
        (51, Err(ProviderErrorKind::Unavailable)),
        (52, Err(ProviderErrorKind::Unavailable)),
        (53, Ok(PasswordCheck::Invalid)),
        (u32::MAX, Err(ProviderErrorKind::InvalidResponse)),
    ] {
        *source.directory.bind_result.lock() = Some(code);
        assert_eq!(source.check("0rchard").await, expected, "{code}");
    }
    *source.directory.bind_result.lock() = None;
    assert!(matches!(source.check("0rchard").await, Ok(PasswordCheck::Valid(_))));
}

#[tokio::test]
async fn an_entry_without_the_version_attribute_has_no_version() {
    let source = DirectorySource::new(0);
    source.add(&romeo(), "0rchard");
    source.directory.without_version.store(true, Ordering::SeqCst);
    let found = source.provider.find(romeo().as_ref()).await.unwrap().unwrap();
    assert_eq!(found.version, None, "it would be the same after a change of the password");
}

#[tokio::test]
async fn all_values_of_an_attribute_count_and_have_no_order() {
    let source = DirectorySource::new(0);
    source.add(&romeo(), "0rchard");
    let found = async |more: &[(&'static str, &'static str)]| {
        *source.directory.more_values.lock() = more.to_vec();
        source.provider.find(romeo().as_ref()).await.unwrap().unwrap()
    };
    let alone = found(&[]).await;
    assert!(!alone.disabled);
    assert!(found(&[("nsAccountLock", "FALSE"), ("nsAccountLock", "TRUE")]).await.disabled);
    let two = found(&[("pwdChangedTime", "a"), ("pwdChangedTime", "b")]).await;
    assert_eq!(found(&[("pwdChangedTime", "b"), ("pwdChangedTime", "a")]).await, two);
    for other in [&[("pwdChangedTime", "a")][..], &[("pwdChangedTime", "ab")], &[]] {
        assert_ne!(
            found(other).await.version,
            two.version,
            "login tokens must end with a change of any value"
        );
    }
}

#[tokio::test]
async fn an_entry_of_another_name_is_not_the_accounts() {
    let source = DirectorySource::new(0);
    let account = |name: &str| Jid::from_parts(Some(name), "example.net", None).unwrap();
    let valid = async |name: &str, password: &str| {
        let checked = source.provider.check_password(account(name).as_ref(), Secret::from(password)).await;
        checked.map(|checked| matches!(checked, PasswordCheck::Valid(_))).map_err(|error| error.kind)
    };
    source.add(&account("jose"), "0rchard");
    assert_eq!(valid("jose", "0rchard").await, Ok(true));
    for other in ["josé", "jösé"] {
        assert_eq!(valid(other, "0rchard").await, Ok(false), "{other}");
        assert_eq!(source.provider.find(account(other).as_ref()).await, Ok(None));
    }
    source.add(&account("josé"), "b4lcony");
    assert_eq!(valid("josé", "b4lcony").await, Ok(true));
    assert_eq!(valid("jose", "b4lcony").await, Ok(false));
    // What the service account may not read cannot be compared.
    source.directory.entries.lock().remove(&DirectorySource::name(&account("josé")));
    source.directory.hidden_names.store(true, Ordering::SeqCst);
    assert_eq!(valid("jose", "0rchard").await, Ok(true));
}

/// Time until a wrong password is refused.
async fn time_of_refusal(provider: &LdapAccounts, name: &str) -> Duration {
    let account = Jid::from_parts(Some(name), "example.net", None).unwrap();
    let begun = tokio::time::Instant::now();
    let checked = provider.check_password(account.as_ref(), Secret::from("wrong")).await.unwrap();
    assert_eq!(checked, PasswordCheck::Invalid);
    begun.elapsed()
}

#[tokio::test]
async fn a_missing_account_is_answered_as_late_as_a_wrong_password() {
    let source = DirectorySource::new(0);
    source.add(&romeo(), "0rchard");
    *source.directory.bind_time.lock() = Duration::from_millis(40);
    let provider = LdapAccounts::new(source.settings(0), Arc::new(base::SystemClock::new()));
    let existing = time_of_refusal(&provider, "romeo").await;
    let missing = time_of_refusal(&provider, "nobody").await;
    assert!(existing >= Duration::from_millis(40), "{existing:?}");
    assert!(missing >= Duration::from_millis(40), "{missing:?}");
    assert_eq!(source.directory.binds.lock().iter().filter(|name| *name != SERVICE).count(), 1);
}

#[tokio::test]
async fn the_resolution_of_the_timer_does_not_reveal_which_accounts_exist() {
    let source = DirectorySource::new(0);
    source.add(&romeo(), "0rchard");
    let provider = LdapAccounts::new(source.settings(0), Arc::new(base::SystemClock::new()));
    let (mut existing, mut missing) = (Vec::new(), Vec::new());
    for _ in 0..101 {
        existing.push(time_of_refusal(&provider, "romeo").await);
        missing.push(time_of_refusal(&provider, "nobody").await);
    }
    existing.sort_unstable();
    missing.sort_unstable();
    // Each is two requests and one wait for the timer.
    assert!(existing[50] * 3 > missing[50] * 2, "{:?} and {:?}", existing[50], missing[50]);
}

#[tokio::test]
async fn two_entries_for_one_account_are_an_error() {
    let source = DirectorySource::new(0);
    source.add(&romeo(), "0rchard");
    let other = Entry { uid: "romeo".to_owned(), password: b"other".to_vec(), changes: 0, disabled: false };
    source.directory.entries.lock().insert("cn=another,dc=example,dc=net".to_owned(), other);
    for password in ["0rchard", "other"] {
        assert_eq!(source.check(password).await, Err(ProviderErrorKind::InvalidResponse));
    }
}

#[tokio::test]
async fn connections_are_kept_and_the_service_account_logs_in_once() {
    let source = DirectorySource::new(0);
    source.add(&romeo(), "0rchard");
    for _ in 0..5 {
        assert!(matches!(source.check("0rchard").await, Ok(PasswordCheck::Valid(_))));
    }
    assert_eq!(source.server.accepted(), 2, "one for searches, one for binds of users");
    let binds = source.directory.binds.lock().clone();
    assert_eq!(binds.iter().filter(|name| *name == SERVICE).count(), 1);
    // A directory that restarts is no failure.
    source.server.close_connections();
    assert!(matches!(source.check("0rchard").await, Ok(PasswordCheck::Valid(_))));
}

#[tokio::test]
async fn a_service_account_that_cannot_log_in_is_a_failure_of_the_server() {
    let source = DirectorySource::new(0);
    source.add(&romeo(), "0rchard");
    let settings =
        LdapSettings { bind: Some((SERVICE.to_owned(), Secret::from("wrong"))), ..source.settings(0) };
    let provider = LdapAccounts::new(settings, Arc::new(ManualClock::new()));
    let error = provider.check_password(romeo().as_ref(), Secret::from("0rchard")).await.unwrap_err();
    assert_eq!(error.kind, ProviderErrorKind::Unavailable);
    assert!(error.text.contains(SERVICE) && !error.text.contains("wrong"), "{error}");
}
