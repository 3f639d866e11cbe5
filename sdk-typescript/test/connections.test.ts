// Ports, terminals with tickets, and tools for models.

import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { test } from 'node:test'
import { promisify } from 'node:util'
import { WebSocket as Ws } from 'ws'
import { ServerError, anthropicTools, callTool, openaiTools, withSandbox } from '@elevo/workspace-sdk'
import { sdk } from './project.js'
import { inSandbox, testClient } from './support.js'

const client = testClient()

const ECHO = `import socket
s = socket.create_server(("127.0.0.1", 7000))
while True:
    c, _ = s.accept()
    data = b""
    while part := c.recv(65536):
        data += part
    c.sendall(data[::-1])
    c.close()
`

test('bytes reach a port and come back', async () => {
    await inSandbox(client, async (box) => {
        await assert.rejects(
            box.ports.connect(7000),
            (error) => error instanceof ServerError && error.name === 'PORT_NOT_LISTENING',
        )
        await box.files.write('echo.py', ECHO)
        await box.process.start('python3 echo.py', { timeout: 0 })
        await box.process.run('until grep -q :1B58 /proc/net/tcp; do sleep 0.05; done', { check: true })
        assert.ok((await box.ports.list()).some(({ port }) => port === 7000))
        const connection = await box.ports.connect(7000)
        const sent = Uint8Array.from({ length: 300_000 }, (_, index) => index % 251)
        await connection.write(sent)
        await connection.end()
        const parts: Uint8Array[] = []
        for await (const part of connection) parts.push(part)
        connection.close()
        assert.deepEqual(new Uint8Array(Buffer.concat(parts)), sent.reverse())
    })
})

test('a terminal connects with a ticket where WebSockets have no headers', async () => {
    const urls: string[] = []
    class Plain extends Ws {
        constructor(url: string) {
            super(url)
            urls.push(url)
        }
    }
    const platform = testClient({ WebSocket: Plain as unknown as new (url: string) => WebSocket })
    await inSandbox(platform, async (box) => {
        const terminal = await box.pty.create({ cols: 80, rows: 24, command: 'echo hello; exit 4' })
        let text = ''
        for await (const event of terminal) if (event.type === 'output') text += event.data
        assert.equal(text, 'hello\r\n')
        assert.equal(await terminal.wait(), 4)
        assert.match(urls[0] ?? '', /ticket=wtt_/)
        await assert.rejects(box.ports.connect(7000), { name: 'UNEXPECTED_RESPONSE' })
    })
})

test('a terminal with unref lets the process end, and stays open', async () => {
    await inSandbox(client, async (box) => {
        const program = `import { WorkspaceClient } from '@elevo/workspace-sdk'
            const box = await new WorkspaceClient().sandbox.get('${box.id}')
            const terminal = await box.pty.create({ cols: 80, rows: 24, shell: '/bin/sh' })
            process.stdout.write(terminal.unref().id)`
        const { stdout: id } = await promisify(execFile)(process.execPath, ['--input-type=module', '-e', program], {
            cwd: sdk,
        })
        const terminal = await box.pty.attach(id)
        await terminal.write('exit 9\n')
        assert.equal(await terminal.wait(), 9)
    })
})

test('the tools work on a sandbox, and their errors are text', async () => {
    const names = ['run', 'read_file', 'write_file', 'edit_file', 'commit', 'diff']
    assert.deepEqual(
        openaiTools().map((tool) => [tool.type, tool.function.name]),
        names.map((name) => ['function', name]),
    )
    assert.deepEqual(
        anthropicTools().map(({ name }) => name),
        names,
    )
    assert.ok(anthropicTools().every(({ input_schema: schema }) => schema['type'] === 'object'))
    await inSandbox(client, async (box) => {
        assert.equal(
            await callTool(box, 'write_file', { path: 'src/a.py', content: 'print("a $& b")\n' }),
            'wrote /workspace/src/a.py',
        )
        assert.equal(await callTool(box, 'edit_file', { path: 'src/a.py', old: 'a', new: '$&c' }), 'edited src/a.py')
        assert.equal(await callTool(box, 'read_file', '{"path": "src/a.py"}'), 'print("$&c $& b")\n')
        assert.equal(
            await callTool(box, 'run', { command: 'python3 src/a.py; echo e >&2; exit 2' }),
            'exit code 2\nstdout:\n$&c $& b\nstderr:\ne',
        )
        assert.match(await callTool(box, 'diff'), /^\+print\("\$&c \$& b"\)$/m)
        assert.match(await callTool(box, 'commit', { message: 'done' }), /^snapshot \S+$/)
        assert.match(
            await callTool(box, 'edit_file', { path: 'src/a.py', old: '$', new: 'x' }),
            /^error: `old` occurs 2 times/,
        )
        assert.match(await callTool(box, 'read_file', { path: 'none' }), /^error: /)
        assert.match(await callTool(box, 'read_file', {}), /^error: `path` must be a string/)
        assert.match(
            await callTool(box, 'run', { command: 'sleep 60', timeoutSeconds: 0.2 }),
            /^error: the command exceeded its timeout/,
        )
        assert.match(await callTool(box, 'nothing', 'no json'), /^error: the arguments are not a JSON object/)
        assert.match(await callTool(box, 'nothing'), /^error: there is no tool `nothing`/)
    })
})

test('withSandbox and await using delete the sandbox, also after an error', async () => {
    const ids: string[] = []
    const failure = new Error('failed')
    assert.equal(await withSandbox(client, { template: 'base' }, (box) => ids.push(box.id)), 1)
    await assert.rejects(
        withSandbox(client, { template: 'base' }, async (box) => {
            ids.push(box.id)
            await box.delete()
            throw failure
        }),
        failure,
    )
    {
        await using box = await client.sandbox.create({ template: 'base' })
        ids.push(box.id)
    }
    for (const id of ids) await assert.rejects(client.sandbox.get(id), { name: 'SANDBOX_NOT_FOUND' })
})
