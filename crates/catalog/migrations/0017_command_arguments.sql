-- Arguments of a command that runs without a shell (a JSON array), the tag of its request, and its PID inside the sandbox.
ALTER TABLE commands ADD COLUMN argv TEXT;
ALTER TABLE commands ADD COLUMN tag TEXT;
ALTER TABLE commands ADD COLUMN pid BIGINT;
