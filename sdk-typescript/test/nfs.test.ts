// Mounts over NFS: what is run, and what is said if it cannot be. `scripts/vm/nfs-client` mounts for real.

import assert from 'node:assert/strict'
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { inspect } from 'node:util'
import { test } from 'node:test'
import { MountError } from '@elevo/workspace-sdk'
import { sdk } from './project.js'
import { inSandbox, testClient } from './support.js'

const { checkMachine, mountCommand, runCommand, thisMachine, unmountCommand } = (await import(
    pathToFileURL(join(sdk, 'dist/esm/mount.js')).href
)) as typeof import('../src/mount.js')

const EXPORT = { host: '10.0.0.1', port: 3049, path: '/sbx-1.0123456789abcdef' }

/** Returns the message of the error for a machine, or `undefined` if it can run the command. */
function refusal(command: string[], machine: Parameters<typeof checkMachine>[1]): string | undefined {
    try {
        checkMachine(command, machine)
        return undefined
    } catch (error) {
        assert.ok(error instanceof Error && error.name === 'MOUNT_FAILED')
        return error.message
    }
}

test('mount commands have the options of the server, and give programs of the workspace no rights', () => {
    const options = 'port=3049,mountport=3049,nosuid,nodev'
    assert.equal(
        mountCommand(EXPORT, '/mnt', 'linux').join(' '),
        `mount -t nfs -o vers=3,tcp,nolock,${options} 10.0.0.1:/sbx-1.0123456789abcdef /mnt`,
    )
    assert.equal(
        mountCommand({ ...EXPORT, host: 'fd00::1' }, '/mnt', 'darwin').join(' '),
        `mount_nfs -o vers=3,tcp,nolocks,${options} [fd00::1]:/sbx-1.0123456789abcdef /mnt`,
    )
    const system = { ...EXPORT, port: 2049, path: "/it's data", mountCommandV4: 'mount -t nfs4 …' }
    assert.deepEqual(mountCommand(system, '/mnt', 'linux'), [
        ...['mount', '-t', 'nfs4', '-o', 'nosuid,nodev', "10.0.0.1:/it's data", '/mnt'],
    ])
    assert.equal(mountCommand(system, '/mnt', 'darwin')[2], 'vers=3,tcp,resvport,nosuid,nodev')
    for (const invalid of [{ host: '-oloop' }, { host: 'a b' }, { path: 'sbx-1' }, { path: '/a\nb' }]) {
        const source = { ...EXPORT, ...invalid }
        assert.throws(() => mountCommand(source, '/mnt', 'linux'), { name: 'UNEXPECTED_RESPONSE' })
    }
    assert.deepEqual(unmountCommand('/mnt', 'linux', false), ['umount', '/mnt'])
    assert.deepEqual(unmountCommand('/mnt', 'linux', true), ['umount', '-l', '/mnt'])
    assert.deepEqual(unmountCommand('/mnt', 'darwin', true), ['umount', '-f', '/mnt'])
})

test('an error of a mount names the command to run', () => {
    const command = ['mount', '-o', 'vers=3', "/it's here"]
    const quoted = "mount -o vers=3 '/it'\\''s here'"
    const linux = { platform: 'linux', isRoot: true, hasHelper: true }
    assert.equal(refusal(command, linux), undefined)
    assert.equal(
        refusal(command, { ...linux, isRoot: false }),
        `only root may mount on Linux\nhint: run: sudo ${quoted}`,
    )
    assert.equal(
        refusal(command, { ...linux, hasHelper: false }),
        `this machine has no mount.nfs\nhint: install nfs-common (Debian) or nfs-utils (Fedora), then run: sudo ${quoted}`,
    )
    assert.equal(refusal(['umount', '/mnt'], { ...linux, hasHelper: false }), undefined)
    assert.equal(refusal(command, { platform: 'darwin', isRoot: false, hasHelper: false }), undefined)
    assert.match(refusal(command, { ...linux, platform: 'win32' }) ?? '', /^NFS exports cannot be mounted on win32\n/)
})

test('a sandbox has its export, mounts it or says why not, and does not print its path', async () => {
    await inSandbox(testClient(), async (box) => {
        const { nfs } = box
        assert.ok(nfs.isExported)
        const words = nfs.mountCommand.split(' ')
        const built = mountCommand(nfs, '/mnt', 'linux')
        assert.deepEqual(
            built.map((word) => word.replace(',nosuid,nodev', '')),
            words,
        )
        const forMac = mountCommand(nfs, '/mnt', 'darwin').join(' ')
        assert.equal(forMac.replace(',nosuid,nodev', ''), nfs.mountCommandMacos)
        assert.ok(!`${inspect(box, { depth: 9 })}${JSON.stringify(box)}`.includes(nfs.path))

        // A directory in which nothing is mounted, whatever this machine can.
        const directory = mkdtempSync(join(tmpdir(), 'workspace-sdk-nfs.'))
        try {
            await assert.rejects(nfs.unmount(directory), (error) => error instanceof MountError && error.command !== '')
            const refused = refusal(built, thisMachine())
            if (refused !== undefined) {
                await assert.rejects(nfs.mount(directory), (error) => {
                    assert.ok(error instanceof MountError)
                    assert.equal(error.command, mountCommand(nfs, directory, process.platform).join(' '))
                    assert.equal(error.message.split('\n')[0], refused.split('\n')[0])
                    return true
                })
            }
        } finally {
            rmSync(directory, { recursive: true })
        }

        await box.pause()
        assert.equal(box.nfs.isExported, false)
        assert.throws(() => box.nfs.path, { name: 'MOUNT_FAILED' })
        await assert.rejects(box.nfs.mount('/nowhere'), { name: 'MOUNT_FAILED' })
        await box.resume()
        assert.equal(box.nfs.path, nfs.path)
    })
})

test('a mount runs its program, and reports its failure', async () => {
    const directory = mkdtempSync(join(tmpdir(), 'workspace-sdk-nfs.'))
    try {
        const program = join(directory, 'mount')
        writeFileSync(program, `#!/bin/sh\necho "$@" > ${directory}/arguments\necho broken >&2\nexit "$1"\n`)
        chmodSync(program, 0o755)
        await runCommand([program, '0', 'a b'])
        assert.equal(readFileSync(join(directory, 'arguments'), 'utf8'), '0 a b\n')
        await assert.rejects(runCommand([program, '32']), (error) => {
            assert.ok(error instanceof Error && error.name === 'MOUNT_FAILED')
            assert.match(error.message, /failed: broken\nhint: see docs\/nfs\.md$/)
            return true
        })
        await assert.rejects(runCommand([program, '0'], AbortSignal.abort(new Error('stopped'))), /stopped/)
    } finally {
        rmSync(directory, { recursive: true })
    }
})
