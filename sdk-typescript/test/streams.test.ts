// Streams through connections that break: the received output equals the produced output.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type OutputEvent, ServerUnreachableError, type StreamEvent, type WorkspaceClient } from '@elevo/workspace-sdk'
import { FakeServer, Proxy, inSandbox, testClient } from './support.js'

/** Client through a proxy, with a connection for each request. */
function clientThrough(proxy: Proxy, config = {}): WorkspaceClient {
    return testClient({ apiUrl: proxy.url, retryDelay: 1, headers: { Connection: 'close' }, ...config })
}

async function collect(events: AsyncIterable<StreamEvent>): Promise<StreamEvent[]> {
    const all: StreamEvent[] = []
    for await (const event of events) all.push(event)
    return all
}

function isOutput(event: StreamEvent): event is OutputEvent {
    return event.type === 'stdout' || event.type === 'stderr'
}

/** Checks that the events are these texts without a gap and a repeat, and return the offset of the end. */
function checkOutput(events: StreamEvent[], stdout: string, stderr: string): void {
    const texts = { stdout: '', stderr: '' }
    let offset = 0
    for (const event of events.filter(isOutput)) {
        assert.equal(event.offset, offset)
        offset += event.bytes.length
        texts[event.type] += event.data
    }
    assert.deepEqual(texts, { stdout, stderr })
    assert.equal(events.at(-1)?.type, 'exit')
    assert.equal(events.filter(({ type }) => type === 'exit').length, 1)
}

test('a stream that is cut at every byte of its response has no gap and no repeat', async () => {
    await using proxy = await Proxy.start()
    await inSandbox(testClient(), async (box) => {
        const command = 'printf "né\\n"; echo err >&2; printf "\\342\\202"; printf "\\254\\n"'
        const whole = await box.process.start(command, { tag: 'measured' })
        await whole.wait()
        const raw = await fetch(
            `${process.env['WORKSPACE_API_URL']}/api/v1/sandboxes/${box.id}/process/${whole.commandId}/output`,
            {
                headers: { Authorization: `Bearer ${process.env['WORKSPACE_API_KEY']}` },
            },
        )
        const size = (await raw.text()).length + 600
        const through = await clientThrough(proxy).sandbox.get(box.id)
        for (let cut = 1; cut < size; cut += 1) {
            proxy.cuts = [cut]
            const events = await collect(through.process.output(whole.commandId))
            checkOutput(events, 'né\n€\n', 'err\n')
        }
        assert.deepEqual(proxy.cuts, [])
    })
})

test('a command is started once, wherever the response to its start is cut', async () => {
    await using proxy = await Proxy.start()
    await inSandbox(testClient(), async (box) => {
        const through = await clientThrough(proxy).sandbox.get(box.id)
        const cuts = Array.from({ length: 90 }, (_, index) => 1 + index * 13)
        for (const cut of cuts) {
            proxy.cuts = [cut, cut]
            const events = await collect(through.process.runStream('echo started >> log; echo out'))
            checkOutput(events, 'out\n', '')
        }
        for (const cut of cuts.slice(0, 20)) {
            proxy.cuts = [cut]
            assert.equal((await through.process.run('echo started >> log; echo out')).stdout, 'out\n')
        }
        assert.equal((await box.process.run('wc -l < log')).stdout.trim(), String(cuts.length + 20))
    })
})

test('output that arrives in single bytes is decoded', async () => {
    await using proxy = await Proxy.start()
    proxy.pieceSize = 1
    await inSandbox(testClient(), async (box) => {
        const through = await clientThrough(proxy).sandbox.get(box.id)
        checkOutput(await collect(through.process.runStream('printf "äöü€𝄞\\n"')), 'äöü€𝄞\n', '')
    })
})

test('a long stream survives many cuts', async () => {
    await using proxy = await Proxy.start()
    await inSandbox(testClient(), async (box) => {
        const through = await clientThrough(proxy).sandbox.get(box.id)
        proxy.cuts = Array.from({ length: 20 }, (_, index) => 40_000 + index * 1_777)
        const events = await collect(through.process.runStream('seq 1 200000'))
        checkOutput(events, Array.from({ length: 200_000 }, (_, index) => `${index + 1}\n`).join(''), '')
        assert.deepEqual(proxy.cuts, [])
    })
})

