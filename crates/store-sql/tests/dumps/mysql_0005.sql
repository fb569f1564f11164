CREATE TABLE throng_schema (version INTEGER PRIMARY KEY, name TEXT NOT NULL, at BIGINT NOT NULL);

-- Numbers are bigint, also where a smaller type would do: no value needs a conversion on its way.
-- Texts are bytes in UTF-8; see dialect/mysql.rs. Every statement may be repeated, because each commits at once.

-- The dictionary of bare addresses. A number is never given twice.
CREATE TABLE IF NOT EXISTS address (
    id  BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    jid VARBINARY(2047) NOT NULL UNIQUE
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- Accounts. The row is also the lock of everything that belongs to the account.
CREATE TABLE IF NOT EXISTS account (
    id             BIGINT NOT NULL PRIMARY KEY,
    domain         BIGINT NOT NULL,
    created_at     BIGINT NOT NULL,
    disabled       BIGINT NOT NULL,
    roster_version BIGINT NOT NULL,
    credentials    BLOB NOT NULL,
    blocklist      MEDIUMBLOB,
    tokens         MEDIUMBLOB,
    photo          VARBINARY(20),
    revision       BIGINT NOT NULL,
    INDEX account_domain (domain, id),
    INDEX account_disabled (domain, disabled, id)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

CREATE TABLE IF NOT EXISTS username (
    domain BIGINT NOT NULL,
    name   VARBINARY(1023) NOT NULL,
    id     BIGINT NOT NULL,
    PRIMARY KEY (domain, name, id)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

CREATE TABLE IF NOT EXISTS roster (
    owner        BIGINT NOT NULL,
    contact      BIGINT NOT NULL,
    subscription BIGINT NOT NULL,
    label        LONGBLOB,
    request      LONGBLOB,
    PRIMARY KEY (owner, contact)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

CREATE TABLE IF NOT EXISTS offline (
    owner     BIGINT NOT NULL,
    seq       BIGINT NOT NULL,
    stored_at BIGINT NOT NULL,
    expires   BIGINT,
    sender    BIGINT NOT NULL,
    stanza    LONGBLOB NOT NULL,
    PRIMARY KEY (owner, seq),
    INDEX offline_expires (expires)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- Rows of offline per account, their bytes, and the last number given.
CREATE TABLE IF NOT EXISTS inbox (
    owner    BIGINT NOT NULL PRIMARY KEY,
    last_seq BIGINT NOT NULL,
    waiting  BIGINT NOT NULL,
    bytes    BIGINT NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

CREATE TABLE IF NOT EXISTS private (
    owner BIGINT NOT NULL,
    name  VARBINARY(1024) NOT NULL,
    value LONGBLOB NOT NULL,
    PRIMARY KEY (owner, name)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

CREATE TABLE IF NOT EXISTS vcard (
    owner BIGINT NOT NULL PRIMARY KEY,
    card  MEDIUMBLOB NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

CREATE TABLE IF NOT EXISTS profile (
    owner      BIGINT NOT NULL PRIMARY KEY,
    domain     BIGINT NOT NULL,
    username   VARBINARY(1023) NOT NULL,
    name_key   VARBINARY(256) NOT NULL,
    first_key  VARBINARY(256) NOT NULL,
    last_key   VARBINARY(256) NOT NULL,
    nick_key   VARBINARY(256) NOT NULL,
    email_key  VARBINARY(256) NOT NULL,
    full_name  VARBINARY(1024) NOT NULL,
    first_name VARBINARY(1024) NOT NULL,
    last_name  VARBINARY(1024) NOT NULL,
    nick       VARBINARY(1024) NOT NULL,
    email      VARBINARY(1024) NOT NULL,
    INDEX profile_name (domain, name_key, owner),
    INDEX profile_first (domain, first_key, owner),
    INDEX profile_last (domain, last_key, owner),
    INDEX profile_nick (domain, nick_key, owner),
    INDEX profile_email (domain, email_key, owner)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

CREATE TABLE IF NOT EXISTS last_seen (
    owner  BIGINT NOT NULL PRIMARY KEY,
    at     BIGINT NOT NULL,
    status VARBINARY(1024)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

CREATE TABLE IF NOT EXISTS setting (
    name  VARBINARY(255) NOT NULL PRIMARY KEY,
    value MEDIUMBLOB NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- The last transaction of each writer, so that a writer whose connection broke during COMMIT learns the outcome.
CREATE TABLE IF NOT EXISTS write_batch (
    writer BIGINT NOT NULL PRIMARY KEY,
    batch  BIGINT NOT NULL,
    at     BIGINT NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

INSERT INTO account VALUES (1, 2, 1767225600000, 0, 1809639014400001, x'736563726574', x'657665406578616D706C652E636F6D', x'746F6B656E', x'0707070707070707070707070707070707070707', 4484202055284992272);
INSERT INTO account VALUES (3, 2, 1767225600000, 0, 1809639014400000, x'6F74686572', NULL, NULL, NULL, 3298923749686281682);
INSERT INTO address VALUES (1, x'616E6E406578616D706C652E6F7267');
INSERT INTO address VALUES (3, x'626F62406578616D706C652E6F7267');
INSERT INTO address VALUES (4, x'657665406578616D706C652E636F6D');
INSERT INTO address VALUES (2, x'6578616D706C652E6F7267');
INSERT INTO inbox VALUES (1, 1809639014400002, 2, 66);
INSERT INTO last_seen VALUES (1, 1767225600, x'676F6E65');
INSERT INTO offline VALUES (1, 1809639014400001, 1, 5000, 1, x'3C6D6573736167653E3C626F64793E313C2F626F64793E3C2F6D6573736167653E');
INSERT INTO offline VALUES (1, 1809639014400002, 2, NULL, 2, x'3C6D6573736167653E3C626F64793E323C2F626F64793E3C2F6D6573736167653E');
INSERT INTO private VALUES (1, x'6B6579', x'76616C7565');
INSERT INTO profile VALUES (1, 2, x'616E6E', x'616E6E206C6565', x'', x'', x'', x'', x'416E6E204C6565', x'', x'', x'', x'');
INSERT INTO roster VALUES (1, 3, 35, x'0103426F6207467269656E6473', NULL);
INSERT INTO roster VALUES (1, 4, 8, NULL, x'3C70726573656E636520747970653D27737562736372696265272F3E');
INSERT INTO setting VALUES (x'73616C74', x'706570706572');
INSERT INTO throng_schema VALUES (5, '0005_start', 1767225600000);
INSERT INTO username VALUES (2, x'616E6E', 1);
INSERT INTO username VALUES (2, x'626F62', 3);
INSERT INTO vcard VALUES (1, x'3C76436172642F3E');
