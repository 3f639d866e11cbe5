// Symbol of `await using`.

/** `Symbol.asyncDispose`, also where the platform does not have it yet: TypeScript's helpers look for this one. */
export const asyncDispose: typeof Symbol.asyncDispose = Symbol.asyncDispose ?? Symbol.for('nodejs.asyncDispose')
