//! The configuration file: TOML, with embedded defaults and overrides from the environment.
//!
//! Unknown keys are errors that name the nearest known one. `THRONG__SECTION__KEY=value` overrides a key; the
//! value is read as TOML, and as text where it is none. Relative paths start at the working directory.

mod reader;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use features::registry::ModuleConfig;
use net::Kind;
use sasl::MechanismSet;
use streams::{Policy, TlsPolicy};
use throng_core::Limits;
use throng_core::feature::Value;

use reader::Section;

/// One listener.
#[derive(Clone, Debug)]
pub(crate) struct Listen {
    pub(crate) kind: Kind,
    pub(crate) address: SocketAddr,
    pub(crate) policy: Policy,
}

/// Certificate and key.
#[derive(Clone, Debug)]
pub(crate) struct Tls {
    pub(crate) certificates: Vec<net::tls::Files>,
    pub(crate) client_authorities: Option<PathBuf>,
}

/// How the log looks.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    pub(crate) level: String,
    pub(crate) json: bool,
}

/// Everything that can be configured.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) domains: Vec<String>,
    pub(crate) admins: Vec<String>,
    pub(crate) data_dir: PathBuf,
    pub(crate) storage_url: String,
    pub(crate) pool_size: u32,
    pub(crate) listen: Vec<Listen>,
    pub(crate) tls: Tls,
    pub(crate) iterations: u32,
    pub(crate) limits: Limits,
    pub(crate) modules: BTreeMap<String, ModuleConfig>,
    pub(crate) log: Log,
    /// There was no file: the first start makes an administrator.
    pub(crate) embedded: bool,
}

impl Config {
    /// Reads the file, or the embedded defaults, and the environment.
    pub(crate) fn load(path: Option<&Path>) -> Result<Config> {
        let mut table = match path {
            None => toml::Table::new(),
            Some(path) => {
                let text = std::fs::read_to_string(path)
                    .with_context(|| format!("the configuration {} cannot be read", path.display()))?;
                text.parse::<toml::Table>()
                    .with_context(|| format!("{} is not valid TOML", path.display()))?
            }
        };
        reader::overlay(&mut table, std::env::vars())?;
        let mut config = Config::from_table(table).with_context(|| match path {
            Some(path) => format!("in {}", path.display()),
            None => "in the environment".to_owned(),
        })?;
        config.embedded = path.is_none();
        Ok(config)
    }

    fn from_table(table: toml::Table) -> Result<Config> {
        let mut root = Section::new("", table);
        let mut domains = root.texts("domains")?.unwrap_or_else(|| vec!["localhost".to_owned()]);
        for domain in &mut domains {
            let parsed = jid::Jid::parse(domain).ok().filter(|j| j.as_ref().is_domain());
            let Some(parsed) = parsed else { bail!("\"{domain}\" in domains is not a domain") };
            *domain = parsed.to_string();
        }
        if domains.is_empty() {
            bail!("domains is empty; name at least one domain");
        }
        let admins = root.texts("admins")?.unwrap_or_else(|| vec![format!("admin@{}", domains[0])]);
        for admin in &admins {
            jid::Jid::parse(admin)
                .ok()
                .filter(|j| j.as_ref().is_bare() && j.local().is_some())
                .with_context(|| {
                    format!("\"{admin}\" in admins is not an address such as admin@{}", domains[0])
                })?;
        }
        let data_dir = PathBuf::from(root.text("data_dir")?.unwrap_or_else(|| "data".to_owned()));

        let mut storage = root.section("storage")?;
        let storage_url = storage
            .text("url")?
            .unwrap_or_else(|| format!("sqlite:{}", data_dir.join("throng.db").display()));
        let pool_size = storage.int("pool_size", 1, 1000)?.unwrap_or(12) as u32;
        storage.finish()?;

        let mut auth = root.section("auth")?;
        if auth.text("url")?.is_some() {
            bail!("[auth] url is not supported by this version; accounts live in [storage]. Remove the key");
        }
        let iterations =
            auth.int("iterations", 4096, 1_000_000)?.unwrap_or(i64::from(sasl::DEFAULT_ITERATIONS)) as u32;
        let anonymous = auth.bool("anonymous")?.unwrap_or(false);
        let mechanisms = match auth.texts("mechanisms")? {
            None => all_mechanisms(),
            Some(names) => {
                let mut set = MechanismSet::EMPTY;
                for name in names {
                    let known = sasl::Mechanism::from_name(&name);
                    set = set.with(
                        known.with_context(|| format!("\"{name}\" in [auth] mechanisms is not known"))?,
                    );
                }
                set
            }
        };
        auth.finish()?;

        if root.has("cluster") {
            bail!(
                "[cluster] is not supported by this version, which runs as a single node. Remove the section"
            );
        }
        let limits = limits(root.section("limits")?)?;
        let tls = tls(root.section("tls")?)?;
        let listen = listeners(&mut root, mechanisms, anonymous)?;
        let modules = modules(&mut root)?;
        let mut log = root.section("log")?;
        let level = log.text("level")?.unwrap_or_else(|| "info".to_owned());
        let json = match log.text("format")?.as_deref() {
            None | Some("text") => false,
            Some("json") => true,
            Some(other) => bail!("[log] format is \"text\" or \"json\", not \"{other}\""),
        };
        log.finish()?;
        root.finish()?;
        Ok(Config {
            domains,
            admins,
            data_dir,
            storage_url,
            pool_size,
            listen,
            tls,
            iterations,
            limits,
            modules,
            log: Log { level, json },
            embedded: false,
        })
    }

