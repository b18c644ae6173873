#!/bin/bash
# Instruction sets are equal from outside: the same text, and the same bits of every logit, on each set that this machine can
# be forced to use. Tiles are modelled where the processor has none (ISTHMUS_ISA=amx-model, docs/adr/0005-tiles.md).
set -uo pipefail
here=$(dirname "$(realpath "$0")")
# shellcheck source=tests/e2e/lib.sh
source "$here/../lib.sh"
models=${ISTHMUS_TEST_MODELS:?names the folder of smollm2.gguf, gemma3.gguf and qwen05.gguf}
repo=$(realpath "$here/../../..")
model=$models/smollm2.gguf

sets=$("$program" doctor --json | python3 -c 'import json, sys; print(*json.load(sys.stdin)["kernels"]["available"])')
[ -n "$sets" ] || echo "FAILED: doctor names no instruction set"
# An instrumented build takes minutes for each hundred tokens of the scalar set, and half an hour for modelled tiles, which its
# unit tests run.
bytes=1600 window=128
if [ -n "${ISTHMUS_SANITIZED:-}" ]; then
  bytes=160 window=16
else
  case " $sets " in *" avx512 "*) sets="$sets amx-model" ;; esac
fi
text=$scratch/text
head -c $bytes "$repo/CONTRIBUTING.md" >"$text"
for set in $sets; do
  export ISTHMUS_ISA=$set
  run_program run "$model" --raw --greedy -n 16 -q -- "$(cat "$text")"
  expect "$set: a text" 0 "."
  cp "$scratch/out" "$scratch/$set.text"
  run_program eval kl "$model" "$text" --save "$scratch/$set.rows" --ctx $window --windows 2
  expect "$set: logits" 0
  [ "$set" = scalar ] && continue
  check "$set: the text of scalar" cmp "$scratch/scalar.text" "$scratch/$set.text"
  check "$set: the logits of scalar, bit for bit" cmp "$scratch/scalar.rows" "$scratch/$set.rows"
done
# ---- prompts in bfloat16, where there are tiles or a model of them ----
for set in $sets; do
  export ISTHMUS_ISA=$set
  case $set in
    amx*)
      for threads in 1 2; do
        run_program eval kl "$model" "$text" --precision bf16 --save "$scratch/$threads.rows" --ctx 128 --windows 1 -t $threads
        expect "$set: bf16, $threads thread(s)" 0
      done
      check "$set: bf16 has the same bits with any number of threads" cmp "$scratch/1.rows" "$scratch/2.rows"
      run_program eval kl "$model" "$scratch/1.rows" --json
      expect "$set: bf16 is near the default" 0
      check "$set: mean KL below 2e-4" python3 -c 'import json, sys; sys.exit(json.load(open(sys.argv[1]))["mean_kl"] > 2e-4)' \
        "$scratch/out"
      ;;
    *)
      run_program run "$model" "Hello" --precision bf16
      expect "$set: bf16 without tiles" 6 "" "needs AMX tiles; the instruction set in use is $set"
      ;;
  esac
done

case " $sets " in
  *" amx "*) ;;
  *)
    export ISTHMUS_ISA=amx
    run_program run "$model" "Hello"
    expect "tiles where there are none" 2 "" "does not have the instruction set 'amx'"
    ;;
esac
finish
