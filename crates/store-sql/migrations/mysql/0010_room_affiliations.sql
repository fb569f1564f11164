-- Affiliations with persistent rooms; room and entity are numbers of addresses. Those in the state of rooms are moved here by
-- src/room_affiliation_migration.rs.
CREATE TABLE IF NOT EXISTS room_affiliation (
    room        BIGINT NOT NULL,
    entity      BIGINT NOT NULL,
    affiliation BIGINT NOT NULL,
    nick        VARBINARY(1024) NOT NULL,
    reason      VARBINARY(4096) NOT NULL,
    PRIMARY KEY (room, entity),
    INDEX room_affiliation_list (room, affiliation, entity),
    INDEX room_affiliation_entity (entity, room)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- How many accounts with an address were removed: another account of the same name has another occupant id (XEP-0421).
CREATE TABLE IF NOT EXISTS former_account (
    entity BIGINT NOT NULL PRIMARY KEY,
    times  BIGINT NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
