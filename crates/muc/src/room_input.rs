//! Inputs of a room's task, and their answers, which are sent after the effects.

use std::sync::Arc;

use cluster::NodeId;
use jid::Jid;
use queues::answer_channel::AnswerSender;
use store::{FormerAccount, RoomAffiliation, StoreError};
use throng_core::iq::IqAnswer;
use throng_core::receipt::ReceiptIssuer;
use throng_core::server_error::store_error;
use throng_core::{Node, SharedStanza};

use crate::privileges::Affiliation;
use crate::room::{AffiliationOutcome, CreationOutcome, DestroyNotice, DestructionOutcome};

/// An input of a room.
pub(crate) struct RoomMessage {
    pub(crate) node: Arc<Node>,
    pub(crate) input: RoomInput,
}

/// Receipts of a message to all occupants, for the stream or the node of its sender.
pub(crate) struct MessageReceipts {
    /// Fulfilled when the message is in the store, or needs not to be.
    pub(crate) stored: ReceiptIssuer,
    /// Fulfilled when all nodes with occupants have acknowledged the message; none on a single node.
    pub(crate) delivered: Option<ReceiptIssuer>,
}

impl MessageReceipts {
    /// The message was passed on, or its sender has an error.
    pub(crate) fn fulfil(self) {
        self.stored.settle(Ok(()));
        if let Some(delivered) = self.delivered {
            delivered.settle(Ok(()));
        }
    }
}

/// Input of a room.
pub(crate) enum RoomInput {
    /// A message or presence, or an IQ between occupants.
    Stanza { stanza: SharedStanza, from: Jid, to: Jid, receipts: Option<MessageReceipts> },
    /// A request to the room: the stanza, and the way of the answer.
    Request { bytes: Vec<u8>, is_set: bool, from: Jid, reply: AnswerSender<IqAnswer> },
    /// Sessions that did not receive a stanza.
    SessionsLost(Vec<Jid>),
    /// An administrator creates the room for an owner.
    Create { owner: Jid, reply: AnswerSender<CreationOutcome> },
    /// An administrator destroys the room.
    Destroy { notice: DestroyNotice, reply: AnswerSender<DestructionOutcome> },
    /// Another node may have become the home node of the room.
    HomeChanged,
    /// The former home node is gone or has handed the room over: this node has a copy.
    Restore,
    /// The next home node must have the room.
    HandOver { to: NodeId, reply: AnswerSender<()> },
    /// The node stops.
    ShutDown { reply: AnswerSender<()> },
    /// Another node keeps the copy of the room.
    BackupChanged,
    /// Sessions may be gone with their node.
    MemberLeft,
    /// Accounts were removed, in this order.
    AccountsRemoved(Arc<[FormerAccount]>),
    /// The node has other administrators.
    AdminsChanged,
    /// A write that failed is tried again.
    WriteAgain,
    /// Messages of the history were stored, or not.
    HistoryStored(Result<(), StoreError>),
    /// An administrator lists the occupants.
    ListOccupants { reply: AnswerSender<Option<Vec<(String, Jid)>>> },
    /// An administrator lists a page of affiliations.
    ListAffiliations {
        after: Option<Jid>,
        limit: u32,
        reply: AnswerSender<Option<Result<Vec<RoomAffiliation>, StoreError>>>,
    },
    /// An administrator sets an affiliation.
    SetAffiliation { user: Jid, affiliation: Affiliation, reply: AnswerSender<AffiliationOutcome> },
}

/// An answer that is sent after the effects.
pub(crate) enum RoomReply {
    None,
    Iq(AnswerSender<IqAnswer>, IqAnswer),
    Creation(AnswerSender<CreationOutcome>, CreationOutcome),
    Destruction(AnswerSender<DestructionOutcome>, DestructionOutcome),
    /// The stanza was handled, and nothing of it must be stored.
    Handled(ReceiptIssuer),
    Affiliation(AnswerSender<AffiliationOutcome>, AffiliationOutcome),
}

/// Sends an answer, or the error of the store.
pub(crate) fn send_reply(reply: RoomReply, written: Result<(), StoreError>) {
    match reply {
        RoomReply::None => {}
        RoomReply::Iq(reply, answer) => {
            reply.send(answer.and_then(|answer| written.map(|()| answer).map_err(store_error)));
        }
        RoomReply::Creation(reply, outcome) => {
            reply.send(if written.is_ok() { outcome } else { CreationOutcome::NotStored });
        }
        RoomReply::Destruction(reply, outcome) => {
            reply.send(if written.is_ok() { outcome } else { DestructionOutcome::NotStored });
        }
        RoomReply::Handled(receipt) => receipt.settle(Ok(())),
        RoomReply::Affiliation(reply, outcome) => {
            reply.send(if written.is_ok() { outcome } else { AffiliationOutcome::NotStored });
        }
    }
}
