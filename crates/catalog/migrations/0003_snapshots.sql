-- Whose a snapshot is. The snapshot itself is in the store of a server. It outlives the sandbox that it was made in, so it does
-- not refer to it.
CREATE TABLE snapshots (
    id TEXT NOT NULL,
    owner TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    sandbox TEXT,
    PRIMARY KEY (owner, id)
);

CREATE INDEX snapshots_id ON snapshots (id);
