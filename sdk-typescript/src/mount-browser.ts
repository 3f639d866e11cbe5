// Replaces `mount.ts` in bundles for browsers, which cannot mount.

import { MountError } from './errors.js'

/** Fails: there are no mounts. */
export function mount(): Promise<never> {
    return Promise.reject(new MountError('browsers cannot mount NFS exports', 'use sandbox.files', ''))
}

export const unmount = mount
