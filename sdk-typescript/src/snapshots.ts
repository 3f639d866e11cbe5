// Snapshots of file trees.

import type * as Wire from './generated/wire.js'
import { listAll } from './pages.js'
import { type CallOptions, type Content, type Transport, fields } from './transport.js'

/** Options of an upload. */
export type UploadSnapshotOptions = { message?: string; labels?: Record<string, string> } & CallOptions

/** Snapshots. */
export class SnapshotService {
    readonly #transport: Transport

    /** @internal */
    constructor(transport: Transport) {
        this.#transport = transport
    }

    /** Lists a page of snapshots, the newest first. */
    list(params: Wire.ListSnapshotsQuery & CallOptions = {}): Promise<Wire.SnapshotList> {
        return this.#transport.json('GET snapshots', { query: fields(params) }, params)
    }

    /** Iterates over all snapshots. */
    listAll(params: Wire.ListSnapshotsQuery & CallOptions = {}): AsyncIterable<Wire.Snapshot> {
        return listAll((page) => this.list({ ...params, ...page }))
    }

    /** Returns a snapshot. */
    get(id: string, options: CallOptions = {}): Promise<Wire.Snapshot> {
        return this.#transport.json('GET snapshots/{}', { path: [id] }, options)
    }

    /** Deletes a snapshot that nothing uses. */
    async delete(id: string, options: CallOptions = {}): Promise<void> {
        await this.#transport.json('DELETE snapshots/{}', { path: [id] }, options)
    }

    /** Uploads a tar archive, which may be compressed with gzip or zstd. */
    upload(archive: Content, options: UploadSnapshotOptions = {}): Promise<Wire.UploadSnapshotResult> {
        const { message, labels = {}, ...call } = options
        const label = Object.entries(labels).map(([name, value]) => `${name}=${value}`)
        const request = { query: { message, label }, content: archive, patience: 'endless' } as const
        return this.#transport.json('POST snapshots', request, call)
    }

    /** Compares two snapshots. */
    diff(a: string, b: string, options: Omit<Wire.DiffSnapshotsQuery, 'patch'> & CallOptions = {}): Promise<Wire.Diff> {
        return this.#transport.json(
            'GET snapshots/{}/diff/{}',
            { path: [a, b], query: fields(options), patience: 'long' },
            options,
        )
    }

    /** Returns the differences as a unified diff for `git apply`. */
    patch(a: string, b: string, options: CallOptions = {}): Promise<string> {
        const request = { path: [a, b], query: { patch: true }, patience: 'long' } as const
        return this.#transport.text('GET snapshots/{}/diff/{}', request, options)
    }

    /** Reads a snapshot, or a directory of it, as a tar archive in chunks. */
    archive(id: string, options: Wire.GetSnapshotArchiveQuery & CallOptions = {}): AsyncIterable<Uint8Array> {
        return this.#transport.chunks('GET snapshots/{}/archive', { path: [id], query: fields(options) }, options)
    }

    /** Reads a file as text. */
    async read(id: string, path: string, options: CallOptions = {}): Promise<string> {
        return new TextDecoder().decode(await this.readBytes(id, path, options))
    }

    /** Reads a file of a snapshot. */
    readBytes(id: string, path: string, options: CallOptions = {}): Promise<Uint8Array> {
        return this.#transport.bytes('GET snapshots/{}/files/{path}', { path: [id, path] }, options)
    }

    /** Lists a directory; by default the root. */
    tree(id: string, path = '', options: Wire.GetSnapshotTreeQuery & CallOptions = {}): Promise<Wire.TreeListing> {
        const query = fields(options)
        return path === ''
            ? this.#transport.json('GET snapshots/{}/tree', { path: [id], query }, options)
            : this.#transport.json('GET snapshots/{}/tree/{path}', { path: [id, path], query }, options)
    }
}
