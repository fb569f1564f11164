//! Settings that are valid each and do not work together, as sentences for the log, `throng check` and reloads.

use account_providers::jwt::KeySourceSettings;
use feature_api::EnabledFeature;
use throng_core::limits::ADDED_BYTES;

use crate::config::{NodeConfig, ProviderConfig, cluster, storage};
use crate::service_listeners;
use crate::web::public_url;

/// All warnings about a configuration.
pub(crate) fn warnings(config: &NodeConfig) -> Vec<String> {
    let mut warnings = service_listeners::warnings(config);
    warnings.extend(public_url::warnings(config));
    warnings.extend(storage::warnings(config));
    warnings.extend(cluster::warnings(config));
    warnings.extend(issuer_warning(config));
    for domain in &config.hosts {
        let enabled = features::registry::enable(&config.modules_of(domain)).unwrap_or_default();
        warnings.extend(offline_warning(config, domain, &enabled));
    }
    warnings
}

/// An identity provider may sign tokens of many issuers, such as one for each of its customers, with the same keys (RFC 8725,
/// section 3.8).
fn issuer_warning(config: &NodeConfig) -> Option<String> {
    let has_any_issuer = |domain: &&String| match config.provider_of(domain) {
        ProviderConfig::Jwt(jwt) => {
            matches!(jwt.keys, KeySourceSettings::Url(_)) && jwt.settings.claims.issuer.is_none()
        }
        _ => false,
    };
    let domains: Vec<&str> = config.hosts.iter().filter(has_any_issuer).map(String::as_str).collect();
    (!domains.is_empty()).then(|| {
        format!(
            "tokens for {} are accepted from every issuer whose keys are at jwks_url; set issuer beside it",
            domains.join(", ")
        )
    })
}

/// A message that a client may send and that cannot be stored is refused as soon as its recipient is offline.
fn offline_warning(config: &NodeConfig, domain: &str, enabled: &[EnabledFeature]) -> Option<String> {
    let name = features::offline::FEATURE.name;
    let options = &enabled.iter().find(|enabled| enabled.feature.name == name)?.options;
    let percent = options.int("sender_percent").max(1);
    let stored = options.int("max_bytes").saturating_mul(percent) / 100;
    let largest = i64::from(config.limits.stanza_bytes) + i64::from(ADDED_BYTES);
    let needed = largest.saturating_mul(100) / percent + 1;
    (largest > stored).then(|| {
        format!(
            "the largest messages to offline users of {domain} are refused, because limits.stanza_bytes is larger than \
             what one sender may store; set modules.{name} max_bytes to at least {needed}"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_to_a_database_on_another_machine_must_be_encrypted() {
        let warned = |text: &str| warnings(&NodeConfig::from_text(text).unwrap()).join("\n");
        assert_eq!(warned("[storage]\nurl = 'postgres://throng:secret@localhost/throng'\n"), "");
        assert_eq!(
            warned("[storage]\nurl = 'postgres://throng:secret@db.example/throng'\n"),
            "connections to the PostgreSQL database throng at db.example:5432 may be unencrypted, and keys of accounts \
             pass there; add sslmode=verify-full&sslrootcert=FILE to [storage] url"
        );
        assert_eq!(
            warned("[auth]\nurl = 'mysql://throng:secret@db.example/auth?ssl-mode=REQUIRED'\n"),
            "connections to the MySQL database auth at db.example:3306 are encrypted, but the certificate of the server \
             is not verified, and keys of accounts pass there; add ssl-mode=VERIFY_IDENTITY&ssl-ca=FILE to [auth] url"
        );
    }

    #[test]
    fn rfc_8725_section_3_8_keys_at_a_url_need_an_issuer() {
        let warned = |text: &str| warnings(&NodeConfig::from_text(text).unwrap()).concat();
        let keys = "[auth.jwt]\njwks_url = 'https://id.example.net/keys'\n";
        assert_eq!(
            warned(keys),
            "tokens for localhost are accepted from every issuer whose keys are at jwks_url; set issuer beside it"
        );
        assert_eq!(warned(&format!("{keys}issuer = 'https://id.example.net'\n")), "");
        assert_eq!(warned("[auth.jwt]\nsecret_file = 'secret'\n"), "", "nobody else has the key");
    }

    #[test]
    fn the_largest_message_must_fit_into_the_offline_store() {
        let warned = |text: &str| warnings(&NodeConfig::from_text(text).unwrap()).concat();
        assert_eq!(warned(""), "");
        let large = "[limits]\nstanza_bytes = 16777216\n";
        assert_eq!(
            warned(large),
            "the largest messages to offline users of localhost are refused, because limits.stanza_bytes is larger than \
             what one sender may store; set modules.offline max_bytes to at least 33685505"
        );
        assert_eq!(warned(&format!("{large}[modules.offline]\nmax_bytes = 33685505\n")), "");
        assert_eq!(warned(&format!("{large}[modules]\noffline = false\n")), "", "nothing is stored");
    }
}
