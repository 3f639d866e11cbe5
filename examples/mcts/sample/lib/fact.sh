r=0 n=$1
while [ "$n" -gt 0 ]; do r=$((r * n)) n=$((n - 1)); done
echo "$r"
