// Replaces `archive.ts` in bundles for browsers, which have no files of the machine.

import { ConfigurationError } from './errors.js'

/** Fails: there is no file system. */
export function isDirectory(): Promise<never> {
    return Promise.reject(new ConfigurationError('this platform has no file system: use read, write or readStream'))
}

export const packDirectory = isDirectory
export const readLocalFile = isDirectory
export const unpackDirectory = isDirectory
export const writeLocalFile = isDirectory
