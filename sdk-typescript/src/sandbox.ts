// Sandboxes: the service, and the handle of one sandbox.

import { asyncDispose } from './dispose.js'
import { SandboxGoneError } from './errors.js'
import { FileService } from './files.js'
import type * as Wire from './generated/wire.js'
import { NFSService } from './nfs.js'
import { NoteService } from './notes.js'
import { listAll } from './pages.js'
import { PortService } from './ports.js'
import { ProcessService } from './process.js'
import { PTYService } from './pty.js'
import { type CallOptions, type IdempotentOptions, type Transport, fields } from './transport.js'
import type {
    BatchDeleteResponse,
    CreateSandboxParams,
    ListParams,
    ListResponse,
    LogsResponse,
    SandboxState,
    SandboxStats,
} from './types.js'

/** Options of the deletion of sandboxes. */
export interface DeleteOptions extends CallOptions {
    /** Keeps the workspace as a snapshot. */
    keepWorkspace?: boolean
    /** Completes changes of a project that are not completed, or with `false` discards them. */
    complete?: boolean
}

/** Options of logs. */
export interface LogsOptions extends CallOptions {
    /** Maximum number of lines, counted from the end. Default: 100. */
    tail?: number
    since?: Date | string
    until?: Date | string
}

/** Options of a commit. */
export type CommitOptions = Wire.CommitSandbox & CallOptions
/** Options of a fork. */
export type ForkOptions = Wire.ForkSandbox & CallOptions
/** Options of a completion. `wait` is in seconds. */
export type CompleteOptions = Wire.CompleteSandbox & IdempotentOptions
/** Options of a pause. */
export type PauseOptions = Partial<Wire.PauseSandbox> & CallOptions
/** Options of a resume. */
export type ResumeOptions = Wire.ResumeSandbox & CallOptions
/** Options of a list of changes. `insight` adds lines, sizes and risks. */
export type ChangesOptions = { insight?: boolean; limit?: number } & CallOptions
/** Range of time of measurements. */
export type MetricsOptions = { from?: Date | string; to?: Date | string } & CallOptions
/** Time at which a sandbox expires: seconds from now, or a point in time. */
export type TimeoutOptions = { timeoutSeconds?: number; expiresAt?: Date } & CallOptions
/** Options of a token. */
export type TokenOptions = { expiresInSeconds?: number } & CallOptions
/** Options of a replacement of the workspace. `force` kills processes that use it. */
export type ForceOptions = { force?: boolean } & CallOptions

/** Result of a fork. */
export type ForkResult = Omit<Wire.ForkSandboxResult, 'sandboxes'> & { sandboxes: Sandbox[] }
/** Result of a restore. */
export type RestoreResult = Omit<Wire.RestoreSandboxResult, 'sandbox'> & { sandbox: Sandbox }
/** Result of a rebase. */
export type RebaseResult = Omit<Wire.RebaseSandboxResult, 'sandbox'> & { sandbox: Sandbox }

/** Sandboxes. */
export class SandboxService {
    readonly #transport: Transport

    /** @internal */
    constructor(transport: Transport) {
        this.#transport = transport
    }

    /** Creates a sandbox, of the template `base` by default, and waits until it is running. */
    async create(params: CreateSandboxParams = {}, options: IdempotentOptions = {}): Promise<Sandbox> {
        const json = { ...params, template: params.template ?? 'base' }
        const request = { json, isIdempotent: true, patience: 'long' } as const
        return this.#handle(await this.#transport.json('POST sandboxes', request, options))
    }

    /** Returns a sandbox. */
    async get(id: string, options: CallOptions = {}): Promise<Sandbox> {
        return this.#handle(await this.#transport.json('GET sandboxes/{}', { path: [id] }, options))
    }

