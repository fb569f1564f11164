//! The HTTP provider against a service in the test: the conformance suite, responses that break the agreement, connections.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test code outside of test functions")]

mod support;

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use account_providers::HttpUrl;
use account_providers::http_service::{HttpAccounts, HttpOperations, HttpServiceSettings};
use account_providers::limiter::RequestLimits;
use base::lock::LeafMutex;
use base::spawn::BoxFuture;
use base::{ManualClock, Secret};
use environment::account_provider::conformance::{
    ProviderCase, ProviderFixture, ProviderSource, SourceFault,
};
use environment::account_provider::{AccountProvider, PasswordCheck, ProviderErrorKind, TokenCheck};
use jid::Jid;
use serde_json::{Value, json};
use support::{FaultyServer, Protocol, block_on};
use throng_account_providers as account_providers;

#[derive(Default)]
struct Service {
    accounts: LeafMutex<BTreeMap<(String, String), ServiceAccount>>,
    /// Sent instead of what is right.
    instead: LeafMutex<Option<(u16, String)>>,
    /// Heads of the requests.
    heads: LeafMutex<Vec<String>>,
    /// Closes connections after a request instead of sending a response.
    hangs_up: AtomicBool,
}

#[derive(Clone, Default)]
struct ServiceAccount {
    password: String,
    changes: u32,
    disabled: bool,
}

impl Service {
    fn result(&self, operation: &str, request: &Value) -> (u16, Value) {
        let text = |key: &str| request[key].as_str().unwrap_or_default().to_owned();
        let (name, password) = ((text("user"), text("domain")), text("password"));
        let mut accounts = self.accounts.lock();
        let found = accounts.get(&name).cloned();
        let changed = |changes| ServiceAccount { password: password.clone(), changes, disabled: false };
        let version = found.as_ref().map(|found| found.changes.to_string());
        match (operation, found) {
            ("check_password", Some(found)) if found.password == password => {
                (200, json!({ "valid": true, "disabled": found.disabled, "version": version }))
            }
            ("check_password", _) => (200, json!({ "valid": false })),
            ("find", Some(found)) => {
                (200, json!({ "exists": true, "disabled": found.disabled, "version": version }))
            }
            ("find", None) => (404, Value::Null),
            ("check_token", _) => {
                let (token, domain) = (text("token"), text("domain"));
                let user =
                    token.strip_prefix("token-of-").and_then(|rest| rest.strip_suffix(&format!("@{domain}")));
                let found =
                    user.and_then(|user| Some((user, accounts.get(&(user.to_owned(), domain.clone()))?)));
                match found {
                    Some((user, found)) => {
                        (200, json!({ "valid": true, "user": user, "version": found.changes }))
                    }
                    None => (200, json!({ "valid": false })),
                }
            }
            ("create", Some(_)) => (409, Value::Null),
            ("create", None) => {
                accounts.insert(name, changed(0));
                (201, Value::Null)
            }
            ("set_password", Some(found)) => {
                accounts.insert(name, changed(found.changes + 1));
                (204, Value::Null)
            }
            ("remove", Some(_)) => {
                accounts.remove(&name);
                (200, json!({}))
            }
            _ => (404, Value::Null),
        }
    }
}

impl Protocol for Service {
    fn read(&self, stream: &mut TcpStream) -> io::Result<Vec<u8>> {
        let mut request = Vec::new();
        let mut byte = [0];
        while !request.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut byte)?;
            request.push(byte[0]);
        }
        let head = String::from_utf8_lossy(&request).to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length = length.map_or(0, |length| length.trim().parse().unwrap());
        let mut body = vec![0; length];
        stream.read_exact(&mut body)?;
        request.extend(body);
        Ok(request)
    }

    fn answer(&self, request: &[u8]) -> Vec<u8> {
        let text = String::from_utf8_lossy(request);
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        self.heads.lock().push(head.to_owned());
        if self.hangs_up.load(Ordering::SeqCst) {
            return Vec::new();
        }
        let path = head.split(' ').nth(1).unwrap_or_default();
        let operation = path.strip_prefix("/xmpp/").unwrap_or_default();
        let instead = self.instead.lock().clone();
        let (status, body) = instead.unwrap_or_else(|| {
            let (status, value) = self.result(operation, &serde_json::from_str(body).unwrap_or_default());
            (status, if value.is_null() { String::new() } else { value.to_string() })
        });
        match status {
            204 => b"HTTP/1.1 204 No Content\r\n\r\n".to_vec(),
            _ => format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes(),
        }
    }
}

const ALL: HttpOperations = HttpOperations {
    check_password: true,
    check_token: true,
    find: true,
    versions: true,
    create: true,
    set_password: true,
    remove: true,
};

struct ServiceSource {
    service: Arc<Service>,
    server: FaultyServer,
    clock: Arc<ManualClock>,
    provider: Arc<HttpAccounts>,
}

