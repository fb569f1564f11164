//! Notices to other nodes of a cluster: an event for contacts with sessions there, and the interest of a client in nodes of
//! accounts whose nodes they own. Accounts are named by hash and number, as in the roster views of all nodes.
//!
//! ```text
//! text  1 line, 2 line, …     ended by an empty line
//! n ×   8 hash, 4 number
//! rest  the stanza of an event
//! ```

use std::sync::Arc;

use cluster::NodeId;
use store::AddressId;
use throng_core::Node;
use throng_core::host::Host;

use super::account_nodes::AccountKey;

/// Name of the notice of an event: service, name of the node, and the number of accounts.
pub(crate) const EVENT: &str = "pep-event";
/// Name of the notice of a client's interest: its full address, the names of nodes, and the number of accounts.
pub(crate) const INTEREST: &str = "pep-interest";
/// Name of the notice that data of an account must be converted: the letter of what has changed, a space, and the account.
pub(crate) const CONVERSION: &str = "pep-conversion";
/// Name of the notice of an account's removal.
pub(crate) const REMOVED: &str = "pep-removed";
/// Accounts of one notice: a larger list is several.
const MAX_ACCOUNTS: usize = 8_192;
/// Bytes of an account.
const ACCOUNT_BYTES: usize = 12;

/// A notice that was read.
pub(crate) struct PepNotice<'a> {
    pub(crate) lines: Vec<&'a str>,
    pub(crate) accounts: Vec<AccountKey>,
    pub(crate) rest: &'a [u8],
}

impl<'a> PepNotice<'a> {
    /// Reads a notice; `None` if it is not one.
    pub(crate) fn read(content: &'a [u8]) -> Option<PepNotice<'a>> {
        let end = content.windows(2).position(|pair| pair == b"\n\n")?;
        let text = std::str::from_utf8(content.get(..end)?).ok()?;
        let mut lines: Vec<&str> = text.split('\n').collect();
        let count: usize = lines.pop()?.parse().ok()?;
        let rest = content.get(end + 2..)?;
        let (accounts, rest) = rest.split_at_checked(count.checked_mul(ACCOUNT_BYTES)?)?;
        let account = |bytes: &[u8]| {
            let (hash, id) = bytes.split_first_chunk::<8>()?;
            let id = AddressId::new(u32::from_be_bytes(id.try_into().ok()?))?;
            Some(AccountKey { hash: u64::from_be_bytes(*hash), id })
        };
        let accounts = accounts.chunks_exact(ACCOUNT_BYTES).map(account).collect::<Option<_>>()?;
        Some(PepNotice { lines, accounts, rest })
    }
}

/// Sends a notice to one node of the cluster.
pub(crate) fn send(
    (node, host): (&Arc<Node>, &Host),
    to: NodeId,
    name: &'static str,
    lines: &[&str],
    accounts: &[AccountKey],
    rest: &[u8],
) {
    for part in accounts.chunks(MAX_ACCOUNTS) {
        let mut content = Vec::with_capacity(64 + part.len() * ACCOUNT_BYTES + rest.len());
        for line in lines {
            content.extend_from_slice(line.as_bytes());
            content.push(b'\n');
        }
        content.extend_from_slice(part.len().to_string().as_bytes());
        content.extend_from_slice(b"\n\n");
        for account in part {
            content.extend_from_slice(&account.hash.to_be_bytes());
            content.extend_from_slice(&account.id.get().to_be_bytes());
        }
        content.extend_from_slice(rest);
        if !peers::notices::send_notice_to(node, to, host, name, &content) {
            tracing::debug!(node = %to, name, "a notice of personal eventing was not sent");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_damaged_is_no_notice() {
        for content in [
            &b""[..],
            b"a\n\n",
            b"a\n1\n\n",
            b"a\n1\n\n12345678\0\0\0\0",
            b"a\n-1\n\n",
            b"a\n99999999999999999999\n\n",
            b"\xff\n0\n\n",
        ] {
            assert!(PepNotice::read(content).is_none(), "{content:?}");
        }
        let read = PepNotice::read(b"a\nb\n1\n\n12345678\0\0\0\x01rest").unwrap();
        assert_eq!((read.lines, read.accounts.len(), read.rest), (vec!["a", "b"], 1, &b"rest"[..]));
    }
}
