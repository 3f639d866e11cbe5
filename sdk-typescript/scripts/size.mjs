// Measures the minified bundle of a program for browsers that uses the client, without the modules that are loaded
// when they are needed: terminals, connections to ports and directories of this machine.
//
//   node scripts/size.mjs            prints the sizes
//   node scripts/size.mjs --check    also fails if the bundle is larger than it may be

import { fileURLToPath } from 'node:url'
import { gzipSync } from 'node:zlib'
import { build } from 'esbuild'

/** Maximum size in bytes. */
const SIZE_MAX = 40_000
const root = fileURLToPath(new URL('..', import.meta.url))
const { outputFiles, metafile } = await build({
    stdin: { contents: "export { WorkspaceClient, withSandbox } from './dist/esm/index.js'", resolveDir: root },
    bundle: true,
    minify: true,
    splitting: true,
    metafile: true,
    format: 'esm',
    platform: 'browser',
    target: 'es2022',
    write: false,
    outdir: 'out',
    absWorkingDir: root,
})

/** Returns the names of a file and of those that it always loads. */
function loaded(name, all = new Set()) {
    if (all.has(name)) return all
    all.add(name)
    for (const { path, kind } of metafile.outputs[name].imports) if (kind === 'import-statement') loaded(path, all)
    return all
}

const contents = new Map(Object.keys(metafile.outputs).map((name, index) => [name, outputFiles[index].contents]))
const client = loaded('out/stdin.js')
const sizes = { client: 0, 'client with gzip': 0, 'loaded when needed': 0 }
for (const [name, bytes] of contents) {
    if (!client.has(name)) {
        sizes['loaded when needed'] += bytes.length
        continue
    }
    sizes.client += bytes.length
    sizes['client with gzip'] += gzipSync(bytes).length
}
if (!process.argv.includes('--check')) {
    for (const [kind, size] of Object.entries(sizes)) console.log(`${kind}: ${size} bytes`)
} else if (sizes.client > SIZE_MAX) {
    console.error(`error: the minified client has ${sizes.client} bytes, more than ${SIZE_MAX}`)
    console.error('hint: node scripts/size.mjs')
    process.exitCode = 1
}
