#!/bin/bash
# `isthmus run` in scripts and pipes, and long commands that are stopped: the answer alone on standard output, exact errors
# for numbers, prompts and files that cannot be, a quiet end when nobody reads any more.
set -uo pipefail
set -m  # or programs in the background would ignore Ctrl-C
here=$(dirname "$(realpath "$0")")
# shellcheck source=tests/e2e/lib.sh
source "$here/../lib.sh"
models=${ISTHMUS_TEST_MODELS:?names the folder of smollm2.gguf, gemma3.gguf and qwen05.gguf}
repo=$(realpath "$here/../../..")
model=$models/smollm2.gguf
export ISTHMUS_MODELS=$scratch/models ISTHMUS_CONFIG=$scratch/config
mkdir "$ISTHMUS_MODELS"

is_json() { python3 -c 'import json, sys; json.load(open(sys.argv[1]))' "$scratch/out"; }
empty() { [ ! -s "$1" ]; }
run_quick() { run_program run "$model" "$@" --greedy -c 256; }

# ---- the answer and nothing else ----
run_quick "What is the capital of France?" -n 20
expect "an answer" 0 "^The capital of France is Paris\.$" "^\[stop_token; "
run_quick "What is the capital of France?" -n 20 --quiet
expect "without remarks" 0 "Paris"
check "nothing on standard error" empty "$scratch/err"
cp "$scratch/out" "$scratch/first"
code=0
printf 'What is the capital of France?\n' | "$program" run "$model" --greedy -q -c 256 >"$scratch/out" 2>"$scratch/err" || code=$?
expect "the prompt from a pipe" 0
check "is the same prompt" cmp "$scratch/first" "$scratch/out"
run_quick "What is the capital of France?" -n 20 --json
expect "as a document" 0 '"finish_reason": "stop_token"'
check "which is one" is_json
run_quick "2, 4, 6, 8," --raw -n 4
expect "without template" 0 "10"
run_program run "$model" "Say something." --seed 7 -n 12 -q -t 1
cp "$scratch/out" "$scratch/first"
run_program run "$model" "Say something." --seed 7 -n 12 -q -t 2
expect "a seed" 0
check "one seed, one text, with any number of threads" cmp "$scratch/first" "$scratch/out"
run_quick "Hello" -n 0 --json
expect "no token at all" 0 '"finish_reason": "length"'
check "is none" grep -q '"generated_tokens": 0' "$scratch/out"

# ---- drafts looked up in the text ----
quote="Repeat this sentence three times: The harbour stood empty, and boys carried water from the pump."
for sampling in --greedy "--seed 3"; do
  # shellcheck disable=SC2086 # two words
  run_program run "$model" "$quote" $sampling -n 60 -q -c 256
  cp "$scratch/out" "$scratch/first"
  # shellcheck disable=SC2086
  run_program run "$model" "$quote" $sampling -n 60 -c 256 --lookup
  expect "with --lookup" 0
  check "is the same answer" cmp "$scratch/first" "$scratch/out"
done
run_quick "1 2 3 4 1 2 3 4 1 2 3 4 1 2 3 4 1 2" --raw -n 60 --json --lookup --draft-max 4
expect "figures of drafts" 0 '"verify_steps": [1-9]'
check "some of which were right" grep -Eq '"accepted_tokens": [1-9]' "$scratch/out"
run_quick "Hello" --draft-max 4
expect "a length without drafts" 2 "" "--draft-max needs --lookup"
run_quick "Hello" --lookup --draft-max 65
expect "too long drafts" 2 "" "draft-max"

# ---- prompts ----
run_quick ""
expect "empty prompt" 2 "" "the prompt is empty"
run_program run "$model" </dev/null
expect "empty input" 2 "" "the prompt is empty"
run_quick "   " --raw -n 1
expect "blanks are a prompt" 0
code=0
printf '\377\376\000a\033[2J' | "$program" run "$model" -n 2 -q >"$scratch/out" 2>"$scratch/err" || code=$?
expect "bytes that are no text are a prompt" 0
run_program run "$model" "$(printf 'word %.0s' {1..400})" -c 128
expect "longer than the context" 5 "" "4[0-9]{2} tokens, the context holds 128; --ctx N gives more \(this model: up to 8192\)"
check "no answer then" empty "$scratch/out"
run_program run "$model" "Write a very long story." --greedy -c 64
expect "a context that fills up" 0 "." "^\[context; "

# ---- a model of several files ----
python3 "$here/split_gguf.py" "$model" "$scratch/parts" 3
for part in 1 3; do
  run_program run "$scratch/parts-0000$part-of-00003.gguf" "What is the capital of France?" --greedy -c 256
  expect "any part stands for the whole ($part)" 0 "Paris"
done
run_program show "$scratch/parts-00001-of-00003.gguf"
expect "parts are counted" 0 "98\.4 MB, 3 parts"
run_program pull "$scratch/parts-00001-of-00003.gguf"
expect "the store takes none" 6 "" "bring all of its files into one folder"
rm "$scratch/parts-00002-of-00003.gguf"
run_program run "$scratch/parts-00001-of-00003.gguf" hi
expect "a part that is missing" 3 "" "parts-00002-of-00003\.gguf"
rm "$scratch"/parts-*

# ---- numbers ----
for wrong in -1 1.5 0x10 1e3 99999999999999999999 "" many; do
  run_quick hi -n "$wrong"
  expect "-n $wrong" 2 "" "max-tokens.*'$wrong'"
done
for flag in --top-k --seed --logprobs --penalty-window --threads --ctx; do
  run_quick hi $flag -1
  expect "$flag -1" 2 "" "${flag#--}.*-1"
