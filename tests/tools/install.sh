#!/usr/bin/env bash
# Installs the programs that docent is tested against into DOCENT_TEST_TOOLS (default target/test-tools):
# node_modules/ with a Node that is new enough, venv/ with a current and venv-old/ with an old MCP client.
# Does nothing where they are already there in these versions.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
to=${DOCENT_TEST_TOOLS:-$here/../../target/test-tools}
mkdir -p "$to"
to=$(cd "$to" && pwd)
stamp=$(cat "$here/package.json" "$here/requirements.txt" "$here/requirements-old.txt" | sha256sum | cut -c1-16)
if [ "$(cat "$to/.stamp" 2>/dev/null)" = "$stamp" ]; then exit 0; fi
cp "$here/package.json" "$to/package.json"
(cd "$to" && npm install --no-package-lock --no-audit --no-fund --loglevel=error) &
node_job=$!
for kind in "" -old; do
  python3 -m venv "$to/venv$kind"
  "$to/venv$kind/bin/pip" install --quiet --disable-pip-version-check -r "$here/requirements$kind.txt"
done
wait "$node_job"
echo "$stamp" > "$to/.stamp"
echo "test tools are in $to" >&2
