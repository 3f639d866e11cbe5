// Every operation of the API is reachable by a method, which sends what the description of the API says.

import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { test } from 'node:test'
import { type Sandbox, WorkspaceClient } from '@elevo/workspace-sdk'

interface Description {
    paths: Record<string, Record<string, { operationId?: string }>>
}

type Call = (client: WorkspaceClient, box: Sandbox) => unknown

const first = async (iterable: AsyncIterable<unknown>): Promise<unknown> => {
    for await (const item of iterable) return item
    return undefined
}

const calls: Record<string, Call> = {
    api_docs: (c) => c.system.docs(),
    build_template: (c) => first(c.templates.build('t', new Uint8Array())),
    change_files: (_, b) => b.files.mkdir('d'),
    close_terminal: (_, b) => b.pty.kill('p'),
    collect: (c) => c.system.gc(),
    command_output: (_, b) => first(b.process.output('cmd-1')),
    commit_sandbox: (_, b) => b.commit(),
    complete_sandbox: (_, b) => b.complete(),
    complete_snapshot: (c) => c.projects.completeSnapshot('p', { snapshot: 's', base: 1 }),
    complete_workspace: (c) => c.workspaces.complete('p', 'a'),
    complete_workspace_of_agent: (c) => c.workspaces.completeOnly('a'),
    connect_port: (_, b) => b.ports.connect(80),
    connect_terminal: (_, b) => b.pty.attach('p'),
    create_episode: (c) => c.episodes.create({ snapshot: 's', action: 'a', reward: 1 }),
    create_key: (c) => c.keys.create({ name: 'n', owner: 'o', role: 'user' }),
    create_note: (_, b) => b.notes.create('text'),
    create_preview: (_, b) => b.ports.preview(80),
    create_project: (c) => c.projects.create({ name: 'p' }),
    create_sandbox: (c) => c.sandbox.create({ template: 'base' }),
    create_signed_url: (_, b) => b.files.signedUrl('f'),
    create_ticket: (_, b) => b.pty.ticket('p'),
    create_token: (_, b) => b.createToken(['process']),
    create_workspace: (c) => c.workspaces.create('p'),
    delete_episode: (c) => c.episodes.delete('e'),
    delete_project: (c) => c.projects.delete('p'),
    delete_reference: (c) => c.references.delete('r'),
    delete_sandbox: (_, b) => b.delete(),
    delete_sandboxes: (c) => c.sandbox.batchDelete(['s']),
    delete_snapshot: (c) => c.snapshots.delete('s'),
    delete_workspace: (c) => c.workspaces.delete('p', 'a'),
    diff_project: (c) => c.projects.diff('p'),
    diff_snapshots: (c) => c.snapshots.diff('a', 'b'),
    explain_policy: (c) => c.policies.explain('p', 'a', 'f'),
    extend_sandbox: (_, b) => b.extend(1),
    fork_sandbox: (_, b) => b.fork(),
    get_best_episode: (c) => c.episodes.best('e'),
    get_changes: (_, b) => b.changes(),
    get_command: (_, b) => b.process.get('cmd-1'),
    get_completion: (c) => c.projects.completion('p', 'c'),
    get_completion_file: (c) => c.projects.readCompleted('p', 'c', 'f'),
    get_episode: (c) => c.episodes.get('e'),
    get_episode_path: (c) => c.episodes.path('e'),
    get_episode_subtree: (c) => c.episodes.subtree('e'),
    get_policy: (c) => c.policies.get('p'),
    get_project: (c) => c.projects.get('p'),
    get_project_archive: (c) => first(c.projects.archive('p')),
    get_project_file: (c) => c.projects.read('p', 'f'),
    get_project_root: (c) => c.projects.tree('p'),
    get_project_tree: (c) => c.projects.tree('p', 'd'),
    get_reference: (c) => c.references.get('r'),
    get_review: (c) => c.reviews.get('p', 'r'),
    get_review_version: (c) => c.reviews.version('p', 'r', 'base'),
    get_sandbox: (c) => c.sandbox.get('s'),
    get_snapshot: (c) => c.snapshots.get('s'),
    get_snapshot_archive: (c) => first(c.snapshots.archive('s')),
    get_snapshot_file: (c) => c.snapshots.read('s', 'f'),
    get_snapshot_root: (c) => c.snapshots.tree('s'),
    get_snapshot_tree: (c) => c.snapshots.tree('s', 'd'),
    get_template: (c) => c.templates.get('t'),
    get_workspace: (c) => c.workspaces.get('p', 'a'),
    get_workspace_changes: (c) => c.workspaces.changes('p', 'a'),
    get_workspace_path: (c) => c.workspaces.own('p'),
    health: (c) => c.system.health(),
    import_project: (c) => c.projects.importArchive('p', new Uint8Array()),
    import_template: (c) => c.templates.importArchive('t', new Uint8Array()),
    kill_command: (_, b) => b.process.kill('cmd-1'),
    label_sandbox: (_, b) => b.setLabels({}),
    list_commands: (_, b) => b.process.list(),
    list_completions: (c) => c.projects.completions('p'),
    list_episode_children: (c) => c.episodes.children('e'),
    list_events: (c) => c.events.list(),
    list_files: (_, b) => b.files.list('d'),
    list_keys: (c) => c.keys.list(),
    list_nfs_exports: (c) => c.system.nfsExports(),
    list_notes: (_, b) => b.notes.list(),
    list_operations: (c) => c.projects.operations('p'),
    list_ports: (_, b) => b.ports.list(),
    list_processes: (_, b) => b.process.processes(),
    list_project_events: (c) => c.projects.events('p'),
    list_project_snapshots: (c) => c.projects.snapshots('p'),
    list_projects: (c) => c.projects.list(),
    list_references: (c) => c.references.list(),
    list_reviews: (c) => c.reviews.list('p'),
    list_sandboxes: (c) => c.sandbox.list(),
    list_searches: (c) => c.episodes.list(),
    list_snapshots: (c) => c.snapshots.list(),
    list_templates: (c) => c.templates.list(),
    list_versions: (c) => c.projects.versions('p', 'f'),
    list_workspaces: (c) => c.workspaces.list('p'),
    me: (c) => c.keys.me(),
    metrics: (c) => c.system.metrics(),
    open_terminal: (_, b) => b.pty.create({ cols: 80, rows: 24 }),
    openapi: (c) => c.system.openapi(),
    pause_sandbox: (_, b) => b.pause(),
    read_file: (_, b) => b.files.read('f'),
    ready: (c) => c.system.ready(),
    rebase_sandbox: (_, b) => b.rebase(),
    rebase_workspace: (c) => c.workspaces.rebase('p', 'a'),
    remove_file: (_, b) => b.files.remove('f'),
    remove_template: (c) => c.templates.delete('t'),
    resize_terminal: (_, b) => b.pty.resize('p', 80, 24),
    resolve_review: (c) => c.reviews.resolve('p', 'r', { choice: 'ours' }),
    restore_sandbox: (_, b) => b.restore('s'),
    resume_sandbox: (_, b) => b.resume(),
    revoke_key: (c) => c.keys.revoke('k'),
    rollback_project: (c) => c.projects.rollback('p', 1),
    run_command: (_, b) => b.process.run('true'),
    sandbox_logs: (_, b) => b.logs(),
    sandbox_metrics: (_, b) => b.metrics(),
    sandbox_stats: (_, b) => b.stats(),
    server_info: (c) => c.system.info(),
    set_policy: (c) => c.policies.set('p', {}),
    set_reference: (c) => c.references.set('r', 's'),
    set_timeout: (_, b) => b.setTimeout({ timeoutSeconds: 1 }),
    sync_project: (c) => c.workspaces.sync('p'),
    system_stats: (c) => c.system.stats(),
    update_project: (c) => c.projects.update('p', {}),
    upload_snapshot: (c) => c.snapshots.upload(new Uint8Array()),
    watch_files: (_, b) => first(b.files.watch('d')),
    write_file: (_, b) => b.files.write('f', 'x'),
    write_stdin: (_, b) => b.process.writeStdin('cmd-1', 'x'),
}

