// Builds dist/: ES modules and types with tsc, CommonJS with esbuild.

import { execFileSync } from 'node:child_process'
import { cpSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { build } from 'esbuild'

process.chdir(fileURLToPath(new URL('..', import.meta.url)))
rmSync('dist', { recursive: true, force: true })
execFileSync(process.execPath, ['node_modules/typescript/bin/tsc', '--project', 'tsconfig.build.json'], {
    stdio: 'inherit',
})

const sources = readdirSync('src', { recursive: true }).filter((name) => name.endsWith('.ts'))
await build({
    entryPoints: sources.map((name) => `src/${name}`),
    outdir: 'dist/cjs',
    outbase: 'src',
    format: 'cjs',
    platform: 'node',
    target: 'node18',
})
writeFileSync('dist/cjs/package.json', '{ "type": "commonjs" }\n')
// The same types: the nearest package.json tells how they are to be read.
cpSync('dist/esm', 'dist/cjs', { recursive: true, filter: (name) => !/\.js$/.test(name) })
cpSync('../LICENSE', 'LICENSE')
