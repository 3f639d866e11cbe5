// The packed package works in clean projects: ES modules, CommonJS, and strict TypeScript.

import assert from 'node:assert/strict'
import { execFile, execFileSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { promisify } from 'node:util'

const sdk = join(process.env['SDK_ROOT'] ?? '', 'sdk-typescript')
const projects = mkdtempSync(join(tmpdir(), 'workspace-sdk-package.'))
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
let archive = ''

/** Runs a program without its output, unless it fails. */
function run(program: string, args: string[], cwd: string): string {
    return execFileSync(program, args, { cwd, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] })
}

/** Creates a project that has the package installed. */
function createProject(name: string, type: string, files: Record<string, string>): string {
    const path = join(projects, name)
    mkdirSync(join(path, 'data'), { recursive: true })
    writeFileSync(join(path, 'package.json'), JSON.stringify({ name, type, private: true }))
    writeFileSync(join(path, 'data', 'file'), 'x')
    for (const [file, content] of Object.entries(files)) writeFileSync(join(path, file), content)
    const modules = join(path, 'node_modules')
    const target = join(modules, '@elevo/workspace-sdk')
    mkdirSync(target, { recursive: true })
    // What an installation does, without a registry: unpack the archive, and add its dependency.
    run('tar', ['xzf', archive, '-C', target, '--strip-components=1'], path)
    run('cp', ['-r', join(sdk, 'node_modules/ws'), modules], path)
    return path
}

before(() => {
    const [{ filename }] = JSON.parse(run('npm', ['pack', '--json', '--pack-destination', projects], sdk)) as [
        { filename: string },
    ]
    archive = join(projects, filename)
})

after(() => rmSync(projects, { recursive: true }))

test('the archive has the built files, the README and the licence, and nothing else', () => {
    const names = run('tar', ['tzf', archive], projects)
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

test('strict TypeScript accepts the types, without those of Node.js', async () => {
    const source = `import { CommandFailedError, type StreamEvent, WorkspaceClient, WorkspaceError, withSandbox } from '@elevo/workspace-sdk'
export async function main(): Promise<string> {
  const client = new WorkspaceClient({ apiUrl: 'http://127.0.0.1:8080', apiKey: 'key', timeout: 30000, retries: 3 })
  try {
    return await withSandbox(client, { template: 'base', labels: { a: 'b' } }, async (sandbox) => {
      const expires: Date = sandbox.expiresAt
      let text = expires.toISOString() + sandbox.state
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
