// Tests that need something that this machine lacks.

import { appendFileSync } from 'node:fs'

/** Records that a test is skipped because of a missing requirement. Fails if `CI=true`. Returns the reason. */
export function skip(test: string, requirement: string): string {
    if (process.env['CI'] === 'true') throw new Error(`this test needs ${requirement}, and CI=true`)
    const list = process.env['WORKSPACE_TEST_SKIPPED']
    if (list) appendFileSync(list, `sdk-typescript ${test}: needs ${requirement}\n`)
    return `needs ${requirement}`
}
