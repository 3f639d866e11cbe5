// Parser of server-sent events.

/** Message of a stream. A comment has only `comment`. */
export interface Message {
    event: string
    /** Last id of the stream, at which it can be resumed. */
    id: string
    data: string
    comment?: string
}

/** Parser that gets text in any pieces. A message counts when its empty line has arrived. */
export class SseParser {
    readonly #decoder = new TextDecoder()
    #rest = ''
    #event = ''
    #id = ''
    #data: string | undefined

    /** Returns the messages that `chunk` completes. */
    push(chunk: Uint8Array): Message[] {
        const text = this.#rest + this.#decoder.decode(chunk, { stream: true })
        const messages: Message[] = []
        let start = 0
        // Only new text is searched, because a long line may come in many chunks.
        let end = text.indexOf('\n', this.#rest.length)
        for (; end >= 0; end = text.indexOf('\n', start)) {
            const line = text.slice(start, text[end - 1] === '\r' && end > start ? end - 1 : end)
            start = end + 1
            const message = this.#line(line)
            if (message) messages.push(message)
        }
        this.#rest = text.slice(start)
        return messages
    }

    #line(line: string): Message | undefined {
        if (line === '') return this.#dispatch()
        const colon = line.indexOf(':')
        const name = colon < 0 ? line : line.slice(0, colon)
        const value = colon < 0 ? '' : line.slice(line[colon + 1] === ' ' ? colon + 2 : colon + 1)
        switch (name) {
            case '':
                return { event: '', id: this.#id, data: '', comment: value }
            case 'event':
                this.#event = value
                break
            case 'id':
                this.#id = value
                break
            case 'data':
                this.#data = this.#data === undefined ? value : `${this.#data}\n${value}`
                break
        }
        return undefined
    }

    #dispatch(): Message | undefined {
        const message =
            this.#data === undefined ? undefined : { event: this.#event || 'message', id: this.#id, data: this.#data }
        this.#event = ''
        this.#data = undefined
        return message
    }
}
