-- Snapshot of the files that a move in progress writes: those of the next head with the changes of the agent merged into
-- them. NULL for the files of the head itself.
ALTER TABLE agent_workspaces ADD COLUMN next_files TEXT;
