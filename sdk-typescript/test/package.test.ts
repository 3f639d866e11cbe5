// The packed package works in clean projects: ES modules, CommonJS, strict TypeScript, and other runtimes.

import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { promisify } from 'node:util'
import { Projects, run, sdk } from './project.js'
import { skip } from './skip.js'

const USE = `
const client = new WorkspaceClient()
const sandbox = await client.sandbox.create({ template: 'base' })
try {
  console.log((await sandbox.process.run('echo packed')).stdout)
  await sandbox.files.upload(directory, 'uploaded')
  const terminal = await sandbox.pty.create({ cols: 80, rows: 24, command: 'exit 6' })
  console.log(await terminal.wait(), (await sandbox.files.list('uploaded')).total)
} finally {
  await sandbox.delete()
}
`
const runAsync = promisify(execFile)
let projects: Projects

/** Creates a project that has the package installed, and a directory to upload. */
function createProject(name: string, type: string, files: Record<string, string>): string {
    const path = projects.create(name, type, files)
    mkdirSync(join(path, 'data'))
    writeFileSync(join(path, 'data', 'file'), 'x')
    return path
}

before(() => {
    projects = new Projects()
})

after(() => projects.remove())

test('the archive has the built files, the README and the licence, and nothing else', () => {
    const names = run('tar', ['tzf', projects.archive], projects.directory)
        .trim()
        .split('\n')
        .map((name) => name.replace(/^package\//, ''))
    for (const name of [
        'LICENSE',
        'README.md',
        'package.json',
        'dist/esm/index.js',
        'dist/esm/index.d.ts',
        'dist/cjs/index.js',
        'dist/cjs/index.d.ts',
    ]) {
        assert.ok(names.includes(name), name)
    }
    assert.deepEqual(
        names.filter((name) => !/^(LICENSE|README\.md|package\.json|dist\/(esm|cjs)\/.*)$/.test(name)),
        [],
    )
})

test('an ES module can use the package', () => {
    const head = "import { WorkspaceClient } from '@elevo/workspace-sdk'\nconst directory = 'data'"
    const project = createProject('esm', 'module', { 'index.js': head + USE })
    assert.equal(run(process.execPath, ['index.js'], project), 'packed\n\n6 1\n')
})

test('a CommonJS module can use the package', () => {
    const head = "const { WorkspaceClient } = require('@elevo/workspace-sdk')\nconst directory = 'data'\n"
    const project = createProject('cjs', 'commonjs', { 'index.js': `${head}void (async () => {${USE}})()` })
    assert.equal(run(process.execPath, ['index.js'], project), 'packed\n\n6 1\n')
})

/** Directory with the runtimes of `runtimes/package-lock.json`. */
const runtimes = join(sdk, 'runtimes')

/** Installs the runtimes, if they are not installed. Returns why they cannot be, or `undefined`. */
function installRuntimes(): string | undefined {
    const lock = readFileSync(join(runtimes, 'package-lock.json'), 'utf8')
    const mark = join(runtimes, 'node_modules/.installed')
    if (existsSync(mark) && readFileSync(mark, 'utf8') === lock) return undefined
    try {
        run('npm', ['ci', '--silent', '--no-audit', '--no-fund'], runtimes)
    } catch (error) {
        return String(error).split('\n')[0]
    }
    writeFileSync(mark, lock)
    return undefined
}

const architecture = process.arch === 'arm64' ? 'aarch64' : process.arch
const programs: [string, string, string[], RegExp][] = [
    ['Node.js 18', `node-linux-${process.arch}/bin/node`, [], /^v18\./],
    ['Bun', `@oven/bun-linux-${architecture}/bin/bun`, [], /^1\./],
    ['Deno', `@deno/linux-${process.arch}-glibc/deno`, ['run', '--quiet', '--allow-all'], /^deno 2\./],
]
for (const [name, path, args, version] of programs) {
    test(`${name} can use the package`, async (context) => {
        const failure = installRuntimes()
        const program = join(runtimes, 'node_modules', path)
        if (failure !== undefined) return context.skip(skip(context.name, `the npm registry (${failure})`))
        if (!existsSync(program)) return context.skip(skip(context.name, `${name} for ${process.arch}`))
        const head = "import { WorkspaceClient } from '@elevo/workspace-sdk'\nconst directory = 'data'"
        const project = createProject(name, 'module', { 'index.js': head + USE })
        assert.match(run(program, ['--version'], project), version)
        const { stdout } = await runAsync(program, [...args, 'index.js'], { cwd: project })
        assert.equal(stdout, 'packed\n\n6 1\n')
    })
}

test('strict TypeScript accepts the types, without those of Node.js', async () => {
    const source = `import { CommandFailedError, type StreamEvent, WorkspaceClient, WorkspaceError, withSandbox } from '@elevo/workspace-sdk'
export async function main(): Promise<string> {
  const client = new WorkspaceClient({ apiUrl: 'http://127.0.0.1:8080', apiKey: 'key', timeout: 30000, retries: 3 })
  try {
    return await withSandbox(client, { template: 'base', labels: { a: 'b' } }, async (sandbox) => {
      const expires: Date = sandbox.expiresAt
      let text = expires.toISOString() + sandbox.state + sandbox.nfs.mountCommand + (sandbox.name ?? '')
      const templates = await client.templates.list()
      await client.sandbox.extend(sandbox.id, templates.length)
      for await (const event of client.events.follow({ sandbox: sandbox.id })) {
        if (event.type === 'snapshot.created') text += event.data.snapshotId
        // @ts-expect-error -- the event has no review
        if (event.type === 'sandbox.created') text += event.data.reviewId
      }
      for await (const event of sandbox.process.runStream(['ls'])) {
        const whole: StreamEvent = event
        switch (whole.type) {
          case 'stdout':
          case 'stderr': text += whole.data; break
          case 'gap': text += whole.from; break
          case 'exit': text += whole.exitCode; break
          case 'error': text += whole.message; break
          default: { const never: never = whole; return never }
        }
      }
      // @ts-expect-error -- the option does not exist
      await sandbox.process.run('ls', { timeoutSeconds: 3 })
      return text
    })
  } catch (error) {
    if (error instanceof CommandFailedError) return error.stderr + error.exitCode
    if (error instanceof WorkspaceError) return error.name + error.code + error.requestId + error.retryable
    throw error
  }
}
`
    const compilerOptions = {
        strict: true,
        exactOptionalPropertyTypes: true,
        noUncheckedIndexedAccess: true,
        target: 'ES2022',
        types: [],
        noEmit: true,
        skipLibCheck: false,
    }
    const tsc = join(sdk, 'node_modules/typescript/bin/tsc')
    const variants = [
        ['strict-esm', 'module', 'NodeNext'],
        ['strict-cjs', 'commonjs', 'Node16'],
    ] as const
    const checks = variants.map(async ([name, type, module]) => {
        const project = createProject(name, type, {
            'index.ts': source,
            'tsconfig.json': JSON.stringify({
                compilerOptions: { ...compilerOptions, module, lib: ['ES2022', 'DOM', 'ESNext.Disposable'] },
                include: ['index.ts'],
            }),
        })
        await runAsync(process.execPath, [tsc, '-p', '.'], { cwd: project })
    })
    await Promise.all(checks)
})
