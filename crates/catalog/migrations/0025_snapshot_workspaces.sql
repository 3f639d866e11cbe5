-- Workspace that a snapshot is of, under the name by which its completions follow each other (`completions.workspace`). A
-- sandbox that was rebased has several, one for each base. NULL without a project, and for snapshots of earlier versions.
ALTER TABLE snapshots ADD COLUMN workspace TEXT;
