// Iteration over the pages of a list.

import type { ListResponse } from './types.js'

/** Position of a page: its cursor, or its number in lists without cursors. */
export interface PagePosition {
    cursor?: string
    page?: number
}

/** Iterates over all items of a list. */
export async function* listAll<T>(fetchPage: (position: PagePosition) => Promise<ListResponse<T>>): AsyncGenerator<T> {
    let position: PagePosition = {}
    for (let seen = 0, number = 1; ; number += 1) {
        const { items, next, total, limit } = await fetchPage(position)
        yield* items
        seen += items.length
        if (next != null) position = { cursor: next }
        else if (position.cursor === undefined && total !== undefined && seen < total && items.length === limit) {
            position = { page: number + 1 }
        } else return
    }
}
