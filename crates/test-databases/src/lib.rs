//! Real database servers for tests, and NATS: started in a directory and on a port of their own, ended with the test.
//!
//! `setup.sh` installs them, as `make test` does: Debian's packages `postgresql`, `mariadb-server-core` and
//! `mariadb-client-core`, and MySQL, which Debian does not have, from a package of Maven Central; NATS is built from its Go
//! module. They refuse to run as root, so a test that runs as root starts them as `nobody`. They do not call `fsync`, unless
//! [`ServerSetup::durable`] says so: a killed process loses nothing that it has written, only a machine would.
//!
//! `THRONG_TEST_POSTGRES`, if it is set, is the directory of the programs of another version of PostgreSQL.
//!
//! [`Proxy`] stands between a client and a server: it counts round trips, delays answers and cuts connections. [`DelayRelay`] is a
//! link with a latency: it delays the bytes of both directions.
//!
//! # Pitfalls
//!
//! A server in a `static` is never dropped. Its supervisor, a shell, notices the end of the test program by the end of
//! its standard input, kills the server and removes the directory.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test support: a failure is a failure of the test, and its message says what to do"
)]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "it waits for real processes, and uses none of our crates, so that tests of every layer can use it"
)]

mod nats;
pub mod ports;
mod proxy;
mod relay;
mod server_directory;
mod supervisor;

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use server_directory::{make_directory, unprivileged, write_private};
use supervisor::Supervisor;

pub use nats::{NatsServer, NatsSetup};
pub use proxy::Proxy;
pub use relay::DelayRelay;

/// User of the tests. In MariaDB it has no more rights than the server's documentation asks for.
const USER: &str = "throng";

/// User that may create databases.
const ADMINISTRATOR: &str = "administrator";

/// Password of both.
const PASSWORD: &str = "correct horse";

/// Where `setup.sh` installs MySQL: Debian does not have it, and `nobody` must be able to run it.
const MYSQL_DIRECTORY: &str = "/usr/local/lib/throng-tests-mysql";

/// Time for a server to start; far more than it needs on a slow machine.
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// How often a server is started that refuses to.
const MAX_STARTS: u32 = 30;

/// A kind of database server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ServerKind {
    /// PostgreSQL, the newest that is installed.
    Postgres,
    /// MariaDB.
    MariaDb,
    /// MySQL 8.0.
    MySql,
}

impl ServerKind {
    /// The kinds that tests run on.
    pub const ALL: [ServerKind; 3] = [ServerKind::Postgres, ServerKind::MariaDb, ServerKind::MySql];

    /// How to install it without `setup.sh`.
    const fn installation(self) -> &'static str {
        match self {
            ServerKind::Postgres => "`apt-get install postgresql`",
            ServerKind::MariaDb => "`apt-get install mariadb-server-core mariadb-client-core`",
            ServerKind::MySql => "unpack MySQL 8.0 into `/usr/local/lib/throng-tests-mysql`",
        }
    }

    /// Whether it has the protocol and the options of MySQL.
    fn is_mysql(self) -> bool {
        self != ServerKind::Postgres
    }

    fn program(self, name: &str) -> PathBuf {
        let mut directories: Vec<PathBuf> = match self {
            ServerKind::Postgres => postgres_directory().into_iter().collect(),
            ServerKind::MariaDb => Vec::new(),
            ServerKind::MySql => vec![Path::new(MYSQL_DIRECTORY).join("bin")],
        };
        // A `mysqld` there may be MariaDB.
        if self != ServerKind::MySql {
            directories
                .extend(["/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin"].map(PathBuf::from));
        }
        let found = directories.into_iter().map(|directory| directory.join(name)).find(|path| path.exists());
        found.unwrap_or_else(|| {
            let installation = self.installation();
            panic!("this test needs {name}: run `crates/test-databases/setup.sh` or {installation}")
        })
    }
}

/// The directory of the newest version: Debian keeps the programs of each in one that is not in the path.
fn postgres_directory() -> Option<PathBuf> {
    if let Some(chosen) = std::env::var_os("THRONG_TEST_POSTGRES") {
        return Some(PathBuf::from(chosen));
    }
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?;
    let version = |entry: fs::DirEntry| entry.file_name().to_str()?.parse::<u32>().ok();
    let newest = versions.flatten().filter_map(version).max()?;
    Some(Path::new("/usr/lib/postgresql").join(newest.to_string()).join("bin"))
}

