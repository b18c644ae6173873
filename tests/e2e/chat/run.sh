#!/bin/bash
# `isthmus chat`, `isthmus run` and `make run` as a person at a terminal meets them: a real small model behind a
# pseudo-terminal.
set -uo pipefail
here=$(dirname "$(realpath "$0")")
models=${ISTHMUS_TEST_MODELS:?names the folder of smollm2.gguf, gemma3.gguf and qwen05.gguf}
exec python3 "$here/chat.py" "$(realpath "${1:?usage: run.sh BUILD_FOLDER}")/isthmus" "$models/smollm2.gguf"