    /** Lists a page of sandboxes, the newest first. */
    async list(params: ListParams & CallOptions = {}): Promise<ListResponse<Sandbox>> {
        // `agent` is a filter here, and not the agent to act for.
        const { signal, timeout, ...query } = params
        const page = await this.#transport.json<Wire.SandboxList>('GET sandboxes', { query }, { signal, timeout })
        return { ...page, items: page.items.map((wire) => this.#handle(wire)) }
    }

    /** Iterates over all sandboxes, the newest first. */
    listAll(params: ListParams & CallOptions = {}): AsyncIterable<Sandbox> {
        return listAll((page) => this.list({ limit: 100, ...params, ...page }))
    }

    /** Deletes a sandbox and all its processes. Returns what is left of it, if anything is. */
    delete(id: string, options: DeleteOptions = {}): Promise<Wire.DeleteSandboxResult | undefined> {
        const { keepWorkspace: keep_workspace, complete, ...call } = options
        const request = { path: [id], query: { keep_workspace, complete }, patience: 'long' } as const
        return this.#transport.json('DELETE sandboxes/{}', request, call)
    }

    /** Deletes at most 50 sandboxes. */
    batchDelete(ids: string[], options: DeleteOptions = {}): Promise<BatchDeleteResponse> {
        const { keepWorkspace, complete, ...call } = options
        const json: Wire.BatchDelete = { ids, keepWorkspace, complete }
        return this.#transport.json('POST sandboxes/batch-delete', { json, repeatable: true, patience: 'long' }, call)
    }

    /** Returns the last lines of output of all commands. */
    logs(id: string, options: LogsOptions = {}): Promise<LogsResponse> {
        return this.#transport.json('GET sandboxes/{}/logs', { path: [id], query: fields(options) }, options)
    }

    /** Measures a sandbox now. */
    stats(id: string, options: CallOptions = {}): Promise<SandboxStats> {
        return this.#transport.json('GET sandboxes/{}/stats', { path: [id] }, options)
    }

    /** Returns the measurements of the last hour. */
    metrics(id: string, options: MetricsOptions = {}): Promise<Wire.MetricSeries> {
        return this.#transport.json('GET sandboxes/{}/metrics', { path: [id], query: fields(options) }, options)
    }

    /** Makes a sandbox expire later. */
    async extend(id: string, seconds: number, options: CallOptions = {}): Promise<Sandbox> {
        const json: Wire.ExtendSandbox = { seconds }
        return this.#handle(await this.#transport.json('POST sandboxes/{}/extend', { path: [id], json }, options))
    }

    /** Sets the time at which a sandbox expires, as seconds from now or as a time. */
    async setTimeout(id: string, options: TimeoutOptions): Promise<Sandbox> {
        return this.#handle(
            await this.#transport.json('PUT sandboxes/{}/timeout', { path: [id], json: fields(options) }, options),
        )
    }

    /** Replaces the labels of a sandbox. */
    async setLabels(id: string, labels: Record<string, string>, options: CallOptions = {}): Promise<Sandbox> {
        const json: Wire.UpdateSandbox = { labels }
        return this.#handle(await this.#transport.json('PATCH sandboxes/{}', { path: [id], json }, options))
    }

    /** Returns the changes since the workspace was created or last restored. */
    changes(id: string, options: ChangesOptions = {}): Promise<Wire.SandboxChanges> {
        return this.#transport.json(
            'GET sandboxes/{}/changes',
            { path: [id], query: fields(options), patience: 'long' },
            options,
        )
    }

