#!/bin/bash
# compare.sh BUILD_DIR [MODEL.gguf...]: oracle.py over 20,000 strings a model, in a Python environment of its own.
# Without models: the three test models, where tools/test_models keeps them. ISTHMUS_LLAMA names a folder with llama.cpp's
# include/ and lib/; without it, bench/peers/build_llama.sh makes one (some 10 minutes, once). ISTHMUS_TEST_CACHE (default:
# the XDG cache) keeps the environment between runs.
set -euo pipefail
build=${1:?usage: compare.sh BUILD_DIR [MODEL.gguf...]}
shift
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
tool=$build/tests/tokenizer_tool
[ -x "$tool" ] || { echo "compare.sh: no $tool; build that target first" >&2; exit 2; }
if [ $# -eq 0 ]; then
  models=${ISTHMUS_TEST_MODELS:-$("$root/tools/test_models" --where)}
  set -- "$models/smollm2.gguf" "$models/qwen05.gguf" "$models/gemma3.gguf"
fi
cache=${ISTHMUS_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/isthmus/tests}/tokenizer
venv=$cache/venv
packages=(tokenizers==0.23.3 gguf==0.19.0 numpy==2.4.6 unicodedata2==15.1.0)
mkdir -p "$cache"
if [ ! -f "$venv/packages" ] || [ "$(cat "$venv/packages")" != "${packages[*]}" ]; then
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install -q "${packages[@]}"
  echo "${packages[*]}" > "$venv/packages"
fi
llama=${ISTHMUS_LLAMA:-$("$root/bench/peers/build_llama.sh")}
exec "$venv/bin/python" "$here/oracle.py" --tool "$tool" --llama "$llama" "$@"