done
for flag in --top-p --min-p --typical --temperature --repeat-penalty --presence-penalty --frequency-penalty --timeout; do
  for wrong in nan inf 1e30 x; do
    run_program run "$model" hi -n 1 $flag $wrong
    expect "$flag $wrong" 2 "" "(${flag#--}|$(tr - _ <<<"${flag#--}")|repetition_penalty)"
  done
done
run_quick hi --temperature 1
expect "two wishes at once" 2 "" "contradict"
run_quick hi --raw --system x
expect "a system message without template" 2 "" "--system needs"
run_quick hi --logprobs 2
expect "log-probabilities for nobody" 2 "" "needs --json"
run_quick hi --memory 1MB
expect "a budget that does not suffice" 5 "" "needs 2?[0-9]+\.[0-9] MB .*limit is 1\.0 MB"
run_quick hi --timeout 0.001
expect "no time" 8
for pair in "--precision fst fast" "--kv f61 f16" "--template chatmll chatml"; do
  read -r flag word meant <<<"$pair"
  run_quick hi "$flag" "$word"
  check "$flag $word is refused" [ "$code" -ne 0 ]
  check "and $meant is named" grep -q "$meant" "$scratch/err"
done

# ---- files ----
: >"$scratch/empty.gguf"
head -c 3000000 "$model" >"$scratch/cut.gguf"
run_program run "$scratch" hi
expect "a folder" 2 "" "is a folder"
run_program run "$scratch/empty.gguf" hi
expect "an empty file" 4 "" "empty\.gguf: the file ends"
check "named once" [ "$(grep -o 'empty\.gguf' "$scratch/err" | wc -l)" -eq 1 ]
run_program run "$scratch/cut.gguf" hi
expect "a cut file" 4 "" "cut\.gguf: "
run_program run "$scratch/none.gguf" hi
expect "no file" 3 "" "none\.gguf"
if [ "$(id -u)" -eq 0 ]; then
  as_nobody=(setpriv --reuid 65534 --clear-groups env HOME=/)
else
  as_nobody=()
fi
chmod 755 "$scratch"
cp "$scratch/cut.gguf" "$scratch/closed.gguf"
chmod 000 "$scratch/closed.gguf"
cp "$program" "$scratch/isthmus"
code=0
"${as_nobody[@]}" "$scratch/isthmus" run "$scratch/closed.gguf" hi >"$scratch/out" 2>"$scratch/err" || code=$?
expect "a file that may not be read" 1 "" "Permission denied"
odd=$scratch/$(printf 'm\377\351 \n.gguf')
ln -s "$model" "$odd"
run_program run "$odd" "What is the capital of France?" --greedy -n 20
expect "a name that is no text" 0 "Paris"
run_program show "$odd" --json
expect "in a document" 0
check "which is one still" is_json

# ---- where the output goes ----
for command in "run $model hi -n 400 --ignore-eos -c 512" "show $model --metadata --json" "list --catalogue" "tokenize $model hi" "--help" \
  "completion bash" "show $model --json"; do
  code=0
  # shellcheck disable=SC2086
  timeout 60 "$program" $command >/dev/full 2>"$scratch/err" </dev/null || code=$?
  : >"$scratch/out"
  expect "full disk: $command" 1 "" "cannot write to standard output: No space left"
  code=0
  # shellcheck disable=SC2086
  timeout 60 "$program" $command >&- 2>"$scratch/err" </dev/null || code=$?
  expect "closed output: $command" 1 "" "cannot write to standard output"
done
code=0
"$program" run "$model" hi -n 2 2>&- >"$scratch/out" || code=$?
expect "closed standard error" 0 "."
code=0
"$program" run "$model" hi -n 2 2>/dev/full >"$scratch/out" || code=$?
expect "full standard error" 0 "."
code=0
"$program" run "$model" -n 2 <&- >"$scratch/out" 2>"$scratch/err" || code=$?
expect "closed standard input" 1 "" "cannot read standard input"
"$program" run "$model" "Write a very long story." -q 2>"$scratch/err" | head -c 5 >"$scratch/out"
status=("${PIPESTATUS[@]}")
check "a reader that leaves ends it" [ "${status[0]}" -eq 141 ]
check "quietly" empty "$scratch/err"

# ---- stopped ----
patience=100  # tenths of a second
head_start=1.5
[ -z "${ISTHMUS_SANITIZED:-}" ] || { patience=900; head_start=15; }
head -c 60000 "$repo/docs/commands/"*.md /dev/null >"$scratch/text" 2>/dev/null
# stop NAME SIGNAL ARG…: starts the command, lets it get to work, stops it; it has to end with 130 within seconds.
stop() {
  local name=$1 signal=$2 waited=0
  shift 2
  "$program" "$@" >"$scratch/out" 2>"$scratch/err" </dev/null &
  local pid=$!
  sleep $head_start
  kill "-$signal" $pid
  while kill -0 $pid 2>/dev/null && [ $waited -lt $patience ]; do
    sleep 0.1
    waited=$((waited + 1))
  done
  check "$name ends soon after SIG$signal" [ $waited -lt $patience ]
  kill -KILL $pid 2>/dev/null
  code=0
  wait $pid || code=$?
  expect "$name and SIG$signal" 130
}
stop run INT run "$model" "Write a very long story." --ignore-eos
check "what was said is there" test -s "$scratch/out"
stop "run --json" TERM run "$model" "Write a very long story." --ignore-eos --json
stop "eval ppl" INT eval ppl "$models/qwen05.gguf" "$scratch/text" --mode token
stop bench INT bench "$models/qwen05.gguf" -p 4096 -n 0 -r 9
stop quantize TERM quantize "$models/qwen05.gguf" "$scratch/q.gguf" Q2_K --allow-requantize -t 1
check "nothing half-written" [ -z "$(find "$scratch" -name 'q.gguf*')" ]
finish
