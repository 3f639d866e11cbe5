-- Project and agent of a sandbox, which `config` has too, for the filters of lists.
ALTER TABLE sandboxes ADD COLUMN project TEXT;
ALTER TABLE sandboxes ADD COLUMN agent TEXT;

CREATE INDEX sandboxes_project ON sandboxes (owner, project);

-- Project of the sandbox of an event, which may be deleted.
ALTER TABLE events ADD COLUMN project TEXT;

CREATE INDEX events_project ON events (owner, project, sequence);

-- Snapshot that was made after a command because the sandbox is traced, or the reason why there is none although files may
-- have changed.
ALTER TABLE commands ADD COLUMN snapshot TEXT;
ALTER TABLE commands ADD COLUMN trace_error TEXT;

-- Command after which a snapshot was made automatically; NULL for all others, and once somebody depends on the snapshot.
-- The oldest of those with a command are removed.
ALTER TABLE snapshots ADD COLUMN command TEXT;

CREATE INDEX snapshots_traces ON snapshots (sandbox, id) WHERE command IS NOT NULL;

-- Notes of agents about their steps. A note belongs to the next snapshot of its sandbox: until there is one, it goes with
-- the sandbox, and then with the snapshot. So it refers to neither.
CREATE TABLE notes (
    id TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    sandbox_id TEXT NOT NULL,
    command_id TEXT,
    snapshot TEXT,
    text TEXT NOT NULL,
    data TEXT,
    bytes BIGINT NOT NULL,
    created_at BIGINT NOT NULL
);

CREATE INDEX notes_sandbox ON notes (sandbox_id, id);
CREATE INDEX notes_pending ON notes (sandbox_id) WHERE snapshot IS NULL;
CREATE INDEX notes_snapshot ON notes (snapshot, id);

-- Number of notes of an owner and their size, so that a note is added without counting all of them. Insertions and deletions
-- change it in the same transaction.
CREATE TABLE note_usage (
    owner TEXT PRIMARY KEY,
    notes BIGINT NOT NULL,
    bytes BIGINT NOT NULL
);

-- First step of the search that an episode belongs to. Those of earlier versions have none until a server that has them
-- starts.
ALTER TABLE episodes ADD COLUMN root TEXT NOT NULL DEFAULT '';

CREATE INDEX episodes_root ON episodes (root);
CREATE INDEX episodes_searches ON episodes (owner, id) WHERE root = id;
