# Sourced by the tours, after lib.sh: prints each command as it would be typed, then runs it.
#
# `$WORKSPACE` is the path of the program `workspace`.

workspace() {
    "$WORKSPACE" "$@"
}

# Prints a command as it would be typed.
show() {
    printf '$'
    for word in "$@"; do
        case $word in
        *"'"*) printf ' "%s"' "$word" ;;
        *' '*) printf " '%s'" "$word" ;;
        *) printf ' %s' "$word" ;;
        esac
    done
    printf '\n'
}

run() {
    show "$@"
    "$@"
}
