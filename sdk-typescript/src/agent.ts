// Header that names the agent for which a project is read.

import type { CallOptions } from './transport.js'

/** Options of requests that the API answers for an agent. */
export interface AgentOptions extends CallOptions {
    /** Agent to act for, if the key may act for several. Default: that of the client. */
    agent?: string
}

/** Returns the header for an agent. */
export function agentHeader(agent: string | undefined): Record<string, string | undefined> {
    return { 'X-Agent': agent }
}
