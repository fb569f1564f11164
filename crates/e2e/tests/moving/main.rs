//! Real data of Debian's Prosody and ejabberd: a client library fills accounts and a room there, `throng import` takes them, and the same
//! library logs in to Throng with the old password and finds everything. Then an export, an import and another export.
//!
//! The servers run in the foreground, in the test's folder and on its ports. `clients/setup.sh` installs them without starting
//! services.
//!
//! # Pitfalls
//!
//! ejabberd writes its tables when it stops, so it is stopped in order, and started again for a dump.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy sees helpers outside of #[test] as ordinary code"
)]

mod large_imports;

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use test_databases::{Server, ServerKind};
use throng_e2e::clients::{install_clients, scripts_folder};
use throng_e2e::text_client::TextClient;
use throng_e2e::{KillOnDrop, NodeProcess, TIMEOUT, TempFolder, describe_output, poll, ports, signal};

const DOMAIN: &str = "chat.test";
const PASSWORD: &str = "correct horse battery staple";
const USERS: [&str; 3] = ["romeo", "juliet", "nurse"];

/// Runs a command that must succeed.
fn run(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().expect("the program is installed by clients/setup.sh");
    assert!(output.status.success(), "{command:?}: {}", describe_output(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs the scenario `fill` or `check` against a server on this port.
fn scenario(name: &str, port: u16) {
    let mut client = Command::new(install_clients().join("venv/bin/python"));
    client
        .arg(scripts_folder().join("slixmpp/transfer.py"))
        .arg(name)
        .env("XMPP_HOST", "127.0.0.1")
        .env("XMPP_PORT", port.to_string())
        .env("XMPP_TRANSPORT", "starttls")
        .env("XMPP_DOMAIN", DOMAIN)
        .env("XMPP_PASSWORD", PASSWORD)
        .env("XMPP_USER_A", USERS[0])
        .env("XMPP_USER_B", USERS[1])
        .env("XMPP_USER_C", USERS[2]);
    let output = run(&mut client);
    assert!(output.contains("ok "), "{output}");
}

/// Starts a server in the foreground and waits for its port.
fn start(command: &mut Command, folder: &Path, port: u16) -> KillOnDrop {
    let log = File::create(folder.join("server.log")).unwrap();
    command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
    let child = KillOnDrop(command.spawn().expect("the server is installed by clients/setup.sh"));
    let open = poll(TIMEOUT, || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok());
    let log = || fs::read_to_string(folder.join("server.log")).unwrap_or_default();
    assert!(open.is_some(), "the server does not listen: {}", log());
    child
}

/// Files of a certificate and its key.
fn certificate(folder: &Path) -> (String, String) {
    let key_pair = rcgen::KeyPair::generate().unwrap();
    let mut parameters = rcgen::CertificateParams::new([DOMAIN.to_owned()]).unwrap();
    // ejabberd sets a timer for the end of the validity, and Erlang's timers end before the year 4096, rcgen's default.
    parameters.not_after = rcgen::date_time_ymd(2049, 12, 31);
    let made = parameters.self_signed(&key_pair).unwrap();
    let (certificate, key) = (folder.join("certificate.pem"), folder.join("key.pem"));
    fs::write(&certificate, made.pem()).unwrap();
    fs::write(&key, key_pair.serialize_pem()).unwrap();
    (certificate.display().to_string(), key.display().to_string())
}

/// Imports with these words, checks by a client, and compares two exports. The accounts have keys for `hash` only. The two
/// nodes have these lines for storage, after those of `[auth]`.
fn import_and_check(name: &str, hash: &str, words: &[&str], storage: [&str; 2]) {
    let [port, http, second_port, second_http] = ports::free();
    let configuration = |port: u16, http: u16, storage: &str| {
        format!(
            "hosts = ['{DOMAIN}']\ndata_dir = 'data'\n[auth]\nmechanisms = ['SCRAM-{hash}-PLUS', 'SCRAM-{hash}']\n{storage}\
             [[listen]]\nkind = 'c2s'\naddress = '127.0.0.1:{port}'\n\
             [[listen]]\nkind = 'http'\naddress = '127.0.0.1:{http}'\n"
        )
    };
    let mut node = NodeProcess::new(name);
    node.configure(&configuration(port, http, storage[0]));
    let dry = [&["import", "--dry-run"][..], words].concat();
    let counted = node.run_ok(&dry);
    assert!(counted.contains("           3 accounts\n"), "{counted}");
    assert!(counted.contains("nothing was written"), "{counted}");
    assert!(counted.contains(&format!("           3 sets of keys for SCRAM-{hash}\n")), "{counted}");
    assert!(counted.contains(&format!("mechanisms = [\"SCRAM-{hash}-PLUS\", \"SCRAM-{hash}\"")), "{counted}");
    let written = node.run_ok(&[&["import", "--create"][..], words].concat());
    assert!(written.contains("           3 accounts\n"), "{written}");
    assert!(written.contains("           2 offline messages\n"), "{written}");
    assert!(
        counted.contains("           1 rooms\n") && written.contains("           1 rooms\n"),
        "{written}"
    );

    let export = node.run_ok(&["export", "first.xml"]);
    assert_eq!(export, "");
    let folder = TempFolder::new(&format!("{name}-files"));
    let first = folder.join("first.xml");
    let text = node.run_ok(&["export", "-"]);
    fs::write(&first, &text).unwrap();
    let second = NodeProcess::new(&format!("{name}-2"));
    second.configure(&configuration(second_port, second_http, storage[1]));
    second.run_ok(&["import", "--create", "xep-0227", &first.display().to_string()]);
    assert_eq!(second.run_ok(&["export", "-"]), text, "export and import give the same bytes");
    if storage[1].contains("accounts.db") {
        second.run_ok(&["backup", "copy.db"]);
        assert!(second.folder.join("copy.db").exists() && second.folder.join("copy.db.auth").exists());
    }

    node.start();
    let refused = node.run(&[&["import"][..], words].concat());
    assert!(!refused.status.success(), "a node is running");
    let running = node.run_ok(&["export", "-"]);
    assert_eq!(running, text, "an export beside the node");
    let copied = node.run(&["backup", "copy.db"]);
    assert_eq!(copied.status.success(), storage[0].is_empty(), "{}", describe_output(&copied));
    scenario("check", port);
    node.stop_in_order();
}

/// Prosody writes with these modules for vCards.
fn move_prosody(name: &str, vcard_modules: &str) {
    install_clients();
    let folder = TempFolder::new(name);
    let [port] = ports::free();
    let (certificate, key) = certificate(&folder);
    let data = folder.join("data");
    fs::create_dir(&data).unwrap();
    let (data, pid) = (data.display().to_string(), folder.join("prosody.pid").display().to_string());
    let config = folder.join("prosody.cfg.lua");
    fs::write(
        &config,
        format!(
            "run_as_root = true\ndaemonize = false\npidfile = '{pid}'\ndata_path = '{data}'\nlog = '*console'\n\
             modules_enabled = {{ 'roster', 'saslauth', 'tls', 'disco', 'private', 'blocklist', 'offline', 'ping', 'pep', {vcard_modules} }}\n\
             modules_disabled = {{ 's2s', 'http' }}\n\
             authentication = 'internal_hashed'\nstorage = 'internal'\n\
             interfaces = {{ '127.0.0.1' }}\nc2s_ports = {{ {port} }}\nc2s_direct_tls_ports = {{ }}\n\
             ssl = {{ certificate = '{certificate}', key = '{key}' }}\nVirtualHost '{DOMAIN}'\n\
             Component 'conference.{DOMAIN}' 'muc'\n\
             Component 'pubsub.{DOMAIN}' 'pubsub'\nadmins = {{ '{}@{DOMAIN}' }}\n",
            USERS[0]
        ),
    )
    .unwrap();
    let config = config.display().to_string();
    for user in USERS {
        run(Command::new("prosodyctl")
            .args(["--root", "--config", &config, "register", user, DOMAIN, PASSWORD]));
    }
    let server = start(Command::new("prosody").args(["--root", "--config", &config, "-F"]), &folder, port);
    scenario("fill", port);
    drop(server);
    let storage = ["", "url = 'sqlite:accounts.db'\n"];
    import_and_check(&format!("from-{name}"), "SHA-1", &["prosody", &data], storage);
}

#[test]
fn accounts_of_debians_prosody_move_with_all_their_data() {
    move_prosody("prosody", "'vcard'");
}

/// As Debian's configuration has them.
#[test]
fn vcards_that_debians_prosody_keeps_in_pep_nodes_move() {
    move_prosody("prosody-pep", "'vcard_legacy', 'bookmarks', 'vcard4'");
}

/// Debian's ejabberd, without its program `ejabberdctl`, which refuses other users than its own and starts `epmd`.
struct Ejabberd {
    folder: TempFolder,
    port: u16,
}

impl Ejabberd {
    /// Writes the configuration, with these lines for storage.
    fn new(name: &str, storage: &str) -> Ejabberd {
        let folder = TempFolder::new(name);
        let [port] = ports::free();
        let (certificate, key) = certificate(&folder);
        fs::write(
            folder.join("ejabberd.yml"),
            format!(
                "hosts:\n  - {DOMAIN}\nloglevel: info\ncertfiles:\n  - {certificate}\n  - {key}\n{storage}\
                 auth_password_format: scram\nauth_scram_hash: sha256\n\
                 listen:\n  -\n    port: {port}\n    ip: 127.0.0.1\n    module: ejabberd_c2s\n    starttls: true\n\
                 modules:\n  mod_roster: {{}}\n  mod_private: {{}}\n  mod_vcard: {{}}\n  mod_privacy: {{}}\n  mod_blocking: {{}}\n  \
                 mod_offline: {{}}\n  mod_last: {{}}\n  mod_disco: {{}}\n  mod_ping: {{}}\n  mod_muc: {{}}\n  \
                 mod_caps: {{}}\n  mod_pubsub:\n    plugins: [flat, pep]\n"
            ),
        )
        .unwrap();
        Ejabberd { folder, port }
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    /// The server, and an expression that it evaluates when it has started.
    fn command(&self, expression: &str) -> Command {
        let mut command = Command::new("erl");
        command.args(["-noinput", "-mnesia", "dir", &format!("{:?}", self.path("spool"))]);
        command.args(["-s", "ejabberd", "-eval", expression]);
        command
            .env("ERL_LIBS", erlang_libraries())
            .env("EJABBERD_CONFIG_PATH", self.path("ejabberd.yml"))
            .env("EJABBERD_LOG_PATH", self.path("ejabberd.log"))
            .env("ERL_CRASH_DUMP", self.path("crash.dump"))
            .env("HOME", &*self.folder)
            .current_dir(&self.folder);
        command
    }

    /// Registers the accounts and lets a client fill them.
    fn fill(&self) {
        let users = USERS.map(|user| format!("<<\"{user}\">>")).join(",");
        let expression = format!(
            "[ok = ejabberd_auth:try_register(U, <<\"{DOMAIN}\">>, <<\"{PASSWORD}\">>) || U <- [{users}]], \
             ok = file:write_file(\"registered\", <<>>)."
        );
        let mut server = start(&mut self.command(&expression), &self.folder, self.port);
        let registered = poll(TIMEOUT, || self.folder.join("registered").exists().then_some(()));
        assert!(registered.is_some(), "{}", fs::read_to_string(self.folder.join("server.log")).unwrap());
        scenario("fill", self.port);
        signal(server.0.id(), "TERM");
        server.wait_for_exit("end of ejabberd");
    }

    /// Starts the server again to dump its database.
    fn dump(&self) -> String {
        let dump = self.path("dump.txt");
        let expression = format!("{{ok, _}} = ejabberd_admin:dump_mnesia({dump:?}), init:stop().");
        run(&mut self.command(&expression));
        dump
    }
}

/// The folder of Debian's Erlang packages, which is named after the machine's architecture.
fn erlang_libraries() -> PathBuf {
    let folders = fs::read_dir("/usr/lib").unwrap().map(|entry| entry.unwrap().path());
    let has_ejabberd = |folder: &PathBuf| {
        let names = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name());
        names.into_iter().any(|name| name.to_string_lossy().starts_with("ejabberd-"))
    };
    folders.into_iter().find(has_ejabberd).expect("ejabberd is installed by clients/setup.sh")
}

#[test]
fn accounts_of_debians_ejabberd_move_with_all_their_data() {
    install_clients();
    let ejabberd = Ejabberd::new("ejabberd", "auth_method: mnesia\n");
    ejabberd.fill();
    import_and_check("from-ejabberd", "SHA-256", &["ejabberd", &ejabberd.dump()], ["", ""]);
}

/// The parts of a URL `SCHEME://USER:PASSWORD@ADDRESS/DATABASE?PARAMETERS` before and after the database.
fn around_database(url: &str) -> (&str, &str) {
    let (scheme, rest) = url.split_once("://").unwrap();
    let slash = rest.find('/').unwrap();
    let (before, after) = url.split_at(scheme.len() + "://".len() + slash + 1);
    (before, after.find('?').map_or("", |at| &after[at..]))
}

/// Runs statements or a script of the server's own client in a database.
fn sql(server: &Server, database: &str, statements: &str) {
    let url = server.admin_url();
    let (before, after) = around_database(&url);
    let mut client = match server.kind() {
        ServerKind::Postgres => {
            let mut psql = Command::new("psql");
            psql.args(["--quiet", "--no-psqlrc", "--set=ON_ERROR_STOP=1", "--command", statements]);
            psql.arg(format!("{before}{database}{after}"));
            psql
        }
        ServerKind::MariaDb | ServerKind::MySql => {
            let user = before.split("://").nth(1).and_then(|rest| rest.split(':').next()).unwrap();
            let mut mariadb = Command::new("mariadb");
            mariadb.args(["--no-defaults", "--host=127.0.0.1", &format!("--user={user}")]);
            mariadb.arg(format!("--port={}", server.address().port()));
            mariadb.arg(format!("--password={}", server.password()));
            mariadb.args(["--execute", statements, database]);
            mariadb
        }
    };
    run(&mut client);
}

/// ejabberd writes its tables in a server, and a node with another database there takes them.
fn move_sql(kind: ServerKind, new_schema: bool) {
    install_clients();
    let server = Server::start(kind);
    let admin = server.admin_url();
    let (before, after) = around_database(&admin);
    let user = before.split("://").nth(1).and_then(|rest| rest.split(':').next()).unwrap();
    let default = if kind == ServerKind::Postgres { "postgres" } else { "mysql" };
    for database in ["ejabberd", "first", "second"] {
        sql(&server, default, &format!("CREATE DATABASE {database}"));
    }
    let (word, script) = if kind == ServerKind::Postgres { ("pgsql", "pg") } else { ("mysql", "mysql") };
    let script = format!("/usr/share/ejabberd/sql/{script}{}.sql", if new_schema { ".new" } else { "" });
    sql(&server, "ejabberd", &fs::read_to_string(&script).expect("Debian's package has its tables"));
    let storage = format!(
        "auth_method: sql\ndefault_db: sql\nnew_sql_schema: {new_schema}\nsql_type: {word}\n\
         sql_server: 127.0.0.1\nsql_port: {}\nsql_database: ejabberd\nsql_username: {user}\nsql_password: \"{}\"\n",
        server.address().port(),
        server.password(),
    );
    let ejabberd = Ejabberd::new(&format!("ejabberd-{word}"), &storage);
    ejabberd.fill();
    let url = format!("{before}ejabberd{after}");
    let mut words = vec!["ejabberd-sql", &url];
    if !new_schema {
        words.splice(0..0, ["--domain", DOMAIN]);
    }
    let own = |database: &str| format!("[storage]\nurl = '{before}{database}{after}'\n");
    import_and_check(&format!("from-{word}"), "SHA-256", &words, [&own("first"), &own("second")]);
}

#[test]
fn accounts_of_ejabberd_in_postgresql_move_to_postgresql() {
    move_sql(ServerKind::Postgres, true);
}

#[test]
fn accounts_of_ejabberd_in_mariadb_move_to_mariadb() {
    move_sql(ServerKind::MariaDb, false);
}

/// What SCRAM-SHA-1 shows of an account before the proof: the form of the salt, and the iterations.
fn shown_keys(port: u16, user: &str) -> (String, String) {
    let mut client = TextClient::connect(port, DOMAIN);
    client.read_to("</stream:features>");
    client.send_auth("SCRAM-SHA-1", format!("n,,n={user},r=abcdef").as_bytes());
    let text = client.read_to("</challenge>");
    let text = text.rsplit_once('>').map_or("", |(_, text)| text).to_owned();
    let challenge = String::from_utf8(sasl::encoding::decode_response(&text).unwrap()).unwrap();
    let field =
        |name: &str| challenge.split(',').find_map(|field| field.strip_prefix(name)).unwrap().to_owned();
    let salt = sasl::encoding::decode_response(&field("s=")).unwrap();
    let form = |byte: &u8| {
        if *byte == b'-' {
            '-'
        } else if byte.is_ascii_hexdigit() {
            'x'
        } else {
            '?'
        }
    };
    (salt.iter().map(form).collect(), field("i="))
}

#[test]
fn accounts_that_do_not_exist_look_like_imported_ones() {
    let [port] = ports::free();
    let mut node = NodeProcess::new("import-decoys");
    node.configure(&format!(
        "hosts = ['{DOMAIN}']\ndata_dir = 'data'\n\
         [[listen]]\nkind = 'c2s'\naddress = '127.0.0.1:{port}'\ntls = 'off'\nallow_plain_without_tls = true\n"
    ));
    // As Prosody has them.
    let keys = sasl::Credentials::derive(PASSWORD, 4321, b"6fb4d0f7-1b19-4c57-8bc1-6a9e9c4ad0c8").unwrap();
    let keys = keys.sha1.unwrap();
    let encode = |bytes: &[u8]| STANDARD.encode(bytes);
    let (stored, server) = (encode(keys.stored_key.expose()), encode(keys.server_key.expose()));
    let salt = encode(&keys.salt);
    fs::write(
        node.folder.join("accounts.xml"),
        format!(
            "<server-data xmlns='urn:xmpp:pie:0'><host jid='{DOMAIN}'><user name='romeo'>\
             <scram-credentials xmlns='urn:xmpp:pie:0#scram' mechanism='SCRAM-SHA-1'><iter-count>4321</iter-count>\
             <salt>{salt}</salt><server-key>{server}</server-key><stored-key>{stored}</stored-key></scram-credentials>\
             </user></host></server-data>"
        ),
    )
    .unwrap();
    node.run_ok(&["import", "--create", "xep-0227", "accounts.xml"]);
    node.start();
    let imported = shown_keys(port, "romeo");
    assert_eq!(imported, ("xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx".to_owned(), "4321".to_owned()));
    let names = (0..30).map(|number| format!("missing{number}"));
    let alike = names.filter(|name| shown_keys(port, name) == imported).count();
    assert!(alike > 0, "every other name is known not to exist");
    node.stop_in_order();
}
