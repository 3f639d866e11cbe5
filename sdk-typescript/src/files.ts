// Files of a sandbox.

import type * as Wire from './generated/wire.js'
import { apiError } from './api-error.js'
import { PathNotFoundError } from './errors.js'
import { type CallOptions, type Content, type Request, type Transport, fields } from './transport.js'
import type { ListResponse, WatchEvent } from './types.js'
import { listAll } from './pages.js'

/** Part of a file to read, and a condition. */
export interface ReadOptions extends CallOptions {
    /** Offset of the first byte. */
    start?: number
    /** Offset of the byte after the last one. */
    end?: number
    /** ETag that the file must have. */
    ifMatch?: string
}

/** Options of a write. */
export interface WriteOptions extends CallOptions {
    /** Permission bits in octal, such as `0644`. Default: those of the present file, or `0644`. */
    mode?: string
    /** Creates missing parent directories. */
    mkdirs?: boolean
    /** ETag that the present file must have; `*` if it must exist. */
    ifMatch?: string
    /** `*` if there must be no file. */
    ifNoneMatch?: string
}

/** Progress of an upload or a download. */
export interface TransferProgress {
    files: number
    bytes: number
}

/** Options of a transfer of files of this machine. */
export interface TransferOptions extends CallOptions {
    /** Is called after each file, and during long ones. */
    onProgress?: (progress: TransferProgress) => void
}

/** Statuses of errors inside a batch. */
const BATCH_STATUSES: Record<string, number> = {
    FILE_DENIED: 403,
    FILE_CONFLICT: 409,
    PRECONDITION_FAILED: 412,
    DISK_LIMIT_EXCEEDED: 507,
    STORAGE_FULL: 507,
    INTERNAL_ERROR: 500,
}

/** Files of one sandbox. Relative paths start in `/workspace`. */
export class FileService {
    readonly #transport: Transport
    readonly #sandboxId: string

    /** @internal */
    constructor(transport: Transport, sandboxId: string) {
        this.#transport = transport
        this.#sandboxId = sandboxId
    }

    /** Reads a file as text. */
    async read(path: string, options: ReadOptions = {}): Promise<string> {
        return new TextDecoder().decode(await this.readBytes(path, options))
    }

