//! XEP-0227 1.1: Portable Import/Export Format for XMPP-IM Servers, named after its root element `<server-data/>`.
//!
//! Data for which the specification has no place are written as elements of [`EXTENSION_NAMESPACE`] (section 4):
//!
//! ```text
//! <disabled/>                                           in <user/>: login is refused
//! <last-activity stamp='DateTime'>status</last-activity>  in <user/>: XEP-0012
//! <hidden-item jid='' subscription='' approved=''/>     in <user/>: state of a contact that is not in the roster
//! <expires stamp='DateTime'/>                           in <offline-messages/>: expiry of the next message (XEP-0023)
//! ```
//!
//! Not implemented: PEP nodes (section 4.10), archives (section 4.11), privacy rules that do more than block an address;
//! XPointer and text inclusion of XInclude.

mod reader;
mod writer;

pub use reader::ServerDataSource;
pub(crate) use writer::{ExportedUser, write_user};

/// Namespace of the format.
pub const SERVER_DATA_NAMESPACE: &str = "urn:xmpp:pie:0";

/// Namespace of the format before XEP-0227 was numbered in the registrar; ejabberd reads it, too.
const OLD_NAMESPACE: &str = "http://www.xmpp.org/extensions/xep-0227.html#ns";

/// Namespace of SCRAM keys (section 4.3).
const SCRAM_NAMESPACE: &str = "urn:xmpp:pie:0#scram";

/// Namespace of elements that only Throng reads.
pub const EXTENSION_NAMESPACE: &str = "urn:throng:server-data:0";

/// Name of the privacy list in which an export writes the blocklist.
const BLOCKLIST_NAME: &str = "blocklist";
