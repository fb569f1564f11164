//! `[cluster]`: the NATS servers and the name of this node.
//!
//! Secrets are in files of their own, so that this configuration may be shown; a URL may contain some, as that of a database may.

use std::path::{Path, PathBuf};

use anyhow::Context;
use cluster::NodeId;
use cluster_nats::{ClusterKey, NatsCredentials, NatsSettings, NatsTls};

use super::StorageUrl;
use super::account_provider::read_secret;
use super::reader::ConfigSection;

/// Credentials, by the files that have them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CredentialsConfig {
    /// Those of the URLs, or none.
    Urls,
    /// A user and a file with the password.
    Password(String, PathBuf),
    /// A file with a token.
    Token(PathBuf),
    /// A file with the seed of an nkey.
    Nkey(PathBuf),
    /// A file with a JSON Web Token and the seed of an nkey.
    File(PathBuf),
}

/// The cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClusterConfig {
    pub(crate) servers: Vec<StorageUrl>,
    pub(crate) node: NodeId,
    pub(crate) credentials: CredentialsConfig,
    pub(crate) tls: NatsTls,
}

impl ClusterConfig {
    /// Settings of the connection. Reads the files with secrets.
    pub(crate) fn settings(&self, deployment: u64, key: ClusterKey) -> anyhow::Result<NatsSettings> {
        let read = |path: &Path| read_secret(path).context("[cluster]");
        let credentials = match &self.credentials {
            CredentialsConfig::Urls => NatsCredentials::None,
            CredentialsConfig::Password(user, file) => {
                NatsCredentials::UserPassword(user.clone(), read(file)?)
            }
            CredentialsConfig::Token(file) => NatsCredentials::Token(read(file)?),
            CredentialsConfig::Nkey(file) => NatsCredentials::NkeySeed(read(file)?),
            CredentialsConfig::File(file) => NatsCredentials::CredentialsFile(read(file)?),
        };
        Ok(NatsSettings {
            servers: self.servers.iter().map(|url| url.0.clone()).collect(),
            node: self.node,
            deployment,
            key,
            credentials,
            tls: self.tls.clone(),
        })
    }
}

/// Reads the section, if there is one.
pub(super) fn cluster(root: &mut ConfigSection, storage_url: &str) -> Option<ClusterConfig> {
    let is_written = root.is_written("cluster");
    let mut section = root.section("cluster");
    if !is_written {
        return None;
    }
    let servers = section.texts("nats").unwrap_or_default();
    if servers.is_empty() {
        let fault = "[cluster] nats must name at least one NATS server, such as [\"nats://127.0.0.1:4222\"]; \
                     remove the section for a single node";
        section.faults.at(&section.here(), fault);
    }
    if store_sql::database_path(storage_url).is_ok_and(|path| path.is_some()) {
        let fault = "[cluster] needs a database that all nodes share; set [storage] url to one of postgres:// or mysql://";
        section.faults.at(&section.here(), fault);
    }
    let node = node(&mut section);
    let credentials = credentials(&mut section);
    let tls = tls(&mut section);
    section.finish();
    Some(ClusterConfig {
        servers: servers.into_iter().map(StorageUrl).collect(),
        node: node?,
        credentials,
        tls,
    })
}

/// The name of the node: the configured one, or that of the machine.
fn node(section: &mut ConfigSection) -> Option<NodeId> {
    let named = match section.text("node") {
        Some(name) => NodeId::new(&name).ok_or_else(|| {
            format!(
                "[cluster] node must be a name of 1 to {} characters, of a-z, 0-9, - and _, that no other node has",
                NodeId::MAX
            )
        }),
        None => node_of_host(&std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default()),
    };
    match named {
        Ok(node) => Some(node),
        Err(fault) => {
            section.fault("node", fault);
            None
        }
    }
}

/// The first part of the name of a host. It is not shortened: several hosts would get one name.
fn node_of_host(host: &str) -> Result<NodeId, String> {
    let first = host.trim().split('.').next().unwrap_or_default().to_ascii_lowercase();
    NodeId::new(&first).ok_or_else(|| {
        format!(
            "the name of this machine, \"{first}\", cannot be that of a node (1 to {} characters of a-z, 0-9, - and _); \
             set [cluster] node to one that no other node has",
            NodeId::MAX
        )
    })
}

fn credentials(section: &mut ConfigSection) -> CredentialsConfig {
    let user = section.text("user");
    let mut file = |key| section.text(key).map(PathBuf::from);
    let password = file("password_file");
    let others = [
        file("token_file").map(CredentialsConfig::Token),
        file("nkey_file").map(CredentialsConfig::Nkey),
        file("credentials_file").map(CredentialsConfig::File),
    ];
    if user.is_some() != password.is_some() {
        section.fault("user", "[cluster] user and password_file need each other");
    }
    let with_password = user.zip(password).map(|(user, file)| CredentialsConfig::Password(user, file));
    let mut all = with_password.into_iter().chain(others.into_iter().flatten());
    let first = all.next().unwrap_or(CredentialsConfig::Urls);
    if all.next().is_some() {
        let fault =
            "[cluster] has several credentials; keep one of user, token_file, nkey_file and credentials_file";
        section.faults.at(&section.here(), fault);
    }
    first
}

