//! Lists of networks, such as those of trusted proxies: addresses and prefixes of IPv4 and IPv6 (CIDR; RFC 4632; RFC
//! 4291, section 2.3).
//!
//! Not implemented: host names.
//!
//! # Pitfalls
//!
//! An IPv4 client of an IPv6 socket is `::ffff:192.0.2.1`; both forms are the same address here.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv6Net};

/// Networks, each an address with a prefix length. Those of IPv4 are kept as IPv4-mapped ones of IPv6.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Networks(Vec<Ipv6Net>);

impl Networks {
    /// The empty list.
    pub const NONE: Networks = Networks(Vec::new());

    /// True if a network contains this address.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = ipv6(address);
        self.0.iter().any(|network| network.contains(&address))
    }

    /// True if a network contains a loopback address: one of 127.0.0.0/8 or `::1`.
    pub fn contains_loopback(&self) -> bool {
        let local = [
            Ipv6Net::new_assert(Ipv4Addr::LOCALHOST.to_ipv6_mapped(), IPV4_BITS + LOOPBACK_BITS).trunc(),
            Ipv6Net::from(Ipv6Addr::LOCALHOST),
        ];
        // Of two networks that share an address, one contains the other.
        self.0
            .iter()
            .any(|network| local.iter().any(|local| network.contains(local) || local.contains(network)))
    }

    /// True if the list is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a network: `192.0.2.7`, `10.0.0.0/8`, `2001:db8::/32`. Bits after the prefix are ignored.
    ///
    /// # Errors
    /// One sentence that quotes the text.
    pub fn add(&mut self, text: &str) -> Result<(), String> {
        let network = parse(text)
            .ok_or_else(|| format!("\"{text}\" is not an address or a network such as 10.0.0.0/8"))?;
        self.0.push(network.trunc());
        Ok(())
    }
}

fn parse(text: &str) -> Option<Ipv6Net> {
    let Some((address, _)) = text.split_once('/') else {
        return Some(Ipv6Net::from(ipv6(text.parse().ok()?)));
    };
    // `IpNet` ignores leading zeros, which others read as octal: 010.0.0.0 may be 8.0.0.0.
    address.parse::<IpAddr>().ok()?;
    match text.parse().ok()? {
        IpNet::V4(network) => {
            Ipv6Net::new(network.addr().to_ipv6_mapped(), IPV4_BITS + network.prefix_len()).ok()
        }
        IpNet::V6(network) => Some(network),
    }
}

/// Length of the prefix of IPv4-mapped addresses (RFC 4291, section 2.5.5.2).
const IPV4_BITS: u8 = 96;
/// Length of the prefix of IPv4's loopback network (RFC 6890, section 2.2.2).
const LOOPBACK_BITS: u8 = 8;

fn ipv6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_cover_exactly_their_network() {
        let mut networks = Networks::NONE;
        for text in ["10.0.0.0/8", "192.0.2.7", "2001:db8:1::/48", "::1"] {
            networks.add(text).unwrap();
        }
        let has = |text: &str| networks.contains(text.parse().unwrap());
        assert!(has("10.255.1.2") && has("::ffff:10.1.2.3") && has("192.0.2.7") && has("2001:db8:1:ffff::9"));
        assert!(has("::1"));
        assert!(!has("11.0.0.1") && !has("192.0.2.8") && !has("2001:db8:2::") && !has("::2"));
        assert!(!Networks::NONE.contains("127.0.0.1".parse().unwrap()));
    }

    #[test]
    fn a_prefix_of_zero_covers_all_addresses() {
        let mut networks = Networks::NONE;
        networks.add("0.0.0.0/0").unwrap();
        assert!(networks.contains("192.0.2.1".parse().unwrap()));
        assert!(!networks.contains("2001:db8::1".parse().unwrap()), "that is all of IPv4");
        networks.add("::/0").unwrap();
        assert!(networks.contains("2001:db8::1".parse().unwrap()));
    }

    #[test]
    fn every_loopback_address_is_found() {
        let local = |text: &str| {
            let mut networks = Networks::NONE;
            networks.add("192.0.2.7").and(networks.add(text)).unwrap();
            networks.contains_loopback()
        };
        for text in ["127.0.0.1", "127.0.0.2", "127.8.0.0/16", "127.0.0.0/8", "126.0.0.0/7", "0.0.0.0/0"] {
            assert!(local(text), "{text}");
        }
        assert!(local("::1") && local("::/8") && local("::ffff:127.0.0.2"));
        assert!(!local("10.0.0.0/8") && !local("128.0.0.0/1") && !local("::2") && !local("2000::/3"));
        assert!(!Networks::NONE.contains_loopback());
    }

    #[test]
    fn equal_networks_have_one_form() {
        let list = |text: &str| {
            let mut networks = Networks::NONE;
            networks.add(text).map(|()| networks)
        };
        assert_eq!(list("10.1.2.3/8"), list("10.0.0.0/8"));
        assert_eq!(list("::ffff:10.0.0.0/104"), list("10.0.0.0/8"));
        assert_eq!(list("192.0.2.7"), list("192.0.2.7/32"));
    }

    #[test]
    fn invalid_networks_are_reported() {
        for text in [
            "",
            "localhost",
            "10.0.0.0/33",
            "::/129",
            "10.0.0.0/",
            "10.0.0.0/-1",
            "10.0.0/8",
            "10.0.0.0/8/8",
            "010.0.0.0/8",
            "010.0.0.1",
            "10.0.0.0/+8",
            "10.0.0.0/ 8",
        ] {
            let error = Networks::default().add(text).unwrap_err();
            assert!(error.contains(&format!("\"{text}\"")), "{error}");
        }
    }
}
