#!/bin/bash
# The frame of the command line from outside: help, suggestions, exit codes, JSON errors, completion scripts in their own
# shells, manual pages, documentation pages that name every option.
set -uo pipefail
here=$(dirname "$(realpath "$0")")
repo=$(realpath "$here/../../..")
# shellcheck source=tests/e2e/lib.sh
source "$here/../lib.sh"
models=${ISTHMUS_TEST_MODELS:?names the folder of smollm2.gguf, gemma3.gguf and qwen05.gguf}
export ISTHMUS_MODELS=$scratch/models
mkdir "$ISTHMUS_MODELS"

is_json() { python3 -c 'import json, sys; json.load(open(sys.argv[1]))' "$scratch/out"; }

run_program
expect "no arguments" 0 "^Usage: isthmus"
run_program --version
expect "version" 0 "^isthmus [0-9]+\.[0-9]+\.[0-9]+$"
run_program tokenzie
expect "mistyped verb" 2 "" "did you mean 'tokenize'\?"
run_program pull --acept-licence smollm2:135m
expect "mistyped flag" 2 "" "did you mean '--accept-licence'"
run_program tokenize smollm:135m x
expect "mistyped model" 3 "" "did you mean 'smollm2:135m'"
run_program tokenize smollm2:135m x
expect "model that is not here" 3 "" "isthmus pull smollm2:135m"
run_program tokenize "$scratch/none.gguf" x --json
expect "missing file" 3 '"code": "not_found"' "none\.gguf"
check "JSON error is a document" is_json
printf 'not a model' >"$scratch/bad.gguf"
run_program tokenize "$scratch/bad.gguf" x
expect "corrupt file" 4 "" "bad\.gguf"

run_program tokenize "$models/smollm2.gguf" "Hello, world" --ids
expect "ids" 0 "^19556 28 905$"
run_program tokenize "$models/smollm2.gguf" --decode "19556 28 905"
expect "ids back to text" 0 "^Hello, world$"
run_program tokenize "$models/smollm2.gguf" --decode "19556 99999999"
expect "id outside the vocabulary" 2 "" "99999999 is outside"
run_program tokenize "$models/smollm2.gguf" --decode "12x"
expect "id that is no number" 2 "" "'12x' is not a token id"
run_program tokenize "$models/smollm2.gguf" "<|im_end|>" --count
expect "special tokens are text by default" 0 "^[0-9]{1,2}$"
run_program tokenize "$models/smollm2.gguf" "<|im_end|>" --special --json
expect "special tokens on demand" 0 '"count": 1'
check "tokens as a document" is_json
printf 'from a file' >"$scratch/text"
run_program tokenize "$models/smollm2.gguf" --file "$scratch/text" --count
expect "text of a file" 0 "^3$"
run_program tokenize "$models/smollm2.gguf" x --file "$scratch/text"
expect "text twice" 2 "" "not both"

run_program show "$models/gemma3.gguf" --ctx 1024
expect "facts of a model" 0 "^architecture +gemma3, 268 M weights$"
expect "memory for a context" 0 "^memory .* for a context of 1024 tokens"
run_program show "$models/smollm2.gguf" --json --metadata --tensors --template
expect "facts as a document" 0 '"architecture": "llama"'
check "facts are a document" is_json
check "facts agree with the file" python3 - "$scratch/out" "$models/smollm2.gguf" <<'PYTHON'
import json, os, sys
facts = json.load(open(sys.argv[1]))
assert facts["bytes"] == os.path.getsize(sys.argv[2])
assert sum(t["bytes"] for t in facts["tensors"]) == sum(t["bytes"] for t in facts["types"]) < facts["bytes"]
assert facts["metadata"]["llama.block_count"] == facts["layers"] == 30
assert len(facts["metadata"]["tokenizer.ggml.tokens"]) == facts["vocabulary"] == 49152
assert "<|im_start|>" in facts["chat_template_text"]
assert facts["memory"]["total"] == sum(facts["memory"][k] for k in ("weights", "kv", "work", "text", "process"))
PYTHON
run_program show "$models/smollm2.gguf" --tensors --metadata
expect "long values are shortened and say so" 0 "… 49152 in all\]$"
expect "shapes" 0 "^token_embd.weight +Q8_0 +576 x 49152"

run_program quantize "$models/smollm2.gguf" "$scratch/q.gguf" Q8_0
expect "quantised sources are refused" 1 "" "quantised already"
run_program quantize "$models/smollm2.gguf" "$scratch/q.gguf" q4km --allow-requantize
expect "mistyped target" 2 "" "did you mean 'Q4_K_M'"
run_program quantize "$models/smollm2.gguf" "$scratch/q.gguf" Q4_K_M --allow-requantize --dry-run
expect "a fallback is shown" 0 "^Q4_1 +Q5_0 \(not Q4_K\) +fallback"
check "a dry run writes nothing" test ! -e "$scratch/q.gguf"
run_program quantize "$models/smollm2.gguf" "$scratch/q.gguf" Q8_0 --allow-requantize --json
expect "quantises" 0 '"bits_per_weight": 8\.5'
check "the report is a document" is_json
run_program tokenize "$scratch/q.gguf" "Hello, world" --ids
expect "the new file is a model" 0 "^19556 28 905$"
run_program quantize "$models/smollm2.gguf" "$scratch/q.gguf" Q8_0 --allow-requantize
expect "an existing file is not replaced" 1 "" "q\.gguf"

