CREATE INDEX account_disabled ON account (domain, id) WHERE disabled <> 0;

CREATE INDEX account_domain ON account (domain, id);

CREATE INDEX account_removal_number ON account_removal (number);

CREATE INDEX offline_expires ON offline (expires) WHERE expires IS NOT NULL;

CREATE INDEX profile_email ON profile (domain, email_key, owner);

CREATE INDEX profile_first ON profile (domain, first_key, owner);

CREATE INDEX profile_last ON profile (domain, last_key, owner);

CREATE INDEX profile_name ON profile (domain, name_key, owner);

CREATE INDEX profile_nick ON profile (domain, nick_key, owner);

CREATE INDEX pubsub_affiliation_node ON pubsub_affiliation (node);

CREATE UNIQUE INDEX pubsub_item_id ON pubsub_item (node, id);

CREATE INDEX pubsub_node_creator ON pubsub_node (creator);

CREATE INDEX pubsub_node_listed ON pubsub_node (service, listed, node);

CREATE INDEX pubsub_node_service ON pubsub_node (service, node);

CREATE INDEX pubsub_special_entity ON pubsub_special (entity, node);

CREATE INDEX room_affiliation_entity ON room_affiliation (entity, room);

CREATE INDEX room_affiliation_list ON room_affiliation (room, affiliation, entity);

CREATE INDEX room_creator ON room (creator);

CREATE INDEX room_listed ON room (service, public, room);

CREATE INDEX room_service ON room (service, room);

CREATE TABLE account (
    id             INTEGER PRIMARY KEY,
    domain         INTEGER NOT NULL,
    created_at     INTEGER NOT NULL,
    disabled       INTEGER NOT NULL,
    roster_version INTEGER NOT NULL,
    credentials    BLOB NOT NULL
, blocklist BLOB, tokens BLOB, photo BLOB, revision INTEGER NOT NULL DEFAULT 2305843009213693952) STRICT;

CREATE TABLE account_removal (
    entity INTEGER PRIMARY KEY,
    number INTEGER NOT NULL
) STRICT;

CREATE TABLE address (
    id  INTEGER PRIMARY KEY AUTOINCREMENT,
    jid TEXT NOT NULL UNIQUE
) STRICT;

CREATE TABLE former_account (
    entity INTEGER PRIMARY KEY,
    times  INTEGER NOT NULL
) STRICT;

CREATE TABLE inbox (
    owner    INTEGER PRIMARY KEY,
    last_seq INTEGER NOT NULL,
    waiting  INTEGER NOT NULL
, bytes INTEGER NOT NULL DEFAULT 0) STRICT;

CREATE TABLE last_seen (
    owner  INTEGER PRIMARY KEY,
    at     INTEGER NOT NULL,
    status TEXT
) STRICT;

CREATE TABLE node_chunk (
    id      INTEGER PRIMARY KEY,
    members INTEGER NOT NULL,
    numbers BLOB NOT NULL
) STRICT;

CREATE TABLE "offline" (
    owner     INTEGER NOT NULL,
    seq       INTEGER NOT NULL,
    stored_at INTEGER NOT NULL,
    expires   INTEGER,
    sender    INTEGER NOT NULL,
    stanza    BLOB NOT NULL,
    PRIMARY KEY (owner, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE private (
    owner INTEGER NOT NULL,
    name  TEXT NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (owner, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE profile (
    owner      INTEGER NOT NULL PRIMARY KEY,
    domain     INTEGER NOT NULL,
    username   TEXT NOT NULL,
    name_key   TEXT NOT NULL,
    first_key  TEXT NOT NULL,
    last_key   TEXT NOT NULL,
    nick_key   TEXT NOT NULL,
    email_key  TEXT NOT NULL,
    full_name  TEXT NOT NULL,
    first_name TEXT NOT NULL,
    last_name  TEXT NOT NULL,
    nick       TEXT NOT NULL,
    email      TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE pubsub_affiliation (
    entity      INTEGER NOT NULL,
    node        INTEGER NOT NULL,
    affiliation INTEGER NOT NULL,
    PRIMARY KEY (entity, node)
) STRICT, WITHOUT ROWID;

CREATE TABLE pubsub_item (
    node      INTEGER NOT NULL,
    seq       INTEGER NOT NULL,
    id        BLOB NOT NULL,
    publisher BLOB NOT NULL,
    published INTEGER NOT NULL,
    payload   BLOB NOT NULL,
    PRIMARY KEY (node, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE pubsub_node (
    node    INTEGER PRIMARY KEY AUTOINCREMENT,
    service INTEGER NOT NULL,
    name    BLOB NOT NULL,
    creator INTEGER NOT NULL,
    created INTEGER NOT NULL,
    listed  INTEGER NOT NULL,
    title   TEXT NOT NULL,
    config  BLOB NOT NULL,
    UNIQUE (service, name)
) STRICT;

CREATE TABLE pubsub_removed (
    node INTEGER PRIMARY KEY
) STRICT;

CREATE TABLE pubsub_special (
    node   INTEGER NOT NULL,
    subid  BLOB NOT NULL,
    jid    BLOB NOT NULL,
    entity INTEGER NOT NULL,
    state  BLOB NOT NULL,
    PRIMARY KEY (node, subid)
) STRICT, WITHOUT ROWID;

CREATE TABLE removal_counter (
    id     INTEGER PRIMARY KEY,
    number INTEGER NOT NULL
) STRICT;

CREATE TABLE room (
    room    INTEGER PRIMARY KEY,
    service INTEGER NOT NULL,
    creator INTEGER NOT NULL,
    public  INTEGER NOT NULL,
    title   TEXT NOT NULL,
    state   BLOB NOT NULL
) STRICT;

CREATE TABLE room_affiliation (
    room        INTEGER NOT NULL,
    entity      INTEGER NOT NULL,
    affiliation INTEGER NOT NULL,
    nick        BLOB NOT NULL,
    reason      BLOB NOT NULL,
    PRIMARY KEY (room, entity)
) STRICT, WITHOUT ROWID;

CREATE TABLE room_message (
    room    INTEGER NOT NULL,
    id      BLOB NOT NULL,
    message BLOB NOT NULL,
    PRIMARY KEY (room, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE roster (
    owner        INTEGER NOT NULL,
    contact      INTEGER NOT NULL,
    subscription INTEGER NOT NULL,
    label        BLOB,
    request      BLOB,
    PRIMARY KEY (owner, contact)
) STRICT, WITHOUT ROWID;

CREATE TABLE setting (
    name  TEXT NOT NULL PRIMARY KEY,
    value BLOB NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE subscriber_chunk (
    id      INTEGER PRIMARY KEY,
    members INTEGER NOT NULL,
    numbers BLOB NOT NULL
) STRICT;

CREATE TABLE throng_schema (version INTEGER PRIMARY KEY, name TEXT NOT NULL, at BIGINT NOT NULL);

CREATE TABLE username (
    domain INTEGER NOT NULL,
    name   TEXT NOT NULL,
    id     INTEGER NOT NULL,
    PRIMARY KEY (domain, name, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE vcard (
    owner INTEGER PRIMARY KEY,
    card  BLOB NOT NULL
) STRICT;