    /// The default domain.
    pub(crate) fn domain(&self) -> &str {
        self.domains.first().map_or("localhost", String::as_str)
    }
    /// The admin socket of a node with this configuration.
    pub(crate) fn socket(&self) -> PathBuf {
        self.data_dir.join("throng.sock")
    }
}

fn all_mechanisms() -> MechanismSet {
    sasl::Mechanism::ALL.into_iter().fold(MechanismSet::EMPTY, MechanismSet::with)
}

fn policy(tls: TlsPolicy, plain_without_tls: bool, mechanisms: MechanismSet, anonymous: bool) -> Policy {
    Policy { tls, plain_without_tls, anonymous, mechanisms }
}

fn listeners(root: &mut Section, mechanisms: MechanismSet, anonymous: bool) -> Result<Vec<Listen>> {
    let Some(list) = root.sections("listen")? else {
        let at = |kind, address: SocketAddr| Listen {
            kind,
            address,
            policy: policy(TlsPolicy::Required, false, mechanisms, anonymous),
        };
        return Ok(vec![
            at(Kind::C2s, SocketAddr::from(([0, 0, 0, 0], 5222))),
            at(Kind::C2sTls, SocketAddr::from(([0, 0, 0, 0], 5223))),
            at(Kind::Http, SocketAddr::from(([127, 0, 0, 1], 5280))),
        ]);
    };
    let mut listeners = Vec::new();
    for mut section in list {
        let kind = match section.text("kind")?.as_deref() {
            Some("c2s") => Kind::C2s,
            Some("c2s-tls") => Kind::C2sTls,
            Some("http") => Kind::Http,
            Some(other @ ("s2s" | "component" | "https")) => {
                bail!("listeners of the kind \"{other}\" are not supported by this version; remove it")
            }
            Some(other) => bail!("[[listen]] kind is c2s, c2s-tls or http, not \"{other}\""),
            None => bail!("[[listen]] needs a kind: c2s, c2s-tls or http"),
        };
        let address =
            section.text("address")?.context("[[listen]] needs an address, such as \"0.0.0.0:5222\"")?;
        let address: SocketAddr = address
            .parse()
            .ok()
            .with_context(|| format!("\"{address}\" is not an address such as \"0.0.0.0:5222\""))?;
        let tls = match section.text("tls")?.as_deref() {
            None | Some("required") => TlsPolicy::Required,
            Some("optional") => TlsPolicy::Optional,
            Some("off") => TlsPolicy::Off,
            Some(other) => bail!("[[listen]] tls is required, optional or off, not \"{other}\""),
        };
        if kind == Kind::C2sTls && tls == TlsPolicy::Off {
            bail!("a c2s-tls listener has TLS always; use kind = \"c2s\" for one without");
        }
        let plain = section.bool("plain_without_tls")?.unwrap_or(false);
        section.finish()?;
        listeners.push(Listen { kind, address, policy: policy(tls, plain, mechanisms, anonymous) });
    }
    Ok(listeners)
}

fn tls(mut section: Section) -> Result<Tls> {
    let mut certificates = Vec::new();
    let mut pair = |section: &mut Section| -> Result<()> {
        match (section.text("certificate")?, section.text("key")?) {
            (None, None) => {}
            (Some(certificate), Some(key)) => {
                certificates.push(net::tls::Files { certificate: certificate.into(), key: key.into() });
            }
            _ => bail!("[tls] needs both certificate and key, or neither"),
        }
        Ok(())
    };
    pair(&mut section)?;
    for mut more in section.sections("more")?.unwrap_or_default() {
        pair(&mut more)?;
        more.finish()?;
    }
    let client_authorities = section.text("client_authorities")?.map(PathBuf::from);
    section.finish()?;
    Ok(Tls { certificates, client_authorities })
}

