// Projects: trees of files that many agents change at once.

import { type AgentOptions, agentHeader } from './agent.js'
import { type FollowedEvent, followServerEvents } from './events.js'
import type * as Wire from './generated/wire.js'
import { listAll } from './pages.js'
import type { IdempotentOptions } from './sandbox.js'
import { type CallOptions, type Content, type Transport, newIdempotencyKey } from './transport.js'

/** Projects, by name or id. */
export class ProjectService {
    readonly #transport: Transport

    /** @internal */
    constructor(transport: Transport) {
        this.#transport = transport
    }

    create(params: Wire.CreateProject, options: CallOptions = {}): Promise<Wire.Project> {
        return this.#transport.json('create_project', { json: params }, options)
    }

    list(params: Wire.ListProjectsQuery & AgentOptions = {}): Promise<Wire.ProjectList> {
        const { signal, timeout, agent, ...query } = params
        return this.#transport.json('list_projects', { query, headers: agentHeader(agent) }, { signal, timeout })
    }

    listAll(params: Wire.ListProjectsQuery & AgentOptions = {}): AsyncIterable<Wire.Project> {
        return listAll((page) => this.list({ ...params, ...page }))
    }

    get(project: string, options: AgentOptions = {}): Promise<Wire.Project> {
        const { agent, ...call } = options
        return this.#transport.json('get_project', { path: { project }, headers: agentHeader(agent) }, call)
    }

    /** Changes the name or the settings. */
    update(project: string, changes: Wire.UpdateProject, options: CallOptions = {}): Promise<Wire.Project> {
        return this.#transport.json('update_project', { path: { project }, json: changes }, options)
    }

    async delete(project: string, options: CallOptions = {}): Promise<void> {
        await this.#transport.json('delete_project', { path: { project } }, options)
    }

    /** Reads the files as a tar archive, in chunks. */
    archive(project: string, options: Wire.GetProjectArchiveQuery & AgentOptions = {}): AsyncIterable<Uint8Array> {
        const { signal, timeout, agent, ...query } = options
        const request = { path: { project }, query, headers: agentHeader(agent) }
        return this.#transport.chunks('get_project_archive', request, { signal, timeout })
    }

    /** Compares two states. Default: shows the last change. */
    diff(project: string, options: Omit<Wire.DiffProjectQuery, 'patch'> & AgentOptions = {}): Promise<Wire.Diff> {
        const { signal, timeout, agent, ...query } = options
        const request = { path: { project }, query, headers: agentHeader(agent), patience: 'long' } as const
        return this.#transport.json('diff_project', request, { signal, timeout })
    }

    /** Returns the differences as a unified diff for `git apply`. */
    patch(project: string, options: Pick<Wire.DiffProjectQuery, 'from' | 'to'> & AgentOptions = {}): Promise<string> {
        const { signal, timeout, agent, ...query } = options
        const headers = agentHeader(agent)
        const request = { path: { project }, query: { ...query, patch: true }, headers, patience: 'long' } as const
        return this.#transport.text('diff_project', request, { signal, timeout })
    }

    /** Reads a file as text. */
    async read(project: string, path: string, options: Wire.GetProjectFileQuery & AgentOptions = {}): Promise<string> {
        return new TextDecoder().decode(await this.readBytes(project, path, options))
    }

    readBytes(
        project: string,
        path: string,
        options: Wire.GetProjectFileQuery & AgentOptions = {},
    ): Promise<Uint8Array> {
        const { signal, timeout, agent, ...query } = options
        const request = { path: { project, path }, query, headers: agentHeader(agent) }
        return this.#transport.bytes('get_project_file', request, { signal, timeout })
    }

    /** Lists a directory; by default the root. */
    tree(project: string, path = '', options: Wire.GetProjectTreeQuery & AgentOptions = {}): Promise<Wire.TreeListing> {
        const { signal, timeout, agent, ...query } = options
        const call = { signal, timeout }
        const headers = agentHeader(agent)
        return path === ''
            ? this.#transport.json('get_project_root', { path: { project }, query, headers }, call)
            : this.#transport.json('get_project_tree', { path: { project, path }, query, headers }, call)
    }

    /** Lists the versions of a file, the newest first. */
    versions(
        project: string,
        path: string,
        options: Wire.ListVersionsQuery & AgentOptions = {},
    ): Promise<Wire.FileVersionList> {
        const { signal, timeout, agent, ...query } = options
        const request = { path: { project, path }, query, headers: agentHeader(agent) }
        return this.#transport.json('list_versions', request, { signal, timeout })
    }

