// Commands: input, callbacks, cancellation, large output.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { CommandFailedError, ProcessTimeoutError, type Sandbox } from '@elevo/workspace-sdk'
import { inSandbox, testClient } from './support.js'

const client = testClient()

test('callbacks get the output while the command runs, and the result has all of it', async () => {
    await inSandbox(client, async (box) => {
        const pieces: string[] = []
        const result = await box.process.run('echo out; read line; echo "got $line" >&2', {
            stdin: 'input\n',
            onStdout: (data) => pieces.push(`out:${data}`),
            onStderr: (data) => pieces.push(`err:${data}`),
        })
        assert.deepEqual(pieces, ['out:out\n', 'err:got input\n'])
        assert.equal(result.stdout, 'out\n')
        assert.equal(result.stderr, 'got input\n')
    })
})

test('a timeout and a failure have the output with callbacks, too', async () => {
    await inSandbox(client, async (box) => {
        const onStdout = (): void => undefined
        const timedOut = await box.process
            .run('echo before; sleep 60', { timeout: 200, onStdout })
            .catch((e: unknown) => e)
        assert.ok(timedOut instanceof ProcessTimeoutError)
        assert.equal(timedOut.stdout, 'before\n')
        const failed = await box.process.run('echo why >&2; exit 9', { check: true, onStdout }).catch((e: unknown) => e)
        assert.ok(failed instanceof CommandFailedError)
        assert.deepEqual(
            [failed.exitCode, failed.stderr, failed.code, failed.name],
            [9, 'why\n', 4002, 'COMMAND_FAILED'],
        )
        const missing = await box.process.run(['no-such-program'], { onStdout }).catch((e: unknown) => e)
        assert.ok(missing instanceof CommandFailedError)
        assert.equal(missing.exitCode, 127)
    })
})

test('input that exceeds every buffer is written as the command reads it', async () => {
    await inSandbox(client, async (box) => {
        const input = new Uint8Array(5_000_000).fill(120)
        const { stdout } = await box.process.run('sleep 0.3; wc -c', { stdin: input, timeout: 60_000 })
        assert.equal(stdout.trim(), '5000000')
        // A command that does not read its input is no error.
        assert.equal((await box.process.run('exit 0', { stdin: input })).exitCode, 0)
    })
})

test('output beyond the maximum size is cut between characters', async () => {
    await inSandbox(client, async (box) => {
        const options = { maxOutputSize: 5, onStdout: () => undefined }
        const streamed = await box.process.run('printf ääää', options)
        const whole = await box.process.run('printf ääää', { maxOutputSize: 5 })
        for (const { stdout, truncated } of [streamed, whole]) assert.deepEqual([stdout, truncated], ['ää', true])
    })
})

/** Waits until no process of the sandbox has this argument. The sandbox lists a process until it is reaped. */
async function waitUntilGone(box: Sandbox, argument: string): Promise<void> {
    await box.process.run(`while pgrep -f '^sleep ${argument}$'; do sleep 0.05; done`, { check: true, timeout: 20_000 })
}

test('a cancelled call kills its command only if that is asked', async () => {
    await inSandbox(client, async (box) => {
        for (const killOnCancel of [false, true]) {
            const controller = new AbortController()
            const reason = new Error('enough')
            const run = box.process.run('echo started; sleep 1234', {
                signal: controller.signal,
                killOnCancel,
                onStdout: () => controller.abort(reason),
                tag: String(killOnCancel),
            })
            await assert.rejects(run, reason)
            const [command] = await box.process.list({ tag: String(killOnCancel) })
            if (killOnCancel) {
                const { exitCode } = await box.process.output(command?.commandId ?? '').wait()
                assert.equal(exitCode, 137)
            } else {
                assert.equal(command?.state, 'running')
                await box.process.kill(command?.commandId ?? '', 9)
            }
        }
        await waitUntilGone(box, '1234')
    })
})

test('leaving a stream kills its command only if that is asked', async () => {
    await inSandbox(client, async (box) => {
        const kept = box.process.runStream('echo started; sleep 1235')
        for await (const event of kept) if (event.type === 'stdout') break
        assert.equal((await box.process.get(await kept.id())).state, 'running')
        await kept.kill(9)
        const killed = box.process.runStream('echo started; sleep 1235', { killOnCancel: true })
        for await (const event of killed) if (event.type === 'stdout') break
        assert.equal((await box.process.output(await killed.id()).wait()).exitCode, 137)
        await waitUntilGone(box, '1235')
    })
})

test('a stream can be fed, signalled and waited for', async () => {
    await inSandbox(client, async (box) => {
        const reader = box.process.runStream('cat', { stdin: true })
        await reader.writeStdin('one ')
        await reader.writeStdin(new TextEncoder().encode('two'))
        await reader.closeStdin()
        assert.equal((await reader.wait()).stdout, 'one two')
        const sleeper = box.process.runStream('sleep 1236')
        await sleeper.kill()
        assert.equal((await sleeper.wait()).exitCode, 143)
    })
})

test('many commands run at once on one client', async () => {
    await inSandbox(client, async (box) => {
        const results = await Promise.all(Array.from({ length: 40 }, (_, index) => box.process.run(`echo ${index}`)))
        assert.deepEqual(
            results.map(({ stdout }) => stdout),
            results.map((_, index) => `${index}\n`),
        )
    })
})
