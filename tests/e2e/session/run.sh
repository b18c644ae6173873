#!/bin/bash
# Kept sessions on a real model and through the real commands: a conversation goes on over processes, with the answers of one
# process; nothing is lost to kills, damage and lost records; what cannot be is refused.
# not under asan: its texts are long; sessions run there on tiny models (engine_test, store_test)
set -uo pipefail
here=$(dirname "$(realpath "$0")")
# shellcheck source=tests/e2e/lib.sh
source "$here/../lib.sh"
models=${ISTHMUS_TEST_MODELS:?names the folder of smollm2.gguf, gemma3.gguf and qwen05.gguf}
repo=$(realpath "$here/../../..")
model=$models/smollm2.gguf
export ISTHMUS_STATE=$scratch/state

ask() { run_program run "$model" "$2" --session "$1" --greedy -n 24 --json "${@:3}"; }
first="$(head -c 3000 "$repo/docs/batching.md")"

# ---- goes on ----
ask a "$first"
expect "a first message" 0
check "has nothing to bring back" is 'd["session"]["tokens"] == 0 and d["session"]["written_bytes"] > 0'
tokens=$(value 'd["figures"]["prompt_tokens"]')
ask a "Which words come up most?"
expect "a second message" 0
check "finds the first one's KV on disk" is "d['session']['stored_tokens'] >= $tokens and d['session']['computed_tokens'] == 0"
check "and reads only what is new" is 'd["figures"]["prompt_tokens"] - d["figures"]["reused_tokens"] < 40'
# The same two messages in one chat give the same answers.
printf '%s\nWhich words come up most?\n' "$(tr '\n' ' ' <<<"$first")" >"$scratch/messages"
for name in b c; do ask "$name" "$(head -n 1 "$scratch/messages")"; done
ask b "$(tail -n 1 "$scratch/messages")"
second=$(value 'd["text"]')
"$program" chat "$model" --greedy -n 24 <"$scratch/messages" >"$scratch/chat" 2>/dev/null
check "a chat in one process answers alike" grep -qF -- "$(head -n 1 <<<"$second")" "$scratch/chat"
"$program" chat "$model" --greedy -n 24 --session c <<<"$(tail -n 1 "$scratch/messages")" >"$scratch/chat" 2>"$scratch/err"
check "a chat goes on where run ended" grep -qF -- "$(head -n 1 <<<"$second")" "$scratch/chat"
check "and says how much there was" grep -q "2 messages from before" "$scratch/err"

# ---- what may be lost is computed ----
cp -r "$ISTHMUS_STATE" "$scratch/kept"
rm -rf "$ISTHMUS_CACHE/kv"
ask a "Why?"
check "without records all is computed" is 'd["session"]["stored_tokens"] == 0 and d["session"]["computed_tokens"] > 600'
why=$(value 'repr(d["text"])')
cp -r "$scratch/kept/." "$ISTHMUS_STATE"
ask a "Why?"
check "the same answer from disk" is "d['text'] == $why and d['session']['computed_tokens'] < 64"
cp -r "$scratch/kept/." "$ISTHMUS_STATE"
for record in "$ISTHMUS_CACHE"/kv/records/*; do
  printf '\xff' | dd of="$record" bs=1 seek=5000 conv=notrunc status=none
done
ask a "Why?"
check "and from damaged records" is "d['text'] == $why"

# ---- kills ----
ask k "Count to ten."
before=$("$program" session show k --json | python3 -c 'import json, sys; print(len(json.load(sys.stdin)["messages"]))')
for delay in 0.05 0.1 0.15 0.2 0.3 0.4 0.5 0.7 0.9 1.2; do
  timeout -s KILL "$delay" "$program" run "$model" "And on." --session k --greedy -n 8 >/dev/null 2>&1
  "$program" session show k --json >"$scratch/out" || break
  check "after a kill the session is whole ($delay s)" is "len(d['messages']) >= $before and len(d['messages']) % 2 == 0"
done
ask k "And on."
expect "and goes on" 0

# ---- bits ----
for bits in 8 mixed; do
  ask "bits-$bits" "$first" --session-bits "$bits"
  check "blocks are coded to $bits bits" is 'd["session"]["coded_blocks"] > 15'
  ask "bits-$bits" "Which words come up most?" --session-bits "$bits"
  expect "and go on" 0
  check "from disk" is 'd["session"]["stored_tokens"] > 600 and d["session"]["computed_tokens"] == 0'
done
check "8 bits are tagged" is 'd["figures"]["kv"]["exactness"] == "quantised"'

# ---- commands ----
run_program session list --json
check "all are listed" is '[s["name"] for s in d["sessions"]] == ["a", "b", "bits-8", "bits-mixed", "c", "k"]'
run_program session show a
expect "shown" 0 "^user:"
run_program session export a "$scratch/a.json"
expect "exported" 0
run_program session export a "$scratch/a.json"
expect "not over a file" 1
run_program session import "$scratch/a.json"
expect "not over a session" 1 "" "already"
run_program session import "$scratch/a.json" a2
expect "imported under another name" 0
ask a2 "Why?"
check "its KV is computed anew" is 'd["session"]["stored_tokens"] == 0 and d["session"]["computed_tokens"] > 600'
head -c 1000 "$scratch/a.json" >"$scratch/cut.json"
run_program session import "$scratch/cut.json" a3
expect "a cut file" 4
records=$(find "$ISTHMUS_CACHE/kv/records" -type f | wc -l)
run_program session drop a2 bits-8
expect "dropped" 0
check "with its records" test "$(find "$ISTHMUS_CACHE/kv/records" -type f | wc -l)" -lt "$records"
run_program session show a2
expect "is gone" 3
echo '{"isthmus_session": 1' >"$ISTHMUS_STATE/sessions/bad.session"
run_program session list
expect "a damaged file is named" 0 "" "bad"
ask bad "Hi"
expect "and refused" 4
check "and left alone" test -f "$ISTHMUS_STATE/sessions/bad.session"

# ---- what cannot be ----
run_program run "$models/qwen05.gguf" "Hi" --session a
expect "another model" 1 "" "another model"
ask ../a "Hi"
expect "a bad name" 2 "" "no name"
ask a "Hi" --system "Be brief."
expect "a late system message" 2 "" "first message"
ask a "Hi" --kv-policy snapkv
expect "with a policy" 6 "" "gives up keys"
ask a "Hi" --prefix-cache
expect "with the prefix cache" 2
ask a "Hi" --session-bits 3
expect "bad bits" 2 "" "mixed"
run_program run "$model" "Hi" --session-bits 8
expect "bits without a session" 2 "" "needs --session"
run_program session frob
expect "no such verb" 2 "" "known are"
finish
