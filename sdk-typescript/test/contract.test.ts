// The programs and interfaces of the requirements, as they are written there. They are type-checked and run.

import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { promisify } from 'node:util'
import { transform } from 'esbuild'
import { Projects, sdk } from './project.js'

const execute = promisify(execFile)

// Word for word, but for comments, and for two types: the `stdin` of a stream stays open, while that of `run` is its whole
// input, and `delete` returns what is left, if anything is.
// `FILLED_IN` says what is put in for what they leave out.
const CLIENT = `
import { WorkspaceClient } from '@elevo/workspace-sdk'

const client = new WorkspaceClient({
  apiUrl: 'http://workspace-server:8080',
  apiKey: process.env.WORKSPACE_API_KEY,
  timeout: 30000,
  retries: 3
})

const sandbox = await client.sandbox.create({
  template: 'python:3.11',
  name: 'my-sandbox'
})

console.log('Sandbox created:', sandbox.id)
console.log('NFS mount command:', sandbox.nfs.mountCommand)

const result = await sandbox.process.run('python /workspace/main.py')
console.log('Output:', result.stdout)

await client.sandbox.delete(sandbox.id)
`

const USING = `
import { WorkspaceClient } from '@elevo/workspace-sdk'

async function main() {
  const client = new WorkspaceClient({...})

  await using sandbox = await client.sandbox.create({
    template: 'python:3.11'
  })

  const result = await sandbox.process.run('python --version')
  console.log(result.stdout)
}
`

const WITH_SANDBOX = `
import { withSandbox } from '@elevo/workspace-sdk'

await withSandbox(client, { template: 'python:3.11' }, async (sandbox) => {
  const result = await sandbox.process.run('python --version')
  console.log(result.stdout)
})
`

const FINALLY = `
const sandbox = await client.sandbox.create({ template: 'python:3.11' })
try {
  const result = await sandbox.process.run('python --version')
  console.log(result.stdout)
} finally {
  await client.sandbox.delete(sandbox.id)
}
`

const STREAM = `
const stream = sandbox.process.runStream('npm install')

for await (const event of stream) {
  switch (event.type) {
    case 'stdout':
      process.stdout.write(event.data)
      break
    case 'stderr':
      process.stderr.write(event.data)
      break
    case 'exit':
      console.log(\`\\nExit code: \${event.exitCode}\`)
      break
  }
}
`

const INTERFACES = `
import type {
  BatchDeleteResponse, CommandResult, CreateSandboxParams, DeleteOptions, ListParams, ListResponse, LogsOptions,
  LogsResponse, NFSInfo, PTYHandle, PTYOptions, RunOptions, SandboxState, SandboxStats, StreamEvent, Template,
} from '@elevo/workspace-sdk'
import * as published from '@elevo/workspace-sdk'

interface WorkspaceClient {
  sandbox: SandboxService
  templates: TemplateService
}

interface SandboxService {
  create(params: CreateSandboxParams): Promise<Sandbox>
  get(id: string): Promise<Sandbox>
  list(params?: ListParams): Promise<ListResponse<Sandbox>>
  delete(id: string, options?: DeleteOptions): Promise<unknown>
  batchDelete(ids: string[], options?: DeleteOptions): Promise<BatchDeleteResponse>
  logs(id: string, options?: LogsOptions): Promise<LogsResponse>
  stats(id: string): Promise<SandboxStats>
  extend(id: string, seconds: number): Promise<Sandbox>
}

interface Sandbox {
  id: string
  name?: string
  state: SandboxState
  createdAt: Date
  expiresAt: Date
  nfs: NFSInfo

  process: ProcessService
  pty: PTYService
}

interface ProcessService {
  run(command: string, options?: RunOptions): Promise<CommandResult>
  runStream(command: string, options?: Omit<RunOptions, 'stdin'>): AsyncIterable<StreamEvent>
  kill(commandId: string, signal?: number): Promise<void>
}

interface PTYService {
  create(options: PTYOptions): Promise<PTYHandle>
  resize(ptyId: string, cols: number, rows: number): Promise<void>
  kill(ptyId: string): Promise<void>
}

interface TemplateService {
  list(): Promise<Template[]>
}

interface ClientConfig {
  apiUrl: string
  apiKey: string
  timeout?: number
  retries?: number
  retryDelay?: number
  retryBackoff?: number
}

const config: ClientConfig = { apiUrl: 'http://workspace-server:8080', apiKey: 'key', retryDelay: 1000, retryBackoff: 2 }
export const client: WorkspaceClient = new published.WorkspaceClient(config)

abstract class Described extends Error {
  abstract code: number
  abstract name: string
}
type ErrorClass = { prototype: Described }
const root: ErrorClass = published.WorkspaceError
export const classes: { prototype: published.WorkspaceError }[] = [
  published.SandboxNotFoundError,
  published.TemplateNotFoundError,
  published.SandboxLimitExceededError,
  published.ProcessTimeoutError,
  published.CommandFailedError,
  published.PTYNotFoundError,
  published.PTYLimitExceededError,
  published.UnauthorizedError,
  published.RateLimitedError,
]
for (const each of classes) if (!(each.prototype instanceof published.WorkspaceError)) throw new Error(String(each))
export { root }
`

