//! Writes rooms. Each is written before the next checkpoint.

use super::{ImportError, ImportRun, count_domain};
use crate::SourceRoom;

impl ImportRun<'_> {
    pub(super) async fn write_room(&mut self, room: &SourceRoom) -> Result<(), ImportError> {
        if !self.options.room_services.iter().any(|service| service == room.jid.domain()) {
            count_domain(&mut self.foreign_rooms, room.jid.domain());
            return Ok(());
        }
        let update = match (self.options.formats.room)(room) {
            Ok(update) => update,
            Err(reason) => {
                self.skip(room.jid.as_str(), format!("the room: {reason}"));
                return Ok(());
            }
        };
        match self.stores.rooms.load(room.jid.as_ref(), 0).await? {
            // An interrupted part of this import has written it.
            Some(found) if Some(&found.record) == update.record.as_ref() => {}
            Some(_) => {
                self.skip(room.jid.as_str(), "a room with this address exists");
                return Ok(());
            }
            None if self.options.dry_run => {}
            None => self.stores.rooms.update(room.jid.as_ref(), update, None).await?,
        }
        self.counts.rooms += 1;
        Ok(())
    }
}
