//! Databases of `[storage]` and `[auth]`: settings that contradict each other, and URLs that are valid but unsafe.

use std::path::{Path, PathBuf};

use store_sql::Encryption;

use super::reader::ConfigSection;
use super::{AuthDatabaseConfig, NodeConfig, StorageUrl};

/// The database of `[auth]`.
pub(super) fn auth_database(section: &mut ConfigSection, storage_url: &str) -> Option<AuthDatabaseConfig> {
    let password_file = section.text("password_file").map(PathBuf::from);
    let url = section.text("url");
    if password_file.is_some() && url.is_none() {
        section
            .fault("password_file", "[auth] password_file is for the database of [auth] url; set that, too");
    }
    let url = url?;
    // A URL that is wrong is reported when the database is opened.
    if url == storage_url || store_sql::is_same_database(&url, storage_url).unwrap_or(false) {
        let fault =
            "[auth] url is the database of [storage], which has the accounts without this key; remove it";
        section.fault("url", fault);
    }
    check_password(section, &url, password_file.as_deref());
    Some(AuthDatabaseConfig { url: StorageUrl(url), password_file })
}

/// The minimum of connections, which must not be above the maximum.
pub(super) fn min_connections(section: &mut ConfigSection, max: u32) -> u32 {
    let Some(min) = section.int("min_connections", 0, 1000) else { return max.min(2) };
    if min > i64::from(max) {
        let fault = format!(
            "{} is {min}, which is more than pool_size, {max}; make it at most {max} or raise pool_size",
            section.key_in_section("min_connections")
        );
        section.fault("min_connections", fault);
    }
    min as u32
}

/// There is one password, and a file needs none.
pub(super) fn check_password(section: &ConfigSection, url: &str, password_file: Option<&Path>) {
    if password_file.is_none() {
        return;
    }
    let key = section.key_in_section("password_file");
    if store_sql::database_path(url).is_ok_and(|path| path.is_some()) {
        section.fault(
            "password_file",
            format!("{key} is set, but a database in a file has no password; remove it"),
        );
    } else if store_sql::has_password(url) {
        section
            .fault("password_file", format!("{key} is set, but url has a password, too; remove one of them"));
    }
}

/// Settings that have no effect, and connections that others on the network can read or intercept.
pub(crate) fn warnings(config: &NodeConfig) -> Vec<String> {
    let mut warnings = Vec::new();
    let auth_url = config.auth_database.as_ref().map(|auth| &auth.url);
    let urls = [("[storage] url", Some(&config.storage_url)), ("[auth] url", auth_url)];
    for (key, url) in urls.into_iter().filter_map(|(key, url)| Some((key, url?))) {
        // A URL that is wrong is reported when the database is opened.
        let (Ok((encryption, parameters)), Ok(shown)) =
            (store_sql::encryption(url), store_sql::database_name(url))
        else {
            continue;
        };
        let problem = match encryption {
            Encryption::Local | Encryption::Verified => continue,
            Encryption::Optional => "may be unencrypted",
            Encryption::Unverified => "are encrypted, but the certificate of the server is not verified",
        };
        warnings.push(format!(
            "connections to {shown} {problem}, and keys of accounts pass there; add {parameters} to {key}"
        ));
    }
    warnings
}