fn limits(mut section: Section) -> Result<Limits> {
    let mut limits = Limits::default();
    macro_rules! take {
        ($($name:ident: $low:literal ..= $high:literal),* $(,)?) => {$(
            if let Some(value) = section.int(stringify!($name), $low, $high)? {
                limits.$name = value as _;
            }
        )*};
    }
    take! {
        // RFC 6120 section 13.12: no limit below 10 000 bytes.
        stanza_bytes: 10_000..=16_777_216,
        negotiation_bytes: 10_000..=1_048_576,
        negotiation_seconds: 1..=3_600,
        auth_attempts: 2..=10,
        idle_seconds: 5..=86_400,
        ping_seconds: 1..=3_600,
        blocked_seconds: 1..=3_600,
        queue_message_bytes: 16_384..=1_073_741_824,
        queue_presence_bytes: 16_384..=1_073_741_824,
        queue_control_bytes: 16_384..=1_073_741_824,
        sessions_per_account: 1..=1_000,
        roster_items: 10..=1_000_000,
        directed_presence: 1..=10_000,
        resource_bytes: 16..=1_023,
        connections: 1..=10_000_000,
        connections_per_address: 1..=10_000_000,
        half_open: 1..=10_000_000,
    }
    section.finish()?;
    Ok(limits)
}

fn modules(root: &mut Section) -> Result<BTreeMap<String, ModuleConfig>> {
    let mut modules = BTreeMap::new();
    for (name, value) in root.section("modules")?.into_entries() {
        let config = match value {
            toml::Value::Boolean(on) => ModuleConfig::Switch(on),
            toml::Value::Table(table) => {
                let mut options = BTreeMap::new();
                for (key, value) in table {
                    let value = match value {
                        toml::Value::Boolean(b) => Value::Bool(b),
                        toml::Value::Integer(n) => Value::Int(n),
                        toml::Value::String(s) => Value::Text(s.into()),
                        toml::Value::Array(list) => Value::Texts(
                            list.into_iter()
                                .map(|text| match text {
                                    toml::Value::String(text) => Ok(text),
                                    _ => bail!("[modules.{name}] {key} is a list of texts"),
                                })
                                .collect::<Result<_>>()?,
                        ),
                        _ => bail!("[modules.{name}] {key} is a switch, a number, text or a list of texts"),
                    };
                    options.insert(key, value);
                }
                ModuleConfig::Options(options)
            }
            _ => bail!("[modules] {name} is true, false or a table of options"),
        };
        modules.insert(name, config);
    }
    Ok(modules)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Config> {
        Config::from_table(text.parse()?)
    }
    fn wrong(text: &str) -> String {
        format!("{:#}", read(text).unwrap_err())
    }

    #[test]
    fn nothing_is_a_configuration() {
        let config = read("").unwrap();
        assert_eq!(config.domains, ["localhost"]);
        assert_eq!(config.admins, ["admin@localhost"]);
        assert_eq!(config.storage_url, "sqlite:data/throng.db");
        let ports: Vec<u16> = config.listen.iter().map(|l| l.address.port()).collect();
        assert_eq!(ports, [5222, 5223, 5280]);
        assert!(
            config.listen.iter().all(|l| l.policy.tls == TlsPolicy::Required && !l.policy.plain_without_tls)
        );
    }

    #[test]
    fn mistakes_are_named_with_their_mend() {
        assert_eq!(wrong("domain = [\"a\"]"), "unknown key \"domain\"; did you mean \"domains\"?");
        assert_eq!(
            wrong("[limits]\nstanza_byte = 3"),
            "unknown key \"stanza_byte\" in [limits]; did you mean \"stanza_bytes\"?"
        );
        assert_eq!(wrong("domains = [\"a b\"]"), "\"a b\" in domains is not a domain");
        assert!(wrong("[limits]\nstanza_bytes = 3").contains("between 10000 and 16777216"));
        assert!(wrong("domains = 3").contains("list of texts"));
        assert!(wrong("[[listen]]\nkind = \"c2s\"").contains("needs an address"));
        assert!(wrong("[[listen]]\nkind = \"irc\"\naddress = \"0.0.0.0:1\"").contains("not \"irc\""));
        assert!(wrong("[tls]\ncertificate = \"a\"").contains("both"));
        assert!(wrong("[cluster]\nnode = \"a\"").contains("single node"));
    }

    #[test]
    fn the_whole_example_is_read() {
        let config = read(
            "domains = [\"example.org\"]\nadmins = [\"admin@example.org\"]\ndata_dir = \"d\"\n\
             [storage]\nurl = \"sqlite:x.db\"\npool_size = 3\n\
             [[listen]]\nkind = \"c2s\"\naddress = \"127.0.0.1:5222\"\ntls = \"off\"\nplain_without_tls = true\n\
             [limits]\nstanza_bytes = 100000\n[log]\nformat = \"json\"\nlevel = \"debug\"\n",
        )
        .unwrap();
        assert_eq!(config.pool_size, 3);
        assert_eq!(config.limits.stanza_bytes, 100_000);
        assert_eq!(config.listen[0].policy.tls, TlsPolicy::Off);
        assert!(config.listen[0].policy.plain_without_tls && config.log.json);
    }
}
