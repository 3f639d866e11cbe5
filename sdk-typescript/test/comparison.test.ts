// The programs whose lines `bench/sdk-lines` counts do what they should.

import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { pathToFileURL } from 'node:url'
import { promisify } from 'node:util'

const directory = mkdtempSync(join(tmpdir(), 'workspace-sdk-lines.'))
mkdirSync(join(directory, 'tests'))
writeFileSync(join(directory, 'tests/run.sh'), 'echo passed\n')
after(() => rmSync(directory, { recursive: true }))

const expected: Record<string, RegExp> = {
    run: /^hello\n\n$/,
    stream: /^compiling\nexit code 3\n$|^(compiling\n|warning\n){2}exit code 3\n$/,
    files: /^hello\n$/,
    upload: /^passed\n\n$/,
    port: /Directory listing for \//,
    pause: /^kept\n$/,
    fork: /^fork 0\n\nfork 1\n\nfork 2\n\nfork 3\n\nfork 4\n\n$/,
    restore: /^good\n$/,
    terminal: /24 80\r\n/,
    merge: /^written by the writer written by the editor\n$/,
}
const programs = pathToFileURL(join(process.env['SDK_ROOT'] ?? '', 'sdk-typescript/build/comparison/workspace.js')).href

test('all programs are expected', async () => {
    assert.deepEqual(Object.keys((await import(programs)) as object).sort(), Object.keys(expected).sort())
})

for (const [name, pattern] of Object.entries(expected)) {
    test(`the program ${name} runs`, async () => {
        const code = `(await import(${JSON.stringify(programs)})).${name}(${JSON.stringify(directory)})`
        const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '-e', `await ${code}`])
        assert.match(stdout, pattern)
    })
}
