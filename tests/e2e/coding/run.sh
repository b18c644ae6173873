#!/bin/bash
# Coded KV on a real model and through the real commands: what is off changes nothing, sizes are the formula's, drafts and
# stored prompts give the same answer, calibrations belong to their model, and what cannot be is refused.
# not under asan: its texts are long; codes run there on tiny models (kv_test, engine_test, calibrate_test)
set -uo pipefail
here=$(dirname "$(realpath "$0")")
# shellcheck source=tests/e2e/lib.sh
source "$here/../lib.sh"
models=${ISTHMUS_TEST_MODELS:?names the folder of smollm2.gguf, gemma3.gguf and qwen05.gguf}
repo=$(realpath "$here/../../..")
model=$models/smollm2.gguf
export ISTHMUS_CACHE=$scratch/cache

# ---- in one answer ----
prompt="$(head -c 2400 "$repo/docs/batching.md") Say in one sentence what this is about."
answer=(run "$model" "$prompt" --greedy -n 24 -c 1024)
run_program "${answer[@]}" -q
cp "$scratch/out" "$scratch/plain"
run_program "${answer[@]}" -q --kv-bits 16
check "16 bits are the plain cache" cmp "$scratch/plain" "$scratch/out"
run_program "${answer[@]}" -q --kv-bits 2 --kv-residual 1024
check "so is a residual longer than the text" cmp "$scratch/plain" "$scratch/out"
run_program "${answer[@]}" --json
full=$(value 'd["figures"]["kv"]["bytes"]')
run_program "${answer[@]}" --json --kv-bits 4 --kv-residual 32
expect "an answer over 4 bits" 0
check "says so" is 'd["figures"]["kv"]["bits"] == "4" and d["figures"]["kv"]["exactness"] == "quantised"'
check "takes 5 of 16 bits, and the newest block" is "5 / 16 * $full < d['figures']['kv']['bytes'] < 0.38 * $full"
run_program "${answer[@]}" -q --kv-bits 4 --kv-residual 32
cp "$scratch/out" "$scratch/coded"
run_program "${answer[@]}" -q --kv-bits 4 --kv-residual 32 --lookup
check "drafts give the same answer" cmp "$scratch/coded" "$scratch/out"
for try in cold stored; do
  run_program "${answer[@]}" -q --kv-bits 4 --kv-residual 32 --prefix-cache
  check "$try: the same answer" cmp "$scratch/coded" "$scratch/out"
done
run_program "${answer[@]}" --json --kv-bits 4 --kv-residual 32 --prefix-cache
check "most of the prompt comes from flash" is 'd["figures"]["reused_from"]["flash"] > 0.8 * d["figures"]["prompt_tokens"]'
run_program "${answer[@]}" --json --kv-bits 2 --kv-residual 32 --prefix-cache
check "but not for other bits" is 'd["figures"]["reused_from"]["flash"] == 0'
run_program "${answer[@]}" -q --kv-policy kvzip --kv-budget 1.0
check "kvzip with all keys gives the plain answer" cmp "$scratch/plain" "$scratch/out"

# ---- accuracy ----
text=$repo/docs/batching.md
run_program eval kl "$model" "$text" -c 512 --windows 2 --save "$scratch/reference"
for limits in "8 0.99 0.001" "4 0.93 0.02"; do
  read -r bits same kl <<<"$limits"
  run_program eval kl "$model" "$scratch/reference" -c 512 --kv-bits "$bits" --json
  expect "distance of $bits bits" 0
  check "$bits bits are near" is "d['same_top1'] >= $same and 0 < d['mean_kl'] <= $kl"
done
run_program eval stream "$model" "$text" --kv-policy streaming --kv-budget 256 --tokens 1500 --kv-bits 4
expect "a text without end over codes" 0

# ---- what cannot be ----
run_program run "$model" "Hi" --kv-bits 3
expect "bits that are none" 2 "" "'3'.*k4v2"
run_program run "$model" "Hi" --kv-bits 4,4
expect "bits for other layers" 2 "" "2 layers.*30"
run_program run "$model" "Hi" --kv-bits asym:31/0
expect "more layers than there are" 2 "" "31/0.*30"
run_program run "$model" "Hi" --kv-bits 4 --kv-residual 50
expect "a residual that is no multiple of 32" 2 "" "50.*32"
run_program run "$model" "Hi" --kv-bits 4 --kv q8_0
expect "codes of codes" 2 "" "q8_0"
run_program run "$model" "Hi" --kv-bits 4 --kv-policy window
expect "codes with a window" 6 "" "window"
run_program run "$model" "Hi" --kv-bits "asym:$scratch/none"
expect "a calibration that is not there" 3 "" "calibrate"
run_program run "$model" "Hi" --kv-policy kvzip -c 64
expect "no room to repeat the text" 5 "" "kvzip.*room"
hash=$(python3 -c 'print("07" * 32)')
echo "{\"format\": \"isthmus calibration\", \"version\": 1, \"model\": \"$hash\", \"label\": \"another\", \"kv_bits\": {\"bits\": \"4\", \"residual\": 128, \"keys\": \"rotated\", \"held_bits\": 5}}" > "$scratch/cal"
run_program run "$model" "Hi" --kv-bits "asym:$scratch/cal"
expect "the calibration of another model" 1 "" "another model"
run_program calibrate kv-bits "$model" "$text" -o "$scratch/cal"
expect "its file is left alone" 1 "" "another model"
echo "{" > "$scratch/cal"
run_program run "$model" "Hi" --kv-bits "asym:$scratch/cal"
expect "a damaged calibration" 4 "" "no JSON"
finish