    /** Lists the operations that changed the project, the newest first. */
    operations(project: string, options: Wire.ListOperationsQuery & AgentOptions = {}): Promise<Wire.OperationList> {
        const { signal, timeout, agent, ...query } = options
        const request = { path: { project }, query, headers: agentHeader(agent) }
        return this.#transport.json('list_operations', request, { signal, timeout })
    }

    /** Lists the former heads, the newest first. */
    snapshots(
        project: string,
        options: Wire.ListProjectSnapshotsQuery & AgentOptions = {},
    ): Promise<Wire.ProjectSnapshotList> {
        const { signal, timeout, agent, ...query } = options
        const request = { path: { project }, query, headers: agentHeader(agent) }
        return this.#transport.json('list_project_snapshots', request, { signal, timeout })
    }

    /** Rolls back the project, or a path of it, to an earlier state. Returns `null` if nothing differs. */
    rollback(
        project: string,
        to: Wire.Revision,
        options: Omit<Wire.Rollback, 'to'> & CallOptions = {},
    ): Promise<Wire.Operation | null> {
        const { signal, timeout, ...rest } = options
        const json: Wire.Rollback = { to, ...rest }
        return this.#transport.json(
            'rollback_project',
            { path: { project }, json, patience: 'long' },
            { signal, timeout },
        )
    }

    /** Imports a tar archive, whose files replace those of the project. */
    importArchive(
        project: string,
        archive: Content,
        options: Wire.ImportProjectQuery & CallOptions = {},
    ): Promise<Wire.ImportResult> {
        const { signal, timeout, ...query } = options
        const request = { path: { project }, query, content: archive, patience: 'endless' } as const
        return this.#transport.json('import_project', request, { signal, timeout })
    }

    /** Lists the completions, with `ofAgent` those of one agent. `agent` is the one for which the project is read. */
    completions(
        project: string,
        params: Omit<Wire.ListCompletionsQuery, 'agent'> & { ofAgent?: string } & AgentOptions = {},
    ): Promise<Wire.CompletionList> {
        const { signal, timeout, agent, ofAgent, ...query } = params
        const request = { path: { project }, query: { ...query, agent: ofAgent }, headers: agentHeader(agent) }
        return this.#transport.json('list_completions', request, { signal, timeout })
    }

    /** Returns a completion. With `wait`, waits for so many seconds until it is not queued any more. */
    completion(
        project: string,
        completion: string,
        options: Wire.GetCompletionQuery & AgentOptions = {},
    ): Promise<Wire.Completion> {
        const { signal, timeout, agent, ...query } = options
        const request = { path: { project, completion }, query, headers: agentHeader(agent), patience: 'long' } as const
        return this.#transport.json('get_completion', request, { signal, timeout })
    }

    /** Reads a file as an agent completed it, also if its change was refused. Only for the owner of the project. */
    readCompleted(project: string, completion: string, path: string, options: CallOptions = {}): Promise<Uint8Array> {
        return this.#transport.bytes('get_completion_file', { path: { project, completion, path } }, options)
    }

    /** Merges the changes of a snapshot that was made outside a sandbox. */
    completeSnapshot(
        project: string,
        params: Wire.CompleteSnapshot,
        options: IdempotentOptions = {},
    ): Promise<Wire.Completion> {
        const { idempotencyKey = newIdempotencyKey(), ...call } = options
        const request = { path: { project }, json: params, idempotencyKey, patience: 'long' } as const
        return this.#transport.json('complete_snapshot', request, call)
    }

    /** Lists a page of the events of a project. */
    events(project: string, params: Wire.ListProjectEventsQuery & AgentOptions = {}): Promise<Wire.EventPage> {
        const { signal, timeout, agent, ...query } = params
        const request = { path: { project }, query, headers: agentHeader(agent) }
        return this.#transport.json('list_project_events', request, { signal, timeout })
    }

    /** Iterates over the stored events of a project after `after`, and then over new ones as they occur. */
    followEvents(
        project: string,
        params: Omit<Wire.ListProjectEventsQuery, 'limit'> & AgentOptions = {},
    ): AsyncGenerator<FollowedEvent> {
        return followServerEvents(this.#transport, 'list_project_events', { project }, params)
    }
}
