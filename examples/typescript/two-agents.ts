// Two agents change one project. Their changes are merged, and a conflict is decided by a review.

import { WorkspaceClient, withSandbox } from "@elevo/workspace-sdk";

const client = new WorkspaceClient();
const name = `website-${Date.now()}`;
await client.projects.create({ name });
try {
    await withSandbox(client, { template: "base", project: name, agent: "author" }, async (sandbox) => {
        await sandbox.files.write("index.md", "# Website\n\nSoon.\n");
        await sandbox.complete({ message: "first version", wait: 30 });
    });

    // Both begin with the same files.
    await using writer = await client.sandbox.create({ template: "base", project: name, agent: "writer" });
    await using editor = await client.sandbox.create({ template: "base", project: name, agent: "editor" });
    await writer.files.write("index.md", "# Website\n\nRead the second page.\n");
    await writer.files.write("two.md", "The second page.\n");
    await editor.files.write("index.md", "# Website\n\nOpening in May.\n");
    await editor.files.write("contact.md", "Write to us.\n");

    for (const [agent, sandbox] of Object.entries({ writer, editor })) {
        const { state, conflicts } = await sandbox.complete({ message: `work of ${agent}`, wait: 30 });
        console.log(`${agent}: ${state}${conflicts.map(({ path }) => `, conflict in ${path}`).join("")}`);
    }

    const { items: reviews } = await client.reviews.list(name, { state: "open" });
    for (const { id, path } of reviews) {
        const { ours, theirs } = await client.reviews.get(name, id);
        console.log(
            `review of ${path}: ${JSON.stringify(ours.content)} or ${JSON.stringify(theirs.content)}`,
        );
        const content = "# Website\n\nOpening in May. Read the second page.\n";
        const { review } = await client.reviews.resolve(name, id, { content, message: "keep both" });
        console.log(`review of ${path}: ${review.state}`);
    }

    process.stdout.write(await client.projects.read(name, "index.md"));
    const { items } = await client.projects.operations(name);
    for (const { sequence, author, message } of items) console.log(`${sequence} ${author} ${message}`);
} finally {
    const { items } = await client.sandbox.list({ project: name });
    if (items.length > 0)
        await client.sandbox.batchDelete(
            items.map(({ id }) => id),
            { complete: false },
        );
    await client.projects.delete(name);
}
