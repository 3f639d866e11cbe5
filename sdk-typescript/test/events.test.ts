// Events of the server are told apart by their types.

import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import type { FollowedEvent, ServerEventType } from '@elevo/workspace-sdk'
import { inSandbox, testClient } from './support.js'

/** Describes an event with the details of its type. It compiles only if all types are handled. */
function describe(event: FollowedEvent): string {
    switch (event.type) {
        case 'gap':
            return `${event.from}-${event.to}`
        case 'sandbox.starting':
        case 'sandbox.running':
        case 'sandbox.created':
        case 'sandbox.base_moved':
        case 'sandbox.resumed':
        case 'sandbox.expiring':
        case 'sandbox.expired':
        case 'sandbox.deleted':
            return `${event.data.state} ${event.data.expiresAt.toISOString()}`
        case 'sandbox.restored':
        case 'sandbox.rebased':
            return event.data.snapshotId
        case 'sandbox.rebase_conflicted':
            return event.data.conflicts.map(({ path }) => path).join()
        case 'sandbox.changes_reverted':
            return event.data.reverted.paths.join()
        case 'sandbox.paused':
        case 'sandbox.error':
            return event.data.reason ?? event.data.state
        case 'agent.connected':
        case 'agent.disconnected':
            return event.data.state ?? ''
        case 'snapshot.created':
            return event.data.snapshotId
        case 'template.built':
            return event.data.template
        case 'project.created':
        case 'project.updated':
        case 'project.deleted':
            return event.data.project
        case 'project.advanced':
            return `${event.data.project} ${event.data.sequence.toFixed()} ${event.data.snapshotId}`
        case 'completion.queued':
        case 'completion.refused':
            return event.data.completionId
        case 'completion.landed':
        case 'completion.in_review':
            return event.data.sequence?.toFixed() ?? event.data.agent
        case 'completion.failed':
            return `${event.data.reason} ${event.data.completionId ?? ''}`
        case 'review.opened':
            return event.data.reviewId
        case 'review.resolved':
        case 'review.expired':
            return `${event.data.by} ${event.data.choice}`
        case 'review.escalated':
            return event.data.escalatedTo
        case 'policy.changed':
            return event.data.policyVersion.toFixed()
        default: {
            const never: never = event
            return never
        }
    }
}

test('the types of events are those of the description of the API', () => {
    const path = join(process.env['SDK_ROOT'] ?? '', 'docs/openapi.json')
    const { components } = JSON.parse(readFileSync(path, 'utf8')) as {
        components: { schemas: { EventType: { enum: string[] } } }
    }
    const described = components.schemas.EventType.enum
    // Complete, because the compiler misses no type and accepts no other.
    const types: Record<ServerEventType, true> = {
        'sandbox.starting': true,
        'sandbox.running': true,
        'sandbox.created': true,
        'sandbox.restored': true,
        'sandbox.base_moved': true,
        'sandbox.rebased': true,
        'sandbox.rebase_conflicted': true,
        'sandbox.changes_reverted': true,
        'sandbox.paused': true,
        'sandbox.resumed': true,
        'sandbox.expiring': true,
        'sandbox.expired': true,
        'sandbox.error': true,
        'sandbox.deleted': true,
        'agent.connected': true,
        'agent.disconnected': true,
        'snapshot.created': true,
        'template.built': true,
        'project.created': true,
        'project.updated': true,
        'project.deleted': true,
        'project.advanced': true,
        'completion.queued': true,
        'completion.landed': true,
        'completion.in_review': true,
        'completion.refused': true,
        'completion.failed': true,
        'review.opened': true,
        'review.resolved': true,
        'review.escalated': true,
        'review.expired': true,
        'policy.changed': true,
    }
    assert.deepEqual(described.sort(), Object.keys(types).sort())
})

test('events are followed with the details of their types', async () => {
    const client = testClient()
    await inSandbox(client, async (box) => {
        const { snapshot } = await box.commit()
        await box.restore(snapshot.id)
        const seen: string[] = []
        for await (const event of client.events.follow({ sandbox: box.id })) {
            assert.doesNotMatch(describe(event), /undefined|null/)
            seen.push(event.type)
            if (event.type !== 'sandbox.restored') continue
            assert.equal(event.data.snapshotId, snapshot.id)
            assert.equal(event.data.state, 'running')
            assert.ok(event.data.createdAt.getTime() <= event.time.getTime())
            break
        }
        assert.deepEqual(seen.sort(), [
            'agent.connected',
            'sandbox.created',
            'sandbox.restored',
            'sandbox.running',
            'sandbox.starting',
            'snapshot.created',
        ])
    })
})