impl ServiceSource {
    fn new(operations: HttpOperations) -> ServiceSource {
        let service = Arc::new(Service::default());
        let server = FaultyServer::start(service.clone());
        let clock = Arc::new(ManualClock::new());
        let settings = HttpServiceSettings {
            url: HttpUrl::parse(&format!("http://{}/xmpp/", server.address)).unwrap(),
            token: Some(Secret::from("s3rver\n")),
            operations,
            cache: Duration::from_secs(60),
            limits: RequestLimits { deadline: Duration::from_millis(700), ..RequestLimits::default() },
        };
        let provider = Arc::new(HttpAccounts::new(&settings, None, clock.clone()).unwrap());
        ServiceSource { service, server, clock, provider }
    }

    fn add(&self, account: &Jid, password: &str) {
        let name = (account.local().unwrap().to_owned(), account.domain().to_owned());
        let mut accounts = self.service.accounts.lock();
        let changes = accounts.get(&name).map_or(0, |found| found.changes + 1);
        accounts.insert(name, ServiceAccount { password: password.to_owned(), changes, disabled: false });
    }

    async fn check(&self, password: &str) -> Result<PasswordCheck, ProviderErrorKind> {
        let checked = self.provider.check_password(romeo().as_ref(), Secret::from(password)).await;
        checked.map_err(|error| error.kind)
    }
}

impl ProviderSource for ServiceSource {
    fn provider(&self) -> Arc<dyn AccountProvider> {
        self.provider.clone()
    }

    fn put(&self, account: &Jid, password: &str) -> BoxFuture<'_, ()> {
        self.add(account, password);
        Box::pin(async {})
    }

    fn disable(&self, account: &Jid) -> BoxFuture<'_, bool> {
        let name = (account.local().unwrap().to_owned(), account.domain().to_owned());
        self.service.accounts.lock().get_mut(&name).unwrap().disabled = true;
        Box::pin(async { true })
    }

    fn token(&self, account: &Jid) -> BoxFuture<'_, Option<String>> {
        let token = self.provider.capabilities().tokens.then(|| format!("token-of-{account}"));
        Box::pin(async { token })
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

struct FullService;

impl ProviderFixture for FullService {
    fn run(case: ProviderCase) {
        block_on(async { case(Arc::new(ServiceSource::new(ALL))).await });
    }
}

mod full {
    environment::account_provider_conformance!(crate::FullService);
}

struct PasswordsOnly;

impl ProviderFixture for PasswordsOnly {
    fn run(case: ProviderCase) {
        let operations = HttpOperations { check_password: true, ..HttpOperations::default() };
        block_on(async { case(Arc::new(ServiceSource::new(operations))).await });
    }
}

mod passwords_only {
    environment::account_provider_conformance!(crate::PasswordsOnly);
}

#[tokio::test]
async fn responses_that_break_the_agreement_never_authenticate() {
    use ProviderErrorKind::{InvalidResponse, Unavailable};
    let source = ServiceSource::new(ALL);
    source.add(&romeo(), "0rchard");
    for (status, body, expected) in [
        (200, "", Err(InvalidResponse)),
        (200, "{}", Err(InvalidResponse)),
        (200, "true", Err(InvalidResponse)),
        (200, "[]", Err(InvalidResponse)),
        (200, "{\"valid\":\"true\"}", Err(InvalidResponse)),
        (200, "{\"valid\":1}", Err(InvalidResponse)),
        (200, "{\"valid\":null}", Err(InvalidResponse)),
        (200, "{\"valid\":true}", Err(InvalidResponse)),
        (200, "{\"valid\":true,\"version\":{}}", Err(InvalidResponse)),
        (200, "{\"valid\":true,\"version\":\"1\",\"disabled\":\"no\"}", Err(InvalidResponse)),
        (200, "{\"valid\":true,\"version\":\"1\"", Err(InvalidResponse)),
        (200, "{\"valid\":false}", Ok(PasswordCheck::Invalid)),
        (404, "no such user", Ok(PasswordCheck::Invalid)),
        (404, "\n<html>Not Found</html>", Err(InvalidResponse)),
        (201, "{\"valid\":true,\"version\":\"1\"}", Err(InvalidResponse)),
        (301, "", Err(InvalidResponse)),
        (302, "{\"valid\":true,\"version\":\"1\"}", Err(InvalidResponse)),
        (400, "", Err(InvalidResponse)),
        (401, "", Err(Unavailable)),
        (403, "{\"valid\":true,\"version\":\"1\"}", Err(Unavailable)),
        (429, "", Err(Unavailable)),
        (500, "{\"valid\":true,\"version\":\"1\"}", Err(Unavailable)),
        (503, "", Err(Unavailable)),
    ] {
        *source.service.instead.lock() = Some((status, body.to_owned()));
        assert_eq!(source.check("0rchard").await, expected, "{status} {body}");
    }
    *source.service.instead.lock() = Some((200, "x".repeat(300_000)));
    assert_eq!(source.check("0rchard").await, Err(InvalidResponse), "a response without an end");
    *source.service.instead.lock() = None;
    assert!(matches!(source.check("0rchard").await, Ok(PasswordCheck::Valid(_))));
}

