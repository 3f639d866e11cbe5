-- Which request began which command. It goes with its sandbox; a command may be forgotten before its claim.
CREATE TABLE command_claims (
    sandbox_id TEXT NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,
    owner TEXT NOT NULL,
    key TEXT NOT NULL,
    request_hash TEXT NOT NULL,
    command_id TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (sandbox_id, owner, key)
);

CREATE INDEX command_claims_command ON command_claims (command_id);
CREATE INDEX command_claims_created_at ON command_claims (created_at);
