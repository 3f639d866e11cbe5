// Client for the benchmark of the SDK for TypeScript: performs the work of each line, and prints its result.

import { Agent, request } from 'node:http'
import { createInterface } from 'node:readline'
import { WorkspaceClient } from '../../sdk-typescript/dist/esm/index.js'

const url = process.env.WORKSPACE_API_URL
const headers = { Authorization: `Bearer ${process.env.WORKSPACE_API_KEY}`, 'Content-Type': 'application/json' }
const client = new WorkspaceClient({ timeout: 0 })
const agent = new Agent({ keepAlive: true })
const body = JSON.stringify({ command: 'true' })

/** Runs `true` with the client that the SDK is built on. */
async function runWithFetch(sandbox) {
    const response = await fetch(`${url}/api/v1/sandboxes/${sandbox}/process/run`, { method: 'POST', headers, body })
    if ((await response.json()).exitCode !== 0) throw new Error('the command failed')
}

/** Runs `true` with the client of the standard library that does the least. */
function runWithHttp(sandbox) {
    return new Promise((resolve, reject) => {
        const sent = request(
            `${url}/api/v1/sandboxes/${sandbox}/process/run`,
            { method: 'POST', agent, headers: { ...headers, 'Content-Length': body.length } },
            (response) => {
                let text = ''
                response.setEncoding('utf8')
                response.on('data', (chunk) => (text += chunk))
                response.on('end', () => {
                    if (JSON.parse(text).exitCode === 0) resolve()
                    else reject(new Error('the command failed'))
                })
            },
        )
        sent.on('error', reject)
        sent.end(body)
    })
}

async function milliseconds(action) {
    const begun = performance.now()
    await action()
    return performance.now() - begun
}

const work = {
    /** Times of single commands, in turns. */
    async run({ sandbox, count }) {
        const box = await client.sandbox.get(sandbox)
        const runs = {
            SDK: () => box.process.run('true', { check: true }),
            fetch: () => runWithFetch(sandbox),
            'node:http': () => runWithHttp(sandbox),
        }
        const times = { SDK: [], fetch: [], 'node:http': [] }
        for (let turn = 0; turn < count; turn += 1) {
            for (const [name, run] of Object.entries(runs)) times[name].push(await milliseconds(run))
        }
        return { times }
    },
    /** Commands at once on one client. */
    async concurrent({ sandbox, count }) {
        const box = await client.sandbox.get(sandbox)
        let results
        const took = await milliseconds(async () => {
            const runs = Array.from({ length: count }, (_, index) => box.process.run(`echo ${index}`, { timeout: 0 }))
            results = await Promise.allSettled(runs)
        })
        const failures = results.flatMap(({ value, reason }, index) =>
            value?.stdout === `${index}\n` ? [] : [String(reason ?? JSON.stringify(value))],
        )
        return { took, failures }
    },
    /** Output of one command. */
    async stream({ sandbox, bytes }) {
        const box = await client.sandbox.get(sandbox)
        let size = 0
        const took = await milliseconds(async () => {
            const command = `yes 0123456789abcdef0123456789abcdef | head -c ${bytes}`
            for await (const event of box.process.runStream(command, { timeout: 0 })) {
                if (event.type === 'stdout') size += event.data.length
            }
        })
        if (size !== bytes) throw new Error(`${size} bytes`)
        return { took }
    },
}

for await (const line of createInterface({ input: process.stdin })) {
    const { work: name, ...parameters } = JSON.parse(line)
    const result = await work[name](parameters).catch((error) => ({ error: String(error?.stack ?? error) }))
    process.stdout.write(`${JSON.stringify(result)}\n`)
}
agent.destroy()
