// Explores 20 fixes at once: each fork of a sandbox tries one, and the best is restored in the first sandbox.

import { WorkspaceClient } from "@elevo/workspace-sdk";

const PROGRAM = `def price(items, discount):
    total = sum(items)
    return total - total * discount / 10
`;
const TESTS = `from program import price
cases = [([100], 0, 100), ([100], 50, 50), ([10, 20], 10, 27), ([], 10, 0)]
passed = sum(abs(price(items, discount) - expected) < 1e-9 for items, discount, expected in cases)
print(passed)
`;
const FORKS = 20;

const client = new WorkspaceClient();
await using sandbox = await client.sandbox.create({ template: "base" });
await sandbox.files.write("program.py", PROGRAM);
await sandbox.files.write("tests.py", TESTS);

const { sandboxes: forks } = await sandbox.fork(FORKS);
try {
    const attempts = await Promise.all(
        forks.map(async (fork, index) => {
            // A model would propose these.
            const divisor = 10 * (index + 1);
            await fork.files.write("program.py", PROGRAM.replace("/ 10", `/ ${divisor}`));
            const { stdout } = await fork.process.run("python3 tests.py", { check: true });
            return { fork, divisor, passed: Number(stdout) };
        }),
    );
    const best = attempts.reduce((a, b) => (b.passed > a.passed ? b : a));
    console.log(
        `${forks.length} attempts; the best divides by ${best.divisor} and passes ${best.passed} of 4 tests`,
    );

    const { snapshot } = await best.fork.commit({ message: `divide by ${best.divisor}` });
    await sandbox.restore(snapshot.id);
    process.stdout.write(await sandbox.files.read("program.py"));
} finally {
    await client.sandbox.batchDelete(forks.map(({ id }) => id));
}
