-- Whose an episode is, so that those of an owner can be counted. The episode itself is in the store of a server.
CREATE TABLE episodes (
    id TEXT NOT NULL,
    owner TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (owner, id)
);

CREATE INDEX episodes_id ON episodes (id);
