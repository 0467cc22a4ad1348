#!/usr/bin/env bash
# Runs the official MCP conformance suite against `docent serve` on the conformance home, once per era.
# Usage: tests/conformance/run.sh [PROGRAM]     (default: target/debug/docent)
# Exits non-zero on any failure outside expected-failures-*.yml, and on an entry there that passes by now.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
docent=${1:-$root/target/debug/docent}
tools=${DOCENT_TEST_TOOLS:-$root/target/test-tools}
tools=$(cd "$tools" && pwd)
node="$tools/node_modules/node/bin/node"
suite="$tools/node_modules/@modelcontextprotocol/conformance/dist/index.js"
out=${CONFORMANCE_OUT:-$root/target/conformance}
port=${CONFORMANCE_PORT:-7391}
rm -rf "$out"
mkdir -p "$out"

# A copy: one of its tools edits the home that is served.
cp -r "$root/tests/fixtures/homes/conformance" "$out/home"
"$docent" serve --home "$out/home" --listen "127.0.0.1:$port" --data "$out/data" 2> "$out/docent.log" &
server=$!
trap 'kill "$server" 2>/dev/null || true' EXIT
for _ in $(seq 100); do
  curl --silent --fail "http://127.0.0.1:$port/readyz" > /dev/null && break
  kill -0 "$server" || { cat "$out/docent.log" >&2; exit 1; }
  sleep 0.1
done
# The suite must grade docent and nothing else that listens there.
curl --silent "http://127.0.0.1:$port/mcp" -H 'content-type: application/json' -H 'accept: application/json, text/event-stream' \
  -d '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"gate","version":"1"}}}' \
  | grep -q '"name":"conformance"' || { echo "the server on port $port is not docent's conformance home" >&2; exit 1; }

failed=0
for era in 2025-11-25 2026-07-28; do
  echo "== conformance $era"
  "$node" "$suite" server --url "http://127.0.0.1:$port/mcp" --suite all --spec-version "$era" \
    --expected-failures "$here/expected-failures-$era.yml" -o "$out/$era" > "$out/$era.log" 2>&1 || failed=1
  tail -n 40 "$out/$era.log"
done
# Extensions are on no revision's list: one by one.
for scenario in tasks-lifecycle tasks-capability-negotiation tasks-wire-fields tasks-request-state-removal \
  tasks-request-headers tasks-dispatch-and-envelope tasks-mrtr-input tasks-mrtr-composition tasks-status-notifications \
  tasks-required-task-error; do
  echo "== conformance $scenario"
  "$node" "$suite" server --url "http://127.0.0.1:$port/mcp" --scenario "$scenario" --force \
    --expected-failures "$here/expected-failures-tasks.yml" -o "$out/tasks" > "$out/$scenario.log" 2>&1 \
    || { failed=1; tail -n 40 "$out/$scenario.log"; }
done
exit "$failed"
