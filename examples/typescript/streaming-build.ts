// Uploads a directory, shows the output of its build while it runs, and downloads the result.

import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { CommandFailedError, WorkspaceClient } from "@elevo/workspace-sdk";

const BUILD = `set -e
mkdir -p out
for page in pages/*; do
    echo "building $page"
    tr a-z A-Z < "$page" > "out/\${page#pages/}"
done
echo "no tests found" >&2
`;

const directory = await mkdtemp(join(tmpdir(), "streaming-build."));
try {
    await mkdir(join(directory, "pages"));
    for (const name of ["index", "about", "contact"])
        await writeFile(join(directory, "pages", name), `the page ${name}\n`);
    await writeFile(join(directory, "build.sh"), BUILD);

    const client = new WorkspaceClient();
    await using sandbox = await client.sandbox.create({ template: "base" });
    await sandbox.files.upload(directory, "site");

    for await (const event of sandbox.process.runStream("sh build.sh", {
        cwd: "/workspace/site",
        check: true,
    })) {
        if (event.type === "stdout") process.stdout.write(event.data);
        if (event.type === "stderr") process.stderr.write(event.data);
        if (event.type === "exit") console.log(`exit code ${event.exitCode}`);
    }

    const { files } = await sandbox.files.download("site/out", join(directory, "out"));
    console.log(`downloaded ${files} files`);
    process.stdout.write(await readFile(join(directory, "out", "index"), "utf8"));
} catch (error) {
    if (!(error instanceof CommandFailedError)) throw error;
    console.error(`the build failed with exit code ${error.exitCode}`);
    process.exitCode = 1;
} finally {
    await rm(directory, { recursive: true });
}
