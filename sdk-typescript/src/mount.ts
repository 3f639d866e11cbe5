// Mounts of NFS on this machine. Needs the processes of Node.js, Bun or Deno.

import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { mkdir } from 'node:fs/promises'
import { resolve } from 'node:path'
import { MountError, UnexpectedResponseError } from './errors.js'

/** Directories in which `mount` looks for its helpers. */
const HELPER_DIRECTORIES = ['/sbin', '/usr/sbin', '/usr/local/sbin', '/run/current-system/sw/bin']
/** A workspace has files of programs that are not trusted: they get no rights, and are no devices. */
const SAFETY_OPTIONS = 'nosuid,nodev'

/** Hosts that are no options of `mount`, and paths without control characters. */
const HOST = /^[\w.:][\w.:%-]*$/
const PATH = /^\/\P{Cc}*$/u

/** Export to mount. */
export interface Export {
    host: string
    port: number
    path: string
    /** Command for NFSv4, which only the NFS server of the kernel supports. */
    mountCommandV4?: string | null
}

/** What decides whether this process can mount. */
export interface Machine {
    platform: string
    isRoot: boolean
    hasHelper: boolean
}

/** Returns the machine of this process. */
export function thisMachine(): Machine {
    return {
        platform: process.platform,
        isRoot: process.getuid?.() === 0,
        hasHelper: HELPER_DIRECTORIES.some((directory) => existsSync(`${directory}/mount.nfs`)),
    }
}

/** Returns the program that mounts an export at an absolute path, and its arguments. Throws if they could be others. */
export function mountCommand(source: Export, target: string, platform: string): [string, ...string[]] {
    const { host, port, path } = source
    if (!HOST.test(host) || !PATH.test(path)) {
        throw new UnexpectedResponseError('the server named an NFS export with invalid characters')
    }
    // In `host:path`, an IPv6 address needs brackets.
    const device = `${host.includes(':') ? `[${host}]` : host}:${path}`
    const isMac = platform === 'darwin'
    const linux = (type: string, options: string): [string, ...string[]] => {
        return ['mount', '-t', type, '-o', options + SAFETY_OPTIONS, device, target]
    }
    const mac = (options: string): [string, ...string[]] => [
        'mount_nfs',
        '-o',
        options + SAFETY_OPTIONS,
        device,
        target,
    ]
    if (source.mountCommandV4 != null) {
        // The kernel accepts only requests from ports below 1024, and tells its other ports by rpcbind.
        return isMac ? mac('vers=3,tcp,resvport,') : linux('nfs4', '')
    }
    const ports = `port=${port},mountport=${port},`
    return isMac ? mac(`vers=3,tcp,nolocks,${ports}`) : linux('nfs', `vers=3,tcp,nolock,${ports}`)
}

/** Returns the program that unmounts a path, and its arguments. A lazy unmount does not wait for open files. */
export function unmountCommand(target: string, platform: string, lazy: boolean): [string, ...string[]] {
    if (!lazy) return ['umount', target]
    return ['umount', platform === 'darwin' ? '-f' : '-l', target]
}

/** Throws `MountError` if a machine cannot run a command that `mountCommand` or `unmountCommand` returned. */
export function checkMachine(command: readonly string[], { platform, isRoot, hasHelper }: Machine): void {
    const line = quote(command)
    if (platform !== 'linux' && platform !== 'darwin') {
        throw new MountError(`NFS exports cannot be mounted on ${platform}`, 'use sandbox.files', line)
    }
    if (platform === 'darwin') return
    if (command[0] === 'mount' && !hasHelper) {
        const hint = `install nfs-common (Debian) or nfs-utils (Fedora), then run: sudo ${line}`
        throw new MountError('this machine has no mount.nfs', hint, line)
    }
    if (!isRoot) throw new MountError(`only root may ${command[0]} on Linux`, `run: sudo ${line}`, line)
}

/** Mounts an export. The directory is created if it is missing. */
export async function mount(source: Export, path: string, signal?: AbortSignal): Promise<void> {
    const target = resolve(path)
    const machine = thisMachine()
    const command = mountCommand(source, target, machine.platform)
    checkMachine(command, machine)
    await mkdir(target, { recursive: true, mode: 0o700 })
    await runCommand(command, signal)
}

/** Unmounts a path. */
export async function unmount(path: string, lazy: boolean, signal?: AbortSignal): Promise<void> {
    const machine = thisMachine()
    const command = unmountCommand(resolve(path), machine.platform, lazy)
    checkMachine(command, machine)
    await runCommand(command, signal)
}

/** Runs a command. Throws `MountError` if it fails. */
export function runCommand(command: readonly [string, ...string[]], signal?: AbortSignal): Promise<void> {
    const [program, ...args] = command
    return new Promise((done, reject) => {
        execFile(program, args, { signal }, (error, _, stderr) => {
            if (!error) return done()
            if (signal?.aborted) return reject(signal.reason)
            const reason = stderr.trim() || error.message
            const hint =
                program === 'umount' ? 'end the programs that use it, or unmount with `lazy`' : 'see docs/nfs.md'
            reject(new MountError(`${program} failed: ${reason}`, hint, quote(command), error))
        })
    })
}

/** Returns a command line for a shell. */
function quote(command: readonly string[]): string {
    return command
        .map((word) => (/^[\w@%+=:,./[\]-]+$/.test(word) ? word : `'${word.replace(/'/g, `'\\''`)}'`))
        .join(' ')
}