/// What a server has besides the defaults.
#[derive(Clone, Debug, Default)]
pub struct ServerSetup {
    /// A certificate and its private key in PEM. The server accepts encrypted connections only.
    pub certificate: Option<[String; 2]>,
    /// Megabytes of a disk of its own for the data, which [`Server::fill_disk`] fills.
    pub disk_megabytes: Option<u32>,
    /// Calls `fsync` at each commit, for measurements.
    pub durable: bool,
    /// PostgreSQL listens on all addresses, and lets in clients of the networks that it is connected to.
    pub on_all_addresses: bool,
    /// Settings by name, which replace those of the tests.
    pub settings: Vec<(&'static str, &'static str)>,
}

impl ServerSetup {
    /// For measurements: durable, with the server's own default isolation and the memory that its documentation recommends
    /// for a machine with some gigabytes.
    pub fn measured(kind: ServerKind) -> ServerSetup {
        let settings = match kind {
            ServerKind::Postgres => vec![
                ("default_transaction_isolation", "read committed"),
                ("shared_buffers", "1GB"),
                ("max_wal_size", "4GB"),
            ],
            ServerKind::MariaDb => {
                vec![("innodb-buffer-pool-size", "1G"), ("innodb-log-file-size", "1G")]
            }
            ServerKind::MySql => vec![("innodb-buffer-pool-size", "1G")],
        };
        ServerSetup { durable: true, settings, ..ServerSetup::default() }
    }
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    kind: ServerKind,
    directory: PathBuf,
    port: u16,
    supervisor: Supervisor,
    databases: AtomicU32,
}

impl Server {
    /// Creates and starts a server.
    ///
    /// # Panics
    /// If the server is not installed or does not start; the message says what to do.
    pub fn start(kind: ServerKind) -> Server {
        Server::start_with(kind, &ServerSetup::default())
    }

    /// Creates and starts a server with further properties.
    ///
    /// # Panics
    /// If the server is not installed or does not start; the message says what to do.
    pub fn start_with(kind: ServerKind, setup: &ServerSetup) -> Server {
        let directory = make_directory();
        // The port may be taken before the server has it; then another one is tried.
        let [port] = ports::free();
        let mut run = match kind {
            ServerKind::Postgres => prepare_postgres(&directory, port, setup.durable),
            ServerKind::MariaDb | ServerKind::MySql => prepare_mysql(kind, &directory, port, setup.durable),
        };
        if setup.on_all_addresses && kind == ServerKind::Postgres {
            let mut clients = fs::OpenOptions::new();
            let mut clients = clients.append(true).open(directory.join("data/pg_hba.conf")).unwrap();
            clients.write_all(b"host all all samenet scram-sha-256\n").unwrap();
            run.extend(["-c".to_owned(), "listen_addresses=*".to_owned()]);
        }
        // The last value of a setting counts.
        for (name, value) in &setup.settings {
            match kind {
                ServerKind::Postgres => run.extend(["-c".to_owned(), format!("{name}={value}")]),
                ServerKind::MariaDb | ServerKind::MySql => run.push(format!("--{name}={value}")),
            }
        }
        if let Some(certificate) = &setup.certificate {
            run.extend(prepare_encryption(kind, &directory, certificate));
        }
        let signal = if kind == ServerKind::Postgres { "INT" } else { "TERM" };
        let shell = match setup.disk_megabytes {
            None => unprivileged("sh", &directory),
            Some(megabytes) => with_disk(&directory, megabytes),
        };
        let supervisor = Supervisor::start(shell, &directory, signal, run);
        let server = Server { kind, directory, port, supervisor, databases: AtomicU32::new(0) };
        server.run();
        server
    }

    /// Its kind.
    pub fn kind(&self) -> ServerKind {
        self.kind
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// The process above those of the server, which lives as long as this value.
    pub fn process(&self) -> u32 {
        self.supervisor.process()
    }

    /// The user of [`Self::url`].
    pub fn user(&self) -> &'static str {
        USER
    }

    /// The URL of a database of this server, which need not exist.
    pub fn url(&self, database: &str) -> String {
        self.url_through(self.address(), database)
    }

