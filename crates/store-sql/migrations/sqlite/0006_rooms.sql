-- Persistent rooms by the numbers of their addresses; service and creator are such numbers, too.
CREATE TABLE room (
    room    INTEGER PRIMARY KEY,
    service INTEGER NOT NULL,
    creator INTEGER NOT NULL,
    public  INTEGER NOT NULL,
    title   TEXT NOT NULL,
    state   BLOB NOT NULL
) STRICT;
CREATE INDEX room_listed ON room (service, public, room);
CREATE INDEX room_service ON room (service, room);
CREATE INDEX room_creator ON room (creator);

-- Their discussion history. Ids sort by time.
CREATE TABLE room_message (
    room    INTEGER NOT NULL,
    id      BLOB NOT NULL,
    message BLOB NOT NULL,
    PRIMARY KEY (room, id)
) STRICT, WITHOUT ROWID;
