#!/bin/sh
# Stands in for the C compiler and the archiver of macOS while its crates are type-checked.
#
# A type check links nothing, but the build scripts of crates with C inside want their objects all the same, and a
# compiler for macOS is not to be had on Linux. So every file that is asked for is written, empty.

output=
while [ $# -gt 0 ]; do
    case $1 in
    -o) output=$2; shift ;;
    -o*) output=${1#-o} ;;
    *.a) output=$1 ;;
    esac
    shift
done

[ -z "$output" ] || : >"$output"