    /** Reads a file. */
    async readBytes(path: string, options: ReadOptions = {}): Promise<Uint8Array> {
        const { signal, timeout } = options
        if (isEmptyRange(options)) return new Uint8Array()
        return this.#transport.bytes('GET sandboxes/{}/files/{path}', this.#readRequest(path, options), {
            signal,
            timeout,
        })
    }

    /** Reads a file in chunks. */
    readStream(path: string, options: ReadOptions = {}): AsyncIterable<Uint8Array> {
        const { signal, timeout } = options
        return this.#transport.chunks('GET sandboxes/{}/files/{path}', this.#readRequest(path, options), {
            signal,
            timeout,
        })
    }

    #readRequest(path: string, { start = 0, end, ifMatch }: ReadOptions): Request {
        const range = start > 0 || end !== undefined ? `bytes=${start}-${end === undefined ? '' : end - 1}` : undefined
        return { path: this.#path(path), headers: { Range: range, 'If-Match': ifMatch } }
    }

    /** Replaces a file by text, bytes or a stream. Until all of it has arrived, others see the old file. */
    write(path: string, content: Content, options: WriteOptions = {}): Promise<Wire.FileEntry> {
        const { mode, mkdirs, ifMatch, ifNoneMatch, signal, timeout } = options
        const headers = { 'If-Match': ifMatch, 'If-None-Match': ifNoneMatch }
        const request = { path: this.#path(path), query: { mode, mkdirs }, headers, content }
        return this.#transport.json('PUT sandboxes/{}/files/{path}', request, { signal, timeout: timeout ?? 0 })
    }

    /** Lists a page of a directory, or describes a file. */
    list(path: string, options: Wire.ListFilesQuery & CallOptions = {}): Promise<Wire.FileListing> {
        return this.#transport.json(
            'GET sandboxes/{}/entries/{path}',
            { path: this.#path(path), query: fields(options) },
            options,
        )
    }

    /** Iterates over all entries of a directory. */
    listAll(
        path: string,
        options: { depth?: number; follow?: boolean } & CallOptions = {},
    ): AsyncIterable<Wire.FileEntry> {
        return listAll(async (page) => {
            const { items, limit, total } = await this.list(path, { limit: 1_000, ...options, ...page })
            return { items: items ?? [], limit, total } satisfies ListResponse<Wire.FileEntry>
        })
    }

    /** Describes a file or directory. */
    async stat(path: string, options: { follow?: boolean } & CallOptions = {}): Promise<Wire.FileEntry> {
        return (await this.list(path, { ...options, limit: 1 })).entry
    }

    /** Returns true if there is an entry with this path. */
    async exists(path: string, options: { follow?: boolean } & CallOptions = {}): Promise<boolean> {
        try {
            await this.stat(path, options)
            return true
        } catch (error) {
            if (error instanceof PathNotFoundError) return false
            throw error
        }
    }

    /** Removes a file, or with `recursive` a directory. */
    async remove(path: string, options: { recursive?: boolean } & CallOptions = {}): Promise<void> {
        const { recursive, ...call } = options
        await this.#transport.json(
            'DELETE sandboxes/{}/files/{path}',
            { path: this.#path(path), query: { recursive } },
            call,
        )
    }

    /**
     * Performs operations in order, up to the first that fails. Its error is thrown, with `index` and `completed` in the
     * details, unless `check` is false. Earlier operations are not undone.
     */
    async batch(
        operations: Wire.FileOperation[],
        options: { check?: boolean } & CallOptions = {},
    ): Promise<Wire.FileBatchResult> {
        const { check = true, ...call } = options
        const json: Wire.FileBatch = { operations: operations.map(withAbsolutePaths) }
        const request: Request = { path: [this.#sandboxId], json, patience: 'long' }
        const result = await this.#transport.json<Wire.FileBatchResult>('POST sandboxes/{}/files', request, call)
        const { failed, completed } = result
        if (failed && check) {
            throw apiError({
                ...failed.error,
                status: statusOfBatchError(failed.error.name),
                details: { ...failed.error.details, index: failed.index, completed },
            })
        }
        return result
    }

    /** Creates a directory, with `parents` also its missing parents. */
    async mkdir(path: string, options: { mode?: string; parents?: boolean } & CallOptions = {}): Promise<void> {
        const { mode, parents, ...call } = options
        await this.batch([{ op: 'mkdir', path, mode, parents }], call)
    }

    /** Moves a file or a directory. */
    async move(from: string, to: string, options: { replace?: boolean } & CallOptions = {}): Promise<void> {
        const { replace, ...call } = options
        await this.batch([{ op: 'move', from, to, replace }], call)
    }

    /** Copies a file, or with `recursive` a directory. */
    async copy(
        from: string,
        to: string,
        options: { replace?: boolean; recursive?: boolean } & CallOptions = {},
    ): Promise<void> {
        const { replace, recursive, ...call } = options
        await this.batch([{ op: 'copy', from, to, replace, recursive }], call)
    }

    /** Sets the permission bits, in octal. */
    async chmod(path: string, mode: string, options: CallOptions = {}): Promise<void> {
        await this.batch([{ op: 'chmod', path, mode }], options)
    }

    /**
     * Watches a directory or a file. The watch begins with the iteration. `dropped` means that changes were lost, also
     * because the connection was lost: list the directory again.
     */
    async *watch(path: string, options: { recursive?: boolean } & CallOptions = {}): AsyncGenerator<WatchEvent> {
        const { recursive, ...call } = options
        const request: Request = { path: this.#path(path), query: { recursive } }
        const { followEvents } = await import('./event-stream.js')
        const messages = followEvents(
            this.#transport,
            { request: () => ['GET sandboxes/{}/watch/{path}', request], accept: ({ event }) => event === 'ended' },
            call,
        )
        let connections = 0
        for await (const { comment, data } of messages) {
            if (comment === undefined) yield JSON.parse(data) as WatchEvent
            // Each connection begins with this comment. Changes between two connections are lost.
            else if (comment === 'watching' && (connections += 1) > 1) yield { type: 'dropped', path: '' }
        }
    }

    /** Writes the members of a tar archive, which may be compressed with gzip or zstd, into a directory. */
    uploadArchive(
        path: string,
        archive: Content,
        options: { mkdirs?: boolean } & CallOptions = {},
    ): Promise<Wire.TreeResult> {
        const { mkdirs, signal, timeout } = options
        const query = { archive: 'tar', mkdirs }
        const request = { path: this.#path(path), query, content: archive, contentType: 'application/x-tar' }
        return this.#transport.json('PUT sandboxes/{}/files/{path}', request, { signal, timeout: timeout ?? 0 })
    }

    /** Reads a directory as a tar archive, in chunks. */
    downloadArchive(path: string, options: CallOptions = {}): AsyncIterable<Uint8Array> {
        return this.#transport.chunks(
            'GET sandboxes/{}/files/{path}',
            { path: this.#path(path), query: { archive: 'tar' } },
            options,
        )
    }

    /** Uploads a file, or a directory as one archive, of this machine. Needs Node.js, Bun or Deno. */
    async upload(
        local: string,
        path: string,
        options: { mkdirs?: boolean } & TransferOptions = {},
    ): Promise<Wire.WriteResult> {
        const { mkdirs, onProgress, ...call } = options
        const { isDirectory, packDirectory, readLocalFile } = await import('./archive.js')
        if (await isDirectory(local)) {
            return this.uploadArchive(path, packDirectory(local, onProgress), { mkdirs, ...call })
        }
        const { mode, content } = await readLocalFile(local, onProgress)
        return this.write(path, content, { mkdirs, mode, ...call })
    }

    /** Downloads a file, or a directory as one archive, to this machine. Needs Node.js, Bun or Deno. */
    async download(path: string, local: string, options: TransferOptions = {}): Promise<TransferProgress> {
        const { onProgress, ...call } = options
        const { unpackDirectory, writeLocalFile } = await import('./archive.js')
        const { kind, mode } = await this.stat(path, call)
        if (kind === 'directory') return unpackDirectory(this.downloadArchive(path, call), local, onProgress)
        return writeLocalFile(this.readStream(path, call), local, mode, onProgress)
    }

    /** Creates a URL with which a program without a key reads (`GET`) or writes (`PUT`) one file. */
    signedUrl(
        path: string,
        options: Partial<Omit<Wire.CreateSignedUrl, 'path'>> & CallOptions = {},
    ): Promise<Wire.SignedUrl> {
        const { signal, timeout, method = 'GET', ...rest } = options
        const json: Wire.CreateSignedUrl = { path: absolutePath(path), method, ...rest }
        const request: Request = { path: [this.#sandboxId], json, repeatable: true }
        return this.#transport.json('POST sandboxes/{}/signed-url', request, { signal, timeout })
    }

    #path(path: string): string[] {
        return [this.#sandboxId, absolutePath(path).slice(1)]
    }
}

function isEmptyRange({ start = 0, end }: ReadOptions): boolean {
    return end !== undefined && end <= start
}

function absolutePath(path: string): string {
    if (path.startsWith('/')) return path
    return path === '' || path === '.' ? '/workspace' : `/workspace/${path.replace(/^(\.\/+)+/, '')}`
}

function withAbsolutePaths(operation: Wire.FileOperation): Wire.FileOperation {
    if ('from' in operation) {
        return { ...operation, from: absolutePath(operation.from), to: absolutePath(operation.to) }
    }
    return { ...operation, path: absolutePath(operation.path) }
}

/** Returns the HTTP status of an error inside a batch, whose response has none. */
function statusOfBatchError(name: string): number {
    return BATCH_STATUSES[name] ?? 422
}
