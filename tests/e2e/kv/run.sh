#!/bin/bash
# Stored prompts between processes: the second start finds the first one's text and answers the same; damage, other models,
# other precisions, kills and folders that cannot be written are never an error; export and import over an empty cache.
# not under asan: twenty whole prompts of a real model; what reads and writes records runs there in kv_test, store_test and engine_test
set -uo pipefail
here=$(dirname "$(realpath "$0")")
# shellcheck source=tests/e2e/lib.sh
source "$here/../lib.sh"
models=${ISTHMUS_TEST_MODELS:?names the folder of smollm2.gguf, gemma3.gguf and qwen05.gguf}
export ISTHMUS_MODELS=$scratch/models ISTHMUS_CONFIG=$scratch/config ISTHMUS_CACHE=$scratch/cache ISTHMUS_PACKED_CACHE=off
template=()
records=$scratch/cache/kv/records
system=$(for i in $(seq 60); do echo -n "Rule $i: answer in few words and name the number $((i * 37)). "; done)

# ask MODEL QUESTION OPTION…: one start, its document in $scratch/out.
ask() { run_program run "$models/$1" -s "$system" "$2" --greedy --json --ignore-eos -n 8 -c 2048 "${template[@]}" "${@:3}"; }
# says EXPRESSION: Python over the document d, its figures f and its prefix cache p.
says() {
  python3 - "$scratch/out" "$1" <<'PYTHON'
import json, sys
d = json.load(open(sys.argv[1]))
f, p = d["figures"], d["prefix_cache"]
print(f["reused_from"], p)
assert eval(sys.argv[2])
PYTHON
}
same_tokens() { python3 -c 'import json, sys; a, b = (json.load(open(p))["tokens"] for p in sys.argv[1:]); assert a == b, (a, b)' "$scratch/$1" "$scratch/out"; }
flip() {
  python3 - "$@" <<'PYTHON'
import sys
with open(sys.argv[1], "r+b") as file:
    file.seek(int(sys.argv[2]))
    byte = file.read(1)[0]
    file.seek(-1, 1)
    file.write(bytes([byte ^ 1]))
PYTHON
}
some_record() { find "$records" -type f 2>/dev/null | sort | head -n 1; }

# ---- hits over restarts, on every model ----
for model in smollm2 gemma3 qwen05; do
  [ $model = gemma3 ] && template=(--template gemma) || template=()
  ask $model.gguf "What is rule 7?"
  expect "$model: cold" 0
  check "$model: off unless asked for" says 'p["state"] == "off" and f["reused_tokens"] == 0'
  cp "$scratch/out" "$scratch/cold-a"
  ask $model.gguf "Which number has rule 9?"
  cp "$scratch/out" "$scratch/cold-b"
  ask $model.gguf "What is rule 7?" --prefix-cache
  expect "$model: first start with the cache" 0
  check "$model: nothing found, the prompt kept" says 'f["reused_tokens"] == 0 and p["state"] == "on" and p["saved_tokens"] > 600'
  check "$model: first start, same tokens" same_tokens cold-a
  ask $model.gguf "What is rule 7?" --prefix-cache
  check "$model: the same prompt again" says 'f["reused_from"]["flash"] > f["prompt_tokens"] - 33 and p["saved_tokens"] == 0'
  check "$model: again, same tokens" same_tokens cold-a
  ask $model.gguf "Which number has rule 9?" --prefix-cache -t 1
  check "$model: another question, one thread" says 'f["reused_from"]["flash"] > 600 and f["reused_from"]["memory"] == 0'
  check "$model: another question, same tokens" same_tokens cold-b
done

# ---- what must not meet ----
ask smollm2.gguf "What is rule 7?" --prefix-cache --kv f32
check "another type of KV" says 'f["reused_tokens"] == 0 and p["saved_tokens"] > 600'
ask smollm2.gguf "What is rule 7?" --prefix-cache --precision fast
check "another precision" says 'f["reused_tokens"] == 0'
cp "$models/smollm2.gguf" "$scratch/changed.gguf"
flip "$scratch/changed.gguf" "$(($(stat -c %s "$scratch/changed.gguf") - 100))"
run_program run "$scratch/changed.gguf" -s "$system" "What is rule 7?" --greedy --json -n 4 -c 2048 --prefix-cache
check "another model of the same shape" says 'f["reused_tokens"] == 0'
ask smollm2.gguf "What is rule 7?" --prefix-cache --prefix-cache-size banana
expect "a size that is none" 2 "" "not a size"
ask smollm2.gguf "What is rule 7?" --prefix-cache --prefix-cache-size 10kB --kv bf16
check "a quota too small" says 'p["reason"] and p["saved_tokens"] == 0'

# ---- list and drop ----
ask smollm2.gguf "What is rule 7?" --prefix-cache-size 1GB
expect "a size without the cache" 2 "" "needs --prefix-cache"

run_program kv list --json
expect "list" 0 '"model": "smollm2.gguf"'
run_program kv list
expect "list for people" 0 "^[0-9]+ prefixes, "
run_program kv drop 00
expect "too few digits" 2 "" "at least 4"
run_program kv drop ffffffffffff
expect "no such id" 3 "" "no stored prefix"
run_program kv drop --all
expect "drop all" 0 "records dropped"
check "nothing is left" test -z "$(some_record)"
run_program kv sell
expect "no such action" 2 "" "known are list, drop, export and import"

