// Connections that fail at each byte, or at every fourth where a command is run for each, of what
// the server sends: the received output equals the produced output.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type CommandStream, type Sandbox } from '@elevo/workspace-sdk'
import { type Fault, Proxy, inSandbox, testClient } from './support.js'

/** Number of connections that fail at the same time. */
const WORKERS = 16
/** Distances of the offsets: each silence takes its time. */
const STEPS: Record<Fault, number> = { end: 1, reset: 1, delay: 1, stall: 16 }
/** Silence after which a stream is connected again, in milliseconds. */
const IDLE_TIMEOUT = 200
const STREAM_FAULTS: Fault[] = ['end', 'reset', 'stall', 'delay']
const COMMAND = 'printf "né\\n"; echo err >&2; printf "\\342\\202"; printf "\\254\\n"'

/** Reads a stream through a client, and describes all that was received. */
type Read = (box: Sandbox) => Promise<string>

/** Starts a proxy, with a client that makes a connection for each request, and a handle of the sandbox. */
async function startProxy(box: Sandbox): Promise<{ proxy: Proxy; read: (read: Read) => Promise<string> }> {
    const proxy = await Proxy.start()
    const client = testClient({
        apiUrl: proxy.url,
        retryDelay: 1,
        retries: 20,
        maxRetryDelay: 50,
        idleTimeout: IDLE_TIMEOUT,
        headers: { Connection: 'close' },
    })
    const handle = await client.sandbox.get(box.id)
    return { proxy, read: (read) => read(handle) }
}

/** Reads a stream while its first connection fails at each byte, and checks that it is as without failures. */
async function failAtEachByte(box: Sandbox, faults: Fault[], expected: string, read: Read, step = 1): Promise<void> {
    const measuring = await startProxy(box)
    assert.equal(await measuring.read(read), expected)
    assert.equal(measuring.proxy.connections, 2)
    const size = measuring.proxy.lastSize
    await measuring.proxy[Symbol.asyncDispose]()
    const cases: [Fault, number][] = []
    for (const fault of faults)
        for (let offset = 1; offset < size; offset += step * STEPS[fault]) cases.push([fault, offset])
    const work = async (): Promise<void> => {
        const worker = await startProxy(box)
        await using proxy = worker.proxy
        for (let next = cases.pop(); next; next = cases.pop()) {
            const [fault, offset] = next
            // A response that was only delayed has left its connection open.
            proxy.cutAll()
            proxy.fault = fault
            proxy.cuts = [offset]
            assert.equal(await worker.read(read), expected, `${fault} at ${offset} of ${size}`)
            assert.deepEqual(proxy.cuts, [], `${fault} at ${offset} of ${size}`)
        }
    }
    await Promise.all(Array.from({ length: WORKERS }, work))
}

async function describeCommand(events: CommandStream): Promise<string> {
    const texts = { stdout: '', stderr: '' }
    let offset = 0
    let end = ''
    for await (const event of events) {
        assert.equal(end, '')
        if (event.type === 'exit') end = `exit ${event.exitCode}`
        if (event.type !== 'stdout' && event.type !== 'stderr') continue
        assert.equal(event.offset, offset)
        offset += event.bytes.length
        texts[event.type] += event.data
    }
    return `stdout ${texts.stdout} stderr ${texts.stderr} ${end}`
}

const OUTPUT = 'stdout né\n€\n stderr err\n exit 0'

test('the output of a command', async () => {
    await inSandbox(testClient(), async (box) => {
        const { commandId } = await box.process.start(COMMAND)
        await box.process.output(commandId).wait()
        await failAtEachByte(box, STREAM_FAULTS, OUTPUT, (handle) => describeCommand(handle.process.output(commandId)))
    })
})

test('the output of a command that is started', async () => {
    await inSandbox(testClient(), async (box) => {
        let count = 0
        const read = (handle: Sandbox): Promise<string> => {
            count += 1
            return describeCommand(handle.process.runStream(`echo >> log; ${COMMAND}`))
        }
        await failAtEachByte(box, STREAM_FAULTS, OUTPUT, read, 4)
        assert.equal((await box.process.run('wc -l < log')).stdout.trim(), String(count))
    })
})
