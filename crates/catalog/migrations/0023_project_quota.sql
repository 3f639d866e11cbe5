-- Bytes of the store that only the heads and completions of a project keep. Collections of garbage measure them; 0 until
-- the first one.
ALTER TABLE projects ADD COLUMN bytes BIGINT NOT NULL DEFAULT 0;

-- Bytes of deleted snapshots and projects, by owner. Something else may keep their content, so they count until the next
-- collection of garbage has measured what is left.
CREATE TABLE unmeasured_bytes (
    owner TEXT PRIMARY KEY,
    bytes BIGINT NOT NULL
);

-- A collection of garbage looks up the projects of the snapshots that it measured.
CREATE INDEX project_operations_snapshot ON project_operations (snapshot);
CREATE INDEX completions_theirs ON completions (theirs_snapshot);
