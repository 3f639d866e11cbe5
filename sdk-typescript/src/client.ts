// Client of a server.

import { type ClientConfig, resolveConfig } from './config.js'
import { EpisodeService } from './episodes.js'
import { EventService } from './events.js'
import { KeyService } from './keys.js'
import { PolicyService } from './policies.js'
import { ProjectService } from './projects.js'
import { ReferenceService } from './references.js'
import { ReviewService } from './reviews.js'
import { SandboxService } from './sandbox.js'
import { SnapshotService } from './snapshots.js'
import { SystemService } from './system.js'
import { TemplateService } from './templates.js'
import { WorkspaceService } from './workspaces.js'
import { Transport } from './transport.js'

/** Client of a server. It needs no closing. */
export class WorkspaceClient {
    /** Sandboxes: isolated processes around a workspace. */
    readonly sandbox: SandboxService
    /** Root filesystems of sandboxes. */
    readonly templates: TemplateService
    /** Snapshots of file trees. */
    readonly snapshots: SnapshotService
    /** Names of snapshots. */
    readonly references: ReferenceService
    /** Steps of searches over snapshots. */
    readonly episodes: EpisodeService
    /** Trees of files that many agents change at once. */
    readonly projects: ProjectService
    /** Access policies of projects. */
    readonly policies: PolicyService
    /** Decisions about conflicts and critical changes. */
    readonly reviews: ReviewService
    /** Workspaces of agents that run in containers of their own. */
    readonly workspaces: WorkspaceService
    /** Events of the server. */
    readonly events: EventService
    /** Keys of the API. */
    readonly keys: KeyService
    /** The server itself. */
    readonly system: SystemService
    /** URL of the server. */
    readonly apiUrl: string

    /** Takes what is missing from the environment: `WORKSPACE_API_URL`, `WORKSPACE_API_KEY`. */
    constructor(config: ClientConfig = {}) {
        const transport = new Transport(resolveConfig(config))
        this.apiUrl = transport.config.apiUrl
        this.sandbox = new SandboxService(transport)
        this.templates = new TemplateService(transport)
        this.snapshots = new SnapshotService(transport)
        this.references = new ReferenceService(transport)
        this.episodes = new EpisodeService(transport)
        this.projects = new ProjectService(transport)
        this.policies = new PolicyService(transport)
        this.reviews = new ReviewService(transport)
        this.workspaces = new WorkspaceService(transport)
        this.events = new EventService(transport)
        this.keys = new KeyService(transport)
        this.system = new SystemService(transport)
    }
}
