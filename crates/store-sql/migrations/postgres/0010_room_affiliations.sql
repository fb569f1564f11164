-- Affiliations with persistent rooms; room and entity are numbers of addresses. Those in the state of rooms are moved here by
-- src/room_affiliation_migration.rs.
CREATE TABLE room_affiliation (
    room        BIGINT NOT NULL,
    entity      BIGINT NOT NULL,
    affiliation BIGINT NOT NULL,
    nick        BYTEA NOT NULL,
    reason      BYTEA NOT NULL,
    PRIMARY KEY (room, entity)
);
CREATE INDEX room_affiliation_list ON room_affiliation (room, affiliation, entity);
CREATE INDEX room_affiliation_entity ON room_affiliation (entity, room);

-- How many accounts with an address were removed: another account of the same name has another occupant id (XEP-0421).
CREATE TABLE former_account (
    entity BIGINT PRIMARY KEY,
    times  BIGINT NOT NULL
);