const root = process.env['SDK_ROOT'] ?? ''
const description = JSON.parse(readFileSync(join(root, 'docs/openapi.json'), 'utf8')) as Description

/** Returns the operation whose method and path fit. Fixed segments count more than parameters. */
function operationOf(method: string, path: string): string | undefined {
    const found = Object.entries(description.paths)
        .filter(([template, methods]) => {
            if (!methods[method.toLowerCase()]) return false
            const pattern = template
                .replace(/[.]/g, '\\.')
                .replace(/\{path\}/g, '.+')
                .replace(/\{\w+\}/g, '[^/]+')
            return new RegExp(`^${pattern}$`).test(path)
        })
        .sort(([a], [b]) => a.split('{').length - b.split('{').length)
    return found[0]?.[1][method.toLowerCase()]?.operationId
}

test('an operation that no request has called with success is found', async () => {
    const { uncalledOperations } = (await import(
        pathToFileURL(join(root, 'sdk-typescript/test/uncalled-operations.mjs')).href
    )) as { uncalledOperations: (api: Description, metrics: string) => string[] }
    const api = {
        paths: { '/api/v1/a/{id}': { get: {}, delete: {} }, '/api/v1/b/{path}': { put: {} }, '/c': { get: {} } },
    }
    const metrics = [
        'api_request_total{endpoint="GET /api/v1/a/{id}",status="200"} 12',
        'api_request_total{endpoint="DELETE /api/v1/a/{id}",status="404"} 1',
        'api_request_total{endpoint="PUT /api/v1/b/{*path}",status="204"} 1',
        'api_request_total{endpoint="GET /c",status="200"} 0',
    ]
    assert.deepEqual(uncalledOperations(api, metrics.join('\n')), ['DELETE /api/v1/a/{id}', 'GET /c'])
})

