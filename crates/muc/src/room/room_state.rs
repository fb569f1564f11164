//! Life of a room: XEP-0045 1.35.5, sections 10.1 (locked until it is configured), 10.9 (destroyed), and 3 (temporary and persistent
//! rooms).

/// State of a room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RoomState {
    /// Its owner has not configured it yet: for others it does not exist.
    Locked,
    /// It ends when its last occupant leaves.
    Temporary,
    /// It is in the store.
    Persistent,
    /// It does not exist any more, and must be removed from the store.
    Ended,
}

/// What changes the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RoomEvent {
    /// An owner has configured it, or it was created or read with this configuration.
    Configured { persistent: bool },
    /// Its last occupant has left.
    Emptied,
    /// An owner or an administrator has destroyed it.
    Destroyed,
}

impl RoomState {
    /// The state after an event.
    pub(crate) const fn after(self, event: RoomEvent) -> RoomState {
        match (self, event) {
            (RoomState::Ended, _) | (_, RoomEvent::Destroyed) => RoomState::Ended,
            (_, RoomEvent::Configured { persistent: true }) => RoomState::Persistent,
            (_, RoomEvent::Configured { persistent: false }) => RoomState::Temporary,
            (RoomState::Locked | RoomState::Temporary, RoomEvent::Emptied) => RoomState::Ended,
            (RoomState::Persistent, RoomEvent::Emptied) => RoomState::Persistent,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_after_every_event() {
        use RoomState::{Ended, Locked, Persistent, Temporary};
        let events = [
            RoomEvent::Configured { persistent: false },
            RoomEvent::Configured { persistent: true },
            RoomEvent::Emptied,
            RoomEvent::Destroyed,
        ];
        for (before, after) in [
            (Locked, [Temporary, Persistent, Ended, Ended]),
            (Temporary, [Temporary, Persistent, Ended, Ended]),
            (Persistent, [Temporary, Persistent, Persistent, Ended]),
            (Ended, [Ended, Ended, Ended, Ended]),
        ] {
            assert_eq!(events.map(|event| before.after(event)), after, "{before:?}");
        }
    }
}
