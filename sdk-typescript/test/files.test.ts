// Transfers of files and directories, and watches.

import assert from 'node:assert/strict'
import {
    chmod,
    lstat,
    mkdir,
    mkdtemp,
    readFile,
    readdir,
    readlink,
    rm,
    symlink,
    utimes,
    writeFile,
} from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { UnexpectedResponseError, type WatchEvent } from '@elevo/workspace-sdk'
import { inSandbox, testClient } from './support.js'

const client = testClient()

async function inDirectory(use: (path: string) => Promise<void>): Promise<void> {
    const path = await mkdtemp(join(tmpdir(), 'workspace-sdk-files.'))
    try {
        await use(path)
    } finally {
        await rm(path, { recursive: true })
    }
}

/** Describes all entries below a directory. */
async function describe(root: string): Promise<Record<string, string>> {
    const found: Record<string, string> = {}
    for (const name of (await readdir(root, { recursive: true })).sort()) {
        const path = join(root, name)
        const info = await lstat(path)
        const mode = (info.mode & 0o777).toString(8)
        if (info.isSymbolicLink()) found[name] = `-> ${await readlink(path)}`
        else if (info.isDirectory()) found[name] = `directory ${mode}`
        else
            found[name] = `file ${mode} ${Math.floor(info.mtimeMs / 1000)} ${(await readFile(path)).toString('base64')}`
    }
    return found
}

test('a directory survives an upload and a download', async () => {
    await inDirectory(async (local) => {
        const source = join(local, 'source')
        const long = `${'d'.repeat(60)}/${'e'.repeat(70)}/${'f'.repeat(80)}`
        await mkdir(join(source, long), { recursive: true })
        await mkdir(join(source, 'empty'))
        await writeFile(join(source, long, 'ü %"\n.txt'), 'long')
        await writeFile(join(source, 'zero'), '')
        await writeFile(join(source, 'block'), new Uint8Array(512).fill(7))
        await writeFile(join(source, 'large'), new Uint8Array(700_001).fill(9))
        await writeFile(join(source, 'run.sh'), '#!/bin/sh\n')
        await chmod(join(source, 'run.sh'), 0o755)
        await utimes(join(source, 'zero'), 1_000_000_000, 1_000_000_000)
        await symlink('run.sh', join(source, 'link'))
        await symlink('x'.repeat(150), join(source, 'dangling'))
        await inSandbox(client, async (box) => {
            const seen: number[] = []
            const uploaded = await box.files.upload(source, 'a/b', {
                mkdirs: true,
                onProgress: ({ files }) => seen.push(files),
            })
            assert.ok('files' in uploaded && uploaded.files === 5)
            assert.equal(seen.at(-1), 5)
            assert.equal(
                (await box.process.run('cat run.sh; readlink link', { cwd: '/workspace/a/b' })).stdout,
                '#!/bin/sh\nrun.sh\n',
            )
            const target = join(local, 'target')
            assert.deepEqual(await box.files.download('a/b', target), { files: 5, bytes: 700_527 })
            assert.deepEqual(await describe(target), await describe(source))
        })
    })
})

test('hard links are downloaded as files', async () => {
    await inDirectory(async (local) => {
        await inSandbox(client, async (box) => {
            await box.process.run('mkdir d && echo x > d/a && ln d/a d/b && mkfifo d/pipe', { check: true })
            assert.deepEqual(await box.files.download('d', local), { files: 2, bytes: 4 })
        })
    })
})

test('a file survives an upload and a download, with its mode', async () => {
    await inDirectory(async (local) => {
        const source = join(local, 'source')
        await writeFile(source, 'content', { mode: 0o750 })
        await inSandbox(client, async (box) => {
            const entry = await box.files.upload(source, 'deep/file', { mkdirs: true })
            assert.ok('mode' in entry && entry.mode === '0750')
            assert.deepEqual(await box.files.download('deep/file', join(local, 'target')), { files: 1, bytes: 7 })
            assert.deepEqual(
                Object.values(await describe(local)).map((text) => text.replace(/^(file \d+) \d+/, '$1')),
                Array(2).fill(`file 750 ${btoa('content')}`),
            )
        })
    })
})

test('a download writes nothing outside its directory, and through no symlink', async () => {
    await inDirectory(async (local) => {
        const target = join(local, 'target')
        await mkdir(target)
        await symlink(local, join(target, 'sub'))
        await inSandbox(client, async (box) => {
            await box.files.write('tree/sub/file', 'x', { mkdirs: true })
            await assert.rejects(box.files.download('tree', target), UnexpectedResponseError)
            assert.deepEqual(await readdir(local), ['target'])
        })
    })
})

test('a stream and an archive can be written', async () => {
    // eslint-disable-next-line @typescript-eslint/require-await -- an async generator is what is tested
    async function* chunks(): AsyncGenerator<Uint8Array> {
        for (const text of ['one ', 'two ', 'three']) yield new TextEncoder().encode(text)
    }
    await inSandbox(client, async (box) => {
        await box.files.write('stream', chunks())
        assert.equal(await box.files.read('stream'), 'one two three')
        await box.files.write('web', new Blob(['blob']).stream() as ReadableStream<Uint8Array>)
        assert.equal(await box.files.read('web'), 'blob')
        const result = await box.files.uploadArchive('copy', box.files.downloadArchive('/workspace'))
        assert.equal(result.files, 2)
        assert.equal(await box.files.read('copy/web'), 'blob')
    })
})

test('a watch yields changes until it is left or its directory is removed', async () => {
    await inSandbox(client, async (box) => {
        await box.files.mkdir('watched')
        const events: WatchEvent[] = []
        const watch = box.files.watch('watched', { recursive: true })
        const first = watch.next()
        // The watch has begun when a change is seen; until then, more are made.
        let number = 0
        const change = async (): Promise<void> => {
            number += 1
            await box.files.write(`watched/${number}`, 'x')
        }
        let hasBegun = false
        void first.finally(() => (hasBegun = true))
        while (!hasBegun) await change()
        events.push((await first).value as WatchEvent)
        await box.files.move('watched/1', 'watched/renamed')
        for await (const event of watch) {
            events.push(event)
            if (event.type === 'renamed') await box.files.remove('watched', { recursive: true })
        }
        assert.ok(events.some((event) => event.type === 'created'))
        assert.ok(events.some((event) => event.type === 'renamed' && event.from === '1' && event.path === 'renamed'))
        assert.equal(events.at(-1)?.type, 'ended')
    })
})
