// Workspaces of agents that run in containers of their own.

import { type AgentOptions, agentHeader } from './agent.js'
import type * as Wire from './generated/wire.js'
import { type IdempotentOptions } from './sandbox.js'
import { type CallOptions, type Transport, newIdempotencyKey } from './transport.js'

type CompleteOptions = Wire.CompleteSandbox & IdempotentOptions

/** Workspaces. */
export class WorkspaceService {
    readonly #transport: Transport

    /** @internal */
    constructor(transport: Transport) {
        this.#transport = transport
    }

    /** Creates the workspace of an agent, or returns the one that it has. */
    create(project: string, options: Wire.CreateAgentWorkspace & CallOptions = {}): Promise<Wire.AgentWorkspace> {
        const { signal, timeout, ...json } = options
        const request = { path: { project }, json, repeatable: true, patience: 'long' } as const
        return this.#transport.json('create_workspace', request, { signal, timeout })
    }

    list(project: string, params: Wire.ListWorkspacesQuery & AgentOptions = {}): Promise<Wire.AgentWorkspaceList> {
        const { signal, timeout, agent, ...query } = params
        const request = { path: { project }, query, headers: agentHeader(agent) }
        return this.#transport.json('list_workspaces', request, { signal, timeout })
    }

    get(project: string, agent: string, options: CallOptions = {}): Promise<Wire.AgentWorkspace> {
        return this.#transport.json('get_workspace', { path: { project, agent } }, options)
    }

    /** Deletes a workspace, with `discard` also if it has changes that were not completed. */
    async delete(project: string, agent: string, options: { discard?: boolean } & CallOptions = {}): Promise<void> {
        const { discard, ...call } = options
        const request = { path: { project, agent }, query: { discard }, patience: 'long' } as const
        await this.#transport.json('delete_workspace', request, call)
    }

    changes(project: string, agent: string, options: CallOptions = {}): Promise<Wire.AgentWorkspaceChanges> {
        return this.#transport.json('get_workspace_changes', { path: { project, agent }, patience: 'long' }, options)
    }

    /** Merges the changes of a workspace into its project. `wait` is in seconds. */
    complete(project: string, agent: string, options: CompleteOptions = {}): Promise<Wire.Completion> {
        const { signal, timeout, idempotencyKey = newIdempotencyKey(), ...json } = options
        const request = { path: { project, agent }, json, idempotencyKey, patience: 'long' } as const
        return this.#transport.json('complete_workspace', request, { signal, timeout })
    }

    /** Merges the changes of a workspace with the present head of the project, in place. */
    rebase(project: string, agent: string, options: CallOptions = {}): Promise<Wire.RebaseAgentWorkspaceResult> {
        return this.#transport.json('rebase_workspace', { path: { project, agent }, patience: 'long' }, options)
    }

    /** Merges the changes of the only workspace of an agent. */
    completeOnly(agent: string, options: CompleteOptions = {}): Promise<Wire.Completion> {
        const { signal, timeout, idempotencyKey = newIdempotencyKey(), ...json } = options
        const request = { path: { subject: agent }, json, idempotencyKey, patience: 'long' } as const
        return this.#transport.json('complete_workspace_of_agent', request, { signal, timeout })
    }

    /** Returns the workspace of the caller's agent, with its path. */
    own(project: string, options: AgentOptions = {}): Promise<Wire.AgentWorkspace> {
        const { agent, ...call } = options
        return this.#transport.json(
            'get_workspace_path',
            { path: { subject: project }, headers: agentHeader(agent) },
            call,
        )
    }

    /** Moves the workspaces without changes to the present head. */
    sync(project: string, options: AgentOptions = {}): Promise<Wire.SyncResult> {
        const { agent, ...call } = options
        const request = { path: { project }, headers: agentHeader(agent), repeatable: true, patience: 'long' } as const
        return this.#transport.json('sync_project', request, call)
    }
}
