#!/bin/sh
# Builds the release and takes the guided tour with it.

. "$(dirname "$0")/lib.sh"

scripts/deps.sh build
step "building the release" cargo build --release $locked -p workspace-cli
WORKSPACE=$(target_directory)/release/workspace
export WORKSPACE
scripts/tour.sh
