// Tar archives of files of this machine. Needs the file system of Node.js, Bun or Deno.

import {
    type FileHandle,
    chmod,
    lstat,
    mkdir,
    open,
    readdir,
    readlink,
    rename,
    rm,
    stat,
    symlink,
    utimes,
} from 'node:fs/promises'
import { dirname, join, resolve, sep } from 'node:path'
import { concat, encodeText } from './bytes.js'
import type { TransferProgress } from './files.js'
import { UnexpectedResponseError } from './errors.js'

const BLOCK = 512
const READ_SIZE = 256 << 10
const decoder = new TextDecoder()

type OnProgress = ((progress: TransferProgress) => void) | undefined

export async function isDirectory(path: string): Promise<boolean> {
    return (await stat(path)).isDirectory()
}

/** Opens a file of this machine, with its permission bits. */
export async function readLocalFile(
    path: string,
    onProgress: OnProgress,
): Promise<{ mode: string; content: AsyncIterable<Uint8Array> }> {
    const { mode } = await stat(path)
    return { mode: (mode & 0o777).toString(8).padStart(4, '0'), content: readWithProgress(path, onProgress) }
}

async function* readWithProgress(path: string, onProgress: OnProgress): AsyncGenerator<Uint8Array> {
    let bytes = 0
    for await (const chunk of readFile(path)) {
        yield chunk
        bytes += chunk.length
        onProgress?.({ files: 0, bytes })
    }
    onProgress?.({ files: 1, bytes })
}

async function* readFile(path: string): AsyncGenerator<Uint8Array> {
    const file = await open(path, 'r')
    try {
        for (;;) {
            const buffer = new Uint8Array(READ_SIZE)
            const { bytesRead } = await file.read(buffer, 0, READ_SIZE)
            if (bytesRead === 0) return
            yield buffer.subarray(0, bytesRead)
        }
    } finally {
        await file.close()
    }
}

/** Writes a file of this machine. The former one stays until all of it has arrived. */
export async function writeLocalFile(
    chunks: AsyncIterable<Uint8Array>,
    path: string,
    mode: string,
    onProgress: OnProgress,
): Promise<TransferProgress> {
    const temporary = `${path}.${process.pid}.tmp`
    const progress = { files: 0, bytes: 0 }
    try {
        const file = await open(temporary, 'wx', parseInt(mode, 8) & 0o777)
        try {
            for await (const chunk of chunks) {
                await writeAll(file, chunk)
                progress.bytes += chunk.length
                onProgress?.({ ...progress })
            }
        } finally {
            await file.close()
        }
        await rename(temporary, path)
    } catch (error) {
        await rm(temporary, { force: true })
        throw error
    }
    progress.files = 1
    onProgress?.({ ...progress })
    return progress
}

async function writeAll(file: FileHandle, chunk: Uint8Array): Promise<void> {
    for (let written = 0; written < chunk.length; ) {
        written += (await file.write(chunk, written)).bytesWritten
    }
}

/** Reads a directory as a tar archive, in chunks. Special files are left out. */
export async function* packDirectory(root: string, onProgress: OnProgress): AsyncGenerator<Uint8Array> {
    const progress = { files: 0, bytes: 0 }
    for await (const path of walk(root, '')) {
        const full = join(root, path)
        const info = await lstat(full)
        const entry = { path, mode: info.mode & 0o777, mtime: info.mtimeMs / 1000, size: 0, link: '' }
        if (info.isDirectory()) {
            yield encodeHeader({ ...entry, path: `${path}/`, type: '5' })
        } else if (info.isSymbolicLink()) {
            yield encodeHeader({ ...entry, type: '2', link: await readlink(full) })
        } else if (info.isFile()) {
            yield encodeHeader({ ...entry, type: '0', size: info.size })
            yield* packContent(full, info.size, (bytes) =>
                onProgress?.({ files: progress.files, bytes: progress.bytes + bytes }),
            )
            progress.files += 1
            progress.bytes += info.size
            onProgress?.({ ...progress })
        }
    }
    yield new Uint8Array(2 * BLOCK)
}

/** Yields the paths below a directory, each directory before its entries. */
async function* walk(root: string, directory: string): AsyncGenerator<string> {
    const entries = await readdir(join(root, directory), { withFileTypes: true })
    entries.sort((a, b) => (a.name < b.name ? -1 : 1))
    for (const entry of entries) {
        const path = directory === '' ? entry.name : `${directory}/${entry.name}`
        yield path
        if (entry.isDirectory()) yield* walk(root, path)
    }
}

/** Yields exactly `size` bytes and the padding, also if the file changes while it is read. */
async function* packContent(path: string, size: number, onBytes: (bytes: number) => void): AsyncGenerator<Uint8Array> {
    let sent = 0
    for await (const chunk of readFile(path)) {
        const part = chunk.subarray(0, size - sent)
        yield part
        sent += part.length
        onBytes(sent)
        if (sent === size) break
    }
    if (sent < size) throw new Error(`${path} became shorter while it was read`)
    if (size % BLOCK !== 0) yield new Uint8Array(BLOCK - (size % BLOCK))
}

