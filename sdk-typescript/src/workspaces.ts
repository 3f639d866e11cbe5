// Workspaces of agents that run in containers of their own.

import type * as Wire from './generated/wire.js'
import type { CompleteOptions } from './sandbox.js'
import { type AgentOptions, type CallOptions, type Transport, fields } from './transport.js'

/** Workspaces. */
export class WorkspaceService {
    readonly #transport: Transport

    /** @internal */
    constructor(transport: Transport) {
        this.#transport = transport
    }

    /** Creates the workspace of an agent, or returns the one that it has. */
    create(project: string, options: Wire.CreateAgentWorkspace & CallOptions = {}): Promise<Wire.AgentWorkspace> {
        // `agent` is a field here, and not the agent to act for.
        const { signal, timeout, ...json } = options
        const request = { path: [project], json, repeatable: true, patience: 'long' } as const
        return this.#transport.json('POST projects/{}/workspaces', request, { signal, timeout })
    }

    /** Lists a page of the workspaces of a project. */
    list(project: string, params: Wire.ListWorkspacesQuery & AgentOptions = {}): Promise<Wire.AgentWorkspaceList> {
        const request = { path: [project], query: fields(params) }
        return this.#transport.json('GET projects/{}/workspaces', request, params)
    }

    /** Returns the workspace of an agent. */
    get(project: string, agent: string, options: CallOptions = {}): Promise<Wire.AgentWorkspace> {
        return this.#transport.json('GET projects/{}/workspaces/{}', { path: [project, agent] }, options)
    }

    /** Deletes a workspace, with `discard` also if it has changes that were not completed. */
    async delete(project: string, agent: string, options: { discard?: boolean } & CallOptions = {}): Promise<void> {
        const { discard, ...call } = options
        const request = { path: [project, agent], query: { discard }, patience: 'long' } as const
        await this.#transport.json('DELETE projects/{}/workspaces/{}', request, call)
    }

    /** Returns what differs from the files that a workspace was made from. */
    changes(project: string, agent: string, options: CallOptions = {}): Promise<Wire.AgentWorkspaceChanges> {
        return this.#transport.json(
            'GET projects/{}/workspaces/{}/changes',
            { path: [project, agent], patience: 'long' },
            options,
        )
    }

    /** Merges the changes of a workspace into its project. `wait` is in seconds. */
    complete(project: string, agent: string, options: CompleteOptions = {}): Promise<Wire.Completion> {
        const request = {
            path: [project, agent],
            json: fields(options),
            isIdempotent: true,
            patience: 'long',
        } as const
        return this.#transport.json('POST projects/{}/workspaces/{}/complete', request, options)
    }

    /** Merges the changes of a workspace with the present head of the project, in place. */
    rebase(project: string, agent: string, options: CallOptions = {}): Promise<Wire.RebaseAgentWorkspaceResult> {
        return this.#transport.json(
            'POST projects/{}/workspaces/{}/rebase',
            { path: [project, agent], patience: 'long' },
            options,
        )
    }

    /** Merges the changes of the only workspace of an agent. */
    completeOnly(agent: string, options: CompleteOptions = {}): Promise<Wire.Completion> {
        const request = {
            path: [agent],
            json: fields(options),
            isIdempotent: true,
            patience: 'long',
        } as const
        return this.#transport.json('POST workspace/{}/complete', request, options)
    }

    /** Returns the workspace of the caller's agent, with its path. */
    own(project: string, options: AgentOptions = {}): Promise<Wire.AgentWorkspace> {
        return this.#transport.json('GET workspace/{}/path', { path: [project] }, options)
    }

    /** Moves the workspaces without changes to the present head. */
    sync(project: string, options: AgentOptions = {}): Promise<Wire.SyncResult> {
        const request = { path: [project], repeatable: true, patience: 'long' } as const
        return this.#transport.json('POST projects/{}/sync', request, options)
    }
}
