-- Projects. The row is the truth about the head: `sequence` counts its changes, and `head` is its snapshot, NULL
-- before the first. `staging` names the attempt whose rows of `file_versions` above `sequence` are being written.
CREATE TABLE projects (
    id TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    name TEXT NOT NULL,
    sequence BIGINT NOT NULL,
    head TEXT,
    policy_version BIGINT NOT NULL,
    settings TEXT NOT NULL,
    staging TEXT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    UNIQUE (owner, name)
);

-- Deleted projects whose operations and file versions, which may be many, are still being deleted.
CREATE TABLE project_deletions (
    project TEXT PRIMARY KEY
);

-- Changes of heads, one per sequence. They refer to no project, because they are deleted after it.
CREATE TABLE project_operations (
    project TEXT NOT NULL,
    sequence BIGINT NOT NULL,
    snapshot TEXT NOT NULL,
    previous TEXT,
    operation TEXT NOT NULL,
    author TEXT NOT NULL,
    operator TEXT NOT NULL,
    completion TEXT,
    message TEXT,
    details TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (project, sequence)
);

-- Versions of files. Rows above the sequence of the project are staged, and do not count. A path is text in which `\`
-- is `\\`, and a byte that is not UTF-8 is `\xNN`.
CREATE TABLE file_versions (
    project TEXT NOT NULL,
    sequence BIGINT NOT NULL,
    file_id TEXT NOT NULL,
    path TEXT NOT NULL,
    change TEXT NOT NULL,
    previous_path TEXT,
    kind TEXT NOT NULL,
    size BIGINT NOT NULL,
    mode BIGINT NOT NULL,
    content TEXT,
    mime TEXT,
    algorithm TEXT,
    author TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (project, sequence, file_id)
);

CREATE INDEX file_versions_file ON file_versions (project, file_id, sequence);
-- The start of the path only, since PostgreSQL limits an index entry to a third of a page.
CREATE INDEX file_versions_path ON file_versions (project, substr(path, 1, 256), sequence);

CREATE TABLE policies (
    project TEXT NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    version BIGINT NOT NULL,
    document TEXT NOT NULL,
    author TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (project, version)
);

-- Completions. Their ids come from clients, so they are unique only within a project. A project with completions
-- cannot be deleted: those that are not queued are deleted before it, and the foreign key keeps it if one is queued
-- meanwhile.
CREATE TABLE completions (
    project TEXT NOT NULL REFERENCES projects (id),
    id TEXT NOT NULL,
    owner TEXT NOT NULL,
    agent TEXT NOT NULL,
    sandbox TEXT,
    workspace TEXT,
    base_snapshot TEXT NOT NULL,
    base_sequence BIGINT NOT NULL,
    theirs_snapshot TEXT NOT NULL,
    policy_version BIGINT NOT NULL,
    state TEXT NOT NULL,
    attempts BIGINT NOT NULL,
    sequence BIGINT,
    result TEXT,
    error TEXT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (project, id)
);

CREATE INDEX completions_queued ON completions (project, created_at, id) WHERE state = 'queued';
CREATE INDEX completions_workspace ON completions (project, workspace, created_at, id);
CREATE INDEX completions_created ON completions (project, created_at, id);

CREATE TABLE reviews (
    id TEXT PRIMARY KEY,
    project TEXT NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    completion TEXT,
    path TEXT NOT NULL,
    class TEXT NOT NULL,
    state TEXT NOT NULL,
    data TEXT NOT NULL,
    author TEXT NOT NULL,
    assigned TEXT,
    resolved_by TEXT,
    resolution TEXT,
    expires_at BIGINT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);

CREATE INDEX reviews_project ON reviews (project, id);
CREATE INDEX reviews_completion ON reviews (project, completion);
CREATE INDEX reviews_expiry ON reviews (state, expires_at);

-- Leases, which avoid that two servers do the same work. A released one stays, so that its epoch grows.
CREATE TABLE leases (
    name TEXT PRIMARY KEY,
    server TEXT NOT NULL,
    epoch BIGINT NOT NULL,
    until BIGINT NOT NULL
);
