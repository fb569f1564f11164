//! The LDAP provider against OpenLDAP's `slapd` from Debian's package `slapd`: the conformance suite over StartTLS, certificates, the
//! rights of the service account, entries that are ambiguous.
//!
//! # Pitfalls
//!
//! The program is copied into the directory of the test, because Debian's AppArmor profile confines it by its path.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test code outside of test functions")]
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "it waits for a real process")]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use account_providers::ldap::{FilterTemplate, LdapAccounts, LdapServer, LdapSettings};
use account_providers::limiter::RequestLimits;
use account_providers::{TrustedRoots, client_config};
use base::lock::LeafMutex;
use base::spawn::BoxFuture;
use base::{ManualClock, Secret};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use environment::account_provider::conformance::{
    ProviderCase, ProviderFixture, ProviderSource, SourceFault,
};
use environment::account_provider::{AccountProvider, PasswordCheck, ProviderErrorKind};
use jid::Jid;
use ring::digest;
use support::block_on;
use throng_account_providers as account_providers;

const SUFFIX: &str = "dc=example,dc=net";
const PEOPLE: &str = "ou=people,dc=example,dc=net";
/// May search and change passwords.
const SERVICE: &str = "cn=throng,dc=example,dc=net";
/// Edits entries for the test.
const ADMINISTRATOR: &str = "cn=admin,dc=example,dc=net";

/// A running directory; ended and removed when it is dropped, and when the test program ends.
struct Slapd {
    directory: PathBuf,
    /// For `ldap` and `ldaps`.
    ports: [u16; 2],
    /// A shell that kills the server at the end of its standard input.
    process: LeafMutex<Option<Child>>,
}

fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}

/// A certificate for 127.0.0.1 that is its own authority, and its key, in PEM.
fn certificate(name: &str) -> [String; 2] {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate =
        rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap().self_signed(&key).unwrap();
    [certificate.pem(), key.serialize_pem()]
}

fn program(name: &str) -> PathBuf {
    let found = ["/usr/sbin", "/usr/bin", "/usr/local/sbin"].map(|directory| Path::new(directory).join(name));
    found.into_iter().find(|path| path.exists()).unwrap_or_else(|| {
        panic!("this test needs {name}: run `crates/test-databases/setup.sh` or `apt-get install slapd ldap-utils`")
    })
}

impl Slapd {
    fn start() -> Slapd {
        let name = format!("throng-slapd-{}-{}", std::process::id(), free_port());
        let directory = std::env::temp_dir().join(name);
        fs::create_dir_all(directory.join("data")).unwrap();
        let [certificate, key] = certificate("127.0.0.1");
        fs::write(directory.join("certificate.pem"), certificate).unwrap();
        fs::write(directory.join("key.pem"), key).unwrap();
        // Another process writes it: a child of a parallel test could inherit a file that is open for writing here, and a
        // program is not started while one is.
        let copied = Command::new("cp").arg(program("slapd")).arg(directory.join("slapd")).status();
        assert!(copied.unwrap().success());
        let shown = directory.display();
        let modules = "/usr/lib/ldap";
        let configuration = format!(
            "modulepath {modules}\nmoduleload back_mdb\n\
             include /etc/ldap/schema/core.schema\ninclude /etc/ldap/schema/cosine.schema\n\
             include /etc/ldap/schema/inetorgperson.schema\n\
             pidfile {shown}/pid\n\
             TLSCertificateFile {shown}/certificate.pem\nTLSCertificateKeyFile {shown}/key.pem\n\
             database mdb\nsuffix \"{SUFFIX}\"\nrootdn \"{ADMINISTRATOR}\"\nrootpw adm1n\n\
             directory {shown}/data\nmaxsize 16777216\nindex uid eq\n\
             access to attrs=userPassword by dn.exact=\"{SERVICE}\" write by anonymous auth by * none\n\
             access to * by dn.exact=\"{SERVICE}\" read by * none\n"
        );
        fs::write(directory.join("slapd.conf"), configuration).unwrap();
        let slapd = Slapd { directory, ports: [free_port(), free_port()], process: LeafMutex::new(None) };
        slapd.run();
        slapd.edit(&format!(
            "dn: {SUFFIX}\nobjectClass: dcObject\nobjectClass: organization\no: Example\n\n\
             dn: {PEOPLE}\nobjectClass: organizationalUnit\n\n\
             dn: {SERVICE}\nobjectClass: organizationalRole\nobjectClass: simpleSecurityObject\n\
             userPassword: s3rvice\n\n"
        ));
        slapd
    }