/** Member of an archive. */
interface Member {
    path: string
    type: string
    mode: number
    size: number
    /** Seconds since 1970. */
    mtime: number
    link: string
}

/** Encodes the header of a member, with a pax header if its fields do not fit. */
function encodeHeader(member: Member): Uint8Array {
    const extended: [string, string][] = []
    if (encodeText(member.path).length > 100) extended.push(['path', member.path])
    if (encodeText(member.link).length > 100) extended.push(['linkpath', member.link])
    if (member.size >= 8 ** 11) extended.push(['size', String(member.size)])
    if (!Number.isInteger(member.mtime)) extended.push(['mtime', member.mtime.toFixed(6)])
    const header = encodeBlock(member)
    if (extended.length === 0) return header
    const records = concat(extended.map(([key, value]) => paxRecord(key, value)))
    const padding = new Uint8Array((BLOCK - (records.length % BLOCK)) % BLOCK)
    const pax = encodeBlock({ path: 'pax', type: 'x', mode: 0o644, size: records.length, mtime: 0, link: '' })
    return concat([pax, records, padding, header])
}

/** Encodes a record `LENGTH KEY=VALUE`, whose length counts its own digits. */
function paxRecord(key: string, value: string): Uint8Array {
    const rest = encodeText(` ${key}=${value}\n`)
    let length = rest.length + 1
    while (String(length).length + rest.length !== length) length = String(length).length + rest.length
    return concat([encodeText(String(length)), rest])
}

function encodeBlock(member: Member): Uint8Array {
    const block = new Uint8Array(BLOCK)
    const put = (offset: number, length: number, text: string): void =>
        block.set(encodeText(text).subarray(0, length), offset)
    const octal = (offset: number, digits: number, value: number): void =>
        put(offset, digits, Math.floor(value).toString(8).padStart(digits, '0').slice(-digits))
    put(0, 100, member.path)
    octal(100, 7, member.mode)
    octal(108, 7, 0)
    octal(116, 7, 0)
    octal(124, 11, member.size >= 8 ** 11 ? 0 : member.size)
    octal(136, 11, Math.max(member.mtime, 0))
    put(148, 8, '        ')
    put(156, 1, member.type)
    put(157, 100, member.link)
    put(257, 8, 'ustar\x0000')
    const checksum = block.reduce((sum, byte) => sum + byte, 0)
    put(148, 8, `${checksum.toString(8).padStart(6, '0')}\0 `)
    return block
}

/** Reader of exact numbers of bytes from chunks. */
class ByteReader {
    readonly #iterator: AsyncIterator<Uint8Array>
    #chunk: Uint8Array = new Uint8Array()

    constructor(chunks: AsyncIterable<Uint8Array>) {
        this.#iterator = chunks[Symbol.asyncIterator]()
    }

    /** Returns at least one and at most `max` bytes. Throws at the end. */
    async some(max: number): Promise<Uint8Array> {
        while (this.#chunk.length === 0) {
            const next = await this.#iterator.next()
            if (next.done) throw new UnexpectedResponseError('the archive ends in the middle')
            this.#chunk = next.value
        }
        const part = this.#chunk.subarray(0, max)
        this.#chunk = this.#chunk.subarray(part.length)
        return part
    }

    async exactly(length: number): Promise<Uint8Array> {
        const parts: Uint8Array[] = []
        for (let left = length; left > 0; ) {
            const part = await this.some(left)
            parts.push(part)
            left -= part.length
        }
        return concat(parts)
    }

    async close(): Promise<void> {
        await this.#iterator.return?.()
    }
}

/** Writes the members of an archive into a directory. Files that exist are replaced, others stay. */
export async function unpackDirectory(
    archive: AsyncIterable<Uint8Array>,
    local: string,
    onProgress: OnProgress,
): Promise<TransferProgress> {
    const root = resolve(local)
    const reader = new ByteReader(archive)
    const progress = { files: 0, bytes: 0 }
    const directories: { path: string; member: Member }[] = []
    await mkdir(root, { recursive: true })
    try {
        for (;;) {
            const member = await readMember(reader)
            if (!member) break
            const path = targetPath(root, member.path)
            await prepareParent(root, path)
            if (member.type === '5') {
                await makeDirectory(path)
                directories.push({ path, member })
                continue
            }
            if (path === root) continue
            if (member.type === '2') {
                await rm(path, { force: true })
                await symlink(member.link, path)
            } else if (member.type === '0') {
                await writeLocalFile(memberContent(reader, member.size), path, member.mode.toString(8), undefined)
                await chmod(path, member.mode & 0o777)
                await utimes(path, member.mtime, member.mtime)
                progress.files += 1
                progress.bytes += member.size
                onProgress?.({ ...progress })
            } else {
                // Leaving it out would lose a file silently.
                throw new UnexpectedResponseError(
                    `the archive has a member of unknown type ${member.type}: ${member.path}`,
                )
            }
        }
    } finally {
        await reader.close()
    }
    // Last and from the bottom, because a directory may be read-only, and writing into it changes its time.
    for (const { path, member } of directories.reverse()) {
        await chmod(path, member.mode & 0o777)
        await utimes(path, member.mtime, member.mtime)
    }
    return progress
}

