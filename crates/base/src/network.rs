//! Client networks, the unit of limits per address: an IPv4 address, or the /64 of an IPv6 address.
//!
//! RFC 6177, section 2, and RFC 4291, section 2.5.4: a site has at least a /64 and chooses the other 64 bits freely.
//!
//! # Pitfalls
//!
//! An IPv4 address mapped into IPv6 (`::ffff:192.0.2.1`, as reported by a dual-stack socket) is the IPv4 address.

use std::net::IpAddr;

/// The IPv4 address, or the IPv6 address with all but its first 64 bits zero.
pub fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V4(ip) => IpAddr::V4(ip),
        IpAddr::V6(ip) => IpAddr::V6((ip.to_bits() & !u128::from(u64::MAX)).into()),
    }
}

/// [`network`] as a number, for tables. IPv4 maps below the multicast prefix ffff::/16, from which nobody connects.
pub fn network_number(peer: IpAddr) -> u64 {
    match network(peer) {
        IpAddr::V4(ip) => 0xffff_0000_0000_0000 | u64::from(ip.to_bits()),
        IpAddr::V6(ip) => (ip.to_bits() >> 64) as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc_4291_an_ipv6_address_counts_by_its_first_64_bits_and_ipv4_by_all() {
        for (one, other, same) in [
            ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", true),
            ("2001:db8:1:2::1", "2001:db8:1:3::1", false),
            ("192.0.2.1", "::ffff:192.0.2.1", true),
            ("192.0.2.1", "192.0.2.2", false),
            ("0.0.0.1", "::1", false),
            ("192.0.2.1", "::192.0.2.1", false),
        ] {
            let [one, other]: [IpAddr; 2] = [one, other].map(|text| text.parse().unwrap());
            assert_eq!(network(one) == network(other), same, "{one} {other}");
            assert_eq!(network_number(one) == network_number(other), same, "{one} {other}");
        }
        assert_eq!(network("2001:db8:1:2::1".parse().unwrap()).to_string(), "2001:db8:1:2::");
    }
}
