#!/bin/sh
# Regenerates native/internal/gen from spec/proto with the pinned buf (npm) and the pinned Go plugins (go.mod).
set -eu
native=$(cd "$(dirname "$0")" && pwd)
rm -rf "$native/internal/gen"
cd "$native/../spec/proto"
PATH="$native/../node_modules/.bin:$PATH" buf generate --template buf.gen.yaml
