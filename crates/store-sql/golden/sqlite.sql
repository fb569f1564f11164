CREATE INDEX account_domain ON account (domain, id);

CREATE INDEX offline_expires ON offline (expires) WHERE expires IS NOT NULL;

CREATE TABLE account (
    id             INTEGER PRIMARY KEY,
    domain         INTEGER NOT NULL,
    created_at     INTEGER NOT NULL,
    disabled       INTEGER NOT NULL,
    roster_version INTEGER NOT NULL,
    credentials    BLOB NOT NULL
) STRICT;

CREATE TABLE address (
    id  INTEGER PRIMARY KEY AUTOINCREMENT,
    jid TEXT NOT NULL UNIQUE
) STRICT;

CREATE TABLE inbox (
    owner    INTEGER PRIMARY KEY,
    last_seq INTEGER NOT NULL,
    waiting  INTEGER NOT NULL
) STRICT;

CREATE TABLE offline (
    owner     INTEGER NOT NULL,
    seq       INTEGER NOT NULL,
    stored_at INTEGER NOT NULL,
    expires   INTEGER,
    stanza    BLOB NOT NULL,
    PRIMARY KEY (owner, seq)
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

CREATE TABLE throng_schema (version INTEGER PRIMARY KEY, name TEXT NOT NULL, at BIGINT NOT NULL);
