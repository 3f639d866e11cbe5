// Projects that have the packed package installed.

import { execFileSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

export const sdk = join(process.env['SDK_ROOT'] ?? '', 'sdk-typescript')

/** Runs a program without its output, unless it fails. */
export function run(program: string, args: string[], cwd: string): string {
    return execFileSync(program, args, { cwd, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] })
}

/** Directory with the packed package, and of projects that use it. */
export class Projects {
    readonly directory = mkdtempSync(join(tmpdir(), 'workspace-sdk-package.'))
    readonly archive: string

    constructor() {
        const packed = run('npm', ['pack', '--json', '--pack-destination', this.directory], sdk)
        const [{ filename }] = JSON.parse(packed) as [{ filename: string }]
        this.archive = join(this.directory, filename)
    }

    /** Creates a project that has the package installed, and its optional dependency if `hasWs` is true. */
    create(name: string, type: string, files: Record<string, string>, hasWs = true): string {
        const path = join(this.directory, name)
        const modules = join(path, 'node_modules')
        const target = join(modules, '@elevo/workspace-sdk')
        mkdirSync(target, { recursive: true })
        writeFileSync(join(path, 'package.json'), JSON.stringify({ name, type, private: true }))
        for (const [file, content] of Object.entries(files)) writeFileSync(join(path, file), content)
        // What an installation does, without a registry: unpack the archive, and add its dependency.
        run('tar', ['xzf', this.archive, '-C', target, '--strip-components=1'], path)
        if (hasWs) run('cp', ['-r', join(sdk, 'node_modules/ws'), modules], path)
        return path
    }

    remove(): void {
        rmSync(this.directory, { recursive: true })
    }
}
