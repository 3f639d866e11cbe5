#!/bin/sh
# Runs a server until no process has held a lock on the file LOCK for some seconds, which happens however the tests
# die: then closes the standard input of SCRIPT.
#
#   while-locked.sh LOCK SCRIPT ARGUMENT…

lock=$1
shift

# Ctrl-C reaches this process too; the end of the tests follows it.
trap '' INT TERM HUP

# The exclusive lock belongs to all processes that inherit descriptor 9. This script holds it until the server has
# stopped, so that no test finds a server that is about to end. Servers close the descriptor.
exec 9>"$lock"

# Between two tests nobody holds a lock for a moment.
free=0
until [ $free -ge 5 ] && flock --exclusive --nonblock 9; do
    if flock --exclusive --nonblock 9; then
        flock --unlock 9
        free=$((free + 1))
    else
        free=0
    fi
    sleep 1
done | "$@"