    /** Returns the changes as a unified diff for `git apply`. */
    patch(id: string, options: CallOptions = {}): Promise<string> {
        return this.#transport.text(
            'GET sandboxes/{}/changes',
            { path: [id], query: { patch: true }, patience: 'long' },
            options,
        )
    }

    /** Commits the workspace as a snapshot. */
    commit(id: string, options: CommitOptions = {}): Promise<Wire.CommitSandboxResult> {
        return this.#transport.json(
            'POST sandboxes/{}/commit',
            { path: [id], json: fields(options), patience: 'long' },
            options,
        )
    }

    /** Creates sandboxes with a copy of the workspace. Processes are not copied. */
    async fork(id: string, options: ForkOptions = {}): Promise<ForkResult> {
        const request = { path: [id], json: fields(options), patience: 'long' } as const
        const result = await this.#transport.json<Wire.ForkSandboxResult>('POST sandboxes/{}/fork', request, options)
        return { ...result, sandboxes: result.sandboxes.map((wire) => this.#handle(wire)) }
    }

    /** Replaces the workspace by a snapshot. */
    async restore(id: string, snapshot: string, options: ForceOptions = {}): Promise<RestoreResult> {
        const { force, ...call } = options
        const request = { path: [id], json: { snapshot, force }, patience: 'long' } as const
        const result = await this.#transport.json<Wire.RestoreSandboxResult>('POST sandboxes/{}/restore', request, call)
        return { ...result, sandbox: this.#handle(result.sandbox) }
    }

    /** Brings the changes of the project into the workspace. */
    async rebase(id: string, options: ForceOptions = {}): Promise<RebaseResult> {
        const { force, ...call } = options
        const request = { path: [id], json: { force }, patience: 'long' } as const
        const result = await this.#transport.json<Wire.RebaseSandboxResult>('POST sandboxes/{}/rebase', request, call)
        return { ...result, sandbox: this.#handle(result.sandbox) }
    }

    /** Merges the changes of the sandbox into its project. `wait` is in seconds. */
    complete(id: string, options: CompleteOptions = {}): Promise<Wire.Completion> {
        const request = { path: [id], json: fields(options), isIdempotent: true, patience: 'long' } as const
        return this.#transport.json('POST sandboxes/{}/complete', request, options)
    }

    /** Pauses a sandbox. Default: to disk, where its processes end. */
    async pause(id: string, options: PauseOptions = {}): Promise<Sandbox> {
        const { signal, timeout, keep = 'disk' } = options
        const request = { path: [id], json: { keep }, repeatable: true, patience: 'long' } as const
        return this.#handle(await this.#transport.json('POST sandboxes/{}/pause', request, { signal, timeout }))
    }

    /** Resumes a sandbox after a pause. */
    async resume(id: string, options: ResumeOptions = {}): Promise<Sandbox> {
        const request = { path: [id], json: fields(options), repeatable: true, patience: 'long' } as const
        return this.#handle(await this.#transport.json('POST sandboxes/{}/resume', request, options))
    }

    /** Creates a token for one sandbox, to be used like a key. */
    createToken(id: string, rights: Wire.Right[], options: TokenOptions = {}): Promise<Wire.SandboxToken> {
        const { signal, timeout, expiresInSeconds } = options
        const json: Wire.CreateToken = { rights, expiresInSeconds }
        return this.#transport.json(
            'POST sandboxes/{}/token',
            { path: [id], json, repeatable: true },
            { signal, timeout },
        )
    }

    #handle(wire: Wire.Sandbox): Sandbox {
        return new Sandbox(this, this.#transport, wire)
    }
}

/** Methods of the service that a sandbox has, with its own id. */
const SHARED = [
    'delete',
    'logs',
    'stats',
    'metrics',
    'changes',
    'patch',
    'commit',
    'complete',
    'createToken',
] as const satisfies (keyof SandboxService)[]
/** Those that return the sandbox, which takes over its present fields. */
const UPDATING = ['extend', 'setTimeout', 'setLabels', 'pause', 'resume'] as const satisfies (keyof SandboxService)[]

type WithoutId<Method, Result = never> = Method extends (id: string, ...rest: infer Rest) => infer Original
    ? (...rest: Rest) => [Result] extends [never] ? Original : Promise<Result>
    : never
type SharedMethods = { [Name in keyof Pick<SandboxService, (typeof SHARED)[number]>]: WithoutId<SandboxService[Name]> }
type UpdatingMethods = {
    [Name in keyof Pick<SandboxService, (typeof UPDATING)[number]>]: WithoutId<SandboxService[Name], Sandbox>
}

/** Fields as the server sends them: those without a value are absent, and never null. */
type Present<Fields> = { readonly [Name in keyof Fields]: Exclude<Fields[Name], null> }

/** Fields of a sandbox, and the methods of the service with its id. */
// eslint-disable-next-line @typescript-eslint/no-unsafe-declaration-merging -- the constructor assigns all fields
export interface Sandbox extends Present<Omit<Wire.Sandbox, 'state' | 'nfs'>>, SharedMethods, UpdatingMethods {
    readonly state: SandboxState
    /** Deletes the sandbox and all its processes. Returns what is left of it, if anything is. */
    delete(options?: DeleteOptions): Promise<Wire.DeleteSandboxResult | undefined>
    /** Returns the last lines of output of all commands. */
    logs(options?: LogsOptions): Promise<LogsResponse>
    /** Measures the sandbox now. */
    stats(options?: CallOptions): Promise<SandboxStats>
    /** Returns the measurements of the last hour. */
    metrics(options?: MetricsOptions): Promise<Wire.MetricSeries>
    /** Returns the changes since the workspace was created or last restored. */
    changes(options?: ChangesOptions): Promise<Wire.SandboxChanges>
    /** Returns the changes as a unified diff for `git apply`. */
    patch(options?: CallOptions): Promise<string>
    /** Commits the workspace as a snapshot. */
    commit(options?: CommitOptions): Promise<Wire.CommitSandboxResult>
    /** Merges the changes of the sandbox into its project. `wait` is in seconds. */
    complete(options?: CompleteOptions): Promise<Wire.Completion>
    /** Creates a token for this sandbox, to be used like a key. */
    createToken(rights: Wire.Right[], options?: TokenOptions): Promise<Wire.SandboxToken>
    /** Makes the sandbox expire later. */
    extend(seconds: number, options?: CallOptions): Promise<Sandbox>
    /** Sets the time at which the sandbox expires, as seconds from now or as a time. */
    setTimeout(options: TimeoutOptions): Promise<Sandbox>
    /** Replaces the labels. */
    setLabels(labels: Record<string, string>, options?: CallOptions): Promise<Sandbox>
    /** Pauses the sandbox. Default: to disk, where its processes end. */
    pause(options?: PauseOptions): Promise<Sandbox>
    /** Resumes the sandbox after a pause. */
    resume(options?: ResumeOptions): Promise<Sandbox>
}

/** Sandbox: isolated processes around a workspace. With `await using`, it is deleted at the end of the block. */
// eslint-disable-next-line @typescript-eslint/no-unsafe-declaration-merging -- the constructor assigns all fields
export class Sandbox {
    readonly #service: SandboxService
    declare readonly process: ProcessService
    declare readonly files: FileService
    declare readonly ports: PortService
    declare readonly pty: PTYService
    declare readonly notes: NoteService
    declare readonly nfs: NFSService

    /** @internal */
    constructor(service: SandboxService, transport: Transport, wire: Wire.Sandbox) {
        this.#service = service
        const { nfs, ...fields } = wire
        Object.assign(this, fields)
        // Not enumerable, so that a printed sandbox is its fields.
        Object.defineProperties(this, {
            process: { value: new ProcessService(transport, wire.id) },
            files: { value: new FileService(transport, wire.id) },
            ports: { value: new PortService(transport, wire.id) },
            pty: { value: new PTYService(transport, wire.id) },
            notes: { value: new NoteService(transport, wire.id) },
            nfs: { value: new NFSService(nfs), configurable: true },
        })
    }

    static {
        type Call = (id: string, ...rest: unknown[]) => Promise<unknown>
        const define = (name: string, value: (this: Sandbox, ...rest: unknown[]) => unknown): unknown =>
            Object.defineProperty(this.prototype, name, { value, writable: true, configurable: true })
        for (const name of SHARED) {
            define(name, function (...rest) {
                return (this.#service[name] as Call)(this.id, ...rest)
            })
        }
        for (const name of UPDATING) {
            define(name, async function (...rest) {
                return this.#update((await (this.#service[name] as Call)(this.id, ...rest)) as Sandbox)
            })
        }
    }

    /** Deletes the sandbox at the end of an `await using` block. One that is gone is no error. */
    async [asyncDispose](): Promise<void> {
        await deleteIfPresent(this)
    }

    /** Fetches the present fields. */
    async refresh(options: CallOptions = {}): Promise<this> {
        return this.#update(await this.#service.get(this.id, options))
    }

    /** Creates `count` sandboxes with a copy of the workspace. */
    fork(count = 1, options: Omit<ForkOptions, 'count'> = {}): Promise<ForkResult> {
        return this.#service.fork(this.id, { ...options, count })
    }

    /** Replaces the workspace by a snapshot. `force` kills processes that use the workspace. */
    async restore(snapshot: string, options: ForceOptions = {}): Promise<RestoreResult> {
        const result = await this.#service.restore(this.id, snapshot, options)
        return { ...result, sandbox: this.#update(result.sandbox) }
    }

    /** Brings the changes of the project into the workspace. */
    async rebase(options: ForceOptions = {}): Promise<RebaseResult> {
        const result = await this.#service.rebase(this.id, options)
        return { ...result, sandbox: this.#update(result.sandbox) }
    }

    /** Takes over the fields of a newer handle. Optional fields that it lacks are removed. */
    #update(newer: Sandbox): this {
        for (const key of Object.keys(this)) delete (this as Record<string, unknown>)[key]
        Object.defineProperty(this, 'nfs', { value: newer.nfs })
        return Object.assign(this, newer)
    }
}

/** Creates a sandbox, calls `use` with it, and deletes it, also after an error. */
export async function withSandbox<T>(
    client: { readonly sandbox: SandboxService },
    params: CreateSandboxParams,
    use: (sandbox: Sandbox) => Promise<T> | T,
): Promise<T> {
    const sandbox = await client.sandbox.create(params)
    let result: T
    try {
        result = await use(sandbox)
    } catch (error) {
        // The error of the caller counts more than one of the deletion.
        await deleteIfPresent(sandbox).catch(() => undefined)
        throw error
    }
    await deleteIfPresent(sandbox)
    return result
}

async function deleteIfPresent(sandbox: Sandbox): Promise<void> {
    try {
        await sandbox.delete()
    } catch (error) {
        if (!(error instanceof SandboxGoneError)) throw error
    }
}
