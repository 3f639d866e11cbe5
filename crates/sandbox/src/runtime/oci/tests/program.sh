#!/bin/sh
# OCI runtime that fails for every sandbox, for a reason that has nothing to do with its existence.
#
#   program.sh --root DIRECTORY COMMAND ARGUMENT…
echo 'level=error msg="the mount point of the cgroups does not exist"' >&2
exit 1
