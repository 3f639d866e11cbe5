// Bytes, text and base64.

const encoder = new TextEncoder()

export function encodeText(text: string): Uint8Array {
    return encoder.encode(text)
}

export function toBytes(data: string | Uint8Array): Uint8Array {
    return typeof data === 'string' ? encodeText(data) : data
}

interface NodeBuffer {
    from(
        data: string | ArrayBufferLike,
        second?: string | number,
        length?: number,
    ): Uint8Array & { toString(encoding: string): string }
}

const { Buffer } = globalThis as { Buffer?: NodeBuffer }

export function fromBase64(text: string): Uint8Array {
    if (Buffer) return new Uint8Array(Buffer.from(text, 'base64'))
    return Uint8Array.from(atob(text), (character) => character.charCodeAt(0))
}

export function toBase64(bytes: Uint8Array): string {
    if (Buffer) return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('base64')
    let text = ''
    for (let start = 0; start < bytes.length; start += 0x8000) {
        text += String.fromCharCode(...bytes.subarray(start, start + 0x8000))
    }
    return btoa(text)
}

export function concat(parts: Uint8Array[]): Uint8Array {
    const whole = new Uint8Array(parts.reduce((length, part) => length + part.length, 0))
    let offset = 0
    for (const part of parts) {
        whole.set(part, offset)
        offset += part.length
    }
    return whole
}

/** Returns bytes as text, and in base64 if they are not UTF-8. */
export function describeBytes(bytes: Uint8Array): { text: string; base64?: string } {
    try {
        return { text: new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes) }
    } catch {
        return { text: new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes), base64: toBase64(bytes) }
    }
}
