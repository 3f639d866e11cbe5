// Runs a web server in a sandbox without a network, and shows it by a preview.

import { WorkspaceClient } from "@elevo/workspace-sdk";

const client = new WorkspaceClient();
await using sandbox = await client.sandbox.create({ template: "base" });

await sandbox.files.write("public/index.html", "<h1>Hello from the sandbox</h1>\n", { mkdirs: true });
const server = await sandbox.process.start("exec python3 -m http.server 8000", {
    cwd: "/workspace/public",
    timeout: 0,
});

// Anybody who has the URL sees the page, for ten minutes.
const { pathUrl } = await sandbox.ports.preview(8000, { expiresInSeconds: 600 });
let response = await fetch(pathUrl);
// 502 until the program listens.
while (response.status === 502) {
    await response.text();
    await new Promise((resolve) => setTimeout(resolve, 100));
    response = await fetch(pathUrl);
}
console.log(`${response.status} ${(await response.text()).trim()}`);

for (const { port, program } of await sandbox.ports.list())
    console.log(`${program ?? "a program"} listens on ${port}`);
await server.kill();
console.log(`the server ended with exit code ${(await server.wait()).exitCode}`);
