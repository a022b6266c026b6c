-- Times are unix microseconds, ids are UUIDs as text, keys and hashes are bytes.

CREATE TABLE operations (
    operation_id      TEXT    NOT NULL PRIMARY KEY,
    source            TEXT    NOT NULL,
    source_key        BLOB,
    variant           BLOB    NOT NULL,
    key_origin        TEXT    NOT NULL CHECK (key_origin IN ('native', 'header', 'field', 'resubmit_window', 'generated')),
    payload_hash      BLOB    NOT NULL CHECK (length(payload_hash) = 32),
    hash_rule         TEXT    NOT NULL,
    destination       TEXT    NOT NULL,
    state             TEXT    NOT NULL CHECK (state IN ('received', 'in_progress', 'completed', 'failed_terminal', 'needs_review')),
    phase             TEXT    CHECK (phase IN ('claimed', 'calling', 'reconciling')),
    reason            TEXT,
    licence           TEXT    CHECK (licence IN ('first_send', 'not_executed', 'lookup_absent', 'operator')),
    next_attempt_at   BIGINT,
    next_lookup_at    BIGINT,
    lease_owner       TEXT,
    lease_until       BIGINT,
    send_ended_at     BIGINT,
    lookups_since     BIGINT,
    attempts          BIGINT  NOT NULL CHECK (attempts >= 0),
    counted           BIGINT  NOT NULL CHECK (counted >= 0),
    series_attempts   BIGINT  NOT NULL CHECK (series_attempts >= 0),
    series_since      BIGINT,
    series_epoch      BIGINT  NOT NULL,
    lookups           BIGINT  NOT NULL CHECK (lookups >= 0),
    step              INTEGER NOT NULL CHECK (step >= 0),
    epoch             BIGINT  NOT NULL,
    version           BIGINT  NOT NULL CHECK (version >= 1),
    crm_id            TEXT    CHECK (crm_id <> ''),
    other_crm_ids     TEXT,
    conflicts_with    TEXT    REFERENCES operations (operation_id),
    last_error        TEXT,
    delivery_id       TEXT    NOT NULL,
    event_index       INTEGER NOT NULL CHECK (event_index >= 0),
    received_at       BIGINT  NOT NULL,
    updated_at        BIGINT  NOT NULL,
    finished_at       BIGINT,
    payload_erased_at BIGINT,
    -- The claim of a key (contract 3). Rows without a key have NULL there and never meet each other.
    CONSTRAINT operations_key UNIQUE (source, source_key, variant),
    CONSTRAINT operations_variant CHECK (length(variant) IN (0, 32)),
    CONSTRAINT operations_conflict CHECK ((length(variant) > 0) = (conflicts_with IS NOT NULL)),
    CONSTRAINT operations_phase CHECK ((phase IS NOT NULL) = (state = 'in_progress')),
    CONSTRAINT operations_reason CHECK ((reason IS NOT NULL) = (state IN ('failed_terminal', 'needs_review'))),
    CONSTRAINT operations_licence CHECK ((licence IS NOT NULL) = (state = 'received' OR coalesce(phase, '') = 'claimed')),
    CONSTRAINT operations_due CHECK ((next_attempt_at IS NOT NULL) = (state = 'received')),
    -- In progress is calling under a lease, or reconciling with a time; never neither (contract 4).
    CONSTRAINT operations_lease CHECK (
        (lease_until IS NOT NULL) = (coalesce(phase, '') IN ('claimed', 'calling'))
        AND (lease_owner IS NULL) = (lease_until IS NULL)),
    CONSTRAINT operations_lookup CHECK (
        (next_lookup_at IS NOT NULL) = (coalesce(phase, '') = 'reconciling')
        AND (lookups_since IS NULL) = (next_lookup_at IS NULL)
        AND (next_lookup_at IS NULL OR send_ended_at IS NOT NULL)),
    -- Completed has its entity, and what has an entity is never sent again.
    CONSTRAINT operations_crm_id CHECK (
        (state <> 'completed' OR crm_id IS NOT NULL)
        AND (state NOT IN ('received', 'in_progress') OR crm_id IS NULL)),
    CONSTRAINT operations_finished CHECK ((finished_at IS NOT NULL) = (state IN ('completed', 'failed_terminal')))
);
CREATE INDEX operations_received ON operations (destination, next_attempt_at) WHERE next_attempt_at IS NOT NULL;
CREATE INDEX operations_reconciling ON operations (destination, next_lookup_at) WHERE next_lookup_at IS NOT NULL;
CREATE INDEX operations_leased ON operations (destination, lease_until) WHERE lease_until IS NOT NULL;
CREATE INDEX operations_state ON operations (state, operation_id);
CREATE INDEX operations_crm ON operations (crm_id) WHERE crm_id IS NOT NULL;
CREATE INDEX operations_conflicts ON operations (conflicts_with) WHERE conflicts_with IS NOT NULL;
-- Retention: what still has a payload (also one that came after an erasure, by an operator's retry), and the tombstones.
CREATE INDEX operations_erasable ON operations (finished_at)
    WHERE finished_at IS NOT NULL AND (payload_erased_at IS NULL OR payload_erased_at < finished_at);
CREATE INDEX operations_tombstones ON operations (finished_at) WHERE payload_erased_at IS NOT NULL;

-- What came in. The raw body and the headers of a request stand in its first row.
CREATE TABLE deliveries (
    delivery_id  TEXT    NOT NULL,
    event_index  INTEGER NOT NULL CHECK (event_index >= 0),
    source       TEXT    NOT NULL,
    operation_id TEXT    REFERENCES operations (operation_id),
    verdict      TEXT    NOT NULL CHECK (verdict IN ('new', 'replay', 'replay_unverified', 'conflict', 'rejected', 'test', 'spam', 'ignored')),
    received_at  BIGINT  NOT NULL,
    method       TEXT    NOT NULL,
    headers      TEXT,
    body         BLOB,
    body_sha256  BLOB    NOT NULL,
    note         TEXT,
    PRIMARY KEY (delivery_id, event_index),
    CONSTRAINT deliveries_owner CHECK (
        (operation_id IS NOT NULL) = (verdict IN ('new', 'replay', 'replay_unverified', 'conflict'))),
    CONSTRAINT deliveries_body CHECK (event_index = 0 OR (body IS NULL AND headers IS NULL))
);
CREATE INDEX deliveries_operation ON deliveries (operation_id, delivery_id) WHERE operation_id IS NOT NULL;
CREATE INDEX deliveries_ownerless ON deliveries (received_at) WHERE operation_id IS NULL;
-- Bodies of replays, which may come after their operation's payload was erased.
CREATE INDEX deliveries_replayed ON deliveries (received_at)
    WHERE body IS NOT NULL AND verdict IN ('replay', 'replay_unverified');

-- Every state change, in the order it was written.
CREATE TABLE transitions (
    seq          INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL,
    operation_id TEXT    NOT NULL REFERENCES operations (operation_id),
    version      BIGINT  NOT NULL,
    from_state   TEXT,
    to_state     TEXT    NOT NULL,
    reason       TEXT,
    event        TEXT    NOT NULL,
    at           BIGINT  NOT NULL,
    CONSTRAINT transitions_version UNIQUE (operation_id, version)
);

-- What went out. A row is inserted just before its call; its result is filled in once.
CREATE TABLE attempts (
    attempt_id      TEXT    NOT NULL PRIMARY KEY,
    operation_id    TEXT    NOT NULL REFERENCES operations (operation_id),
    call            TEXT    NOT NULL CHECK (call IN ('create', 'lookup')),
    number          BIGINT  NOT NULL,
    step            INTEGER NOT NULL,
    epoch           BIGINT  NOT NULL,
    licence         TEXT,
    started_at      BIGINT  NOT NULL,
    ended_at        BIGINT,
    class           TEXT,
    status          INTEGER,
    excerpt         TEXT,
    decision        TEXT,
    mapping_version TEXT    NOT NULL,
    request         TEXT,
    CONSTRAINT attempts_end CHECK ((ended_at IS NULL) = (class IS NULL))
);
CREATE INDEX attempts_operation ON attempts (operation_id, attempt_id);

-- Records that the CRM made on the way to the entity (contract 4.1 rule 12).
CREATE TABLE steps (
    operation_id TEXT    NOT NULL REFERENCES operations (operation_id),
    step         INTEGER NOT NULL,
    crm_id       TEXT    NOT NULL CHECK (crm_id <> ''),
    PRIMARY KEY (operation_id, step)
);

-- Leads as operators corrected them (JSON).
CREATE TABLE lead_edits (
    operation_id TEXT    NOT NULL PRIMARY KEY REFERENCES operations (operation_id),
    lead         TEXT    NOT NULL,
    edited_at    BIGINT  NOT NULL,
    indexed      BOOLEAN NOT NULL
);
CREATE INDEX lead_edits_unindexed ON lead_edits (edited_at) WHERE indexed = FALSE;

-- Search by phone or e-mail: keyed hashes of their normal forms, erased with the payload.
CREATE TABLE contact_hashes (
    hash         BLOB NOT NULL,
    operation_id TEXT NOT NULL REFERENCES operations (operation_id),
    PRIMARY KEY (hash, operation_id)
);
CREATE INDEX contact_hashes_operation ON contact_hashes (operation_id);

-- Keyless content: until `ends_at` the same content is the same submission. No foreign key: the window is claimed first, its
-- operation is inserted later in the same transaction.
CREATE TABLE windows (
    source       TEXT   NOT NULL,
    payload_hash BLOB   NOT NULL,
    operation_id TEXT   NOT NULL,
    starts_at    BIGINT NOT NULL,
    ends_at      BIGINT NOT NULL,
    PRIMARY KEY (source, payload_hash)
);
CREATE INDEX windows_end ON windows (ends_at);

CREATE TABLE destinations (
    name            TEXT    NOT NULL PRIMARY KEY,
    kind            TEXT    NOT NULL,
    suspended       BOOLEAN NOT NULL,
    reason          TEXT,
    since           BIGINT  NOT NULL,
    epoch           BIGINT  NOT NULL,
    probing         BOOLEAN NOT NULL,
    throttled_until BIGINT,
    last_success_at BIGINT,
    CONSTRAINT destinations_state CHECK (NOT (suspended AND probing))
);

CREATE TABLE audit (
    seq          INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL,
    actor        TEXT   NOT NULL,
    at           BIGINT NOT NULL,
    action       TEXT   NOT NULL,
    operation_id TEXT   REFERENCES operations (operation_id),
    subject      TEXT,
    from_state   TEXT,
    to_state     TEXT,
    note         TEXT
);
CREATE INDEX audit_operation ON audit (operation_id) WHERE operation_id IS NOT NULL;

-- Bearer tokens; only their SHA-256 is kept.
CREATE TABLE tokens (
    sha256       BLOB   NOT NULL PRIMARY KEY,
    name         TEXT   NOT NULL,
    role         TEXT   NOT NULL CHECK (role IN ('viewer', 'operator', 'admin')),
    created_at   BIGINT NOT NULL,
    revoked_at   BIGINT,
    last_used_at BIGINT
);
CREATE UNIQUE INDEX tokens_active ON tokens (name) WHERE revoked_at IS NULL;

CREATE TABLE incidents (
    incident_id TEXT    NOT NULL PRIMARY KEY,
    key         TEXT    NOT NULL,
    text        TEXT    NOT NULL,
    opened_at   BIGINT  NOT NULL,
    closed_at   BIGINT,
    told_start  BOOLEAN NOT NULL,
    told_end    BOOLEAN NOT NULL
);
CREATE UNIQUE INDEX incidents_open ON incidents (key) WHERE closed_at IS NULL;
CREATE INDEX incidents_untold ON incidents (opened_at) WHERE told_start = FALSE OR told_end = FALSE;

-- Values of the store itself, such as the key of the contact hashes.
CREATE TABLE settings (
    name  TEXT NOT NULL PRIMARY KEY,
    value BLOB NOT NULL
);

-- How far a background reader of a log has come, and what it found on the way.
CREATE TABLE cursors (
    name     TEXT   NOT NULL PRIMARY KEY,
    position TEXT   NOT NULL,
    found    BIGINT NOT NULL
);