    /// The same, reached through another address such as a [`Proxy`].
    pub fn url_through(&self, address: SocketAddr, database: &str) -> String {
        let scheme = match self.kind {
            ServerKind::Postgres => "postgres",
            ServerKind::MariaDb | ServerKind::MySql => "mysql",
        };
        let password = PASSWORD.replace(' ', "%20");
        format!("{scheme}://{USER}:{password}@{address}/{database}?{}", self.parameters())
    }

    /// [`Self::default_url`] for an encrypted connection: to a server whose certificate is valid for its address and signed
    /// by an authority in this file.
    pub fn encrypted_url(&self, authorities: &Path) -> String {
        let file = authorities.display();
        let parameters = match self.kind {
            ServerKind::Postgres => format!("sslmode=verify-full&sslrootcert={file}"),
            ServerKind::MariaDb | ServerKind::MySql => format!("ssl-mode=VERIFY_IDENTITY&ssl-ca={file}"),
        };
        self.default_url().replacen(self.parameters(), &parameters, 1)
    }

    /// [`Self::default_url`] over the server's socket in the file system.
    pub fn socket_url(&self) -> String {
        let socket = match self.kind {
            ServerKind::Postgres => format!("&host={}", self.directory.display()),
            ServerKind::MariaDb | ServerKind::MySql => {
                format!("&socket={}", self.directory.join("socket").display())
            }
        };
        self.default_url() + &socket
    }

    /// The URL of a database that each server has, empty at first.
    pub fn default_url(&self) -> String {
        self.url(match self.kind {
            ServerKind::Postgres => "postgres",
            ServerKind::MariaDb | ServerKind::MySql => USER,
        })
    }

