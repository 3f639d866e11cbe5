# Sourced by the other scripts: installs the pinned packages if they are not installed.

command -v npm >/dev/null 2>&1 || {
    echo 'error: no npm found' >&2
    echo 'hint: apt-get install nodejs npm' >&2
    exit 1
}
if ! cmp -s package-lock.json node_modules/.installed; then
    npm ci --silent --no-audit --no-fund
    cp package-lock.json node_modules/.installed
fi
