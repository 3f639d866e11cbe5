-- Runs on SQLite and on PostgreSQL alike: times are milliseconds since 1970, JSON is TEXT, a boolean is 0 or 1.

CREATE TABLE sandboxes (
    id TEXT PRIMARY KEY,
    name TEXT,
    owner TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('starting', 'running', 'stopping', 'stopped', 'error')),
    state_reason TEXT,
    template TEXT NOT NULL,
    runtime TEXT NOT NULL,
    network TEXT NOT NULL,
    process TEXT,
    workspace_path TEXT NOT NULL,
    token_hash TEXT NOT NULL,
    labels TEXT NOT NULL,
    config TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    version BIGINT NOT NULL
);

CREATE INDEX sandboxes_state ON sandboxes (state);
CREATE INDEX sandboxes_expires_at ON sandboxes (expires_at);
CREATE INDEX sandboxes_owner ON sandboxes (owner, created_at);

-- `sandboxes.labels` again, row by row: the two databases have no JSON query in common.
CREATE TABLE sandbox_labels (
    sandbox_id TEXT NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (sandbox_id, name)
);

CREATE INDEX sandbox_labels_name ON sandbox_labels (name);

-- An event outlives its sandbox, so it does not refer to it.
CREATE TABLE events (
    sequence BIGINT PRIMARY KEY,
    type TEXT NOT NULL,
    sandbox_id TEXT,
    data TEXT NOT NULL,
    created_at BIGINT NOT NULL
);

-- One row. Whoever numbers an event holds it until the end of the transaction, so events become visible in
-- the order of their numbers. With a sequence of the database a later number could be visible first, and a
-- reader that went on from there would never see the earlier one.
CREATE TABLE event_sequence (
    id BIGINT PRIMARY KEY CHECK (id = 1),
    last BIGINT NOT NULL
);

INSERT INTO event_sequence (id, last) VALUES (1, 0);

CREATE TABLE api_keys (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    owner TEXT NOT NULL,
    role TEXT NOT NULL CHECK (role IN ('admin', 'user', 'read_only')),
    hash TEXT NOT NULL UNIQUE,
    limits TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    revoked_at BIGINT
);

CREATE INDEX api_keys_owner ON api_keys (owner);

CREATE TABLE commands (
    id TEXT PRIMARY KEY,
    sandbox_id TEXT NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,
    command TEXT NOT NULL,
    cwd TEXT,
    state TEXT NOT NULL CHECK (state IN ('running', 'exited', 'failed')),
    exit_code BIGINT,
    timed_out BIGINT NOT NULL CHECK (timed_out IN (0, 1)),
    started_at BIGINT NOT NULL,
    ended_at BIGINT
);

CREATE INDEX commands_sandbox ON commands (sandbox_id, started_at);

-- Claimed before the sandbox exists, so it does not refer to it.
CREATE TABLE idempotency (
    owner TEXT NOT NULL,
    key TEXT NOT NULL,
    request_hash TEXT NOT NULL,
    sandbox_id TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (owner, key)
);
