// Ten small programs with the SDK of Elevo Workspace. `e2b.ts` has the same, and `bench/sdk-lines` counts lines.

import { WorkspaceClient } from '@elevo/workspace-sdk'

const BUILD = 'echo compiling; echo warning >&2; exit 3'
const show = (text: string) => void process.stdout.write(text)

export async function run(): Promise<void> {
    await using sandbox = await new WorkspaceClient().sandbox.create()
    console.log((await sandbox.process.run('echo hello', { check: true })).stdout)
}

export async function stream(): Promise<void> {
    await using sandbox = await new WorkspaceClient().sandbox.create()
    const { exitCode } = await sandbox.process.run(BUILD, { onStdout: show, onStderr: show })
    console.log(`exit code ${exitCode}`)
}

export async function files(): Promise<void> {
    await using sandbox = await new WorkspaceClient().sandbox.create()
    await sandbox.files.write('notes/a.txt', 'hello', { mkdirs: true })
    console.log(await sandbox.files.read('notes/a.txt'))
}

export async function upload(directory: string): Promise<void> {
    await using sandbox = await new WorkspaceClient().sandbox.create()
    await sandbox.files.upload(directory, 'project')
    console.log((await sandbox.process.run('cd project && sh tests/run.sh', { check: true })).stdout)
}

export async function port(): Promise<void> {
    await using sandbox = await new WorkspaceClient().sandbox.create()
    await sandbox.process.start('python3 -m http.server 8000', { timeout: 0 })
    const { pathUrl } = await sandbox.ports.preview(8000)
    let page = await fetch(pathUrl)
    while (page.status === 502) page = await fetch(pathUrl)
    console.log(await page.text())
}

export async function pause(): Promise<void> {
    await using sandbox = await new WorkspaceClient().sandbox.create()
    await sandbox.files.write('state', 'kept')
    await sandbox.pause()
    await sandbox.resume()
    console.log(await sandbox.files.read('state'))
}

export async function fork(): Promise<void> {
    await using sandbox = await new WorkspaceClient().sandbox.create()
    await sandbox.files.write('task.sh', 'echo fork $1')
    const { sandboxes } = await sandbox.fork(5)
    for (const [number, box] of sandboxes.entries()) {
        await using fork = box
        console.log((await fork.process.run(`sh task.sh ${number}`, { check: true })).stdout)
    }
}

export async function restore(): Promise<void> {
    await using sandbox = await new WorkspaceClient().sandbox.create()
    await sandbox.files.write('state', 'good')
    const { snapshot } = await sandbox.commit({ message: 'it works' })
    await sandbox.files.write('state', 'broken')
    await sandbox.restore(snapshot.id)
    console.log(await sandbox.files.read('state'))
}

export async function terminal(): Promise<void> {
    await using sandbox = await new WorkspaceClient().sandbox.create()
    const terminal = await sandbox.pty.create({ cols: 80, rows: 24 })
    await terminal.write('stty size; exit\n')
    for await (const event of terminal) if (event.type === 'output') show(event.data)
}

export async function merge(): Promise<void> {
    const client = new WorkspaceClient()
    await client.projects.create({ name: 'guide' })
    await using writer = await client.sandbox.create({ project: 'guide', agent: 'writer' })
    await using editor = await client.sandbox.create({ project: 'guide', agent: 'editor' })
    await writer.files.write('index.md', 'written by the writer')
    await editor.files.write('style.md', 'written by the editor')
    await writer.complete({ message: 'the text', wait: 30 })
    await editor.complete({ message: 'the style', wait: 30 })
    console.log(await client.projects.read('guide', 'index.md'), await client.projects.read('guide', 'style.md'))
}
