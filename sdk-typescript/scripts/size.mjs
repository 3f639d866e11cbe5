// Measures the minified bundle of a program for browsers that uses the client, without the modules that are loaded
// when they are needed: terminals, connections to ports and directories of this machine.
//
//   node scripts/size.mjs            prints the sizes
//   node scripts/size.mjs --check    also fails if the bundle is larger than it may be, or if bundlers cannot leave
//                                    out what a program does not use

import { fileURLToPath } from 'node:url'
import { gzipSync } from 'node:zlib'
import { build } from 'esbuild'

/** Maximum size in bytes. */
const SIZE_MAX = 40_000
const root = fileURLToPath(new URL('..', import.meta.url))
/** Maximum size in bytes of a program that uses the tools for language models, and no client. */
const TOOLS_SIZE_MAX = 5_000

/** Bundles a program for browsers. */
function bundle(contents) {
    return build({
        stdin: { contents, resolveDir: root },
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
}

/** Returns the names of a file and of those that it always loads. */
function loaded({ metafile }, name, all = new Set()) {
    if (all.has(name)) return all
    all.add(name)
    for (const { path, kind } of metafile.outputs[name].imports) {
        if (kind === 'import-statement') loaded({ metafile }, path, all)
    }
    return all
}

/** Returns the sizes of a program, and of what it loads when that is needed. */
async function measure(contents) {
    const result = await bundle(contents)
    const always = loaded(result, 'out/stdin.js')
    const sizes = { client: 0, 'client with gzip': 0, 'loaded when needed': 0 }
    Object.keys(result.metafile.outputs).forEach((name, index) => {
        const bytes = result.outputFiles[index].contents
        if (!always.has(name)) {
            sizes['loaded when needed'] += bytes.length
            return
        }
        sizes.client += bytes.length
        sizes['client with gzip'] += gzipSync(bytes).length
    })
    return sizes
}

const sizes = await measure("export { WorkspaceClient, withSandbox } from './dist/esm/index.js'")
if (!process.argv.includes('--check')) {
    for (const [kind, size] of Object.entries(sizes)) console.log(`${kind}: ${size} bytes`)
} else if (sizes.client > SIZE_MAX) {
    console.error(`error: the minified client has ${sizes.client} bytes, more than ${SIZE_MAX}`)
    console.error('hint: node scripts/size.mjs')
    process.exitCode = 1
} else {
    const { client: size } = await measure("export { openaiTools } from './dist/esm/index.js'")
    if (size > TOOLS_SIZE_MAX) {
        console.error(`error: a program without a client has ${size} bytes, more than ${TOOLS_SIZE_MAX}`)
        console.error('hint: a module has side effects, which bundlers keep')
        process.exitCode = 1
    }
}
