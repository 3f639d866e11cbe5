// Mounts the workspace of a sandbox, writes a file there, and reads it in the sandbox. Mounting needs root on Linux:
//
//   sudo -E npx tsx nfs-mount.ts [DIRECTORY]

import { mkdtemp, rmdir, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { MountError, WorkspaceClient } from "@elevo/workspace-sdk";

const client = new WorkspaceClient();
await using sandbox = await client.sandbox.create({ template: "base" });
const directory = process.argv[2] ?? (await mkdtemp(join(tmpdir(), "workspace-")));
try {
    await using mount = await sandbox.nfs.mount(directory);
    await writeFile(join(mount.path, "hello.txt"), "Hello over NFS\n");
    const { stdout } = await sandbox.process.run("cat hello.txt", { check: true });
    process.stdout.write(`the sandbox reads: ${stdout}`);
} catch (error) {
    if (!(error instanceof MountError)) throw error;
    console.log(error.message);
} finally {
    // Empty again, because the workspace is unmounted.
    if (process.argv[2] === undefined) await rmdir(directory);
}
