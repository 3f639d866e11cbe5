// Projects: trees of files that many agents change at once.

import { type FollowedEvent, followServerEvents } from './events.js'
import type * as Wire from './generated/wire.js'
import { listAll } from './pages.js'
import type { EventPage } from './server-events.js'
import {
    type AgentOptions,
    type CallOptions,
    type Content,
    type IdempotentOptions,
    type Transport,
    fields,
} from './transport.js'

/** Projects, by name or id. */
export class ProjectService {
    readonly #transport: Transport

    /** @internal */
    constructor(transport: Transport) {
        this.#transport = transport
    }

    /** Creates a project without files. */
    create(params: Wire.CreateProject, options: CallOptions = {}): Promise<Wire.Project> {
        return this.#transport.json('POST projects', { json: params }, options)
    }

    /** Lists a page of projects. */
    list(params: Wire.ListProjectsQuery & AgentOptions = {}): Promise<Wire.ProjectList> {
        return this.#transport.json('GET projects', { query: fields(params) }, params)
    }

    /** Iterates over all projects. */
    listAll(params: Wire.ListProjectsQuery & AgentOptions = {}): AsyncIterable<Wire.Project> {
        return listAll((page) => this.list({ ...params, ...page }))
    }

    /** Returns a project. */
    get(project: string, options: AgentOptions = {}): Promise<Wire.Project> {
        return this.#transport.json('GET projects/{}', { path: [project] }, options)
    }

    /** Changes the name or the settings. */
    update(project: string, changes: Wire.UpdateProject, options: CallOptions = {}): Promise<Wire.Project> {
        return this.#transport.json('PATCH projects/{}', { path: [project], json: changes }, options)
    }

    /** Deletes a project with its history. */
    async delete(project: string, options: CallOptions = {}): Promise<void> {
        await this.#transport.json('DELETE projects/{}', { path: [project] }, options)
    }

    /** Reads the files as a tar archive, in chunks. */
    archive(project: string, options: Wire.GetProjectArchiveQuery & AgentOptions = {}): AsyncIterable<Uint8Array> {
        const request = { path: [project], query: fields(options) }
        return this.#transport.chunks('GET projects/{}/archive', request, options)
    }

