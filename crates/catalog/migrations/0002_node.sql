-- Which server looks after a sandbox. Those written before have none until a server takes them.
ALTER TABLE sandboxes ADD COLUMN node TEXT NOT NULL DEFAULT '';

CREATE INDEX sandboxes_node ON sandboxes (node);
