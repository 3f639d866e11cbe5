#!/bin/sh
# Writes crates/server/src/pages/swagger-ui from the npm package swagger-ui-dist: the files that `/api/docs` needs,
# compressed, and their licences. To update, set `version` and `sha256` (`npm pack` and `sha256sum` print them), run
# this, and try `/api/docs` of a server: the browser's console must show no violation of the content security policy.
#
#   scripts/swagger-ui.sh            write them
#   scripts/swagger-ui.sh --check    fail when they are not what the package has

. "$(dirname "$0")/lib.sh"

version=5.34.1
sha256=8e7286de0230e431fc8a5a75490d28117af3d0c306413b6f9e17f7bb55045fb6
kept=crates/server/src/pages/swagger-ui
compressed='swagger-ui-bundle.js swagger-ui.css'
licences='LICENSE NOTICE swagger-ui-bundle.js.LICENSE.txt'

have npm || die "no npm found" "apt-get install npm"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# `npm pack` downloads one package without its dependencies and runs none of its scripts.
npm pack --silent --ignore-scripts --pack-destination "$work" "swagger-ui-dist@$version" >/dev/null
printf '%s  %s\n' "$sha256" "$work/swagger-ui-dist-$version.tgz" | sha256sum --check --quiet ||
    die "swagger-ui-dist $version does not have the expected checksum"
tar -xzf "$work/swagger-ui-dist-$version.tgz" -C "$work"

write() {
    for file in $compressed; do
        # Source maps are not served, so the last line, which names one, is left out.
        sed '/^\/[/*]# sourceMappingURL=/d' "$work/package/$file" | gzip -9n >"$kept/$file.gz"
    done
    for file in $licences; do
        cp "$work/package/$file" "$kept/$file"
        chmod 644 "$kept/$file"
    done
}

check() {
    for file in $compressed; do
        sed '/^\/[/*]# sourceMappingURL=/d' "$work/package/$file" >"$work/$file"
        gzip -dc "$kept/$file.gz" | cmp - "$work/$file" || die "$kept/$file.gz is not that of $version"
    done
    for file in $licences; do
        cmp "$kept/$file" "$work/package/$file" || die "$kept/$file is not that of $version"
    done
}

case ${1:-} in
'') write ;;
--check) check ;;
*) die "unknown option \`$1\`" "--check, or none" ;;
esac
