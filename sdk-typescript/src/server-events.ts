// Events of the server, to be told apart by `type`.

import type * as Wire from './generated/wire.js'
import type { SandboxState } from './types.js'

/** Details with the fields `Present`, and maybe `Possible`. */
export type EventDetails<Present extends keyof Wire.EventData, Possible extends keyof Wire.EventData = never> = {
    [Name in Present]: Name extends 'state' ? SandboxState : NonNullable<Wire.EventData[Name]>
} & Pick<Wire.EventData, Possible>

/** Details of an event of a sandbox. */
export type SandboxEventData = EventDetails<'state' | 'template' | 'createdAt' | 'expiresAt', 'name' | 'project'>
/** Details of an event of a completion. */
export type CompletionEventData = EventDetails<'project' | 'agent' | 'completionId', 'projectId'>
/** Details of an event of a review. */
export type ReviewEventData = CompletionEventData & EventDetails<'reviewId'>
/** Details of the decision about a review. */
export type ReviewDecisionData = ReviewEventData & EventDetails<'by' | 'choice', 'sequence'>
/** Details of an event of the guest agent. Only those of a sandbox that was just created have the sandbox. */
export type AgentEventData = Partial<SandboxEventData>

/** Details of events, by the types of the events. */
export interface ServerEventData {
    'sandbox.starting': SandboxEventData
    'sandbox.running': SandboxEventData
    'sandbox.created': SandboxEventData
    'sandbox.restored': SandboxEventData & EventDetails<'snapshotId'>
    'sandbox.base_moved': SandboxEventData
    'sandbox.rebased': SandboxEventData & EventDetails<'snapshotId'>
    'sandbox.rebase_conflicted': SandboxEventData & EventDetails<'conflicts'>
    'sandbox.changes_reverted': SandboxEventData & EventDetails<'snapshotId' | 'reverted'>
    'sandbox.paused': SandboxEventData & EventDetails<never, 'reason' | 'snapshotId'>
    'sandbox.resumed': SandboxEventData
    'sandbox.expiring': SandboxEventData
    'sandbox.expired': SandboxEventData
    'sandbox.error': SandboxEventData & EventDetails<never, 'reason'>
    'sandbox.deleted': SandboxEventData
    'agent.connected': AgentEventData
    'agent.disconnected': AgentEventData
    'snapshot.created': EventDetails<'snapshotId', 'bytes'>
    'template.built': EventDetails<'template'>
    'project.created': EventDetails<'project', 'projectId'>
    'project.updated': EventDetails<'project', 'projectId'>
    'project.deleted': EventDetails<'project', 'projectId'>
    'project.advanced': EventDetails<'project' | 'sequence' | 'snapshotId', 'projectId'>
    'completion.queued': CompletionEventData
    'completion.landed': CompletionEventData & EventDetails<never, 'sequence'>
    'completion.in_review': CompletionEventData & EventDetails<never, 'sequence'>
    'completion.refused': CompletionEventData
    'completion.failed': EventDetails<'project' | 'agent' | 'reason', 'completionId' | 'projectId'>
    'review.opened': ReviewEventData
    'review.resolved': ReviewDecisionData
    'review.escalated': ReviewEventData & EventDetails<'escalatedTo'>
    'review.expired': ReviewDecisionData
    'policy.changed': EventDetails<'project' | 'policyVersion', 'projectId'>
}

/** Type of an event. */
export type ServerEventType = keyof ServerEventData

/** Event of one type. */
export interface ServerEventOf<Type extends ServerEventType> extends Omit<Wire.Event, 'type' | 'data'> {
    type: Type
    data: ServerEventData[Type]
}

/**
 * Event of the server: `type` tells which fields `data` has. A newer server may send other types, so a `switch` that is
 * to run with it needs a `default`.
 */
export type ServerEvent = { [Type in ServerEventType]: ServerEventOf<Type> }[ServerEventType]

/** Page of events. */
export interface EventPage extends Omit<Wire.EventPage, 'items'> {
    items: ServerEvent[]
}
