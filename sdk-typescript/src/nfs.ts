// NFS export of a sandbox.

import { asyncDispose } from './dispose.js'
import { MountError } from './errors.js'
import type * as Wire from './generated/wire.js'

/** Options of a mount. */
export interface MountOptions {
    signal?: AbortSignal
}

/** Options of an unmount. */
export interface UnmountOptions {
    /** Does not wait for programs that use the mount. Default: false. */
    lazy?: boolean
    signal?: AbortSignal
}

/** Mounted workspace. With `await using`, it is unmounted at the end of the block. */
export class NFSMount {
    /** @internal */
    constructor(
        /** Directory of the mount. */
        readonly path: string,
    ) {}

    /** Unmounts the workspace. The directory stays. */
    async unmount(options: UnmountOptions = {}): Promise<void> {
        await unmountPath(this.path, options)
    }

    /** Unmounts the workspace at the end of an `await using` block. */
    [asyncDispose](): Promise<void> {
        return this.unmount()
    }
}

/**
 * Address of the workspace for NFS clients. Printing it shows no path, because who knows the path may read and write
 * the workspace.
 */
export class NFSService {
    readonly #info: Wire.NfsInfo | undefined

    /** @internal */
    constructor(info: Wire.NfsInfo | null | undefined) {
        this.#info = info ?? undefined
    }

    /**
     * False if the workspace is not exported: the server has `NFS_MODE=off`, the sandbox follows the head of a project or
     * is paused to disk, or the token of the client lacks a right to files. The other fields then throw `MountError`.
     */
    get isExported(): boolean {
        return this.#info !== undefined
    }

    /** Host name or address. */
    get host(): string {
        return this.#exported.host
    }

    /** TCP port of NFS. */
    get port(): number {
        return this.#exported.port
    }

    /** Path to mount. It is a credential: who knows it may read and write the workspace. */
    get path(): string {
        return this.#exported.path
    }

    /** Command that mounts the workspace at `/mnt` on Linux. It needs root. */
    get mountCommand(): string {
        return this.#exported.mountCommand
    }

    /** Command that mounts the workspace at `/mnt` on Linux by NFSv4. Only the server of the kernel supports that. */
    get mountCommandV4(): string | undefined {
        return this.#exported.mountCommandV4 ?? undefined
    }

    /** Command that mounts the workspace at `/mnt` on macOS. */
    get mountCommandMacos(): string {
        return this.#exported.mountCommandMacos
    }

    /**
     * Mounts the workspace at a directory of this machine, which is created if it is missing. Linux needs root and
     * `mount.nfs`; otherwise, the `MountError` has the command to run.
     */
    async mount(path: string, options: MountOptions = {}): Promise<NFSMount> {
        const { mount } = await import('./mount.js')
        await mount(this.#exported, path, options.signal)
        return new NFSMount(path)
    }

    /** Unmounts a directory of this machine. */
    unmount(path: string, options: UnmountOptions = {}): Promise<void> {
        return unmountPath(path, options)
    }

    get #exported(): Wire.NfsInfo {
        if (this.#info) return this.#info
        throw new MountError('the workspace is not exported over NFS', 'see docs/nfs.md', '')
    }
}

async function unmountPath(path: string, { lazy = false, signal }: UnmountOptions): Promise<void> {
    const { unmount } = await import('./mount.js')
    await unmount(path, lazy, signal)
}
