-- Keys of agents and reviewers. The table is made anew, because SQLite cannot change the constraint of `role`.
-- `binding` is JSON with the projects and the agents that a key is bound to; NULL for keys with other roles.
CREATE TABLE new_api_keys (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    owner TEXT NOT NULL,
    role TEXT NOT NULL CHECK (role IN ('admin', 'user', 'read_only', 'agent', 'reviewer')),
    hash TEXT NOT NULL UNIQUE,
    limits TEXT NOT NULL,
    binding TEXT CHECK ((binding IS NULL) = (role IN ('admin', 'user', 'read_only'))),
    created_at BIGINT NOT NULL,
    revoked_at BIGINT
);
INSERT INTO new_api_keys (id, name, owner, role, hash, limits, created_at, revoked_at)
    SELECT id, name, owner, role, hash, limits, created_at, revoked_at FROM api_keys;
DROP TABLE api_keys;
ALTER TABLE new_api_keys RENAME TO api_keys;
CREATE INDEX api_keys_owner ON api_keys (owner);

-- Owner of the workspace of a completion, if it is not the owner of the project: the key of an agent has its own.
ALTER TABLE completions ADD COLUMN requester TEXT;

-- The owner of a project also lists the sandboxes of its agents, which have owners of their own.
CREATE INDEX sandboxes_of_project ON sandboxes (project) WHERE project IS NOT NULL;
