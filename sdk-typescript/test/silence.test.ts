// Connections that die silently, and servers that are away for longer than the retries of a request last.

import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { createContext, runInContext } from 'node:vm'
import { build } from 'esbuild'
import ts from 'typescript'
import { join } from 'node:path'
import { type ClientConfig, type Sandbox, ServerUnreachableError, type StreamEvent } from '@elevo/workspace-sdk'
import { sdk } from './project.js'
import { FakeServer, Proxy, inSandbox, sendJson, testClient } from './support.js'

/** Returns a sandbox of a server that answers only other requests. */
function sandboxOf(server: FakeServer, config: ClientConfig): Promise<Sandbox> {
    const withSandbox: typeof fetch = (url, init) =>
        (url as string).endsWith('/sandboxes/sbx-1')
            ? Promise.resolve(Response.json({ id: 'sbx-1' }))
            : fetch(url, init)
    return server.client({ fetch: withSandbox, ...config }).sandbox.get('sbx-1')
}

async function types(events: AsyncIterable<StreamEvent>): Promise<string[]> {
    const all: string[] = []
    for await (const { type } of events) all.push(type)
    return all
}

const EXIT =
    'event: exit\nid: 0\ndata: {"type":"exit","commandId":"cmd-1","exitCode":0,"timedOut":false,"timestamp":1}\n\n'

test('reading a file over a connection that dies silently fails', { timeout: 20_000 }, async () => {
    await using server = await FakeServer.start((response) => {
        response.writeHead(200, { 'content-length': '1000' })
        response.write('the first bytes')
    })
    const box = await sandboxOf(server, { idleTimeout: 40 })
    await assert.rejects(box.files.readBytes('file'), ServerUnreachableError)
    let text = ''
    await assert.rejects(async () => {
        for await (const chunk of box.files.readStream('file')) text += new TextDecoder().decode(chunk)
    }, ServerUnreachableError)
    assert.equal(text, 'the first bytes')
})

test('run over a connection that dies silently asks again for the same command', { timeout: 20_000 }, async () => {
    await using server = await FakeServer.start((response, number) => {
        if (number < 3) return
        sendJson(response, 200, { commandId: 'cmd-1', exitCode: 0, stdout: 'out', stderr: '', truncated: false })
    })
    const box = await sandboxOf(server, { idleTimeout: 40 })
    assert.equal((await box.process.run('true')).stdout, 'out')
    // On a loaded machine, even responses may come too late.
    assert.ok(server.requests.length >= 3)
    assert.equal(new Set(server.requests.map(({ headers }) => headers['idempotency-key'])).size, 1)
})

test('a stream outlasts a server that is away for more attempts than a request has', async () => {
    await using server = await FakeServer.start((response, number) => {
        if (number > 1 && number < 9) return response.destroy()
        response.writeHead(200, { 'content-type': 'text/event-stream' })
        response.end(number === 1 ? ': cmd-1\n\n' : EXIT)
    })
    const box = await sandboxOf(server, { retries: 1, retryDelay: 1 })
    assert.deepEqual(await types(box.process.runStream('true')), ['exit'])
    assert.equal(server.requests.length, 9)
})

test('a stream gives up a server that stays away', async () => {
    await using server = await FakeServer.start((response, number) => {
        if (number > 1) return response.destroy()
        response.writeHead(200, { 'content-type': 'text/event-stream' })
        response.end(': cmd-1\n\n')
    })
    const box = await sandboxOf(server, { retries: 1, retryDelay: 1, reconnectTimeout: 100 })
    await assert.rejects(types(box.process.runStream('true')), ServerUnreachableError)
    assert.ok(server.requests.length > 5, String(server.requests.length))
})

test('a stream that cannot be begun fails like a request', async () => {
    await using server = await FakeServer.start((response) => response.destroy())
    const box = await sandboxOf(server, { retries: 2, retryDelay: 1 })
    await assert.rejects(types(box.process.output('cmd-1')), ServerUnreachableError)
    assert.equal(server.requests.length, 3)
})

test('a terminal outlasts a server that is away for more attempts than a request has', async () => {
    await using proxy = await Proxy.start()
    await inSandbox(testClient(), async (box) => {
        const through = await testClient({ apiUrl: proxy.url, retries: 1, retryDelay: 1 }).sandbox.get(box.id)
        const terminal = await through.pty.create({ cols: 80, rows: 24, command: 'stty -echo; echo a; read x; echo b' })
        let text = ''
        for await (const event of terminal) {
            if (event.type !== 'output') continue
            text += event.data
            if (text !== 'a\r\n') continue
            proxy.cuts = Array.from({ length: 8 }, () => 0)
            proxy.cutAll()
            await using other = await box.pty.attach(terminal.id)
            await other.write('\n')
        }
        assert.equal(text, 'a\r\nb\r\n')
        assert.deepEqual(proxy.cuts, [])
    })
})

test('await using works where the platform has no symbol for it', async () => {
    const { outputFiles } = await build({
        stdin: { contents: "export { asyncDispose } from './dispose.ts'", resolveDir: join(sdk, 'src') },
        bundle: true,
        format: 'iife',
        globalName: 'sdk',
        write: false,
    })
    const program = `async function use(resource) { await using used = resource }`
    const options = { compilerOptions: { target: ts.ScriptTarget.ES2022 } }
    const context = createContext({})
    // Newer versions of Node.js have the symbol in every context.
    runInContext(
        'Object.defineProperty(Symbol, "asyncDispose", { value: undefined, writable: true, configurable: true })',
        context,
    )
    runInContext(outputFiles[0]?.text ?? '', context)
    runInContext(ts.transpileModule(program, options).outputText, context)
    const disposed = runInContext(
        'let count = 0; use({ [sdk.asyncDispose]: async () => { count += 1 } }).then(() => count)',
        context,
    ) as Promise<number>
    assert.equal(await disposed, 1)
    assert.match(readFileSync(join(sdk, 'dist/esm/sandbox.js'), 'utf8'), /\[asyncDispose\]/)
})
