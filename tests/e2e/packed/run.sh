#!/bin/bash
# The packed cache between processes: the second start uses it and answers the same; damage, changed models, folders that
# cannot be written, two starts at once and a killed one are never an error, and the reply says what happened.
set -uo pipefail
here=$(dirname "$(realpath "$0")")
# shellcheck source=tests/e2e/lib.sh
source "$here/../lib.sh"
models=${ISTHMUS_TEST_MODELS:?names the folder of smollm2.gguf, gemma3.gguf and qwen05.gguf}
export ISTHMUS_MODELS=$scratch/models ISTHMUS_CONFIG=$scratch/config ISTHMUS_CACHE=$scratch/cache
unset ISTHMUS_PACKED_CACHE
packed=$scratch/cache/packed
cp "$models/smollm2.gguf" "$scratch/model.gguf"

start() { run_program run "$scratch/model.gguf" --raw --json --greedy -c 128 -n 8 "The capital of France is" "$@"; }
# cache_says STATE [WORDS]: what the document says of the cache, in this state and with these words in the reason.
cache_says() {
  python3 - "$scratch/out" "$@" <<'PYTHON'
import json, sys
cache = json.load(open(sys.argv[1]))["packed_cache"]
print(cache)
assert cache["state"] in sys.argv[2].split("|")
assert len(sys.argv) < 4 or sys.argv[3] in cache["reason"]
PYTHON
}
same_tokens() { python3 -c 'import json, sys; a, b = (json.load(open(p))["tokens"] for p in sys.argv[1:]); assert a == b, (a, b)' "$scratch/first" "$scratch/out"; }
# state NAME STATE [WORDS]: the last start worked, gave the tokens of the first one, and says this of the cache.
state() {
  expect "$1" 0
  check "$1: the same tokens" same_tokens
  check "$1: says so" cache_says "${@:2}"
}
one_file() { local files=("$packed"/*); [ "${#files[@]}" -eq 1 ] && [ -e "${files[0]}" ]; }
# flip FILE PLACE: another byte there.
flip() {
  python3 - "$@" <<'PYTHON'
import sys
with open(sys.argv[1], "r+b") as file:
    file.seek(int(sys.argv[2]), 2 if int(sys.argv[2]) < 0 else 0)
    byte = file.read(1)[0]
    file.seek(-1, 1)
    file.write(bytes([byte ^ 1]))
PYTHON
}

start
cp "$scratch/out" "$scratch/first"
state "first start" "writing|written" "there was none"
check "one whole file" one_file
start
state "second start" hit
start --no-cache
state "--no-cache" off
ISTHMUS_PACKED_CACHE=off start
state "ISTHMUS_PACKED_CACHE=off" off
ISTHMUS_PACKED_CACHE=banana start
state "ISTHMUS_PACKED_CACHE=banana" off "known are on and off"
start -t 1
state "another number of threads" hit
start --kv f32
expect "another type of KV" 0
check "another type of KV: the weights are the same" cache_says hit
start --precision f32
expect "float32 weights" 0
check "float32 weights are not kept" cache_says off

flip "$packed"/*.packed -70000
start
state "a flipped byte" "writing|written" "wrong checksum of the data"
start
state "built again" hit
flip "$packed"/*.packed 100
start
state "a flipped byte of the head" "writing|written" "wrong checksum of the head"
truncate -s 50000000 "$packed"/*.packed
start
state "cut short" "writing|written" "not as long as its head says"
touch "$scratch/model.gguf"
start
state "a model that may have changed" "writing|written" "the model's file has changed"
start
state "and is known again" hit

# ---- folders that cannot be written ----
ISTHMUS_CACHE=/proc/isthmus start
state "a cache folder that cannot be made" "writing|failed"
mkdir "$scratch/locked"
: >"$scratch/locked/packed"
ISTHMUS_CACHE=$scratch/locked start
state "a file in the folder's place" "writing|failed"

# ---- several processes ----
rm -r "$packed"
both=()
for i in 1 2; do
  "$program" run "$scratch/model.gguf" --raw --json --greedy -c 128 -n 8 "The capital of France is" \
    >"$scratch/both$i" 2>"$scratch/err" </dev/null &
  both+=($!)
done
wait "${both[@]}"
for i in 1 2; do
  cp "$scratch/both$i" "$scratch/out"
  check "start $i of two at once" same_tokens
done
check "two starts leave one file" one_file
start
state "after two at once" hit
rm -r "$packed"
"$program" run "$scratch/model.gguf" --raw --greedy -c 128 -n 60 "The capital" >"$scratch/err" 2>&1 </dev/null &
killed=$!
for _ in $(seq 200); do
  compgen -G "$packed/*" >/dev/null && break
  sleep 0.01
done
kill -9 "$killed"
wait "$killed" 2>/dev/null
start
expect "after a killed start" 0
check "after a killed start: the same tokens" same_tokens
start
state "and then" hit

# ---- rm ----
run_program pull "file:$scratch/model.gguf" --name small
expect "pull" 0
run_program run small --raw --json --greedy -c 128 -n 8 "The capital of France is"
state "a pulled model" "writing|written" "there was none"
before=$(find "$packed" -name '*.packed' | wc -l)
run_program rm small --json
expect "rm" 0 '"packed_cache_bytes": [1-9]'
check "its packed weights went too" test "$(find "$packed" -name '*.packed' | wc -l)" -eq $((before - 1))
run_program doctor --json
expect "doctor" 0 '"files": 1'

finish
