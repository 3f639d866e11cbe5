// Retries, timeouts, cancellation, errors and the debug log, against a server that misbehaves.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { inspect } from 'node:util'
import {
    ConfigurationError,
    type LogEntry,
    RateLimitedError,
    RequestTimeoutError,
    Sandbox,
    SandboxGoneError,
    ServerUnreachableError,
    UnexpectedResponseError,
    WorkspaceClient,
    WorkspaceError,
} from '@elevo/workspace-sdk'
import { FakeServer, sendError, sendJson } from './support.js'

test('the environment configures a client', () => {
    const { WORKSPACE_API_URL: url, WORKSPACE_API_KEY: key } = process.env
    try {
        process.env['WORKSPACE_API_URL'] = 'http://example.test:1234/api/v1/'
        process.env['WORKSPACE_API_KEY'] = 'key'
        assert.equal(new WorkspaceClient().apiUrl, 'http://example.test:1234')
        delete process.env['WORKSPACE_API_URL']
        assert.equal(new WorkspaceClient().apiUrl, 'http://127.0.0.1:8080')
        delete process.env['WORKSPACE_API_KEY']
        assert.throws(() => new WorkspaceClient(), ConfigurationError)
        assert.throws(() => new WorkspaceClient({ apiKey: 'k', apiUrl: 'server:80' }), ConfigurationError)
        assert.throws(() => new WorkspaceClient({ apiKey: 'k', retries: -1 }), ConfigurationError)
    } finally {
        process.env['WORKSPACE_API_URL'] = url
        process.env['WORKSPACE_API_KEY'] = key
    }
})

test('a creation is repeated with the same idempotency key after a lost connection', async () => {
    await using server = await FakeServer.start((response, number) => {
        if (number < 3) response.destroy()
        else sendJson(response, 201, { id: 'sbx-1', state: 'running', createdAt: '2026-01-01T00:00:00Z' })
    })
    const sandbox = await server.client().sandbox.create({ template: 'base' })
    assert.ok(sandbox instanceof Sandbox)
    assert.deepEqual(sandbox.createdAt, new Date('2026-01-01T00:00:00Z'))
    const keys = new Set(server.requests.map(({ headers }) => headers['idempotency-key']))
    assert.equal(server.requests.length, 3)
    assert.equal(keys.size, 1)
    assert.match([...keys][0] as string, /^[\x21-\x7e]{1,255}$/)
})

test('a request that is not safe to repeat is not repeated after a lost connection', async () => {
    await using server = await FakeServer.start((response) => response.destroy())
    await assert.rejects(server.client().sandbox.extend('sbx-1', 60), ServerUnreachableError)
    assert.equal(server.requests.length, 1)
})

test('a request that the server has refused before it did anything is repeated', async () => {
    await using server = await FakeServer.start((response, number) => {
        if (number === 1) sendError(response, 429, 'RATE_LIMITED', { 'retry-after': '0' })
        else if (number === 2) sendError(response, 503, 'SHUTTING_DOWN')
        else sendJson(response, 200, { id: 'sbx-1' })
    })
    await server.client().sandbox.extend('sbx-1', 60)
    assert.equal(server.requests.length, 3)
})

test('retries end, and a delay that exceeds the timeout is not waited for', async () => {
    await using server = await FakeServer.start((response) =>
        sendError(response, 429, 'RATE_LIMITED', { 'retry-after': '90' }),
    )
    const error = await server
        .client()
        .sandbox.get('sbx-1')
        .catch((thrown: unknown) => thrown)
    assert.ok(error instanceof RateLimitedError)
    assert.equal(error.retryAfter, 90_000)
    assert.equal(error.retryable, true)
    assert.equal(error.requestId, 'req-1')
    assert.equal(server.requests.length, 1)
    await using broken = await FakeServer.start((response) => sendError(response, 503, 'QUEUE_FULL'))
    await assert.rejects(broken.client({ retries: 2 }).sandbox.get('sbx-1'), { name: 'QUEUE_FULL' })
    assert.equal(broken.requests.length, 3)
})

test('errors that are not retryable are not repeated', async () => {
    await using server = await FakeServer.start((response) => sendError(response, 500, 'INTERNAL_ERROR'))
    await assert.rejects(server.client().sandbox.get('sbx-1'), {
        name: 'INTERNAL_ERROR',
        retryable: false,
        status: 500,
    })
    assert.equal(server.requests.length, 1)
})

test('a deletion whose response was lost has succeeded if the sandbox is gone', async () => {
    await using server = await FakeServer.start((response, number) => {
        if (number === 1) response.destroy()
        else sendError(response, 404, 'SANDBOX_NOT_FOUND')
    })
    assert.equal(await server.client().sandbox.delete('sbx-1'), undefined)
    await using other = await FakeServer.start((response) => sendError(response, 404, 'SANDBOX_NOT_FOUND'))
    await assert.rejects(other.client().sandbox.delete('sbx-1'), SandboxGoneError)
})

test('a body that is a stream is not sent twice', async () => {
    await using server = await FakeServer.start((response) => sendError(response, 503, 'SHUTTING_DOWN'))
    const box = new SandboxOf(server)
    // eslint-disable-next-line @typescript-eslint/require-await -- an async generator is what is tested
    async function* content(): AsyncGenerator<Uint8Array> {
        yield new TextEncoder().encode('once')
    }
    await assert.rejects((await box.get()).files.write('file', content()), { name: 'SHUTTING_DOWN' })
    assert.deepEqual(server.requests.map(({ body }) => body).slice(-1), ['once'])
    assert.equal(server.requests.length, 2)
})

/** Sandbox of a server that answers the first request with it. */
class SandboxOf {
    constructor(readonly server: FakeServer) {}

