-- Who signs in to the console with a name and a password; tokens stand in their own table.
CREATE TABLE people (
    name          TEXT   NOT NULL PRIMARY KEY,
    role          TEXT   NOT NULL CHECK (role IN ('viewer', 'operator', 'admin')),
    -- Argon2id, in the PHC string format.
    password_hash TEXT   NOT NULL,
    created_at    BIGINT NOT NULL,
    disabled_at   BIGINT,
    last_used_at  BIGINT
);

-- Who is signed in. Of the cookie only its SHA-256 is kept.
CREATE TABLE sessions (
    sha256       BYTEA NOT NULL PRIMARY KEY,
    -- A person's name, or a token's.
    holder       TEXT   NOT NULL,
    -- Where it was begun with a token: that one.
    token_sha256 BYTEA,
    begun_at     BIGINT NOT NULL,
    -- Last use by a person, to the minute.
    seen_at      BIGINT NOT NULL
);
CREATE INDEX sessions_holder ON sessions (holder);

-- The lists of the console.
CREATE INDEX operations_reason ON operations (reason, operation_id) WHERE reason IS NOT NULL;
CREATE INDEX deliveries_verdict ON deliveries (verdict, delivery_id) WHERE operation_id IS NULL;
