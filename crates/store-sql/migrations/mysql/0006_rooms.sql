-- Persistent rooms by the numbers of their addresses; service and creator are such numbers, too.
CREATE TABLE IF NOT EXISTS room (
    room    BIGINT NOT NULL PRIMARY KEY,
    service BIGINT NOT NULL,
    creator BIGINT NOT NULL,
    public  BIGINT NOT NULL,
    title   VARBINARY(4096) NOT NULL,
    state   MEDIUMBLOB NOT NULL,
    INDEX room_listed (service, public, room),
    INDEX room_service (service, room),
    INDEX room_creator (creator)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- Their discussion history. Ids sort by time.
CREATE TABLE IF NOT EXISTS room_message (
    room    BIGINT NOT NULL,
    id      VARBINARY(64) NOT NULL,
    message MEDIUMBLOB NOT NULL,
    PRIMARY KEY (room, id)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
