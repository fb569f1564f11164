//! The public URL of the HTTP listeners, if the configuration has none.

use std::net::SocketAddr;

use net::ListenerKind;

use crate::config::NodeConfig;

/// The base URL of a listener that clients of a domain can use: one with TLS, or one of the same machine.
pub(crate) fn of_listeners(listeners: &[(ListenerKind, SocketAddr)], domain: &str) -> Option<String> {
    let with_tls = listeners.iter().find(|(kind, _)| *kind == ListenerKind::Https);
    if let Some((_, address)) = with_tls {
        return Some(format!("https://{domain}:{}", address.port()));
    }
    let is_local = |(kind, address): &&(ListenerKind, SocketAddr)| {
        *kind == ListenerKind::Http && address.ip().is_loopback()
    };
    listeners.iter().find(is_local).map(|(_, address)| format!("http://{address}"))
}

/// Whether clients can use HTTP routes of features.
pub(crate) fn exists(config: &NodeConfig) -> bool {
    let listeners: Vec<_> = config.listen.iter().map(|one| (one.kind, one.address)).collect();
    config.http.public_url.is_some() || of_listeners(&listeners, config.domain()).is_some()
}

/// Modules with HTTP routes that clients cannot use, as sentences.
pub(crate) fn warnings(config: &NodeConfig) -> Vec<String> {
    if exists(config) {
        return Vec::new();
    }
    let mut warnings = Vec::new();
    for domain in &config.hosts {
        let enabled = features::registry::enable(&config.modules_of(domain)).unwrap_or_default();
        for one in enabled.iter().filter(|one| !one.feature.http_routes.is_empty()) {
            warnings.push(format!(
                "clients cannot reach the module {} of {domain} over HTTP; set [http] public_url, or add a [[listen]] of \
                 kind https",
                one.feature.name
            ));
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_is_that_of_a_listener_with_tls_or_of_a_local_one() {
        let at = |kind, address: &str| (kind, address.parse().unwrap());
        let (tls, local) = (at(ListenerKind::Https, "0.0.0.0:5281"), at(ListenerKind::Http, "[::1]:5280"));
        let remote = at(ListenerKind::Http, "192.0.2.1:5280");
        let url = |listeners: &[(ListenerKind, SocketAddr)]| of_listeners(listeners, "example.org");
        assert_eq!(url(&[remote, local, tls]).as_deref(), Some("https://example.org:5281"));
        assert_eq!(url(&[remote, local]).as_deref(), Some("http://[::1]:5280"));
        assert_eq!(url(&[remote]), None, "files would be sent without TLS");
    }

    #[test]
    fn a_module_with_a_route_that_nobody_can_reach_is_reported() {
        let warned = |text: &str| warnings(&NodeConfig::from_text(text).unwrap()).concat();
        let remote = "[[listen]]\nkind = 'http'\naddress = '0.0.0.0:5280'\n";
        assert_eq!(warned("[modules]\nupload = true\n"), "", "the local listener of the defaults");
        assert_eq!(warned(remote), "", "no such module");
        assert_eq!(
            warned(&format!("{remote}[modules]\nupload = true\n")),
            "clients cannot reach the module upload of localhost over HTTP; set [http] public_url, or add a \
             [[listen]] of kind https"
        );
        let url = "[http]\npublic_url = 'https://example.org'\n";
        assert_eq!(warned(&format!("{remote}{url}[modules]\nupload = true\n")), "");
    }
}
