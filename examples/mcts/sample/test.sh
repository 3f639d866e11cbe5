#!/bin/sh
# Tests of the little library beside this file. The last line says how many passed.
cd "$(dirname "$0")" || exit 1
passed=0 failed=0
check() {
    if [ "$2" = "$3" ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "$1: $2 instead of $3"
    fi
}
check "add 2 3" "$(sh lib/add.sh 2 3)" 5
check "sub 7 4" "$(sh lib/sub.sh 7 4)" 3
check "max 4 9" "$(sh lib/max.sh 4 9)" 9
check "abs -3" "$(sh lib/abs.sh -3)" 3
check "fact 5" "$(sh lib/fact.sh 5)" 120
check "even 8" "$(sh lib/even.sh 8)" yes
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
