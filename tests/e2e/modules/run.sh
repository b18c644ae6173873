#!/bin/bash
# Prompts made of modules, on a real model and through the real commands: answers, figures, what is kept on disk, and what is
# refused.
# not under asan: its texts are long; modules run there on tiny models (engine_test, model_test)
set -uo pipefail
here=$(dirname "$(realpath "$0")")
# shellcheck source=tests/e2e/lib.sh
source "$here/../lib.sh"
models=${ISTHMUS_TEST_MODELS:?names the folder of smollm2.gguf, gemma3.gguf and qwen05.gguf}
repo=$(realpath "$here/../../..")
model=$models/smollm2.gguf

mkdir -p "$scratch/texts"
head -c 1500 "$repo/docs/batching.md" >"$scratch/texts/batching.txt"
head -c 1500 "$repo/docs/speculation.md" >"$scratch/texts/speculation.txt"
cat >"$scratch/schema.xml" <<'XML'
<schema name="docs" role="system">You answer questions about a program.
<module name="batching" src="texts/batching.txt"/>
<union><module name="speculation" src="texts/speculation.txt"/><module name="short">Nothing more is known.</module></union>
<module name="style"> Answer in <parameter name="words" length="8"/> words.</module>
</schema>
XML
both='<prompt schema="docs"><batching/><speculation/>What is this about?</prompt>'
ask() { run_program run "$model" "$1" --schema "$scratch/schema.xml" --greedy -n 24 --json "${@:2}"; }

# ---- answers ----
ask "$both" --modules whole
expect "a prompt of modules" 0
cp "$scratch/out" "$scratch/whole"
check "is nearly all modules" is 'd["schema"]["module_tokens"] > 0.9 * d["figures"]["prompt_tokens"] and d["schema"]["read_tokens"] == d["schema"]["module_tokens"]'
check "of which only the first may be exact" is 'd["figures"]["kv"]["exactness"] == "composed"'
ask "$both" --module-repair all
check "repair of all is the text read as a whole" is "d['text'] == $(python3 -c 'import json, sys; print(repr(json.load(open(sys.argv[1]))["text"]))' "$scratch/whole")"
check "and computes all of it" is 'd["schema"]["recomputed"] > 0.8'
ask "$both" --module-repair deviating:0.1
expect "repair of what deviates" 0
check "computes a fifth at most" is '0.1 < d["schema"]["recomputed"] < 0.2 and d["schema"]["repaired_tokens"] > 0'
ask '<prompt><style words="twenty"/>What is this?</prompt>'
expect "an argument" 0
ask "just a question"
expect "a prompt without modules" 0

# ---- on disk ----
ask "$both" --prefix-cache
check "modules are kept" is 'd["schema"]["saved_tokens"] == d["schema"]["module_tokens"]'
text=$(value 'repr(d["text"])')
ask "$both" --prefix-cache
check "and come back" is 'd["schema"]["stored_tokens"] == d["schema"]["module_tokens"] and d["schema"]["read_tokens"] == 0'
check "with the same answer" is "d['text'] == $text"
ask '<prompt><batching/><short/>What is this about?</prompt>' --prefix-cache
check "another member of the union is read alone" is '0 < d["schema"]["read_tokens"] < 10 and d["schema"]["stored_tokens"] > 100'
ask "$both" --prefix-cache --modules isolated
check "modules that see something else are others" is 'd["schema"]["stored_tokens"] == 0'
for record in "$ISTHMUS_CACHE"/kv/records/*; do
  printf '\xff' | dd of="$record" bs=1 seek=5000 conv=notrunc status=none
done
ask "$both" --prefix-cache
check "damaged ones are read anew" is "d['text'] == $text and d['schema']['stored_tokens'] == 0"

# ---- with other techniques ----
ask "$both" --kv-policy snapkv --kv-budget 0.5
expect "keys given up" 0
ask "$both" --kv-bits 8
expect "codes" 0
ask "$both" --lookup
expect "drafts" 0
run_program eval modules "$model" - --schema "$scratch/schema.xml" --modules whole --module-repair none,all --json
expect "no prompts" 2 "" "no prompts"
printf '%s\n\n%s\n' "$both" '<prompt><batching/>Sum it up.</prompt>' >"$scratch/prompts"
run_program eval modules "$model" "$scratch/prompts" --schema "$scratch/schema.xml" --modules whole,isolated --module-places packed --module-repair none,all --json
expect "measured" 0
check "what is repaired whole is the whole" is 'all(r["mean_kl"] == 0 for r in d["rows"] if r["repair"] == "all")'
check "and modules come sooner" is 'd["rows"][0]["sooner"] > 2'

# ---- what cannot be ----
ask '<prompt><batchin/>x</prompt>'
expect "an unknown module" 2 "" "did you mean 'batching'"
ask '<prompt><speculation/><short/>x</prompt>'
expect "two of a union" 2 "" "union"
ask '<prompt><style words="one two three four five six seven eight nine"/>x</prompt>'
expect "too long an argument" 5 "" "room for 8 tokens"
ask '<prompt><batching/></prompt>'
expect "no question" 2 "" "no text behind"
ask '<prompt><batching>'
expect "no XML" 4 "" "line 1"
ask "$both" --kv-policy streaming --kv-budget 256
expect "keys without positions" 6 "" "absolute positions"
ask "$both" --raw
expect "a schema says itself whether it is raw" 2 "" "--schema"
ask "$both" --modules all
expect "an unknown view" 2 "" "isolated, anchored or whole"
ask "$both" --module-repair some
expect "an unknown repair" 2 "" "deviating"
run_program run "$model" hi --modules whole
expect "views without a schema" 2 "" "needs --schema"
ln -s /etc/passwd "$scratch/texts/link.txt"
sed 's/texts.batching.txt/texts\/link.txt/' "$scratch/schema.xml" >"$scratch/link.xml"
run_program run "$model" hi --schema "$scratch/link.xml"
expect "a link out of the folder" 1 "" "link.txt"
echo '<schema name="a"><module name="m" src="../x"/></schema>' >"$scratch/bad.xml"
run_program run "$model" hi --schema "$scratch/bad.xml"
expect "a path out of the folder" 2 "" "inside the schema's folder"
run_program run "$model" hi --schema "$scratch/none.xml"
expect "no such file" 3
finish
