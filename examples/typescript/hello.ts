// Creates a sandbox, writes a file, runs a command, and deletes the sandbox.

import { WorkspaceClient } from "@elevo/workspace-sdk";

const client = new WorkspaceClient();
await using sandbox = await client.sandbox.create({ template: "base" });

await sandbox.files.write("main.py", 'print("Hello from", __file__)\n');
const { stdout } = await sandbox.process.run("python3 /workspace/main.py", { check: true });
process.stdout.write(stdout);
