-- Workspaces of agents that run in containers which no server started: directories of the machine of `server`. An agent
-- has one per project. A project with workspaces cannot be deleted: the foreign key keeps it. `round` counts the moves
-- to a newer head; `next_*` is the head that a move is in progress to.
CREATE TABLE agent_workspaces (
    id TEXT PRIMARY KEY,
    project TEXT NOT NULL REFERENCES projects (id),
    agent TEXT NOT NULL,
    owner TEXT NOT NULL,
    server TEXT NOT NULL,
    state TEXT NOT NULL,
    provider TEXT,
    path TEXT,
    uid BIGINT,
    gid BIGINT,
    round BIGINT NOT NULL,
    base_snapshot TEXT NOT NULL,
    base_sequence BIGINT NOT NULL,
    policy_version BIGINT NOT NULL,
    next_snapshot TEXT,
    next_sequence BIGINT,
    next_policy_version BIGINT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    UNIQUE (project, agent)
);

CREATE INDEX agent_workspaces_owner ON agent_workspaces (owner);
CREATE INDEX agent_workspaces_server ON agent_workspaces (server, state);
CREATE INDEX agent_workspaces_agent ON agent_workspaces (agent, project);