/** Reads the next member with its extended headers; `undefined` at the end. */
async function readMember(reader: ByteReader): Promise<Member | undefined> {
    const extended: Record<string, string> = {}
    for (;;) {
        const block = await reader.exactly(BLOCK)
        if (block.every((byte) => byte === 0)) return undefined
        const text = (offset: number, length: number): string => {
            const field = block.subarray(offset, offset + length)
            const end = field.indexOf(0)
            return decoder.decode(end < 0 ? field : field.subarray(0, end))
        }
        const type = text(156, 1) || '0'
        const size = readNumber(block.subarray(124, 136))
        if (type === 'x' || type === 'g') {
            const records = await readPadded(reader, size)
            if (type === 'x') parsePax(records, extended)
            continue
        }
        if (type === 'L' || type === 'K') {
            const name = decoder.decode(await readPadded(reader, size)).replace(/\0+$/, '')
            extended[type === 'L' ? 'path' : 'linkpath'] = name
            continue
        }
        const prefix = text(345, 155)
        const name = text(0, 100)
        return {
            type,
            path: extended['path'] ?? (prefix === '' ? name : `${prefix}/${name}`),
            mode: readNumber(block.subarray(100, 108)),
            size: extended['size'] === undefined ? size : Number(extended['size']),
            mtime: extended['mtime'] === undefined ? readNumber(block.subarray(136, 148)) : Number(extended['mtime']),
            link: extended['linkpath'] ?? text(157, 100),
        }
    }
}

/** Reads an octal number, or a binary one whose first bit is set. */
function readNumber(field: Uint8Array): number {
    if (((field[0] ?? 0) & 0x80) !== 0) return field.subarray(1).reduce((number, byte) => number * 256 + byte, 0)
    return parseInt(
        decoder
            .decode(field)
            .replace(/[\0 ]+/g, ' ')
            .trim() || '0',
        8,
    )
}

function parsePax(records: Uint8Array, extended: Record<string, string>): void {
    for (let start = 0; start < records.length; ) {
        const space = records.indexOf(0x20, start)
        const length = Number(decoder.decode(records.subarray(start, space)))
        if (space < 0 || !(length > 0)) throw new UnexpectedResponseError('the archive has an invalid extended header')
        const record = decoder.decode(records.subarray(space + 1, start + length - 1))
        const equals = record.indexOf('=')
        extended[record.slice(0, equals)] = record.slice(equals + 1)
        start += length
    }
}

const paddedSize = (size: number): number => Math.ceil(size / BLOCK) * BLOCK

async function readPadded(reader: ByteReader, size: number): Promise<Uint8Array> {
    return (await reader.exactly(paddedSize(size))).subarray(0, size)
}

async function skip(reader: ByteReader, size: number): Promise<void> {
    for (let left = size; left > 0; ) left -= (await reader.some(left)).length
}

async function* memberContent(reader: ByteReader, size: number): AsyncGenerator<Uint8Array> {
    for (let left = size; left > 0; ) {
        const part = await reader.some(left)
        left -= part.length
        yield part
    }
    await skip(reader, paddedSize(size) - size)
}

/** Returns the path of a member below `root`. Throws if it leads elsewhere. */
function targetPath(root: string, name: string): string {
    const path = resolve(root, name)
    if (name.startsWith('/') || (path !== root && !path.startsWith(root.endsWith(sep) ? root : root + sep))) {
        throw new UnexpectedResponseError(`the archive has a path outside its directory: ${name}`)
    }
    return path
}

/** Creates the missing parents of a path. Throws if a parent is a symlink: nothing is written through one. */
async function prepareParent(root: string, path: string): Promise<void> {
    if (path === root) return
    const parent = dirname(path)
    if (parent === root) return
    await prepareParent(root, parent)
    await makeDirectory(parent)
}

/** Creates a directory, in place of an entry of another kind. */
async function makeDirectory(path: string): Promise<void> {
    const info = await lstat(path).catch(() => undefined)
    if (info?.isDirectory()) {
        // Writable until its entries are there.
        if ((info.mode & 0o700) !== 0o700) await chmod(path, (info.mode & 0o777) | 0o700)
        return
    }
    if (info) throw new UnexpectedResponseError(`${path} exists and is not a directory`)
    await mkdir(path)
}
