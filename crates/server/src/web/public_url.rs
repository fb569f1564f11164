//! The public URL of the HTTP listeners if `[http] public_url` is not set.

use std::net::{IpAddr, SocketAddr};

use net::ListenerKind;

use crate::config::NodeConfig;

/// The base URL of a listener that clients of a domain can use: one with TLS. Clients of the same machine, which are those of
/// the domain `localhost`, can use one on loopback. `listeners` are those without a PROXY header.
pub(crate) fn of_listeners(listeners: &[(ListenerKind, SocketAddr)], domain: &str) -> Option<String> {
    let is_local = is_local(domain);
    let with_tls = listeners
        .iter()
        .find(|(kind, address)| *kind == ListenerKind::Https && (is_local || !address.ip().is_loopback()));
    if let Some((_, address)) = with_tls {
        return Some(format!("https://{}:{}", jid::domain_to_ascii(domain), address.port()));
    }
    let plain =
        listeners.iter().find(|(kind, address)| *kind == ListenerKind::Http && address.ip().is_loopback());
    plain.filter(|_| is_local).map(|(_, address)| format!("http://{address}"))
}

/// Whether all clients of a domain are on this machine.
fn is_local(domain: &str) -> bool {
    let literal = domain.trim_start_matches('[').trim_end_matches(']');
    domain == "localhost" || literal.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Whether clients of a domain can use HTTP routes of features.
pub(crate) fn exists(config: &NodeConfig, domain: &str) -> bool {
    let direct = config.listen.iter().filter(|listen| !listen.proxy_protocol);
    let listeners: Vec<_> = direct.map(|listen| (listen.kind, listen.address)).collect();
    config.http.public_url.is_some() || of_listeners(&listeners, domain).is_some()
}

/// The missing public URL of a specification that needs HTTP routes, as a sentence without an end.
pub(crate) fn missing(config: &NodeConfig, spec: &str) -> Option<String> {
    let with_routes = features::registry::ALL.iter().filter(|feature| !feature.http_routes.is_empty());
    let needed = with_routes.flat_map(|feature| feature.specs).any(|declared| declared.name == spec);
    (needed && !exists(config, config.domain())).then(|| "no public URL of an HTTP listener".to_owned())
}

/// Modules with HTTP routes that clients cannot use, as sentences.
pub(crate) fn warnings(config: &NodeConfig) -> Vec<String> {
    let mut warnings = Vec::new();
    for domain in config.hosts.iter().filter(|domain| !exists(config, domain)) {
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
        assert_eq!(url(&[remote, local]), None, "it is not the machine of the client");
        assert_eq!(url(&[remote]), None, "files would be sent without TLS");
        let tls_of_proxy = at(ListenerKind::Https, "127.0.0.1:5281");
        assert_eq!(url(&[tls_of_proxy]), None, "clients connect to the reverse proxy");
        for domain in ["localhost", "127.0.0.1", "[::1]"] {
            assert_eq!(
                of_listeners(&[remote, local], domain).as_deref(),
                Some("http://[::1]:5280"),
                "{domain}"
            );
        }
        assert_eq!(
            of_listeners(&[local, tls_of_proxy], "localhost").as_deref(),
            Some("https://localhost:5281")
        );
        assert_eq!(
            of_listeners(&[tls], "m\u{fc}nchen.example").as_deref(),
            Some("https://xn--mnchen-3ya.example:5281")
        );
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
        let domains = "hosts = ['localhost', 'example.org']\n";
        assert_eq!(
            warned(&format!("{domains}[modules]\nupload = true\n")),
            "clients cannot reach the module upload of example.org over HTTP; set [http] public_url, or add a \
             [[listen]] of kind https"
        );
        let url = "[http]\npublic_url = 'https://example.org'\n";
        assert_eq!(warned(&format!("{remote}{url}[modules]\nupload = true\n")), "");
    }
}