fn tls(section: &mut ConfigSection) -> NatsTls {
    let required = section.bool("tls").unwrap_or(false);
    let authorities = section.text("ca_file").map(PathBuf::from);
    let certificate = section.text("certificate").map(PathBuf::from);
    let key = section.text("key").map(PathBuf::from);
    if certificate.is_some() != key.is_some() {
        section.fault("certificate", "[cluster] certificate and key need each other");
    }
    NatsTls { required, authorities, certificate: certificate.zip(key) }
}

/// Connections that others on the network can read.
pub(crate) fn warnings(config: &super::NodeConfig) -> Vec<String> {
    let Some(cluster) = &config.cluster else { return Vec::new() };
    let is_local = |url: &StorageUrl| {
        let host = url.0.rsplit('/').next().unwrap_or_default().rsplit('@').next().unwrap_or_default();
        ["127.0.0.1", "localhost", "[::1]"].iter().any(|local| host.starts_with(local))
    };
    // One such URL requires TLS of all servers.
    let is_encrypted = cluster.tls.required || cluster.servers.iter().any(|url| url.0.starts_with("tls://"));
    if is_encrypted || cluster.servers.iter().all(is_local) {
        return Vec::new();
    }
    vec![
        "connections to NATS may be unencrypted, and messages of users pass there; set [cluster] tls to true"
            .to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::NodeConfig;
    use super::*;

    fn read(cluster: &str) -> Result<NodeConfig, String> {
        let text = format!("[storage]\nurl = 'postgres://db'\n[cluster]\n{cluster}");
        NodeConfig::from_text(&text).map_err(|error| error.to_string())
    }

    #[test]
    fn a_cluster_has_servers_and_a_name() {
        let config = read("nats = ['nats://127.0.0.1:4222', 'nats://10.0.0.2']\nnode = 'node-1'").unwrap();
        let cluster = config.cluster.unwrap();
        assert_eq!(cluster.node.as_str(), "node-1");
        assert_eq!(
            cluster.settings(7, ClusterKey::new(&[1; 32])).unwrap().servers,
            ["nats://127.0.0.1:4222", "nats://10.0.0.2"]
        );
        assert!(read("nats = ['nats://a']").is_ok(), "the name of this machine");
        assert_eq!(node_of_host("Node-7.example.com\n").unwrap().as_str(), "node-7");
        assert_eq!(node_of_host(&"x".repeat(24)).unwrap().as_str(), "x".repeat(24));
        assert_eq!(NodeConfig::from_text("").unwrap().cluster, None);
    }

    #[test]
    fn the_name_of_a_machine_that_is_too_long_is_refused_because_others_may_begin_alike() {
        for host in ["", "throng-production-europe-1", "throng-production-europe-2.example.com", "a b"] {
            let fault = node_of_host(host).unwrap_err();
            assert!(fault.contains("set [cluster] node"), "{fault}");
        }
    }

    #[test]
    fn bodies_of_bosh_can_be_forwarded() {
        let bosh = |text: &str| read(&format!("nats = ['nats://a']\n[http.bosh]\n{text}"));
        assert!(bosh("body_bytes = 4000000").is_ok());
        assert!(bosh("body_bytes = 5000000").unwrap_err().contains("no more than"));
        assert!(bosh("body_bytes = 5000000\nenabled = false").is_ok());
        assert!(NodeConfig::from_text("[http.bosh]\nbody_bytes = 5000000").is_ok(), "a single node");
    }

    #[test]
    fn mistakes_say_what_to_do() {
        let fault = |cluster: &str| read(cluster).unwrap_err();
        assert!(fault("node = 'a'").contains("at least one NATS server"));
        assert!(fault("nats = ['nats://a']\nnode = 'Not A Name'").contains("1 to 24 characters"));
        assert!(fault("nats = ['nats://a']\nuser = 'u'").contains("need each other"));
        assert!(
            fault("nats = ['nats://a']\ntoken_file = 'a'\nnkey_file = 'b'").contains("several credentials")
        );
        assert!(fault("nats = ['nats://a']\ncertificate = 'a'").contains("need each other"));
        assert!(fault("nats = ['nats://a']\nreplicas = 3").contains("unknown key"));
        let sqlite = NodeConfig::from_text("[cluster]\nnats = ['nats://a']").unwrap_err().to_string();
        assert!(sqlite.contains("all nodes share"), "{sqlite}");
        let missing = read("nats = ['nats://a']\nnode = 'a'\ntoken_file = '/does/not/exist'").unwrap();
        assert!(missing.cluster.unwrap().settings(1, ClusterKey::new(&[1; 32])).is_err());
    }

    #[test]
    fn unencrypted_connections_to_other_machines_are_a_warning() {
        let warned = |cluster: &str| !warnings(&read(cluster).unwrap()).is_empty();
        assert!(!warned("nats = ['nats://127.0.0.1:4222', 'nats://u:p@localhost']"));
        assert!(warned("nats = ['nats://127.0.0.1', 'nats://10.0.0.1:4222']"));
        assert!(!warned("nats = ['nats://10.0.0.2', 'tls://10.0.0.1:4222']"));
        assert!(!warned("nats = ['nats://10.0.0.1:4222']\ntls = true"));
    }
}