test('a silent stream is connected again', async () => {
    const urls: string[] = []
    await using server = await FakeServer.start((response, number, request) => {
        urls.push(request.url ?? '')
        response.writeHead(200, { 'content-type': 'text/event-stream' })
        if (number === 2) {
            response.write(
                ': cmd-1\n\nevent: stdout\nid: 3\ndata: {"type":"stdout","commandId":"cmd-1","data":"abc","offset":0,"timestamp":1}\n\n',
            )
        } else {
            response.end(
                'event: exit\nid: 3\ndata: {"type":"exit","commandId":"cmd-1","exitCode":0,"timedOut":false,"timestamp":1}\n\n',
            )
        }
    })
    const fakeFetch: typeof fetch = (url, init) =>
        (url as string).endsWith('/sandboxes/sbx-1')
            ? Promise.resolve(Response.json({ id: 'sbx-1' }))
            : fetch(url, init)
    const box = await server.client({ idleTimeout: 40, fetch: fakeFetch }).sandbox.get('sbx-1')
    await collect(box.process.output('cmd-0'))
    const events = await collect(box.process.output('cmd-1'))
    checkOutput(events, 'abc', '')
    assert.deepEqual(
        urls.slice(1).map((url) => url.split('?')[1]),
        ['from=0', 'from=3'],
    )
})

test('a stream whose connections always break fails', async () => {
    await using proxy = await Proxy.start()
    await inSandbox(testClient(), async (box) => {
        const { commandId } = await box.process.start('echo out')
        const through = await clientThrough(proxy, { reconnectTimeout: 100 }).sandbox.get(box.id)
        proxy.cuts = Array.from({ length: 20 }, () => 20)
        await assert.rejects(collect(through.process.output(commandId)), ServerUnreachableError)
    })
})

test('events are followed over lost connections', async () => {
    await using proxy = await Proxy.start()
    const client = clientThrough(proxy)
    await inSandbox(testClient(), async (box) => {
        const { items } = await client.events.list({ sandbox: box.id })
        const seen: number[] = []
        proxy.cuts = [900, 1_000, 1_100]
        for await (const event of client.events.follow({ sandbox: box.id })) {
            if (event.type === 'gap') continue
            seen.push((event as { id: number }).id)
            if (event.type === 'sandbox.created') {
                proxy.cutAll()
                await box.notes.create('to pass the time')
                await box.setTimeout({ timeoutSeconds: 60 })
                await box.pause({ keep: 'memory' })
            }
            if (event.type === 'sandbox.paused') break
        }
        await box.resume()
        assert.deepEqual(
            seen.slice(0, items.length),
            items.map(({ id }) => id),
        )
        assert.equal(new Set(seen).size, seen.length)
    })
})

test('a terminal is connected again, without a gap and a repeat', async () => {
    await using proxy = await Proxy.start()
    await inSandbox(testClient(), async (box) => {
        const through = await clientThrough(proxy).sandbox.get(box.id)
        // Each round needs output of the terminal, and then input to it.
        const command =
            'stty -echo; mkfifo f; echo ready; while read n < f; do echo round $n; read line; echo "<$line>"; done'
        const terminal = await through.pty.create({ cols: 80, rows: 24, command })
        let expected = 'ready\r\n'
        let round = 0
        let text = ''
        let offset = 0
        for await (const event of terminal) {
            if (event.type !== 'output') continue
            assert.equal(event.offset, offset)
            offset += event.bytes.length
            text += event.data
            if (text !== expected) continue
            if (text.endsWith(`round ${round}\r\n`)) {
                await terminal.write(`line ${round}\n`)
                expected += `<line ${round}>\r\n`
            } else if (round < 4) {
                round += 1
                proxy.cutAll()
                await box.process.run(`echo ${round} > f`)
                expected += `round ${round}\r\n`
            } else {
                await terminal.kill()
            }
        }
        assert.equal(text, expected)
        assert.ok(proxy.connections >= 5)
    })
})