const FILLED_IN: [string, string][] = [
    ['python:3.11', 'base'],
    ['http://workspace-server:8080', process.env['WORKSPACE_API_URL'] ?? ''],
    ['{...}', ''],
    ["'python ", "'python3 "],
    // There is no registry in a sandbox without a network.
    ['npm install', 'echo installing'],
]
const IMPORT = "import { WorkspaceClient } from '@elevo/workspace-sdk'\n"
const NEW_CLIENT = `${IMPORT}const client = new WorkspaceClient()\n`
const PYTHON = /^Python 3\.\d+\.\d+\n\n$/
const PROGRAMS: Record<string, [string, RegExp]> = {
    // Nothing has written the program that it runs.
    client: [CLIENT, /^Sandbox created: sbx-\S+\nNFS mount command: mount -t nfs .*\nOutput: \n$/],
    using: [`${USING}await main()\n`, PYTHON],
    'with-sandbox': [NEW_CLIENT + WITH_SANDBOX, PYTHON],
    finally: [NEW_CLIENT + FINALLY, PYTHON],
    stream: [
        `${NEW_CLIENT}await using sandbox = await client.sandbox.create({ template: 'base' })\n${STREAM}`,
        /^installing\n\nExit code: 0\n$/,
    ],
    interfaces: [INTERFACES, /^$/],
}

let projects: Projects
let project: string

before(async () => {
    projects = new Projects()
    const files: Record<string, string> = {}
    for (const [name, [written]] of Object.entries(PROGRAMS)) {
        const source = FILLED_IN.reduce((text, [from, to]) => text.replaceAll(from, to), written)
        files[`${name}.ts`] = `${source}\nexport {}\n`
        const { code } = await transform(source, { loader: 'ts', format: 'esm', target: 'node18' })
        files[`${name}.mjs`] = code
    }
    project = projects.create('contract', 'module', files)
})

after(() => projects.remove())

test('strict TypeScript accepts the programs and interfaces of the requirements', async () => {
    const compilerOptions = {
        strict: true,
        exactOptionalPropertyTypes: true,
        module: 'NodeNext',
        target: 'ES2022',
        lib: ['ES2022', 'DOM', 'ESNext.Disposable'],
        types: ['node'],
        typeRoots: [join(sdk, 'node_modules/@types')],
        noEmit: true,
    }
    writeFileSync(join(project, 'tsconfig.json'), JSON.stringify({ compilerOptions, include: ['*.ts'] }))
    await execute(process.execPath, [join(sdk, 'node_modules/typescript/bin/tsc'), '-p', '.'], { cwd: project })
})

for (const [name, [, pattern]] of Object.entries(PROGRAMS)) {
    test(`the program ${name} of the requirements runs`, async () => {
        const { stdout, stderr } = await execute(process.execPath, [`${name}.mjs`], { cwd: project })
        assert.match(stdout, pattern)
        assert.equal(stderr, '')
    })
}
