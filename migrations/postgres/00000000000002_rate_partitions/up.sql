-- The call budget of a CRM account, cut into partitions that nodes lease: whoever holds one paces its calls by it.
CREATE TABLE rate_partitions (
    rate_group   TEXT    NOT NULL,
    number       INTEGER NOT NULL,
    -- NULL where it was given back; the node that had it where its lease is over.
    holder       TEXT,
    -- End of the lease, or when it was given back.
    leased_until BIGINT NOT NULL,
    -- When it may be full again: the later, the emptier.
    full_at      BIGINT NOT NULL,
    -- A node that holds fewer asks for it, until then.
    asked_by     TEXT,
    asked_until  BIGINT NOT NULL,
    PRIMARY KEY (rate_group, number)
);
