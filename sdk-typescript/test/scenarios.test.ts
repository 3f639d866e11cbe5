// Executes the scenarios that all SDKs share.

import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { Sandbox, SandboxGoneError, type WorkspaceClient } from '@elevo/workspace-sdk'
import { testClient } from './support.js'

interface Step {
    call: string
    args?: unknown[]
    params?: Record<string, unknown>
    options?: Record<string, unknown>
    save?: string
    collect?: boolean
    expect?: unknown
    error?: Record<string, unknown>
}

type Values = Record<string, unknown>

const file = process.env['SDK_SCENARIOS'] ?? ''
const { scenarios } = JSON.parse(readFileSync(file, 'utf8')) as { scenarios: { name: string; steps: Step[] }[] }

for (const { name, steps } of scenarios) {
    test(name, async () => {
        const client = testClient()
        const values: Values = {}
        const created: Sandbox[] = []
        try {
            for (const [index, step] of steps.entries()) {
                await perform(client, step, values, created, `step ${index + 1}: ${step.call}`)
            }
        } finally {
            for (const sandbox of created) await deleteIfPresent(sandbox)
        }
    })
}

async function deleteIfPresent(sandbox: Sandbox): Promise<void> {
    try {
        await sandbox.delete({ complete: false })
    } catch (error) {
        if (!(error instanceof SandboxGoneError)) throw error
    }
}

async function perform(
    client: WorkspaceClient,
    step: Step,
    values: Values,
    created: Sandbox[],
    where: string,
): Promise<void> {
    let result: unknown
    try {
        result = await call(client, step, values)
        if (step.collect) result = await collect(result as AsyncIterable<unknown>)
    } catch (error) {
        if (!step.error || !(error instanceof Error)) throw error
        const { class: expectedClass, ...fields } = step.error
        assert.equal(error.constructor.name, expectedClass, `${where}: ${error.message}`)
        match(error, substitute(fields, values), where)
        return
    }
    assert.equal(step.error, undefined, `${where}: there is no error`)
    const { sandboxes } = (result ?? {}) as { sandboxes?: unknown }
    for (const value of [result, ...(Array.isArray(sandboxes) ? (sandboxes as unknown[]) : [])])
        if (value instanceof Sandbox) created.push(value)
    if (step.save !== undefined) values[step.save] = result
    if (step.expect !== undefined) match(result, substitute(step.expect, values), where)
}

async function call(client: WorkspaceClient, step: Step, values: Values): Promise<unknown> {
    const names = step.call.replace(/^\$/, '').split('.')
    let owner: unknown
    let value: unknown = { ...values, client }
    for (const name of names) {
        owner = value
        value = (value as Values)[name]
    }
    if (typeof value !== 'function') return value
    const named = [step.params, step.options].filter((object) => object !== undefined)
    const args = substitute([...(step.args ?? []), ...named], values) as unknown[]
    return (await value.apply(owner, args)) as unknown
}

async function collect(iterable: AsyncIterable<unknown>): Promise<Values> {
    const items: unknown[] = []
    const texts = { stdout: '', stderr: '', text: '' }
    const types: string[] = []
    const decoder = new TextDecoder()
    const chunks: Uint8Array[] = []
    for await (const item of iterable) {
        items.push(item)
        if (item instanceof Uint8Array) {
            chunks.push(item)
            texts.text += decoder.decode(item, { stream: true })
            continue
        }
        const { type, data } = item as { type?: string; data?: unknown }
        if (type !== undefined && types.at(-1) !== type) types.push(type)
        if (typeof data !== 'string') continue
        texts.text += data
        if (type === 'stdout' || type === 'stderr') texts[type] += data
    }
    return { ...texts, bytes: Buffer.concat(chunks), types, last: items.at(-1), items }
}

/** Replaces `{"$": "path"}` by the saved value. */
function substitute(value: unknown, values: Values): unknown {
    if (Array.isArray(value)) return value.map((item) => substitute(item, values))
    if (typeof value !== 'object' || value === null || value instanceof Uint8Array) return value
    const { $: path } = value as { $?: string }
    if (path !== undefined) return path.split('.').reduce<unknown>((owner, name) => (owner as Values)[name], values)
    return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, substitute(inner, values)]))
}

function match(actual: unknown, pattern: unknown, where: string): void {
    if (Array.isArray(pattern)) {
        assert.ok(Array.isArray(actual), `${where}: ${JSON.stringify(actual)} is not an array`)
        assert.equal(actual.length, pattern.length, `${where}: length of ${JSON.stringify(actual)}`)
        pattern.forEach((item, index) => match(actual[index], item, `${where}[${index}]`))
        return
    }
    if (typeof pattern !== 'object' || pattern === null) {
        const isText = typeof pattern === 'string' && actual instanceof Uint8Array
        assert.deepEqual(isText ? new TextDecoder().decode(actual) : actual, pattern, where)
        return
    }
    const special = pattern as { $regex?: string; $contains?: unknown; $length?: number; $present?: boolean }
    if (special.$regex !== undefined) assert.match(String(actual), new RegExp(special.$regex), where)
    else if (special.$contains !== undefined) assertContains(actual, special.$contains, where)
    else if (special.$length !== undefined) assert.equal((actual as unknown[]).length, special.$length, where)
    else if (special.$present !== undefined)
        assert.equal(actual !== undefined && actual !== null, special.$present, where)
    else {
        assert.ok(typeof actual === 'object' && actual !== null, `${where}: ${String(actual)} is not an object`)
        for (const [key, inner] of Object.entries(pattern)) match((actual as Values)[key], inner, `${where}.${key}`)
    }
}

function assertContains(actual: unknown, part: unknown, where: string): void {
    if (typeof actual === 'string') {
        assert.ok(actual.includes(String(part)), `${where}: ${JSON.stringify(actual)} does not contain ${String(part)}`)
        return
    }
    const matches = (actual as unknown[]).some((item) => {
        try {
            match(item, part, where)
            return true
        } catch {
            return false
        }
    })
    assert.ok(matches, `${where}: no item of ${JSON.stringify(actual)} matches ${JSON.stringify(part)}`)
}
