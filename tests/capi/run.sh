#!/bin/bash
# The installed library: what `cmake --install` puts under a prefix, what libisthmus.so shows, and both examples built
# against it by the CMake package and by pkg-config, then run on a tiny model.
# not under asan: programs outside the build cannot link to instrumented libraries
set -uo pipefail
here=$(dirname "$(realpath "$0")")
repo=$(realpath "$here/../..")
build=$(realpath "${1:?usage: run.sh BUILD_FOLDER}")
# shellcheck source=tests/e2e/lib.sh
source "$repo/tests/e2e/lib.sh"
prefix=$scratch/prefix
model=$build/tiny/llama.gguf

check "install" cmake --install "$build" --prefix "$prefix"
lib=$(dirname "$(find "$prefix" -name libisthmus.so | head -n 1)")
for file in include/isthmus/isthmus.h include/isthmus/isthmus.hpp; do
  check "installed $file" test -f "$prefix/$file"
done
check "installed archive" test -f "$lib/libisthmus.a"

# Exported: every function of the header, and nothing else.
nm -D --defined-only "$lib/libisthmus.so" | awk '$2 != "A" {print $3}' | sed 's/@.*//' | sort >"$scratch/shown"
grep -A3 -E '^ISTHMUS_API' "$prefix/include/isthmus/isthmus.h" | grep -oE '\bisthmus_[a-z_]+\(' | tr -d '(' | sort -u >"$scratch/declared"
check "functions were found" test "$(wc -l <"$scratch/declared")" -ge 40
check "the library shows what the header declares" diff "$scratch/declared" "$scratch/shown"

compile=(-Wall -Wextra -Werror -pedantic)
check "CMake package: configure" cmake -S "$repo/examples" -B "$scratch/examples" -DCMAKE_PREFIX_PATH="$prefix" \
  -DCMAKE_C_FLAGS="${compile[*]} -std=c11" -DCMAKE_CXX_FLAGS="${compile[*]}"
check "CMake package: build" cmake --build "$scratch/examples"

export PKG_CONFIG_PATH=$lib/pkgconfig
flags() { pkg-config "$@" isthmus; }
check "pkg-config: version" test "$(flags --modversion)" = "$("$program" --version | awk '{print $2}')"
mkdir "$scratch/pc"
# shellcheck disable=SC2046  # flags are words
check "pkg-config: C" gcc -std=c11 "${compile[@]}" $(flags --cflags) "$repo/examples/chat.c" -o "$scratch/pc/chat" \
  $(flags --libs) -Wl,-rpath,"$lib"
# shellcheck disable=SC2046
check "pkg-config: C++" g++ -std=c++17 "${compile[@]}" $(flags --cflags) "$repo/examples/complete.cpp" \
  -o "$scratch/pc/complete" $(flags --libs) -Wl,-rpath,"$lib"

chat_with() { printf 'Hello\nAnd again\n' | "$1" "$model" chatml; }
for made in "$scratch/examples" "$scratch/pc"; do
  check "$(basename "$made")/chat answers twice" chat_with "$made/chat"
  check "$(basename "$made")/chat reuses the prompt" grep -qE '\[[a-z_]+; [1-9][0-9]* of [0-9]+ prompt tokens reused' \
    <(chat_with "$made/chat" 2>&1)
  check "$(basename "$made")/complete" "$made/complete" "$model" "Once upon a time"
done
check "static and shared agree" diff <("$scratch/examples/complete" "$model" "abc" 2>/dev/null) \
  <("$scratch/examples/complete_static" "$model" "abc" 2>/dev/null)
missing() { "$scratch/pc/complete" "$scratch/none.gguf" x 2>&1; }
check "a missing model is a typed error" grep -q '^not_found: ' <(missing)

finish