    /// Starts the process and waits until it accepts connections.
    fn run(&self) {
        let [plain, encrypted] = self.ports;
        // The shell notices the end of the test by the end of its standard input.
        let script = "d=$1; shift; \"$d/slapd\" \"$@\" >\"$d/log\" 2>&1 </dev/null & echo $! >\"$d/process\"; \
                      read -r _; kill -CONT $!; kill -KILL $!; wait $! 2>/dev/null; [ -e \"$d/kept\" ] || rm -rf \"$d\"";
        let child = Command::new("sh")
            .args(["-c", script, "supervisor"])
            .arg(&self.directory)
            .arg("-f")
            .arg(self.directory.join("slapd.conf"))
            .args(["-d", "0", "-h"])
            .arg(format!("ldap://127.0.0.1:{plain} ldaps://127.0.0.1:{encrypted}"))
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        *self.process.lock() = Some(child);
        let begun = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, encrypted)).is_err() {
            assert!(begun.elapsed() < Duration::from_secs(60), "slapd does not start:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Kills the process and waits for its end. The directory stays if the server is to run again.
    fn kill(&self, keep: bool) {
        let kept = self.directory.join("kept");
        if keep {
            fs::write(&kept, "").unwrap();
        } else {
            let _ = fs::remove_file(&kept);
        }
        if let Some(mut child) = self.process.lock().take() {
            drop(child.stdin.take());
            child.wait().unwrap();
        }
    }

    /// Stops the process without ending it, or lets it go on.
    fn suspend(&self, suspended: bool) {
        let id = fs::read_to_string(self.directory.join("process")).unwrap();
        let signal = if suspended { "-STOP" } else { "-CONT" };
        assert!(Command::new("kill").args([signal, id.trim()]).status().unwrap().success());
        // Each thread stops when it notices the signal.
        let threads = PathBuf::from(format!("/proc/{}/task", id.trim()));
        let is_stopped = |entry: fs::DirEntry| {
            let state = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            state.rsplit_once(") ").is_none_or(|(_, state)| state.starts_with('T'))
        };
        while suspended && !fs::read_dir(&threads).unwrap().flatten().all(is_stopped) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    /// Applies changes in LDIF.
    fn edit(&self, ldif: &str) {
        let mut child = Command::new(program("ldapmodify"))
            .args(["-a", "-x", "-c", "-D", ADMINISTRATOR, "-w", "adm1n", "-H"])
            .arg(format!("ldap://127.0.0.1:{}", self.ports[0]))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(ldif.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{ldif}\n{}", String::from_utf8_lossy(&output.stderr));
    }
}

impl Drop for Slapd {
    fn drop(&mut self) {
        self.kill(false);
        let _ = fs::remove_dir_all(&self.directory);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Encryption {
    None,
    StartTls,
    Tls,
}

impl Slapd {
    fn settings(&self, encryption: Encryption) -> LdapSettings {
        let url = match encryption {
            Encryption::Tls => format!("ldaps://127.0.0.1:{}", self.ports[1]),
            Encryption::None | Encryption::StartTls => format!("ldap://127.0.0.1:{}", self.ports[0]),
        };
        let server = LdapServer::parse(&url, encryption == Encryption::StartTls).unwrap();
        let roots = TrustedRoots::File(self.directory.join("certificate.pem"));
        LdapSettings {
            server: LdapServer { tls: Some(client_config(&roots).unwrap()), ..server },
            bind: Some((SERVICE.to_owned(), Secret::from("s3rvice"))),
            base_dn: PEOPLE.to_owned(),
            filter: FilterTemplate::parse("(&(objectClass=inetOrgPerson)(uid={user}))").unwrap(),
            disabled_attribute: Some("employeeType".to_owned()),
            // Changes with each change of the entry; pwdChangedTime needs an overlay.
            version_attribute: Some("entryCSN".to_owned()),
            set_password: true,
            cache: Duration::from_secs(60),
            limits: RequestLimits { deadline: Duration::from_millis(900), ..RequestLimits::default() },
        }
    }
}

struct SlapdSource {
    slapd: Slapd,
    /// Numbers of the entries by user name.
    entries: LeafMutex<BTreeMap<String, usize>>,
    fault: LeafMutex<Option<SourceFault>>,
    clock: Arc<ManualClock>,
    provider: Arc<LdapAccounts>,
}

impl SlapdSource {
    fn new(encryption: Encryption) -> SlapdSource {
        let (slapd, clock) = (Slapd::start(), Arc::new(ManualClock::new()));
        let provider = Arc::new(LdapAccounts::new(slapd.settings(encryption), clock.clone()));
        let (entries, fault) = (LeafMutex::default(), LeafMutex::default());
        SlapdSource { slapd, entries, fault, clock, provider }
    }

    fn add(&self, account: &Jid, password: &str) {
        let user = account.local().unwrap().to_owned();
        let mut entries = self.entries.lock();
        let known = entries.get(&user).copied();
        let number = known.unwrap_or(entries.len());
        entries.insert(user.clone(), number);
        drop(entries);
        // Hashed: the directory takes a plain text that begins with a brace for a hash of an unknown kind.
        let hash = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, format!("{password}salt").as_bytes());
        let hash = STANDARD.encode([hash.as_ref(), b"salt"].concat());
        let password = STANDARD.encode(format!("{{SSHA}}{hash}"));
        let change = match known {
            Some(_) => "changetype: modify\nreplace: userPassword".to_owned(),
            None => format!("objectClass: inetOrgPerson\nsn: x\nuid:: {}", STANDARD.encode(&user)),
        };
        self.slapd.edit(&format!("dn: cn=u{number},{PEOPLE}\n{change}\nuserPassword:: {password}\n\n"));
    }
}

impl ProviderSource for SlapdSource {
    fn provider(&self) -> Arc<dyn AccountProvider> {
        self.provider.clone()
    }

    fn put(&self, account: &Jid, password: &str) -> BoxFuture<'_, ()> {
        self.add(account, password);
        Box::pin(async {})
    }

    fn disable(&self, account: &Jid) -> BoxFuture<'_, bool> {
        let number = self.entries.lock()[account.local().unwrap()];
        self.slapd.edit(&format!(
            "dn: cn=u{number},{PEOPLE}\nchangetype: modify\nadd: employeeType\nemployeeType: gone\n\n"
        ));
        Box::pin(async { true })
    }

    fn set_fault(&self, fault: Option<SourceFault>) -> BoxFuture<'_, bool> {
        let before = std::mem::replace(&mut *self.fault.lock(), fault);
        match before {
            Some(SourceFault::Dead) => self.slapd.run(),
            Some(SourceFault::Silent) => self.slapd.suspend(false),
            _ => {}
        }
        let possible = match fault {
            Some(SourceFault::Dead) => {
                self.slapd.kill(true);
                true
            }
            Some(SourceFault::Silent) => {
                self.slapd.suspend(true);
                true
            }
            Some(SourceFault::Garbage | SourceFault::Cut) => false,
            None => true,
        };
        Box::pin(async move { possible })
    }

    fn expire_caches(&self) -> BoxFuture<'_, ()> {
        self.clock.advance(60_000);
        Box::pin(async {})
    }
}

