// Every example runs, and prints what it should.

import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'

const expected: Record<string, RegExp> = {
    hello: /^Hello from \/workspace\/main\.py\n$/,
    'streaming-build':
        /^building pages\/about\nbuilding pages\/contact\nbuilding pages\/index\nexit code 0\ndownloaded 3 files\nTHE PAGE INDEX\n$/,
    terminal: /the answer is 42\r\n[^]*24 80\r\n[^]*exit code 3\n$/,
    'parallel-forks': /^20 attempts; the best divides by 100 and passes 4 of 4 tests\n[^]*\/ 100\n$/,
    'two-agents':
        /^writer: landed\neditor: in_review, conflict in index\.md\nreview of index\.md: [^]*: resolved\n# Website\n\nOpening in May\. Read the second page\.\n4 [^]*1 author first version\n$/,
    'llm-tool-loop': /stdout: 55\nfib\(10\) is 55\.\n$/,
    'nfs-mount':
        /^(the sandbox reads: Hello over NFS|(this machine has no mount\.nfs|only root may mount on Linux)\nhint: [^\n]*sudo mount -t nfs [^\n]*)\n$/,
    'web-preview': /^200 <h1>Hello from the sandbox<\/h1>\n[^]*listens on 8000\nthe server ended with exit code 143\n$/,
}

const root = process.env['SDK_ROOT'] ?? ''

/** Runs a compiled example. Fails unless it exits with 0. */
function run(name: string): Promise<string> {
    const child = spawn(process.execPath, [join(root, 'sdk-typescript/build/examples', `${name}.js`)], {
        stdio: ['ignore', 'pipe', 'pipe'],
    })
    let stdout = ''
    let stderr = ''
    child.stdout.setEncoding('utf8').on('data', (text: string) => (stdout += text))
    child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text))
    return new Promise((resolve, reject) => {
        child.on('error', reject)
        child.on('close', (code) =>
            code === 0 ? resolve(stdout) : reject(new Error(`exit code ${code}\n${stdout}${stderr}`)),
        )
    })
}

test('all examples are expected', () => {
    const names = readdirSync(join(root, 'examples/typescript')).flatMap((name) => /^(.*)\.ts$/.exec(name)?.[1] ?? [])
    assert.deepEqual(names.sort(), Object.keys(expected).sort())
})

for (const [name, pattern] of Object.entries(expected)) {
    test(`the example ${name} runs`, async () => assert.match(await run(name), pattern))
}
