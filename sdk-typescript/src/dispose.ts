// Symbol of `await using`.

/** Key of the symbol where the platform has none: the one under which compilers look in the registry of symbols. */
const KEY = 'Symbol.asyncDispose'

// Programs that TypeScript has compiled look at `Symbol` alone.
if (!(Symbol.asyncDispose as symbol | undefined)) {
    Object.defineProperty(Symbol, 'asyncDispose', { value: Symbol.for(KEY) })
}

/** `Symbol.asyncDispose`, defined where the platform does not have it yet. */
export const asyncDispose: typeof Symbol.asyncDispose = Symbol.asyncDispose
