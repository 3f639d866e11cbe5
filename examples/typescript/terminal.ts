// Opens a terminal in a sandbox, and connects it with that of this program. Without one, it types a few lines.

import { type PTYHandle, WorkspaceClient } from "@elevo/workspace-sdk";

const client = new WorkspaceClient();
await using sandbox = await client.sandbox.create({ template: "base" });
const { stdin, stdout } = process;
const terminal = await sandbox.pty.create({
    cols: stdout.columns ?? 80,
    rows: stdout.rows ?? 24,
    shell: "/bin/sh",
    envs: { TERM: process.env["TERM"] ?? "xterm-256color" },
});

const disconnect = stdin.isTTY ? connectKeys(terminal) : () => undefined;
if (!stdin.isTTY) await terminal.write('echo "the answer is $((6 * 7))"\nstty size\nexit 3\n');
try {
    for await (const event of terminal) {
        if (event.type === "output") stdout.write(event.bytes);
        if (event.type === "error") console.error(event.message);
    }
} finally {
    disconnect();
}
console.log(`exit code ${terminal.exitCode}`);

/** Sends keys and sizes of this program's terminal. Returns a function that stops it. */
function connectKeys(target: PTYHandle): () => void {
    const report = (error: unknown): void => console.error(error);
    const onKeys = (keys: Buffer): void => void target.write(keys).catch(report);
    const onResize = (): void => void target.resize(stdout.columns, stdout.rows).catch(report);
    stdin.setRawMode(true);
    stdin.on("data", onKeys);
    stdout.on("resize", onResize);
    return () => {
        stdin.setRawMode(false);
        stdin.off("data", onKeys).pause();
        stdout.off("resize", onResize);
    };
}
