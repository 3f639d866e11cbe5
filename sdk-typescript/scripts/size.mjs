// Measures the minified bundle of the client, without `ws` and the modules of Node.js.

import { fileURLToPath } from 'node:url'
import { gzipSync } from 'node:zlib'
import { build } from 'esbuild'

const options = {
    bundle: true,
    minify: true,
    splitting: true,
    format: 'esm',
    target: 'es2022',
    write: false,
    outdir: 'out',
    external: ['ws', 'node:*'],
    absWorkingDir: fileURLToPath(new URL('..', import.meta.url)),
}
const contents = "export { WorkspaceClient, withSandbox } from './dist/esm/index.js'"
const { outputFiles } = await build({ ...options, stdin: { contents, resolveDir: options.absWorkingDir } })
const entry = outputFiles.find(({ path }) => path.endsWith('stdin.js'))
for (const { path, contents: bytes } of outputFiles) {
    const kind = bytes === entry.contents ? 'client' : path.slice(path.lastIndexOf('/') + 1)
    console.log(
        `${kind}: ${(bytes.length / 1024).toFixed(1)} KiB, ${(gzipSync(bytes).length / 1024).toFixed(1)} KiB with gzip`,
    )
}