struct OverStartTls;

impl ProviderFixture for OverStartTls {
    fn run(case: ProviderCase) {
        block_on(async { case(Arc::new(SlapdSource::new(Encryption::StartTls))).await });
    }
}

environment::account_provider_conformance!(crate::OverStartTls);

fn romeo() -> Jid {
    Jid::parse("romeo@example.net").unwrap()
}

/// Whether the right password is accepted, and a wrong one is not.
async fn logs_in(settings: LdapSettings) -> Result<bool, ProviderErrorKind> {
    let provider = LdapAccounts::new(settings, Arc::new(ManualClock::new()));
    let check = async |password: &str| {
        let checked = provider.check_password(romeo().as_ref(), Secret::from(password)).await;
        checked.map(|checked| checked != PasswordCheck::Invalid).map_err(|error| error.kind)
    };
    Ok(check("0rchard").await? && !check("wrong").await?)
}

#[tokio::test]
async fn each_encryption_logs_in() {
    let source = SlapdSource::new(Encryption::None);
    source.add(&romeo(), "0rchard");
    for encryption in [Encryption::None, Encryption::StartTls, Encryption::Tls] {
        assert_eq!(logs_in(source.slapd.settings(encryption)).await, Ok(true));
    }
}

#[tokio::test]
async fn a_directory_that_is_not_trusted_gets_no_password() {
    let source = SlapdSource::new(Encryption::None);
    source.add(&romeo(), "0rchard");
    let [other, _] = certificate("127.0.0.1");
    let file = source.slapd.directory.join("other.pem");
    fs::write(&file, other).unwrap();
    for encryption in [Encryption::StartTls, Encryption::Tls] {
        let settings = source.slapd.settings(encryption);
        let tls = Some(client_config(&TrustedRoots::File(file.clone())).unwrap());
        let server = LdapServer { tls, ..settings.server.clone() };
        let refused = logs_in(LdapSettings { server, ..settings.clone() }).await;
        assert_eq!(refused, Err(ProviderErrorKind::Unavailable), "another authority");
        // The certificate names the address only.
        let server = LdapServer { host: "localhost".to_owned(), ..settings.server.clone() };
        let refused = logs_in(LdapSettings { server, ..settings }).await;
        assert_eq!(refused, Err(ProviderErrorKind::Unavailable), "another name");
    }
}

