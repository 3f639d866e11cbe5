// Runs the tests against a server of their own, with the embedded runtime, and stops it in the end.
//
//   node test/run.mjs [TEST…]    names of test files without `.test.ts`; by default all

import { spawn } from 'node:child_process'
import { createReadStream, existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs'
import { createServer } from 'node:http'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { build } from 'esbuild'
import { uncalledOperations } from './uncalled-operations.mjs'

const sdk = fileURLToPath(new URL('..', import.meta.url))
const root = resolve(sdk, '..')
const key = 'typescript-sdk-key-0123456789'
const START_TIMEOUT = 60_000

/** Serves the files of a directory as pages of an origin of their own. Returns the server and its URL. */
async function startPages(directory) {
    mkdirSync(directory, { recursive: true })
    const types = { html: 'text/html', js: 'text/javascript' }
    const server = createServer(({ url }, response) => {
        const name = url === '/' ? 'index.html' : url.slice(1)
        if (!/^\w+\.(html|js)$/.test(name)) return response.writeHead(404).end()
        response.writeHead(200, { 'content-type': types[name.split('.')[1]] })
        createReadStream(join(directory, name)).pipe(response)
    })
    await new Promise((listening) => server.listen(0, '127.0.0.1', listening))
    return { server, url: `http://127.0.0.1:${server.address().port}` }
}

/** Starts the server on a free port of loopback. Returns its process and its URL. */
async function startServer(data, origin) {
    const program = process.env.WORKSPACE_SERVER || join(root, 'target/debug/workspace-server')
    const agent = process.env.WORKSPACE_AGENT || join(root, 'target/debug/workspace-agent')
    for (const file of [program, agent]) if (!existsSync(file)) throw new Error(`${file} is missing\nhint: cargo build`)
    const server = spawn(program, {
        stdio: ['ignore', 'pipe', 'pipe'],
        env: {
            PATH: process.env.PATH,
            HOME: data,
            TMPDIR: tmpdir(),
            DATA_DIR: data,
            API_PORT: '0',
            API_KEY: key,
            AGENT_PROGRAM: resolve(agent),
            RATE_LIMIT: 'off',
            REQUIRE_ISOLATION: 'best-effort',
            POOL_SIZE: '0',
            MAX_COMMANDS: '1000',
            CORS_ORIGINS: origin,
            RUST_LOG: 'warn',
        },
    })
    let log = ''
    server.stderr.on('data', (chunk) => (log += chunk))
    const url = await new Promise((resolveUrl, reject) => {
        const fail = (reason) => reject(new Error(`the server does not start: ${reason}\n${log}`))
        const timer = setTimeout(() => fail('no announcement'), START_TIMEOUT)
        let announced = ''
        server.on('error', fail)
        server.on('exit', (code) => fail(`exit code ${code}`))
        server.stdout.on('data', (chunk) => {
            announced += chunk
            const [, found] = /^API +(\S+)$/m.exec(announced) ?? []
            if (!found || !/^runtime/m.test(announced)) return
            clearTimeout(timer)
            resolveUrl(found)
        })
    })
    return { server, url }
}

async function stopServer(server, data) {
    if (server.exitCode === null) {
        const exited = new Promise((resolveExit) => server.once('exit', resolveExit))
        server.kill('SIGTERM')
        await exited
    }
    // The process that holds the namespaces outlives the server, for the next one.
    const holder = join(data, 'holder')
    if (existsSync(holder)) {
        const pid = Number(/\d+/.exec(readFileSync(holder, 'utf8'))?.[0])
        try {
            if (pid > 1) process.kill(pid, 'SIGKILL')
        } catch (error) {
            if (error.code !== 'ESRCH') throw error
        }
    }
}

/** Deletes what failed tests have left. */
async function deleteSandboxes(url) {
    const headers = { Authorization: `Bearer ${key}` }
    const { items } = await (await fetch(`${url}/api/v1/sandboxes?limit=100`, { headers })).json()
    for (const { id } of items)
        await fetch(`${url}/api/v1/sandboxes/${id}?complete=false`, { method: 'DELETE', headers })
}

/** Returns false, and prints their names, if there are operations of the API that no test has called with success. */
async function checkOperations(url) {
    const metrics = await fetch(`${url}/metrics`, { headers: { Authorization: `Bearer ${key}` } })
    const description = JSON.parse(readFileSync(join(root, 'docs/openapi.json'), 'utf8'))
    const uncalled = uncalledOperations(description, await metrics.text())
    for (const operation of uncalled) console.error(`error: no test has called ${operation}`)
    if (uncalled.length > 0) console.error('hint: add a step to sdk-scenarios/scenarios.json')
    return uncalled.length === 0
}

async function compile() {
    rmSync(join(sdk, 'build'), { recursive: true, force: true })
    const tests = readdirSync(join(sdk, 'test')).filter((name) => name.endsWith('.ts'))
    const examples = join(root, 'examples/typescript')
    const scripts = existsSync(examples) ? readdirSync(examples).filter((name) => name.endsWith('.ts')) : []
    const options = { format: 'esm', platform: 'node', target: 'node18', logLevel: 'warning' }
    await build({
        ...options,
        entryPoints: tests.map((name) => join(sdk, 'test', name)),
        outdir: join(sdk, 'build/test'),
    })
    await build({
        ...options,
        entryPoints: scripts.map((name) => join(examples, name)),
        outdir: join(sdk, 'build/examples'),
    })
    await build({
        ...options,
        entryPoints: [join(root, 'bench/harness/sdk_lines/workspace.ts')],
        outdir: join(sdk, 'build/comparison'),
    })
}

await compile()
const data = mkdtempSync(join(tmpdir(), 'workspace-sdk-ts.'))
let status = 1
let started
const pageDirectory = join(data, 'pages')
const pages = await startPages(pageDirectory)
try {
    started = await startServer(join(data, 'server'), pages.url)
    const chosen = process.argv.slice(2)
    const tests =
        chosen.length > 0
            ? chosen
            : readdirSync(join(sdk, 'test')).flatMap((name) => /^(.*)\.test\.ts$/.exec(name)?.[1] ?? [])
    const runner = spawn(
        process.execPath,
        [
            '--test',
            '--test-concurrency=3',
            '--test-reporter=spec',
            ...tests.map((name) => `build/test/${name}.test.js`),
        ],
        {
            cwd: sdk,
            stdio: 'inherit',
            env: {
                ...process.env,
                NODE_OPTIONS: '',
                WORKSPACE_API_URL: started.url,
                WORKSPACE_API_KEY: key,
                SDK_ROOT: root,
                SDK_PAGE_URL: pages.url,
                SDK_PAGE_DIRECTORY: pageDirectory,
                SDK_SCENARIOS: join(root, 'sdk-scenarios/scenarios.json'),
            },
        },
    )
    for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => runner.kill(signal))
    status = await new Promise((done) => runner.once('exit', (code) => done(code ?? 1)))
    if (status === 0 && chosen.length === 0 && !(await checkOperations(started.url))) status = 1
} finally {
    if (started) {
        await deleteSandboxes(started.url)
        await stopServer(started.server, join(data, 'server'))
    }
    pages.server.closeAllConnections()
    pages.server.close()
    rmSync(data, { recursive: true, force: true })
}
process.exitCode = status
