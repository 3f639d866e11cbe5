// The packed package works in a page of a browser, bundled as programs for browsers are.

import assert from 'node:assert/strict'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { build } from 'esbuild'
import { Chromium, findChromium } from './chromium.js'
import { Projects } from './project.js'

const PAGE_URL = process.env['SDK_PAGE_URL'] ?? ''
const PAGE_DIRECTORY = process.env['SDK_PAGE_DIRECTORY'] ?? ''

const PROGRAM = `
import { ConfigurationError, SandboxNotFoundError, WorkspaceClient } from '@elevo/workspace-sdk'

async function* pieces() {
    yield new TextEncoder().encode('a stream ')
    yield new TextEncoder().encode('of bytes')
}

globalThis.main = async (config) => {
    const client = new WorkspaceClient(config)
    const seen = {}
    let id
    {
        await using sandbox = await client.sandbox.create({ template: 'base' })
        id = sandbox.id
        seen.run = (await sandbox.process.run('cat; echo done', { stdin: 'input ' })).stdout
        await sandbox.files.write('text', 'written')
        await sandbox.files.write('generated', pieces())
        await sandbox.files.write('streamed', new Blob(['a Blob as a stream']).stream())
        seen.files = [await sandbox.files.read('text'), await sandbox.files.read('generated')]
        seen.files.push(await sandbox.files.read('streamed'))
        let size = 0
        await sandbox.process.run('head -c 300000 /dev/zero > zeros', { check: true })
        for await (const chunk of sandbox.files.readStream('zeros')) size += chunk.length
        seen.size = size
        seen.events = []
        for await (const event of sandbox.process.runStream('echo out; sleep 0.3; echo err >&2; exit 3')) {
            seen.events.push(event.type + ':' + (event.data ?? event.exitCode))
        }
        const terminal = await sandbox.pty.create({ cols: 80, rows: 24, command: 'read a; echo got $a; exit 4' })
        await terminal.write('typed\\n')
        let text = ''
        for await (const event of terminal) if (event.type === 'output') text += event.data
        seen.terminal = [text, terminal.exitCode]
        seen.upload = await sandbox.files.upload('/etc', 'etc').catch((error) => error instanceof ConfigurationError)
    }
    seen.deleted = await client.sandbox.get(id).catch((error) => error instanceof SandboxNotFoundError)
    return seen
}
`

test('a page in a browser runs commands, streams, opens terminals and writes files', async (context) => {
    const program = findChromium(context.name)
    if (program === undefined) return context.skip('needs `chromium`')
    const projects = new Projects()
    try {
        const project = projects.create('page', 'module', { 'page.js': PROGRAM }, false)
        await build({
            entryPoints: [join(project, 'page.js')],
            outfile: join(PAGE_DIRECTORY, 'page.js'),
            bundle: true,
            platform: 'browser',
            format: 'esm',
            target: 'es2022',
            absWorkingDir: project,
            logLevel: 'error',
        })
    } finally {
        projects.remove()
    }
    writeFileSync(join(PAGE_DIRECTORY, 'index.html'), '<!doctype html><script type="module" src="/page.js"></script>')
    await using browser = new Chromium(program)
    const evaluate = await browser.open(PAGE_URL)
    const config = { apiUrl: process.env['WORKSPACE_API_URL'], apiKey: process.env['WORKSPACE_API_KEY'] }
    assert.deepEqual(await evaluate(`main(${JSON.stringify(config)})`), {
        run: 'input done\n',
        files: ['written', 'a stream of bytes', 'a Blob as a stream'],
        size: 300_000,
        events: ['stdout:out\n', 'stderr:err\n', 'exit:3'],
        terminal: ['typed\r\ngot typed\r\n', 4],
        upload: true,
        deleted: true,
    })
})