#[tokio::test]
async fn two_entries_for_one_account_are_an_error() {
    let source = SlapdSource::new(Encryption::StartTls);
    source.add(&romeo(), "0rchard");
    source.slapd.edit(&format!(
        "dn: cn=another,{PEOPLE}\nobjectClass: inetOrgPerson\nsn: x\nuid: ROMEO\nuserPassword: other\n\n"
    ));
    for password in ["0rchard", "other"] {
        let checked = source.provider.check_password(romeo().as_ref(), Secret::from(password)).await;
        assert_eq!(checked.unwrap_err().kind, ProviderErrorKind::InvalidResponse);
    }
}

#[tokio::test]
async fn what_the_service_account_may_not_do_fails_without_a_login() {
    let source = SlapdSource::new(Encryption::StartTls);
    source.add(&romeo(), "0rchard");
    let settings = source.slapd.settings(Encryption::StartTls);
    let bind = Some((SERVICE.to_owned(), Secret::from("wrong")));
    let refused = logs_in(LdapSettings { bind, ..settings.clone() }).await;
    assert_eq!(refused, Err(ProviderErrorKind::Unavailable), "a wrong password of the service account");
    let base_dn = "ou=nobody,dc=example,dc=net".to_owned();
    let refused = logs_in(LdapSettings { base_dn, ..settings.clone() }).await;
    assert_eq!(refused, Err(ProviderErrorKind::Unavailable), "a subtree that does not exist");
    // Without its rights no entry is visible.
    let anonymous = LdapSettings { bind: None, ..settings };
    assert_ne!(logs_in(anonymous).await, Ok(true));
}
