//! `muc:*` requests of Tsung scenarios.
//!
//! # Pitfalls
//!
//! Tsung addresses leaving and changes of nickname by the `nick` of each request. Here a user leaves the room under the
//! nickname that it has.

use super::reader::{TsungReader, XmlNode};
use super::request::{TsungAck, TsungRequest};
use super::session_flow::SessionFlow;
use crate::plan::{
    AckMode, MessageBody, PlanStep, ResponseChecks, RoomSelection, RoomStep, TemplatePart, TextTemplate,
};

impl TsungReader<'_> {
    pub(super) fn room(
        &mut self,
        request: TsungRequest<'_>,
        flow: &mut SessionFlow,
        steps: &mut Vec<PlanStep>,
    ) {
        let (node, subst) = (request.node, request.subst);
        let Some(room) = self.room_text(node, flow, "room", subst) else { return };
        let plain = request.checks == ResponseChecks::default();
        // Joins, changes of nickname and leavings wait for their own answers, as requests do.
        let wait = plain && matches!(request.wait, TsungAck::Packet | TsungAck::Everybody);
        let room = RoomSelection::Named(self.room_address(room));
        let step = match request.kind {
            "muc:join" => {
                let Some(nick) = self.room_text(node, flow, "nick", subst) else { return };
                RoomStep::Join { room, nick, history: None, wait }
            }
            "muc:nick" => {
                let Some(nick) = self.room_text(node, flow, "nick", subst) else { return };
                RoomStep::Nick { room, nick, wait }
            }
            "muc:exit" => RoomStep::Leave { room, wait },
            _ => {
                let body = MessageBody::Size(self.count(node, "size").unwrap_or(0));
                let ack = if plain { request.wait.clone().ack() } else { AckMode::None };
                steps.push(PlanStep::Room(RoomStep::Message { room, body, ack }));
                if plain {
                    return self.everybody(&request.wait, steps);
                }
                return self.answer(request, true, steps);
            }
        };
        steps.push(PlanStep::Room(step));
        if wait {
            self.everybody(&request.wait, steps);
        } else {
            self.answer(request, true, steps);
        }
    }

    fn room_text(
        &mut self,
        node: XmlNode<'_>,
        flow: &mut SessionFlow,
        name: &str,
        subst: bool,
    ) -> Option<TextTemplate> {
        let value = self.needed(node, name)?;
        Some(self.text(node, flow, value, subst))
    }

    /// A room of the MUC service.
    fn room_address(&self, mut name: TextTemplate) -> TextTemplate {
        name.0.push(TemplatePart::Literal(format!("@{}", self.settings.muc_service)));
        name
    }
}
