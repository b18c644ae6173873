#!/bin/bash
# A model file that is truncated while the program answers from it: the program ends by itself, with exit code 4 and a
# message that names the file. The model has an untied embedding, whose rows are read from the file for each token.
set -uo pipefail
here=$(dirname "$(realpath "$0")")
# shellcheck source=tests/e2e/lib.sh
source "$here/../lib.sh"
tiny=$(realpath "$1")/tiny/llama.gguf

for left in 0 8192; do
  cp "$tiny" "$scratch/model.gguf"
  rm -f "$scratch/out"  # else the wait below may see the last turn's answer
  "$program" run "$scratch/model.gguf" --raw --ignore-eos --shift --timeout 100 -n 100000000 -c 256 -t 1 Hello \
    >"$scratch/out" 2>"$scratch/err" </dev/null &
  pid=$!
  for _ in $(seq 600); do
    [ -s "$scratch/out" ] && break
    sleep 0.1
  done
  check "the program answers before $left bytes are left" test -s "$scratch/out"
  truncate --size "$left" "$scratch/model.gguf"
  code=0
  wait "$pid" || code=$?
  expect "$left bytes are left" 4 "" "model\.gguf' was truncated while in use"
done

finish