#[tokio::test]
async fn a_token_of_another_user_than_an_address_of_the_domain_is_an_error() {
    let source = ServiceSource::new(ALL);
    for user in ["\"a@other.example\"", "\"\"", "7", "null", "\"a b\""] {
        *source.service.instead.lock() =
            Some((200, format!("{{\"valid\":true,\"version\":\"1\",\"user\":{user}}}")));
        let checked = source.provider.check_token("example.net", Secret::from("x")).await;
        assert_eq!(checked.unwrap_err().kind, ProviderErrorKind::InvalidResponse, "{user}");
    }
    *source.service.instead.lock() =
        Some((200, "{\"valid\":true,\"version\":\"1\",\"user\":\"Romeo\"}".to_owned()));
    let checked = source.provider.check_token("example.net", Secret::from("x")).await.unwrap();
    assert!(matches!(checked, TokenCheck::Valid(jid, _) if jid == romeo()));
}

#[tokio::test]
async fn connections_are_kept_and_the_server_is_named_and_authorised() {
    let source = ServiceSource::new(ALL);
    source.add(&romeo(), "0rchard");
    for n in 0..5 {
        assert_eq!(source.check(&format!("wrong{n}")).await, Ok(PasswordCheck::Invalid));
    }
    assert_eq!((source.server.accepted(), source.server.answered()), (1, 5));
    // A service that restarts between two requests is no failure.
    source.server.close_connections();
    assert_eq!(source.check("wrong").await, Ok(PasswordCheck::Invalid));
    assert_eq!(source.server.accepted(), 2);
    let heads = source.service.heads.lock().clone();
    for head in heads {
        let head = head.to_lowercase();
        assert!(head.starts_with("post /xmpp/check_password http/1.1"), "{head}");
        assert!(
            head.contains("authorization: bearer s3rver\r\n")
                || head.ends_with("authorization: bearer s3rver"),
            "{head}"
        );
        assert!(head.contains(&format!("host: {}", source.server.address)), "{head}");
    }
}

#[tokio::test]
async fn rfc_9110_section_9_2_2_a_change_is_sent_once_and_a_look_up_again() {
    let source = ServiceSource::new(ALL);
    assert_eq!(source.check("x").await, Ok(PasswordCheck::Invalid), "a connection that is kept");
    source.service.hangs_up.store(true, Ordering::SeqCst);
    let sent = |operation: &str| {
        let is_one = |head: &&String| head.starts_with(&format!("POST /xmpp/{operation} "));
        source.service.heads.lock().iter().filter(is_one).count()
    };
    let failed = source.provider.create(romeo().as_ref(), Secret::from("x")).await.unwrap_err();
    assert_eq!((failed.kind, sent("create")), (ProviderErrorKind::InvalidResponse, 1));
    let failed = source.provider.find(romeo().as_ref()).await.unwrap_err();
    assert_eq!((failed.kind, sent("find")), (ProviderErrorKind::InvalidResponse, 2));
}

#[tokio::test]
async fn a_right_password_is_remembered_and_a_wrong_one_is_not() {
    let source = ServiceSource::new(ALL);
    source.add(&romeo(), "0rchard");
    for _ in 0..3 {
        assert!(matches!(source.check("0rchard").await, Ok(PasswordCheck::Valid(_))));
    }
    assert_eq!(source.server.answered(), 1);
    source.server.set_fault(Some(SourceFault::Dead));
    assert!(matches!(source.check("0rchard").await, Ok(PasswordCheck::Valid(_))), "without the service");
    assert_eq!(source.check("wrong").await, Err(ProviderErrorKind::Unavailable));
    source.server.set_fault(None);
    for _ in 0..3 {
        assert_eq!(source.check("wrong").await, Ok(PasswordCheck::Invalid));
    }
    assert_eq!(source.server.answered(), 4);
}

#[tokio::test]
async fn a_refused_password_has_the_reason_of_the_service() {
    let source = ServiceSource::new(ALL);
    for (body, text) in [
        ("{\"error\":\"at least twelve characters\"}", "at least twelve characters"),
        ("{\"error\":\"two\\nlines\"}", "the password does not follow the rules of this service"),
        ("", "the password does not follow the rules of this service"),
    ] {
        *source.service.instead.lock() = Some((422, body.to_owned()));
        let refused = source.provider.set_password(romeo().as_ref(), Secret::from("x")).await.unwrap_err();
        assert_eq!((refused.kind, refused.text.as_str()), (ProviderErrorKind::PasswordRefused, text));
    }
}