    /** Compares two states. Default: shows the last change. */
    diff(project: string, options: Omit<Wire.DiffProjectQuery, 'patch'> & AgentOptions = {}): Promise<Wire.Diff> {
        return this.#transport.json(
            'GET projects/{}/diff',
            { path: [project], query: fields(options), patience: 'long' },
            options,
        )
    }

    /** Returns the differences as a unified diff for `git apply`. */
    patch(project: string, options: Pick<Wire.DiffProjectQuery, 'from' | 'to'> & AgentOptions = {}): Promise<string> {
        const request = { path: [project], query: { ...fields(options), patch: true }, patience: 'long' } as const
        return this.#transport.text('GET projects/{}/diff', request, options)
    }

    /** Reads a file as text. */
    async read(project: string, path: string, options: Wire.GetProjectFileQuery & AgentOptions = {}): Promise<string> {
        return new TextDecoder().decode(await this.readBytes(project, path, options))
    }

    /** Reads a file. */
    readBytes(
        project: string,
        path: string,
        options: Wire.GetProjectFileQuery & AgentOptions = {},
    ): Promise<Uint8Array> {
        const request = { path: [project, path], query: fields(options) }
        return this.#transport.bytes('GET projects/{}/files/{path}', request, options)
    }

    /** Lists a directory; by default the root. */
    tree(project: string, path = '', options: Wire.GetProjectTreeQuery & AgentOptions = {}): Promise<Wire.TreeListing> {
        const query = fields(options)
        return path === ''
            ? this.#transport.json('GET projects/{}/tree', { path: [project], query }, options)
            : this.#transport.json('GET projects/{}/tree/{path}', { path: [project, path], query }, options)
    }

    /** Lists the versions of a file, the newest first. */
    versions(
        project: string,
        path: string,
        options: Wire.ListVersionsQuery & AgentOptions = {},
    ): Promise<Wire.FileVersionList> {
        const request = { path: [project, path], query: fields(options) }
        return this.#transport.json('GET projects/{}/versions/{path}', request, options)
    }

    /** Lists the operations that changed the project, the newest first. */
    operations(project: string, options: Wire.ListOperationsQuery & AgentOptions = {}): Promise<Wire.OperationList> {
        const request = { path: [project], query: fields(options) }
        return this.#transport.json('GET projects/{}/operations', request, options)
    }

    /** Lists the former heads, the newest first. */
    snapshots(
        project: string,
        options: Wire.ListProjectSnapshotsQuery & AgentOptions = {},
    ): Promise<Wire.ProjectSnapshotList> {
        return this.#transport.json('GET projects/{}/snapshots', { path: [project], query: fields(options) }, options)
    }

    /** Rolls back the project, or a path of it, to an earlier state. Returns `null` if nothing differs. */
    rollback(
        project: string,
        to: Wire.Revision,
        options: Omit<Wire.Rollback, 'to'> & CallOptions = {},
    ): Promise<Wire.Operation | null> {
        const json: Wire.Rollback = { to, ...fields(options) }
        return this.#transport.json('POST projects/{}/rollback', { path: [project], json, patience: 'long' }, options)
    }

    /** Imports a tar archive, whose files replace those of the project. */
    importArchive(
        project: string,
        archive: Content,
        options: Wire.ImportProjectQuery & CallOptions = {},
    ): Promise<Wire.ImportResult> {
        const request = { path: [project], query: fields(options), content: archive, patience: 'endless' } as const
        return this.#transport.json('POST projects/{}/import', request, options)
    }

    /** Lists the completions, with `ofAgent` those of one agent. `agent` is the one for which the project is read. */
    completions(
        project: string,
        params: Omit<Wire.ListCompletionsQuery, 'agent'> & { ofAgent?: string } & AgentOptions = {},
    ): Promise<Wire.CompletionList> {
        const { ofAgent, ...query } = fields(params)
        const request = { path: [project], query: { ...query, agent: ofAgent } }
        return this.#transport.json('GET projects/{}/completions', request, params)
    }

    /** Returns a completion. With `wait`, waits for so many seconds until it is not queued any more. */
    completion(
        project: string,
        completion: string,
        options: Wire.GetCompletionQuery & AgentOptions = {},
    ): Promise<Wire.Completion> {
        const request = { path: [project, completion], query: fields(options), patience: 'long' } as const
        return this.#transport.json('GET projects/{}/completions/{}', request, options)
    }

    /** Reads a file as an agent completed it, also if its change was refused. Only for the owner of the project. */
    readCompleted(project: string, completion: string, path: string, options: CallOptions = {}): Promise<Uint8Array> {
        const request = { path: [project, completion, path] }
        return this.#transport.bytes('GET projects/{}/completions/{}/files/{path}', request, options)
    }

    /** Merges the changes of a snapshot that was made outside a sandbox. */
    completeSnapshot(
        project: string,
        params: Wire.CompleteSnapshot,
        options: IdempotentOptions = {},
    ): Promise<Wire.Completion> {
        const request = { path: [project], json: params, isIdempotent: true, patience: 'long' } as const
        return this.#transport.json('POST projects/{}/completions', request, options)
    }

    /** Lists a page of the events of a project. */
    events(project: string, params: Wire.ListProjectEventsQuery & AgentOptions = {}): Promise<EventPage> {
        return this.#transport.json('GET projects/{}/events', { path: [project], query: fields(params) }, params)
    }

    /** Iterates over the stored events of a project after `after`, and then over new ones as they occur. */
    followEvents(
        project: string,
        params: Omit<Wire.ListProjectEventsQuery, 'limit'> & AgentOptions = {},
    ): AsyncGenerator<FollowedEvent> {
        return followServerEvents(this.#transport, 'GET projects/{}/events', [project], params)
    }
}
