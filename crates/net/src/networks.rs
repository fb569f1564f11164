//! Lists of networks, such as those of trusted proxies: addresses and prefixes of IPv4 and IPv6 (CIDR; RFC 4632; RFC
//! 4291, section 2.3).
//!
//! Not implemented: host names.
//!
//! # Pitfalls
//!
//! An IPv4 client of an IPv6 socket is `::ffff:192.0.2.1`; both forms are the same address here.

use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

/// Networks, each an address with a prefix length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Networks(Vec<(u128, u8)>);

impl Networks {
    /// The empty list.
    pub const NONE: Networks = Networks(Vec::new());

    /// True if a network contains this address.
    pub fn contains(&self, address: IpAddr) -> bool {
        let bits = bits(address);
        self.0.iter().any(|(network, length)| bits & mask(*length) == *network)
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
        let wrong = || format!("\"{text}\" is not an address or a network such as 10.0.0.0/8");
        let (address, length) = match text.split_once('/') {
            None => (text, None),
            Some((address, length)) => (address, Some(length.parse::<u8>().map_err(|_| wrong())?)),
        };
        let address = IpAddr::from_str(address).map_err(|_| wrong())?;
        let offset = if address.is_ipv4() { 96 } else { 0 };
        let length = match length {
            None => 128,
            Some(length) if length <= 128 - offset => length + offset,
            Some(_) => return Err(wrong()),
        };
        self.0.push((bits(address) & mask(length), length));
        Ok(())
    }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
    .to_bits()
}

fn mask(length: u8) -> u128 {
    Ipv6Addr::from_bits(u128::MAX).to_bits().checked_shl(128 - u32::from(length.min(128))).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_end_where_they_say() {
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
    fn everything_is_a_network_too() {
        let mut networks = Networks::NONE;
        networks.add("0.0.0.0/0").unwrap();
        assert!(networks.contains("192.0.2.1".parse().unwrap()));
        assert!(!networks.contains("2001:db8::1".parse().unwrap()), "that is all of IPv4");
        networks.add("::/0").unwrap();
        assert!(networks.contains("2001:db8::1".parse().unwrap()));
    }

    #[test]
    fn mistakes_are_named() {
        for text in ["", "localhost", "10.0.0.0/33", "::/129", "10.0.0.0/", "10.0.0.0/-1", "10.0.0/8"] {
            let error = Networks::default().add(text).unwrap_err();
            assert!(error.contains(&format!("\"{text}\"")), "{error}");
        }
    }
}
