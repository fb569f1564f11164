//! Writes rooms. Each is written before the next checkpoint.

use super::{ImportError, ImportRun, count_domain};
use crate::SourceRoom;

impl ImportRun<'_> {
    pub(super) async fn write_room(&mut self, room: &SourceRoom) -> Result<(), ImportError> {
        if !self.options.room_services.iter().any(|service| service == room.jid.domain()) {
            count_domain(&mut self.foreign_rooms, room.jid.domain());
            return Ok(());
        }
        let record = match (self.options.formats.room)(room) {
            Ok(record) => record,
            Err(reason) => {
                self.skip(room.jid.as_str(), format!("the room: {reason}"));
                return Ok(());
            }
        };
        match self.stores.rooms.load(room.jid.as_ref(), 0).await? {
            // An interrupted part of this import has written it.
            Some(found) if found.record == record => {}
            Some(_) => {
                self.skip(room.jid.as_str(), "a room with this address exists");
                return Ok(());
            }
            None if self.options.dry_run => {}
            None => self.stores.rooms.put(room.jid.as_ref(), record, None).await?,
        }
        self.counts.rooms += 1;
        Ok(())
    }
}