/** Returns the URL of a request of `fetch`. */
function requestUrl(input: string | URL | Request): string {
    return input instanceof Request ? input.url : input.toString()
}

test('every operation of the API is reachable by a method', async () => {
    const ids = Object.values(description.paths).flatMap((methods) =>
        Object.values(methods).flatMap((o) => o.operationId ?? []),
    )
    assert.deepEqual(Object.keys(calls).sort(), ids.sort())
    let sent: string[] = []
    const record = (method: string, url: string): void => {
        sent.push(operationOf(method, new URL(url).pathname) ?? `${method} ${url}`)
    }
    class RecordingSocket extends EventTarget {
        constructor(url: string) {
            super()
            record('GET', url)
            throw new Error('recorded')
        }
    }
    const client = new WorkspaceClient({
        apiUrl: 'http://server.invalid',
        retries: 0,
        reconnectTimeout: 1,
        WebSocket: RecordingSocket as unknown as new (url: string) => WebSocket,
        fetch: (url, init) => {
            record(init?.method ?? '', requestUrl(url))
            return Promise.resolve(Response.json({ id: 'box', ticket: 'ticket' }))
        },
    })
    const box = await client.sandbox.get('box')
    for (const [id, call] of Object.entries(calls)) {
        sent = []
        // The responses are not of the expected shape.
        await Promise.resolve(call(client, box)).catch(() => undefined)
        // A terminal needs a ticket first, because this WebSocket has no headers. A port has no tickets.
        if (id !== 'connect_port') assert.equal(id === 'connect_terminal' ? sent.at(-1) : sent[0], id)
    }
})