# ---- damage ----
ask smollm2.gguf "What is rule 7?"
cp "$scratch/out" "$scratch/cold-a"
for place in 20 700 100000; do
  ask smollm2.gguf "What is rule 7?" --prefix-cache
  flip "$(some_record)" $place
  ask smollm2.gguf "What is rule 7?" --prefix-cache
  expect "a flipped byte at $place" 0
  check "a flipped byte at $place: same tokens" same_tokens cold-a
  ask smollm2.gguf "What is rule 7?" --prefix-cache
  check "a flipped byte at $place: kept again" says 'f["reused_from"]["flash"] > 600'
done
ask smollm2.gguf "What is rule 7?" --prefix-cache
echo "not a database" >"$scratch/cache/kv/index.sqlite"
ask smollm2.gguf "What is rule 7?" --prefix-cache
check "a damaged index" says 'f["reused_from"]["flash"] > 600'
truncate -s 50 "$(some_record)"
ask smollm2.gguf "What is rule 7?" --prefix-cache
check "a cut record: same tokens" same_tokens cold-a
ISTHMUS_CACHE=/proc/isthmus ask smollm2.gguf "What is rule 7?" --prefix-cache
expect "a folder that cannot be made" 0 "" "prefix cache is off"
check "a folder that cannot be made: said" says 'p["state"] == "failed" and p["reason"]'

# ---- kills ----
rm -rf "$scratch/cache/kv"
for delay in 0.3 0.6 0.8 0.9 1.0 1.1 1.2 1.4; do
  "$program" run "$models/smollm2.gguf" -s "$system" "Rule $delay?" --greedy -n 1 -c 2048 --prefix-cache >"$scratch/err" 2>&1 </dev/null &
  victim=$!
  sleep $delay
  kill -9 $victim 2>/dev/null
  wait $victim 2>/dev/null
  ask smollm2.gguf "What is rule 7?" --prefix-cache
  expect "after a kill at $delay s" 0
  check "after a kill at $delay s: same tokens" same_tokens cold-a
  rm -rf "$scratch/cache/kv"
done

# ---- two at once ----
both=()
for i in 1 2; do
  "$program" run "$models/smollm2.gguf" -s "$system" "What is rule 7?" --greedy --json --ignore-eos -n 8 -c 2048 --prefix-cache >"$scratch/both$i" 2>"$scratch/err" </dev/null &
  both+=($!)
done
wait "${both[@]}"
for i in 1 2; do
  cp "$scratch/both$i" "$scratch/out"
  check "start $i of two at once" same_tokens cold-a
done
ask smollm2.gguf "What is rule 7?" --prefix-cache
check "after two at once" says 'f["reused_from"]["flash"] > 600 and p["damaged_records"] == 0'

# ---- chat ----
printf 'My name is Ada.\nWhat is my name?\n' | "$program" chat "$models/smollm2.gguf" -s "$system" --greedy -n 8 -c 2048 --figures --prefix-cache >"$scratch/chat1" 2>"$scratch/figures1"
printf 'My name is Ada.\nWhat is my name?\n' | "$program" chat "$models/smollm2.gguf" -s "$system" --greedy -n 8 -c 2048 --figures --prefix-cache >"$scratch/chat2" 2>"$scratch/figures2"
check "a chat begins where another one was" grep -q "of them from flash" "$scratch/figures2"
check "a chat says the same" cmp "$scratch/chat1" "$scratch/chat2"

# ---- export and import ----
rm -rf "$scratch/cache/kv"
printf '%s' "$system" >"$scratch/system"
run_program kv export "$models/smollm2.gguf" --system --prompt-file "$scratch/system" -o "$scratch/rules.kv" -c 2048 --json
expect "export" 0 '"tokens": [0-9]+'
cp "$scratch/out" "$scratch/export"
check "size by formula" python3 - "$scratch/export" "$scratch/rules.kv" <<'PYTHON'
import json, os, sys
d = json.load(open(sys.argv[1]))
size = os.path.getsize(sys.argv[2])
# SmolLM2-135M: 30 layers, 3 KV heads of 64, K and V, 2 bytes a value.
assert d["bytes"] == size and d["kv_bytes"] == d["tokens"] * 30 * 3 * 64 * 2 * 2
assert d["kv_bytes"] < size < d["kv_bytes"] * 1.01, (d, size)
PYTHON
run_program kv export "$models/smollm2.gguf" --system --prompt-file "$scratch/system" -o "$scratch/rules.kv" -c 2048
expect "an existing file is not replaced" 2 "" "exists already"
run_program kv import "$models/qwen05.gguf" "$scratch/rules.kv"
expect "of another model" 1 "" "another model"
cp "$scratch/rules.kv" "$scratch/bad.kv"
flip "$scratch/bad.kv" 3000000
run_program kv import "$models/smollm2.gguf" "$scratch/bad.kv"
expect "a damaged file" 4 "" "wrong checksum"
truncate -s -1 "$scratch/bad.kv"
run_program kv import "$models/smollm2.gguf" "$scratch/bad.kv"
expect "a cut file" 4
run_program kv import "$models/smollm2.gguf" "$scratch/system"
expect "no KV file at all" 4 "" "not a KV file"
check "nothing of those was taken in" test -z "$(some_record)"
run_program kv import "$models/smollm2.gguf" "$scratch/rules.kv"
expect "import" 0 "taken in"
ask smollm2.gguf "What is rule 7?" --prefix-cache
check "an imported text is found" says 'f["reused_from"]["flash"] > 600'
check "an imported text: same tokens" same_tokens cold-a
run_program kv import "$models/smollm2.gguf" "$scratch/rules.kv"
expect "import again" 0

finish
