-- Persistent rooms by the numbers of their addresses; service and creator are such numbers, too.
CREATE TABLE room (
    room    BIGINT PRIMARY KEY,
    service BIGINT NOT NULL,
    creator BIGINT NOT NULL,
    public  BIGINT NOT NULL,
    title   BYTEA NOT NULL,
    state   BYTEA NOT NULL
);
CREATE INDEX room_listed ON room (service, public, room);
CREATE INDEX room_service ON room (service, room);
CREATE INDEX room_creator ON room (creator);

-- Their discussion history. Ids sort by time.
CREATE TABLE room_message (
    room    BIGINT NOT NULL,
    id      BYTEA NOT NULL,
    message BYTEA NOT NULL,
    PRIMARY KEY (room, id)
);
