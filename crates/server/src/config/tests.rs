//! Configuration tests: defaults, every mistake with its fix, and settings of single domains.

use feature_api::feature::OptionValue;
use features::registry::ModuleConfig;
use sasl::Mechanism;
use streams::TlsPolicy;

use super::*;

fn read(text: &str) -> Result<NodeConfig> {
    NodeConfig::from_text(text)
}

/// A separate folder for the test.
fn temporary_data_dir() -> PathBuf {
    let folder = std::env::temp_dir().join(format!("throng-{}-config", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn errors(text: &str) -> String {
    format!("{:#}", read(text).unwrap_err())
}

#[test]
fn debug_output_does_not_contain_the_password_of_the_database() {
    let config = read("[storage]\nurl = 'postgres://throng:secret@db.example/throng'\n").unwrap();
    assert!(config.storage_url.contains("secret"));
    assert!(!format!("{config:?}").contains("secret"));
}

#[test]
fn an_empty_file_gives_the_defaults() {
    let config = read("").unwrap();
    assert_eq!(config.hosts, ["localhost"]);
    assert_eq!(config.admins, ["admin@localhost"]);
    assert_eq!(&*config.storage_url, "sqlite:data/throng.db");
    let ports: Vec<u16> = config.listen.iter().map(|l| l.address.port()).collect();
    assert_eq!(ports, [5222, 5223, 5280]);
    let policies: Vec<TlsPolicy> = config.listen.iter().map(|l| l.tls).collect();
    assert_eq!(
        policies,
        [TlsPolicy::Required, TlsPolicy::Required, TlsPolicy::Optional],
        "HTTP is on loopback"
    );
    assert!(config.listen.iter().all(|l| !l.allow_plain_without_tls && !l.proxy_protocol));
}

#[test]
fn errors_name_the_fix() {
    assert_eq!(errors("hhosts = [\"a\"]"), "unknown key \"hhosts\"; did you mean \"hosts\"?");
    assert_eq!(
        errors("[limits]\nstanza_byte = 3"),
        "unknown key \"stanza_byte\" in [limits]; did you mean \"stanza_bytes\"?"
    );
    assert!(errors("hosts = [\"a b\", \"c\"]").contains("\"a b\" in hosts is not a valid domain"));
    assert!(errors("[limits]\nstanza_bytes = 3").contains("between 10000 and 16777216"));
    assert_eq!(
        errors("[limits]\nbind_attempts = 0"),
        "[limits] bind_attempts must be a whole number between 1 and 100"
    );
    assert!(errors("hosts = 3").contains("list of strings"));
    assert!(errors("[[listen]]\nkind = \"c2s\"").contains("requires an address"));
    assert!(errors("[[listen]]\nkind = \"irc\"\naddress = \"0.0.0.0:1\"").contains("not \"irc\""));
    assert!(errors("[[tls.certificates]]\ncertificate = \"a\"").contains("both"));
    assert!(errors("[cluster]\nnode = \"a\"").contains("remove the section for a single node"));
    assert_eq!(
        errors("[auth]\nmechanisms = [\"SCRAM-SHA1\"]"),
        "\"SCRAM-SHA1\" in [auth] mechanisms is not known; did you mean \"SCRAM-SHA-1\"?"
    );
    assert_eq!(
        errors("[[listen]]\nkind = \"c2s\"\naddress = \"0.0.0.0:1\"\ntls = \"maybe\""),
        "[listen] tls must be required, optional or off, not \"maybe\""
    );
    assert!(errors("[log]\nlevel = \"=loud\"").contains("[log] level"));
}

#[test]
fn all_errors_are_reported_at_once() {
    let error = read(
        "hostz = 3\nadmins = [\"nobody\"]\n[limits]\nidle_ping_seconds = 1\nspeed = 4\n[modules]\nofline = true\n\
         [modules.ping]\ntime = 3\n[host.localhost.modules]\nentity_time = 4\n",
    )
    .unwrap_err();
    let found = error.downcast_ref::<reader::ConfigError>().expect("a list");
    let text = found.0.join("\n");
    for part in [
        "unknown key \"hostz\"",
        "\"nobody\" in admins",
        "[limits] idle_ping_seconds must be a whole number between 5 and 86400",
        "unknown key \"speed\" in [limits]",
        "unknown module \"ofline\" under [modules]; did you mean \"offline\"?",
        "modules.ping: unknown option \"time\"",
        "[host.\"localhost\"] modules.entity_time must be true, false or a table of options",
    ] {
        assert!(text.contains(part), "{part} is missing:\n{text}");
    }
    assert_eq!(found.0.len(), 7, "{text}");
    assert!(error.to_string().starts_with("7 errors\n- "));
}

#[test]
fn each_error_has_its_line_and_column() {
    let folder = temporary_data_dir();
    let file = folder.join("wrong.toml");
    std::fs::write(
        &file,
        "host = \"a.org\"\nadmins = [\n  \"admin@a.org\",\n  \"nobody\" ]\n[log]\nlevel = \"loud\"\n\
         [[listen]]\nkind = \"c2s\"\naddress = \"0.0.0.0:5222\"\n[[listen]]\nkind = \"c2s\"\naddress = \"here\"\n\
         [modules.offline]\nmax_messages = \"x\"\nlimits = 3\n[limits]\nstanza_bytes = 3\nspeed = = 4\n",
    )
    .unwrap();
    let error = NodeConfig::load(Some(&file)).unwrap_err();
    std::fs::remove_dir_all(&folder).unwrap();
    let found = error.downcast_ref::<reader::ConfigError>().expect("a list");
    let name = format!("{}:", file.display());
    let found: Vec<&str> = found.0.iter().map(|line| line.strip_prefix(&name).expect("the file")).collect();
    let expected = [
        "1:1: host must be a section: [host]; did you mean \"hosts\"?",
        "4:3: \"nobody\" in admins is not a valid address",
        "6:1: [log] level must be one of",
        "12:1: \"here\" is not a valid address",
        "14:1: modules.offline: ",
        "15:1: modules.offline: unknown option \"limits\"",
        "17:1: [limits] stanza_bytes must be a whole number between",
        "18:1: unknown key \"speed\" in [limits]",
        "18:9: not valid TOML: extra `=`",
    ];
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.starts_with(expected), "{found} is not {expected}");
    }
}

#[test]
fn an_error_in_the_environment_names_its_variable() {
    let (mut table, mut source) = source::ConfigSource::read("[limits]\nstanza_bytes = 100000\n", None);
    let vars = [("THRONG__LIMITS__STANZA_BYTES", "3"), ("THRONG__LOG__LEVL", "info")];
    let vars = vars.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    reader::overlay(&mut table, &mut source, vars).unwrap();
    let error = NodeConfig::from_table(table, source).unwrap_err();
    let found = error.downcast_ref::<reader::ConfigError>().expect("a list");
    assert!(found.0[0].starts_with("THRONG__LIMITS__STANZA_BYTES: [limits] stanza_bytes must be"), "{found}");
    assert!(found.0[1].starts_with("THRONG__LOG__LEVL: unknown key \"levl\" in [log]"), "{found}");
}

#[test]
fn the_whole_example_is_read() {
    let config = read(
        "hosts = [\"example.org\"]\nadmins = [\"admin@example.org\"]\ndata_dir = \"d\"\n\
         [storage]\nurl = \"sqlite:x.db\"\npool_size = 3\n\
         [[listen]]\nkind = \"c2s\"\naddress = \"127.0.0.1:5222\"\ntls = \"off\"\nallow_plain_without_tls = true\n\
         [limits]\nstanza_bytes = 100000\n[log]\nformat = \"json\"\nlevel = \"debug\"\n",
    )
    .unwrap();
    assert_eq!(config.pool_size, 3);
    assert_eq!(config.limits.stanza_bytes, 100_000);
    assert_eq!(config.listen[0].tls, TlsPolicy::Off);
    assert!(config.listen[0].allow_plain_without_tls && config.log.json);
}

#[test]
fn a_domain_has_its_own_modules_and_logins() {
    let config = read(
        "hosts = [\"a.org\", \"b.org\"]\n\
         [auth]\nmechanisms = [\"PLAIN\", \"SCRAM-SHA-1\"]\n\
         [modules]\nentity_time = false\n[modules.offline]\nmax_messages = 5\nexpiry_days = 7\n\
         [host.\"b.org\".modules]\nentity_time = true\nping = false\noffline = { max_messages = 9 }\n\
         [host.\"b.org\".auth]\nallow_anonymous = true\nmechanisms = [\"SCRAM-SHA-256\"]\n",
    )
    .unwrap();
    assert_eq!(config.modules_of("a.org"), config.modules);
    let own = config.modules_of("b.org");
    assert_eq!(own["entity_time"], ModuleConfig::Switch(true));
    assert_eq!(own["ping"], ModuleConfig::Switch(false));
    let options =
        [("max_messages".to_owned(), OptionValue::Int(9)), ("expiry_days".to_owned(), OptionValue::Int(7))];
    assert_eq!(own["offline"], ModuleConfig::Options(options.into()));
    let policy = config.policy(&config.listen[0]);
    let (a, b) = (policy.auth(Some("a.org")), policy.auth(Some("b.org")));
    assert!(a.mechanisms.contains(Mechanism::Plain) && !a.allow_anonymous);
    assert!(!b.mechanisms.contains(Mechanism::Plain) && b.allow_anonymous);
    assert!(b.mechanisms.contains(Mechanism::ScramSha256));
    assert_eq!(policy.auth(None), config.auth);
}

#[test]
fn an_unserved_domain_and_unknown_domain_keys_are_errors() {
    assert_eq!(
        errors("hosts = [\"example.net\"]\n[host.\"example.ney\"]\n"),
        "[host.\"example.ney\"] is not listed in hosts; did you mean \"example.net\"?"
    );
    assert_eq!(
        errors("hosts = [\"example.net\"]\n[host.\"elsewhere.org\"]\n"),
        "[host.\"elsewhere.org\"] is not listed in hosts; add it there"
    );
    assert_eq!(
        errors("[host.localhost]\nmodulse = 3"),
        "unknown key \"modulse\" in [host.\"localhost\"]; did you mean \"modules\"?"
    );
    assert_eq!(
        errors("[host.localhost.auth]\nscram_iterations = 5000"),
        "unknown key \"scram_iterations\" in [host.\"localhost\".auth]; known keys: allow_anonymous, \
         mechanisms, provider, http, jwt, ldap, sql"
    );
    assert_eq!(
        errors("[host.localhost.modules]\nofline = true"),
        "[host.\"localhost\"] unknown module \"ofline\" under [modules]; did you mean \"offline\"?"
    );
    let twice = errors("hosts = [\"a.org\"]\n[host.\"a.org\"]\n[host.\"A.org\"]\n");
    assert!(twice.ends_with("occurs twice with different spellings; merge the sections"), "{twice}");
    assert_eq!(errors("host = [\"a\"]"), "host must be a section: [host]; did you mean \"hosts\"?");
    assert_eq!(errors("[host]\nlocalhost = 3"), "[host] localhost must be a section: [host.\"localhost\"]");
}

#[test]
fn a_domains_switch_retains_the_options_and_a_table_enables_the_module() {
    let all = read("[modules.offline]\nenabled = false\nmax_messages = 5\n").unwrap().modules;
    let own = |text: &str| read(text).unwrap().modules;
    let merged = modules::merge(&all, &own("[modules]\noffline = true"));
    let options =
        [("max_messages".to_owned(), OptionValue::Int(5)), ("enabled".to_owned(), OptionValue::Bool(true))];
    assert_eq!(merged["offline"], ModuleConfig::Options(options.into()));
    let merged = modules::merge(&all, &own("[modules.offline]\nexpiry_days = 2"));
    let options =
        [("max_messages".to_owned(), OptionValue::Int(5)), ("expiry_days".to_owned(), OptionValue::Int(2))];
    assert_eq!(merged["offline"], ModuleConfig::Options(options.into()));
}

#[test]
fn default_rates_exempt_loopback_and_configured_ones_apply_to_all() {
    let limits = read("").unwrap().limits;
    assert_eq!(limits, throng_core::NodeLimits::with_rates());
    assert!(limits.stanzas_per_second > 0 && limits.new_connections_per_second > 0);
    let limits = read("[limits]\nbytes_per_second = 1000\nnew_connections_per_second = 0\n").unwrap().limits;
    assert_eq!((limits.bytes_per_second, limits.bytes_burst), (1000, 0), "the burst of ten seconds");
    assert_eq!((limits.stanzas_per_second, limits.new_connections_per_second), (50, 0));
    assert_eq!(limits.rates_on_loopback, [false, true, false, false, false, true, false]);
    assert_eq!(limits.accepted_connections_per_second, 1000);
    let limits = read("[limits]\naccepted_connections_per_second = 0\n").unwrap().limits;
    assert_eq!((limits.accepted_connections_per_second, limits.rates_on_loopback[6]), (0, true));
}

#[test]
fn connections_of_a_proxy_on_this_machine_count_for_the_accept_rate() {
    let counted =
        |text: &str| crate::reload::http_connection_limits(&read(text).unwrap()).accept_rate_on_loopback;
    let proxies = |address: &str| {
        format!("[http]\ntrusted_proxies = ['{address}']\nclient_address_header = 'Forwarded'\n")
    };
    assert!(!counted("") && !counted(&proxies("10.0.0.0/8")));
    for local in ["127.0.0.1", "127.0.0.2", "127.5.0.0/16", "::1"] {
        assert!(counted(&proxies(local)), "{local}");
    }
    assert!(counted("[limits]\naccepted_connections_per_second = 5\n"));
}

#[test]
fn every_http_key_is_read() {
    let config = read(
        "[limits]\nstanza_bytes = 100000\n\
         [http]\npublic_url = 'https://xmpp.example.org:5443/'\nallowed_origins = ['https://chat.example.org']\n\
         trusted_proxies = ['10.0.0.0/8']\nclient_address_header = 'X-Forwarded-For'\n\
         client_scheme_header = 'x-forwarded-proto'\nmetrics_allow = ['192.0.2.0/24']\ngzip = false\nidle_timeout_seconds = 20\n\
         [http.bosh]\nmax_wait_seconds = 30\nmax_hold = 1\n[http.websocket]\nmessage_bytes = 20000\n\
         [[listen]]\nkind = 'https'\naddress = '0.0.0.0:5443'\nproxy_protocol = true\n\
         [[listen]]\nkind = 'http'\naddress = '0.0.0.0:5280'\n",
    )
    .unwrap();
    let http = &config.http;
    assert_eq!(http.public_url.as_deref(), Some("https://xmpp.example.org:5443"));
    assert!(http.settings.proxies.trusted.contains("10.1.2.3".parse().unwrap()) && !http.settings.gzip);
    assert_eq!(http.settings.proxies.address, Some(net::http::AddressHeader::XForwardedFor));
    assert_eq!(http.settings.proxies.scheme, Some(net::http::SchemeHeader::XForwardedProto));
    assert!(http.metrics_allow.contains("192.0.2.9".parse().unwrap()));
    assert!(!http.settings.allowed_origins.allows(Some("https://evil.example"), None));
    assert_eq!(
        (http.bosh.max_wait_seconds, http.bosh.max_hold, http.settings.idle_timeout_seconds),
        (30, 1, 20)
    );
    assert_eq!(http.settings.bosh_body_bytes, Some(104_096), "room for the longest stanza");
    assert_eq!(http.settings.websocket.as_ref().map(|w| w.message_bytes), Some(20_000));
    assert!(config.listen[0].proxy_protocol && config.listen[0].is_http());
    assert_eq!(config.listen[1].tls, TlsPolicy::Required, "not on loopback");
    let off = read("[http.bosh]\nenabled = false\n[http.websocket]\nenabled = false").unwrap();
    assert!(off.http.settings.bosh_body_bytes.is_none() && off.http.settings.websocket.is_none());
}

#[test]
fn http_errors_are_reported() {
    assert!(
        errors("[http]\nallowed_origins = ['chat.example.org']")
            .contains("\"chat.example.org\" is not an origin")
    );
    let proxies = "[http]\ntrusted_proxies = ['127.0.0.1']\n";
    assert!(errors(proxies).contains("client_address_header = \"X-Forwarded-For\""));
    assert!(
        errors(&format!("{proxies}client_address_header = 'X-Real-IP'"))
            .contains("must be \"X-Forwarded-For\" or \"Forwarded\", not \"X-Real-IP\"")
    );
    assert!(
        errors("[http]\nclient_address_header = 'Forwarded'").contains("add the proxies to trusted_proxies")
    );
    let mixed =
        format!("{proxies}client_address_header = 'X-Forwarded-For'\nclient_scheme_header = 'Forwarded'");
    assert!(errors(&mixed).contains("requires client_address_header = \"Forwarded\""));
    assert!(
        errors("[http]\nmetrics_allow = ['prometheus']").contains("[http] metrics_allow: \"prometheus\"")
    );
    assert!(
        errors("[http]\ntrusted_proxies = ['10.0.0.0/99']").contains("\"10.0.0.0/99\" is not an address")
    );
    assert!(
        errors("[http]\npublic_url = 'xmpp.example.org'").contains("such as \"https://xmpp.example.org\"")
    );
    assert!(errors("[http.bosh]\nmax_wait_seconds = 0").contains("between 1 and 600"));
    assert!(errors("[http.bosh]\nwait = 60").contains("unknown key \"wait\" in [http.bosh]"));
    assert!(errors("[http.websocket]\nsee_other_uri = 'https://a'").contains("wss://"));
    let listen = "[[listen]]\nkind = 'https'\naddress = '127.0.0.1:1'\n";
    assert!(errors(&format!("{listen}tls = 'off'")).contains("an https listener always uses TLS"));
    assert!(errors(&format!("{listen}proxy_protocol = true")).contains("trusted_proxies is empty"));
}

#[test]
fn a_socks5_proxy_has_neither_tls_nor_a_proxy_header() {
    let listen = "[[listen]]\nkind = 'socks5-proxy'\naddress = '127.0.0.1:7777'\n";
    let config = NodeConfig::from_text(listen).unwrap();
    assert_eq!((config.listen[0].kind.name(), config.listen[0].tls), ("socks5-proxy", TlsPolicy::Off));
    assert!(NodeConfig::from_text(&format!("{listen}tls = 'off'")).is_ok());
    assert!(errors(&format!("{listen}tls = 'required'")).contains("a socks5-proxy listener has no TLS"));
    assert!(errors(&format!("{listen}proxy_protocol = true")).contains("reads no PROXY header"));
    let incomplete = "[[listen]]\nkind = 'socks5-proxy'\n";
    assert!(errors(incomplete).contains("requires an address, such as \"0.0.0.0:7777\""));
}

#[test]
fn addresses_of_services_are_checked_for_all_domains() {
    let build = |text: &str| {
        let config = NodeConfig::from_text(text).unwrap();
        let built = crate::assemble::build_hosts(
            &config,
            &feature_api::feature_state::FeatureState::default(),
            &Default::default(),
        );
        built.map(|_| ()).map_err(|error| error.to_string())
    };
    let hosts = "hosts = ['a.org', 'b.org']\n";
    assert_eq!(build(&format!("{hosts}[modules]\nproxy65 = true\n")), Ok(()));
    for (address, want) in [
        ("b.org", "b.org is a domain of accounts"),
        ("proxy.c.org", "modules.proxy65 of a.org has it"),
        ("a b", "is not a valid address of a service"),
    ] {
        let error = build(&format!("{hosts}[modules.proxy65]\naddress = '{address}'\n")).unwrap_err();
        assert!(error.contains(want), "{error}");
    }
}

#[test]
fn modules_refuse_values_of_options_with_the_reason() {
    let build_with = |module: &str, option: &str| {
        let config = NodeConfig::from_text(&format!("[modules.{module}]\n{option}\n")).unwrap();
        let state = feature_api::feature_state::FeatureState::default();
        crate::assemble::build_hosts(&config, &state, &Default::default())
            .map(|_| ())
            .map_err(|error| error.to_string())
    };
    let build = |option: &str| build_with("proxy65", option);
    for option in [
        "streamhost = '192.0.2.1'",
        "streamhost = '2001:db8::1'",
        "streamhost = 'files.example.com'",
        "streamhost = 'bücher.example'",
        "bytes_per_second = 0",
        "bytes_per_second_per_user = 32768",
    ] {
        assert_eq!(build(option), Ok(()), "{option}");
    }
    for host in ["a b", "http://example.com", "[2001:db8::1]", "192.0.2.1:7777", "-"] {
        let want = format!("modules.proxy65: streamhost must be a name or an IP address, not \"{host}\"");
        assert_eq!(build(&format!("streamhost = '{host}'")), Err(want));
    }
    for key in ["bytes_per_second_per_user", "bytes_per_second"] {
        let want = format!("modules.proxy65: {key} must be 0 or at least 32768");
        assert_eq!(build(&format!("{key} = 32767")), Err(want));
    }
    for access in ["users", "admins", "all"] {
        assert_eq!(build_with("user_search", &format!("access = '{access}'")), Ok(()));
    }
    let want = "modules.user_search: access must be users, admins or all, not \"admin\"".to_owned();
    assert_eq!(build_with("user_search", "access = 'admin'"), Err(want));
}

#[test]
fn an_activation_timeout_is_at_least_five_seconds() {
    for (seconds, valid) in [(0, false), (4, false), (5, true), (3600, true)] {
        let text = format!("[modules.proxy65]\nactivation_timeout_seconds = {seconds}\n");
        assert_eq!(NodeConfig::from_text(&text).is_ok(), valid, "{seconds}");
    }
}

#[test]
fn accounts_can_have_a_database_of_their_own() {
    let config = read("[auth]\nurl = 'mysql://a@db.example/auth'\npassword_file = 'key'\n").unwrap();
    let auth = config.auth_database.as_ref().unwrap();
    assert_eq!(&*auth.url, "mysql://a@db.example/auth");
    assert_eq!(auth.password_file.as_deref(), Some(std::path::Path::new("key")));
    let config = read("[auth]\nurl = 'mysql://a:secret@db.example/auth'\n").unwrap();
    assert!(!format!("{config:?}").contains("secret"));
    assert_eq!(read("").unwrap().auth_database, None);
    assert!(errors("[auth]\npassword_file = 'key'").contains("set that, too"));
    for same in [
        "[storage]\nurl = 'sqlite:a.db'\n[auth]\nurl = 'sqlite:a.db'\n",
        "[storage]\nurl = 'sqlite:a.db'\n[auth]\nurl = 'sqlite:./a.db'\n",
        "[storage]\nurl = 'postgres://a@h/x'\n[auth]\nurl = 'postgresql://b@h:5432/x'\n",
    ] {
        assert!(errors(same).contains("is the database of [storage]"), "{same}");
    }
}

#[test]
fn settings_of_databases_that_contradict_each_other_are_refused_with_their_fix() {
    for (text, expected) in [
        (
            "[storage]\npool_size = 4\nmin_connections = 5\n",
            "[storage] min_connections is 5, which is more than pool_size, 4; make it at most 4 or raise pool_size",
        ),
        (
            "[storage]\nurl = 'postgres://a:secret@h/x'\npassword_file = 'key'\n",
            "[storage] password_file is set, but url has a password, too; remove one of them",
        ),
        (
            "[storage]\npassword_file = 'key'\n",
            "[storage] password_file is set, but a database in a file has no password; remove it",
        ),
        (
            "[auth]\nurl = 'mysql://a:secret@h/x'\npassword_file = 'key'\n",
            "[auth] password_file is set, but url has a password, too; remove one of them",
        ),
    ] {
        assert_eq!(errors(text), expected);
    }
    // A minimum that is not configured is at most the maximum.
    assert_eq!(read("[storage]\npool_size = 1\n").unwrap().storage_min_connections, 1);
}

#[test]
fn accounts_may_be_kept_elsewhere_for_all_domains_or_one() {
    let text = "hosts = ['a.org', 'b.org', 'c.org']\n\
        [auth]\nprovider = 'http'\n[auth.http]\nurl = 'https://auth.a.org/xmpp'\noperations = ['check_password', 'find']\n\
        [host.'b.org'.auth.jwt]\njwks_url = 'https://id.b.org/keys'\nas_password = true\n\
        [host.'c.org'.auth]\nprovider = 'store'\n";
    let config = NodeConfig::from_text(text).unwrap();
    let ProviderConfig::Http(http) = config.provider_of("a.org") else { panic!() };
    assert_eq!(http.url.to_string(), "https://auth.a.org/xmpp");
    assert!(http.operations.check_password && http.operations.find && !http.operations.create);
    assert!(matches!(config.provider_of("b.org"), ProviderConfig::Jwt(jwt) if jwt.settings.as_password));
    assert_eq!(*config.provider_of("c.org"), ProviderConfig::Store);
    assert_eq!(*NodeConfig::from_text("").unwrap().provider_of("localhost"), ProviderConfig::Store);
    let ldap = "[auth.ldap]\nurl = 'ldap://ldap.a.org'\nstart_tls = true\nbase_dn = 'ou=people,dc=a,dc=org'\nfilter = '(uid={user})'\n";
    let config = NodeConfig::from_text(ldap).unwrap();
    assert!(matches!(config.provider_of("localhost"), ProviderConfig::Ldap(ldap) if ldap.bind.is_none()));
    let sql = "[auth.sql]\nurl = 'postgres://throng@localhost/shop?host=/run/postgresql'\n\
               find = 'SELECT hash FROM users WHERE name = :user'\nscram = 'SCRAM-SHA-256'\n";
    let config = NodeConfig::from_text(sql).unwrap();
    let ProviderConfig::Sql(sql) = config.provider_of("localhost") else { panic!() };
    assert!(sql.scram == Some(sasl::ScramHash::Sha256) && sql.create.is_none());
}

#[test]
fn mistakes_in_account_providers_are_reported_with_their_fix() {
    for (text, part) in [
        ("[auth]\nprovider = 'radius'\n", "store, http, jwt, ldap or sql"),
        ("[auth]\nprovider = 'http'\n", "[auth.http] url is missing"),
        ("[auth]\nprovider = 'store'\n[auth.http]\nurl = 'https://a.org'\n", "no effect"),
        (
            "[auth.http]\nurl = 'https://a.org'\n[auth.jwt]\nkey_file = 'a'\n",
            "[auth] jwt has no effect, because the provider is \"http\"",
        ),
        ("[auth.http]\nurl = 'http://auth.a.org'\n", "must begin with https://"),
        ("[auth.http]\nurl = 'https://a.org'\noperations = ['list']\n", "check_password, check_token"),
        ("[auth.http]\nurl = 'https://a.org'\ncache_second = 1\n", "cache_seconds"),
        ("[auth.http]\nurl = 'https://u:p@a.org'\n", "token_file"),
        ("[auth.jwt]\nissuer = 'x'\n", "exactly one of"),
        ("[auth.jwt]\nkey_file = 'a'\nsecret_file = 'b'\n", "exactly one of"),
        ("[auth.ldap]\nurl = 'ldap://a.org'\nbase_dn = 'dc=a'\nfilter = '(uid={user})'\n", "start_tls"),
        ("[auth.ldap]\nurl = 'ldaps://a.org'\nbase_dn = 'dc=a'\nfilter = '(uid=romeo)'\n", "{user}"),
        ("[auth.sql]\nurl = 'sqlite:a'\n", "[auth.sql] find is missing"),
        ("[auth.sql]\nurl = 'sqlite:a'\nfind = 'SELECT a FROM b'\n", "no :user"),
        ("[auth.sql]\nurl = 'oracle:a'\nfind = 'SELECT a FROM b WHERE c = :user'\n", "\"oracle\" are not"),
        (
            "[auth.sql]\nurl = 'sqlite:a'\nfind = 'SELECT a FROM b WHERE c = :user'\n\
             set_password = 'UPDATE b SET a = :password WHERE c = :user'\n",
            "new_passwords is missing",
        ),
        (
            "[auth.sql]\nurl = 'sqlite:a'\nfind = 'SELECT a FROM b WHERE c = :user'\nca_file = 'x'\n",
            "sslrootcert",
        ),
        (
            "[auth.ldap]\nurl = 'ldaps://a.org'\nbase_dn = 'dc=a'\nfilter = '(uid={user})'\nbind_dn = 'x'\n",
            "need each other",
        ),
    ] {
        let error = NodeConfig::from_text(text).unwrap_err().to_string();
        assert!(error.contains(part), "{text}\n{error}");
    }
}
