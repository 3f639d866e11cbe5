// The programs of `workspace.ts` with the SDK of E2B, as it is published. They need an account, so they are not run.

import { readdir, readFile } from 'node:fs/promises'
import { join, relative } from 'node:path'
import { CommandExitError, type CommandResult, Sandbox } from 'e2b'

const BUILD = 'echo compiling; echo warning >&2; exit 3'
const show = (text: string) => void process.stdout.write(text)

export async function run(): Promise<void> {
    const sandbox = await Sandbox.create()
    try {
        console.log((await sandbox.commands.run('echo hello')).stdout)
    } finally {
        await sandbox.kill()
    }
}

export async function stream(): Promise<void> {
    const sandbox = await Sandbox.create()
    try {
        const result: CommandResult = await sandbox.commands
            .run(BUILD, { onStdout: show, onStderr: show })
            .catch((error: unknown) => (error instanceof CommandExitError ? error : Promise.reject(error)))
        console.log(`exit code ${result.exitCode}`)
    } finally {
        await sandbox.kill()
    }
}

export async function files(): Promise<void> {
    const sandbox = await Sandbox.create()
    try {
        await sandbox.files.write('notes/a.txt', 'hello')
        console.log(await sandbox.files.read('notes/a.txt'))
    } finally {
        await sandbox.kill()
    }
}

export async function upload(directory: string): Promise<void> {
    const sandbox = await Sandbox.create()
    try {
        const entries = await readdir(directory, { recursive: true, withFileTypes: true })
        const paths = entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name))
        const toEntry = async (path: string) => ({
            path: `project/${relative(directory, path)}`,
            data: new Blob([await readFile(path)]),
        })
        await sandbox.files.writeFiles(await Promise.all(paths.map(toEntry)))
        console.log((await sandbox.commands.run('cd project && sh tests/run.sh')).stdout)
    } finally {
        await sandbox.kill()
    }
}

export async function port(): Promise<void> {
    const sandbox = await Sandbox.create()
    try {
        await sandbox.commands.run('python3 -m http.server 8000', { background: true, timeoutMs: 0 })
        const url = `https://${sandbox.getHost(8000)}`
        let page = await fetch(url)
        while (page.status === 502) page = await fetch(url)
        console.log(await page.text())
    } finally {
        await sandbox.kill()
    }
}

export async function pause(): Promise<void> {
    const sandbox = await Sandbox.create()
    try {
        await sandbox.files.write('state', 'kept')
        await sandbox.pause()
        await sandbox.connect()
        console.log(await sandbox.files.read('state'))
    } finally {
        await sandbox.kill()
    }
}

export async function fork(): Promise<void> {
    const sandbox = await Sandbox.create()
    try {
        await sandbox.files.write('task.sh', 'echo fork $1')
        for (const [number, fork] of (await sandbox.fork({ count: 5 })).entries()) {
            if (fork instanceof Error) throw fork
            try {
                console.log((await fork.commands.run(`sh task.sh ${number}`)).stdout)
            } finally {
                await fork.kill()
            }
        }
    } finally {
        await sandbox.kill()
    }
}

export async function restore(): Promise<void> {
    const sandbox = await Sandbox.create()
    try {
        await sandbox.files.write('state', 'good')
        const { snapshotId } = await sandbox.createSnapshot()
        await sandbox.files.write('state', 'broken')
        const restored = await Sandbox.create(snapshotId)
        try {
            console.log(await restored.files.read('state'))
        } finally {
            await restored.kill()
        }
    } finally {
        await sandbox.kill()
    }
}

export async function terminal(): Promise<void> {
    const sandbox = await Sandbox.create()
    try {
        const decoder = new TextDecoder()
        const onData = (data: Uint8Array) => show(decoder.decode(data, { stream: true }))
        const terminal = await sandbox.pty.create({ cols: 80, rows: 24, onData })
        await sandbox.pty.sendInput(terminal.pid, new TextEncoder().encode('stty size; exit\n'))
        await terminal.wait()
    } finally {
        await sandbox.kill()
    }
}
