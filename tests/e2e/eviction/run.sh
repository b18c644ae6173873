#!/bin/bash
# Policies of the KV cache on a real model and through the real commands: what is off changes nothing, what is evicted is
# gone, said, and still answers what it must; impossible budgets are refused.
# not under asan: its texts are long; the policies run there on tiny models (kv_test, engine_test)
set -uo pipefail
here=$(dirname "$(realpath "$0")")
# shellcheck source=tests/e2e/lib.sh
source "$here/../lib.sh"
models=${ISTHMUS_TEST_MODELS:?names the folder of smollm2.gguf, gemma3.gguf and qwen05.gguf}
repo=$(realpath "$here/../../..")
model=$models/smollm2.gguf

# ---- in one answer ----
prompt="$(head -c 1200 "$repo/docs/batching.md") Say in one sentence what this is about."
run_program run "$model" "$prompt" --greedy -n 24 -c 1024 -q
cp "$scratch/out" "$scratch/plain"
for policy in window random snapkv pyramidkv adakv expected keydiff; do
  run_program run "$model" "$prompt" --greedy -n 24 -c 1024 -q --kv-policy $policy --kv-budget 1.0
  expect "$policy with all keys" 0
  check "$policy with all keys gives the same answer" cmp "$scratch/plain" "$scratch/out"
done
run_program run "$model" "$prompt" --greedy -n 24 -c 1024 --json
check "a whole cache says so" is 'd["figures"]["kv"]["policy"] == "full" and not d["figures"]["kv"]["pruned"]'
full=$(value 'd["figures"]["kv"]["bytes"]')
run_program run "$model" "$prompt" --greedy -n 24 -c 1024 --json --kv-policy snapkv --kv-budget 0.25
expect "a quarter of the keys" 0
check "is said" is 'd["figures"]["kv"]["pruned"] and 0.24 < d["figures"]["kv"]["keys_kept"] < 0.26'
check "and takes fewer bytes" is "d['figures']['kv']['bytes'] < 0.5 * $full"

# ---- what is forgotten ----
run_program eval retrieval "$model" --lengths 384 --needles 1 --limit 8 --policies window:0.5,snapkv:0.5,expected:0.5 --json
expect "retrieval" 0
row() { echo "[r for r in d['rows'] if r['policy'] == '$1' and r['question_known'] == $2][0]"; }
check "the whole cache answers" is "$(row full True)['accuracy'] >= 0.75"
check "eight texts each" is "all(r['texts'] == 8 for r in d['rows']) and len(d['rows']) == 8"
check "a window forgets what lies before it" is "$(row window:0.5 True)['accuracy'] <= $(row full True)['accuracy'] - 0.25"
check "SnapKV with the question known beats a window" is "$(row snapkv:0.5 True)['mean_logprob'] > $(row window:0.5 True)['mean_logprob']"
check "half of the keys, half of the bytes" is "$(row expected:0.5 False)['kv_bytes'] < 0.65 * $(row full False)['kv_bytes']"
run_program eval ppl "$model" "$repo/docs/batching.md" -c 512 --windows 2 --json
plain=$(value 'd["perplexity"]')
run_program eval ppl "$model" "$repo/docs/batching.md" -c 512 --windows 2 --json --kv-policy random --kv-budget 0.25
expect "perplexity behind an evicted text" 0
check "is worse" is "d['perplexity'] > $plain"
run_program bench "$model" -p 0 -n 4 -d 256 -r 1 --json --kv-policy keydiff --kv-budget 64
expect "bench behind an evicted text" 0
check "holds its budget" is "d['rows'][0]['kv_bytes'] < 23040 * 140"

# ---- what cannot be ----
run_program run "$model" "Hi" --kv-policy snapk
expect "a policy that is none" 2 "" "snapk.*snapkv"
run_program run "$model" "Hi" --kv-policy snapkv --kv-budget 12
expect "a budget below what always stays" 2 "" "12 keys"
run_program run "$model" "Hi" --kv-policy snapkv --kv-budget 1.5
expect "a budget that is no number of keys" 2 "" "1.5"
run_program run "$model" "Hi" --kv-policy window --lookup
expect "drafts with a policy" 6 "" "policy that gives up keys"
run_program run "$model" "Hi" --kv-budget 0.5
expect "a budget without a policy" 2 "" "policy"
run_program eval retrieval "$model" --policies snapkv:0
expect "a list of policies with a bad one" 2 "" "policies"
run_program eval retrieval "$model" --kv-policy snapkv
expect "a policy where a list is wanted" 2 "" "--policies"
finish
