-- The dictionary of bare addresses. AUTOINCREMENT: a number is never given twice.
CREATE TABLE address (
    id  INTEGER PRIMARY KEY AUTOINCREMENT,
    jid TEXT NOT NULL UNIQUE
) STRICT;

-- Accounts. roster_version only ever rises.
CREATE TABLE account (
    id             INTEGER PRIMARY KEY,
    domain         INTEGER NOT NULL,
    created_at     INTEGER NOT NULL,
    disabled       INTEGER NOT NULL,
    roster_version INTEGER NOT NULL,
    credentials    BLOB NOT NULL
) STRICT;
CREATE INDEX account_domain ON account (domain, id);

-- Clustered by owner, so that a login reads one page. label holds name and groups, absent when both are.
CREATE TABLE roster (
    owner        INTEGER NOT NULL,
    contact      INTEGER NOT NULL,
    subscription INTEGER NOT NULL,
    label        BLOB,
    request      BLOB,
    PRIMARY KEY (owner, contact)
) STRICT, WITHOUT ROWID;

-- Clustered by recipient, in the order of arrival.
CREATE TABLE offline (
    owner     INTEGER NOT NULL,
    seq       INTEGER NOT NULL,
    stored_at INTEGER NOT NULL,
    expires   INTEGER,
    stanza    BLOB NOT NULL,
    PRIMARY KEY (owner, seq)
) STRICT, WITHOUT ROWID;
-- How many rows of offline an account has, and the last number given. Apart from account: it changes with every message
-- and is narrow, so that a transaction touches few pages.
CREATE TABLE inbox (
    owner    INTEGER PRIMARY KEY,
    last_seq INTEGER NOT NULL,
    waiting  INTEGER NOT NULL
) STRICT;
CREATE INDEX offline_expires ON offline (expires) WHERE expires IS NOT NULL;

CREATE TABLE setting (
    name  TEXT NOT NULL PRIMARY KEY,
    value BLOB NOT NULL
) STRICT, WITHOUT ROWID;