code=0
"$program" version >/dev/full 2>"$scratch/err" || code=$?
: >"$scratch/out"
expect "full output device" 1 "" "cannot write to standard output"

# Completion, each script in its own shell. The scripts ask the program that is in PATH for the models.
PATH=$(dirname "$program"):$PATH
"$program" pull "$models/smollm2.gguf" --name own:name --quiet >/dev/null 2>&1
for shell in bash zsh fish; do "$program" completion $shell >"$scratch/$shell"; done
cat >"$scratch/ask.bash" <<'SCRIPT'
source "$1"
shift
COMP_LINE=$* COMP_POINT=${#COMP_LINE}
read -ra COMP_WORDS <<<"${COMP_LINE//:/ : }"
[ "${COMP_LINE% }" = "$COMP_LINE" ] || COMP_WORDS+=("")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_isthmus
printf '%s\n' "${COMPREPLY[@]}"
SCRIPT
check "bash completion parses" bash -n "$scratch/bash"
check "zsh completion parses" zsh -n "$scratch/zsh"
# completes WORD LINE: bash offers WORD for LINE.
completes() { bash "$scratch/ask.bash" "$scratch/bash" "$2" | grep -qxF -- "$1"; }
check "bash completes a verb" completes tokenize "isthmus tok"
check "bash completes a flag" completes --special "isthmus tokenize --sp"
check "bash completes a model that is here" completes own:name "isthmus run ow"
check "bash completes a model of the catalogue, behind its colon" completes 135m "isthmus chat smollm2:"
check "bash completes the value of a flag" completes bf16 "isthmus run x --kv b"
check "bash completes a task" completes humaneval "isthmus eval hum"
check "bash completes a command of help" completes quantize "isthmus help qu"
# shellcheck disable=SC2016
fish_completes() { fish -N -c 'source $argv[1]; complete -C $argv[2]' "$scratch/fish" "$2" | cut -f 1 | grep -qxF -- "$1"; }
check "fish completes a flag" fish_completes --special "isthmus tokenize --sp"
check "fish completes a model" fish_completes smollm2:135m "isthmus pull smo"
check "fish completes the value of a flag" fish_completes bf16 "isthmus run --kv b"
run_program rm own:name
run_program completion csh
expect "unknown shell" 2 "" "bash, zsh or fish"

"$program" man --dir "$scratch/man"
for page in "$scratch"/man/*.1; do
  LC_ALL=C.UTF-8 MANROFFSEQ='' MANWIDTH=80 man --warnings -E UTF-8 -l -Tutf8 -Z "$page" >/dev/null 2>"$scratch/warnings"
  check "manual page $(basename "$page") has no warnings" test ! -s "$scratch/warnings"
done

run_program bench "$models/smollm2.gguf" -b 0
expect "a batch of nobody" 2 "" "--batch"
run_program bench "$models/smollm2.gguf" -b 99999999999
expect "a batch of everybody" 2 "" "--batch"
run_program bench "$models/smollm2.gguf" --verify 0
expect "verifying nothing" 2 "" "--verify"
run_program bench "$models/smollm2.gguf" -p 0 -n 0
expect "nothing to measure" 2 "" "nothing to measure"
run_program bench "$models/smollm2.gguf" --text "$scratch/none.txt"
expect "a text that is not there" 3 "" "none.txt"
run_program bench "$models/smollm2.gguf" --text ""
expect "a text without a name" 2 "" "path is empty"
: >"$scratch/empty.txt"
run_program bench "$models/smollm2.gguf" --text "$scratch/empty.txt"
expect "an empty text" 2 "" "empty.txt is empty"
run_program bench "$models/smollm2.gguf" --text "$repo/CONTRIBUTING.md" -p 32 -n 8 -r 1 -t 1 --head two-stage --json
expect "bench over a text" 0 '"head_two_stage_steps":'
run_program run "$models/smollm2.gguf" Hello --raw --greedy -n 1 --stop ''
expect "an empty stop string" 2 "" "stop string is empty"
run_program run "$models/smollm2.gguf" Hello --raw --greedy -n 1 --logit-bias 5=inf
expect "an infinite bias" 2 "" "infinite"
run_program list --models-dir "$scratch/mistyped"
expect "a mistyped folder of models" 3 "" "no folder .*mistyped"
run_program run "$models/smollm2.gguf" Hello --raw --greedy -n 1 --models-dir "$scratch/mistyped"
expect "a model file needs no folder of models" 0
check "is not made" test ! -e "$scratch/mistyped"
ISTHMUS_CACHE=$scratch/pipes
export ISTHMUS_CACHE
mkdir "$ISTHMUS_CACHE" && mkfifo "$ISTHMUS_CACHE/streams"
run_program run "$models/smollm2.gguf" Hello --raw --greedy -n 1
expect "a pipe in the place of the stream records" 0
unset ISTHMUS_CACHE
homeless() { env -i PATH="$PATH" HOME=/nonexistent setpriv --reuid=65534 --clear-groups "$program" run "$1" Hello --raw --greedy -n 1; }
if [ "$(id -u)" -eq 0 ] && setpriv --reuid=65534 --clear-groups test -r "$models/smollm2.gguf" -a -x "$program"; then
  check "a model file needs no home" homeless "$models/smollm2.gguf"
fi

check "pages and help agree" python3 "$here/pages.py" "$program" "$repo/docs/commands"

finish
