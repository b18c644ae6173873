#!/bin/bash
# The planned peak of memory against the measured one, in fresh processes that fill their context to the end, and the
# refusal of what exceeds a limit. The tolerance is 5 % of the plan.
# not under asan: the sanitizer's shadow memory and its allocator are most of the resident set
set -uo pipefail
here=$(dirname "$(realpath "$0")")
# shellcheck source=tests/e2e/lib.sh
source "$here/../lib.sh"
models=${ISTHMUS_TEST_MODELS:?names the folder of smollm2.gguf, gemma3.gguf and qwen05.gguf}

# words N: N words that are one token each in all three vocabularies.
words() {
  local text
  printf -v text ' the%.0s' $(seq "$1")
  printf '%s' "$text"
}

# within_tolerance: planned and measured bytes of the document in $scratch/out, of a run or a bench.
within_tolerance() {
  python3 - "$scratch/out" <<'PYTHON'
import json, sys
document = json.load(open(sys.argv[1]))
if "rows" in document:
    planned, peak = document["planned_memory_bytes"], document["rows"][-1]["peak_memory_bytes"]
else:
    figures = document["figures"]
    planned, peak = figures["planned_memory_bytes"], figures["peak_memory_bytes"]
    assert document["finish_reason"] == "context", document["finish_reason"]
print(f"planned {planned / 1e6:.1f} MB, measured {peak / 1e6:.1f} MB")
assert abs(peak - planned) <= 0.05 * planned
PYTHON
}

# fill MODEL CONTEXT THREADS KV PRECISION [FLAG …]: reads almost a whole context and generates until it is full.
fill() {
  words $(($2 - ${room:-8})) >"$scratch/prompt"
  code=0
  "$program" run "$models/$1.gguf" --raw --json --ignore-eos --greedy -c "$2" -t "$3" --kv "$4" --precision "$5" "${@:6}" - \
    <"$scratch/prompt" >"$scratch/out" 2>"$scratch/err" || code=$?
  expect "run $*" 0
  check "plan and peak of run $*" within_tolerance
}

for model in smollm2 gemma3 qwen05; do
  for threads in 1 2; do
    fill "$model" 512 "$threads" f16 default
    fill "$model" 512 "$threads" f32 default
  done
  fill "$model" 512 2 f16 f32
done
fill smollm2 512 1 f32 f32
fill smollm2 4096 1 f32 default
fill smollm2 4096 2 f16 default
fill gemma3 4096 2 f32 default
fill qwen05 4096 2 f16 default
# With drafts of every length in the last tokens.
room=100
fill smollm2 512 2 f16 default --lookup
fill qwen05 512 2 f16 default --lookup
fill smollm2 512 2 f16 default --lookup --draft-max 64
room=8

for model in smollm2 gemma3 qwen05; do
  run_program bench "$models/$model.gguf" --json -r 1 -t 1,2 -p 512 -n 16 -d 0
  expect "bench $model" 0
  check "plan and peak of bench $model" within_tolerance
done
run_program bench "$models/smollm2.gguf" --json -r 1 -t 2 -p 128,512 -n 16 -d 0,512 -b 1,4 --kv f32
expect "bench of batches" 0
check "plan and peak of bench of batches" within_tolerance

# A limit a little above the plan is enough, one a little below is refused with the sums; nothing is read then.
run_program show "$models/smollm2.gguf" --ctx 512 --json
planned=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["memory"]["total"])' "$scratch/out")
run_program run "$models/smollm2.gguf" -c 512 -n 1 --memory $((planned * 103 / 100))B Hello
expect "a limit above the plan" 0
run_program run "$models/smollm2.gguf" -c 512 -n 1 --memory $((planned * 97 / 100))B Hello
expect "a limit below the plan" 5 "" \
  "smollm2.gguf: needs [0-9.]+ MB \(weights .*, KV cache of 512 tokens .*, work buffers .*, tokenizer .*, program .*\), the memory limit is"
reads_no_weights() {
  python3 - "$program" run "$models/qwen05.gguf" -c 512 -n 1 --memory 100MB Hello <<'PYTHON'
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:], stdin=subprocess.DEVNULL).returncode
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
print(f"exit code {code}, {peak} KiB at most")
assert code == 5 and peak < 60_000
PYTHON
}
check "a refusal reads no weights" reads_no_weights

finish