    async get(): Promise<Sandbox> {
        const client = this.server.client({
            fetch: (url, init) =>
                this.server.requests.length === 0 && init?.method === 'GET'
                    ? (this.server.requests.push({ method: 'GET', url: '', headers: {}, body: '' }),
                      Promise.resolve(Response.json({ id: 'sbx-1' })))
                    : fetch(url, init),
        })
        return client.sandbox.get('sbx-1')
    }
}

test('a server that cannot be reached differs from a sandbox that is gone', async () => {
    const server = await FakeServer.start(() => undefined)
    const client = server.client({ retries: 1 })
    await server[Symbol.asyncDispose]()
    const error = await client.sandbox.get('sbx-1').catch((thrown: unknown) => thrown)
    assert.ok(error instanceof ServerUnreachableError)
    assert.equal(error.code, 0)
    assert.equal(error.retryable, true)
    assert.ok(!(error instanceof SandboxGoneError))
    assert.match(error.message, /ECONNREFUSED/)
})

test('a call that takes too long fails, and 0 is no timeout', async () => {
    await using server = await FakeServer.start((response, number) => {
        if (number === 2) sendJson(response, 200, { id: 'sbx-1' })
    })
    const client = server.client({ timeout: 20 })
    await assert.rejects(client.sandbox.get('sbx-1'), RequestTimeoutError)
    await client.sandbox.get('sbx-1', { timeout: 0 })
})

test('a signal cancels a call with its reason', async () => {
    const controller = new AbortController()
    const reason = new Error('not wanted any more')
    await using server = await FakeServer.start(() => controller.abort(reason))
    const client = server.client()
    await assert.rejects(client.sandbox.get('sbx-1', { signal: controller.signal }), reason)
    await assert.rejects(client.sandbox.get('sbx-1', { signal: AbortSignal.abort(reason) }), reason)
    assert.equal(server.requests.length, 1)
})

test('a response that is not from a workspace server is told apart', async () => {
    await using server = await FakeServer.start((response, number) => {
        response.writeHead(number === 1 ? 404 : number === 2 ? 200 : 502, { 'content-type': 'text/html' })
        response.end('<html>proxy</html>')
    })
    const client = server.client({ retries: 1 })
    await assert.rejects(client.sandbox.get('a'), UnexpectedResponseError)
    await assert.rejects(client.sandbox.get('b'), UnexpectedResponseError)
    await assert.rejects(client.sandbox.get('c'), { name: 'UNEXPECTED_RESPONSE', status: 502, retryable: true })
    assert.equal(server.requests.length, 4)
})

test('the debug log and printed objects contain no secrets', async () => {
    await using server = await FakeServer.start((response) =>
        sendJson(response, 200, { id: 'sbx-1' }, { 'x-request-id': 'req-7' }),
    )
    const entries: LogEntry[] = []
    const client = server.client({ logger: (entry) => entries.push(entry), headers: { 'X-Secret': 'secret-header' } })
    const sandbox = await client.sandbox.get('sbx-1')
    await client.snapshots.list({ label: ['secret-label'] })
    assert.deepEqual(
        entries.map(({ method, path, status, attempt, requestId }) => ({ method, path, status, attempt, requestId })),
        [
            { method: 'GET', path: '/api/v1/sandboxes/sbx-1', status: 200, attempt: 1, requestId: 'req-7' },
            { method: 'GET', path: '/api/v1/snapshots', status: 200, attempt: 1, requestId: 'req-7' },
        ],
    )
    const text =
        JSON.stringify(entries) +
        inspect(client, { depth: 9, showHidden: true }) +
        inspect(sandbox) +
        JSON.stringify(client)
    assert.doesNotMatch(text, /secret/)
})

test('errors have their class by name, and by status if the name is unknown', async () => {
    await using server = await FakeServer.start((response, number) => {
        const [status, name] = [
            [401, 'NEW_NAME'],
            [404, 'NEW_NAME'],
            [410, 'SANDBOX_EXPIRED'],
            [507, 'NEW_NAME'],
            [422, 'NEW_NAME'],
        ][number - 1] as [number, string]
        sendError(response, status, name)
    })
    const classes = []
    for (let number = 1; number <= 5; number += 1) {
        const error = await server
            .client()
            .keys.me()
            .catch((thrown: unknown) => thrown)
        assert.ok(error instanceof WorkspaceError)
        classes.push(error.constructor.name)
    }
    assert.deepEqual(classes, [
        'UnauthorizedError',
        'NotFoundError',
        'SandboxExpiredError',
        'LimitExceededError',
        'InvalidRequestError',
    ])
})

test('times become dates, but not what users have stored', async () => {
    const time = '2026-01-02T03:04:05Z'
    const labels = { createdAt: time }
    await using server = await FakeServer.start((response, number) => {
        if (number === 1) sendJson(response, 200, { id: 'sbx-1', createdAt: time, expiresAt: null, labels })
        else if (number === 2) sendJson(response, 200, { id: 'e', time, data: { time, inner: [{ time }] } })
        else sendJson(response, 200, { items: [{ id: 1, type: 'sandbox.created', time, data: { expiresAt: time } }] })
    })
    const client = server.client()
    const box = await client.sandbox.get('sbx-1')
    assert.deepEqual([box.createdAt, box.expiresAt, box.labels], [new Date(time), null, labels])
    const episode = await client.episodes.get('e')
    assert.deepEqual([episode.time, episode.data], [new Date(time), { time, inner: [{ time }] }])
    const [event] = (await client.events.list()).items
    assert.ok(event?.type === 'sandbox.created')
    assert.deepEqual([event.time, event.data.expiresAt], [new Date(time), new Date(time)])
})