    /// The password in its URLs, which is `%`-encoded there.
    pub fn password(&self) -> &'static str {
        PASSWORD
    }

    /// The URL of the database that administers the others.
    pub fn admin_url(&self) -> String {
        match self.kind {
            ServerKind::Postgres => self.url("postgres"),
            ServerKind::MariaDb | ServerKind::MySql => self.url("mysql").replacen(USER, ADMINISTRATOR, 1),
        }
    }

    fn parameters(&self) -> &'static str {
        // Encrypted connections have tests of their own.
        match self.kind {
            ServerKind::Postgres => "sslmode=disable",
            ServerKind::MariaDb | ServerKind::MySql => "ssl-mode=DISABLED",
        }
    }

    /// A name for a database that this server does not have.
    pub fn unused_database(&self) -> String {
        format!("test{}", self.databases.fetch_add(1, Ordering::Relaxed))
    }

    /// Starts the server again after [`Self::stop`] or [`Self::kill`], and waits until it accepts connections.
    ///
    /// # Panics
    /// If it does not start.
    pub fn run(&self) {
        self.run_with("");
    }

    fn run_with(&self, argument: &str) {
        let begun = Instant::now();
        for _ in 0..MAX_STARTS {
            let process = self.command(&format!("start{argument}"));
            if self.wait_until_ready(&process, begun) {
                return;
            }
            // The other processes of a killed PostgreSQL remain for a moment, and the next one refuses to start beside them.
            self.command("kill");
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("{:?} does not start:\n{}", self.kind, self.log());
    }

    /// Restarts the server so that it refuses all writes, as a server does that was primary before a failover; or so
    /// that it accepts them again.
    ///
    /// # Panics
    /// If it does not start.
    pub fn restart_read_only(&self, read_only: bool) {
        self.stop();
        let standby = self.directory.join("data/standby.signal");
        match (self.kind, read_only) {
            (ServerKind::Postgres, true) => fs::write(standby, "").unwrap(),
            (ServerKind::Postgres, false) => fs::remove_file(standby).unwrap(),
            (ServerKind::MariaDb | ServerKind::MySql, _) => {}
        }
        let argument = if self.kind.is_mysql() && read_only { " --read-only" } else { "" };
        self.run_with(argument);
    }

    /// Fills the disk of a server that has one of its own.
    pub fn fill_disk(&self) {
        self.command("fill");
    }

    /// Frees what [`Self::fill_disk`] has filled.
    pub fn free_disk(&self) {
        self.command("free");
    }

    /// Stops the server as an administrator would.
    pub fn stop(&self) {
        self.command("stop");
    }

    /// Kills the server.
    pub fn kill(&self) {
        self.command("kill");
    }

    /// Its log so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    fn command(&self, command: &str) -> String {
        self.supervisor.command(command)
    }

    /// Whether the server accepts connections, as soon as that is known. It is asked rather than timed.
    fn wait_until_ready(&self, process: &str, begun: Instant) -> bool {
        let log_before = self.log().len();
        loop {
            match self.kind {
                // The first line of this file is the process, and the last one its state.
                ServerKind::Postgres => {
                    let state = self.command("state");
                    if ["ready", "standby"].iter().any(|word| state == format!("{process} {word}")) {
                        return true;
                    }
                }
                // The server greets each client, first.
                ServerKind::MariaDb | ServerKind::MySql => {
                    if self.greets() {
                        return true;
                    }
                }
            }
            let log = self.log();
            let new = log.get(log_before..).unwrap_or_default();
            if new.contains("FATAL")
                || (new.contains("[ERROR]") && new.contains("Aborting"))
                || begun.elapsed() > START_TIMEOUT
            {
                return false;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn greets(&self) -> bool {
        let Ok(mut stream) = TcpStream::connect(self.address()) else { return false };
        // Closed without an answer, the server would count a failed connection of this address.
        stream.set_read_timeout(Some(Duration::from_secs(5))).is_ok()
            && stream.read(&mut [0; 64]).is_ok_and(|n| n > 0)
    }
}

fn prepare(mut command: Command, kind: ServerKind, directory: &Path) {
    let output = command.stdin(Stdio::null()).output().expect("cannot run the program that makes a database");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if !output.status.success() {
        let _ = fs::remove_dir_all(directory);
        panic!("cannot make a database of {kind:?}:\n{}{}", text(&output.stdout), text(&output.stderr));
    }
}

/// A command whose `data` in the directory is on a disk of its own: a file system in memory, in a mount namespace. That needs
/// no privilege where users may make namespaces. Holes are written: a server relies on the space of its journal.
fn with_disk(directory: &Path, megabytes: u32) -> Command {
    let script = r#"directory=$1 size=$2
shift 2
mv "$directory/data" "$directory/made" && mkdir "$directory/data" &&
    mount -t tmpfs -o "size=$size,mode=0700" tmpfs "$directory/data" &&
    cp -a --sparse=never "$directory/made/." "$directory/data" && exec "$@""#;
    let mut command = unprivileged("unshare", directory);
    command.args(["--user", "--map-current-user", "--mount", "--keep-caps", "sh", "-c", script, "disk"]);
    command.arg(directory).arg(format!("{megabytes}m")).arg("sh");
    command
}

/// Arguments of a server that accepts encrypted connections only, except over its socket.
fn prepare_encryption(kind: ServerKind, directory: &Path, [certificate, key]: &[String; 2]) -> Vec<String> {
    let certificate = write_private(directory, "certificate.pem", certificate);
    let key = write_private(directory, "key.pem", key);
    match kind {
        ServerKind::Postgres => {
            let access = "local all all scram-sha-256\nhostssl all all 127.0.0.1/32 scram-sha-256\n";
            write_private(directory, "data/pg_hba.conf", access);
            let set = |name: &str, value: &str| ["-c".to_owned(), format!("{name}={value}")];
            [
                set("ssl", "on"),
                set("ssl_cert_file", &certificate.display().to_string()),
                set("ssl_key_file", &key.display().to_string()),
            ]
            .concat()
        }
        ServerKind::MariaDb | ServerKind::MySql => vec![
            format!("--ssl-cert={}", certificate.display()),
            format!("--ssl-key={}", key.display()),
            "--require-secure-transport=ON".to_owned(),
        ],
    }
}

fn prepare_postgres(directory: &Path, port: u16, durable: bool) -> Vec<String> {
    let kind = ServerKind::Postgres;
    let data = directory.join("data");
    let password = write_private(directory, "password", PASSWORD);
    let mut make = unprivileged(kind.program("initdb"), directory);
    make.arg("--pgdata").arg(&data).arg("--pwfile").arg(&password);
    make.args(["--username", USER, "--auth", "scram-sha-256", "--encoding", "UTF8", "--no-sync"]);
    make.args(["--locale", "C.UTF-8"]);
    prepare(make, kind, directory);
    let mut run =
        vec![kind.program("postgres").display().to_string(), "-D".into(), data.display().to_string()];
    for (name, value) in [
        ("port", port.to_string()),
        ("listen_addresses", "127.0.0.1".into()),
        ("unix_socket_directories", directory.display().to_string()),
        ("fsync", if durable { "on" } else { "off" }.into()),
        ("max_connections", "200".into()),
        ("shared_buffers", "64MB".into()),
        // Not the usual one: it must not matter.
        ("default_transaction_isolation", "serializable".into()),
        ("log_min_messages", "warning".into()),
    ] {
        run.extend(["-c".into(), format!("{name}={value}")]);
    }
    run
}

fn prepare_mysql(kind: ServerKind, directory: &Path, port: u16, durable: bool) -> Vec<String> {
    let data = directory.join("data");
    let text = |path: PathBuf| path.display().to_string();
    // sqlx cannot use MySQL's default over a socket without TLS; see `docs/databases.md`.
    let native = if kind == ServerKind::MySql { "WITH mysql_native_password" } else { "" };
    let sql = format!(
        "CREATE USER IF NOT EXISTS '{USER}'@'127.0.0.1' IDENTIFIED BY '{PASSWORD}';\n\
         GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, INDEX, DROP ON *.* TO '{USER}'@'127.0.0.1';\n\
         CREATE USER IF NOT EXISTS '{USER}'@'localhost' IDENTIFIED {native} BY '{PASSWORD}';\n\
         GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, INDEX, DROP ON *.* TO '{USER}'@'localhost';\n\
         CREATE USER IF NOT EXISTS '{ADMINISTRATOR}'@'127.0.0.1' IDENTIFIED BY '{PASSWORD}';\n\
         GRANT ALL ON *.* TO '{ADMINISTRATOR}'@'127.0.0.1';\n\
         CREATE DATABASE IF NOT EXISTS {USER};\n"
    );
    let init = write_private(directory, "init.sql", &sql);
    let (program, make) = match kind {
        ServerKind::MySql => (kind.program("mysqld"), kind.program("mysqld")),
        _ => (kind.program("mariadbd"), kind.program("mariadb-install-db")),
    };
    let mut make = unprivileged(make, directory);
    make.arg("--no-defaults").arg(format!("--datadir={}", data.display()));
    let mut run = vec![program.display().to_string(), "--no-defaults".into()];
    if kind == ServerKind::MySql {
        let basedir = format!("--basedir={MYSQL_DIRECTORY}");
        make.args([&basedir, "--initialize-insecure", "--performance-schema=OFF"]);
        run.extend([
            basedir,
            "--performance-schema=OFF".into(),
            "--mysqlx=OFF".into(),
            "--skip-log-bin".into(),
        ]);
    } else {
        make.args(["--skip-test-db", "--auth-root-authentication-method=normal", "--skip-name-resolve"]);
    }
    prepare(make, kind, directory);
    for (name, value) in [
        ("datadir", text(data)),
        ("port", port.to_string()),
        ("bind-address", "127.0.0.1".into()),
        ("socket", text(directory.join("socket"))),
        ("pid-file", text(directory.join("pid"))),
        ("init-file", text(init)),
        ("innodb-flush-log-at-trx-commit", if durable { "1" } else { "2" }.into()),
        ("innodb-buffer-pool-size", "64M".into()),
        ("max-connections", "200".into()),
        ("max-connect-errors", "1000000".into()),
        // A collation in which "a" is "Ä" and "a ": it must not matter.
        ("character-set-server", "utf8mb4".into()),
        ("collation-server", "utf8mb4_unicode_ci".into()),
        ("skip-name-resolve", "1".into()),
    ] {
        run.push(format!("--{name}={value}"));
    }
    run
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connects(server: &Server) -> bool {
        TcpStream::connect(server.address()).is_ok()
    }

    #[test]
    fn servers_start_again_after_a_kill_and_leave_nothing() {
        for kind in ServerKind::ALL {
            let server = Server::start(kind);
            let directory = server.directory.clone();
            assert!(connects(&server), "{kind:?}");
            server.kill();
            // The other processes of a PostgreSQL notice it a moment later.
            while connects(&server) {
                std::thread::sleep(Duration::from_millis(5));
            }
            server.run();
            server.stop();
            server.run();
            assert!(connects(&server), "{kind:?}");
            drop(server);
            assert!(!directory.exists(), "{kind:?}");
        }
    }
}
