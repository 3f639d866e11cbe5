// Access policies of projects.

import type * as Wire from './generated/wire.js'
import type { CallOptions, Transport } from './transport.js'

/** Policies. */
export class PolicyService {
    readonly #transport: Transport

    /** @internal */
    constructor(transport: Transport) {
        this.#transport = transport
    }

    /** Returns the policy in force. */
    get(project: string, options: CallOptions = {}): Promise<Wire.ProjectPolicy> {
        return this.#transport.json('GET projects/{}/policy', { path: [project] }, options)
    }

    /** Sets the policy, with `ifVersion` only if the one in force has that version. */
    set(
        project: string,
        policy: Record<string, unknown>,
        options: { ifVersion?: number } & CallOptions = {},
    ): Promise<Wire.ProjectPolicy> {
        const { ifVersion, ...call } = options
        const headers = { 'If-Match': ifVersion === undefined ? undefined : `"${ifVersion}"` }
        return this.#transport.json('PUT projects/{}/policy', { path: [project], headers, json: policy }, call)
    }

    /** Returns the access of an agent to a path, and the rule that decides it. */
    explain(project: string, agent: string, path: string, options: CallOptions = {}): Promise<Wire.PolicyExplanation> {
        return this.#transport.json(
            'GET projects/{}/policy/explain',
            { path: [project], query: { agent, path } },
            options,
        )
    }
}
