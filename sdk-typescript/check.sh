#!/bin/sh
# Checks generated files, types, lints and format of the SDK and its examples.

set -eu
cd "$(dirname "$0")"
. ./install.sh

node scripts/generate.mjs --check
node scripts/build.mjs
node scripts/size.mjs --check
node_modules/.bin/tsc --project test/tsconfig.json
# Every public item has a description, and every link in one leads somewhere.
node_modules/.bin/typedoc --emit none --logLevel Warn
node_modules/.bin/eslint --max-warnings 0 .
node_modules/.bin/prettier --log-level warn --check . ../examples/typescript
node_modules/.bin/prettier --log-level warn --config .prettierrc.json --check ../bench/harness/sdk_lines/*.ts
