#!/bin/sh
# run.sh BUILD_DIR: the chat-template comparison of oracle.py, in a Python environment of its own.
# ISTHMUS_TEST_CACHE (default: the XDG cache) keeps the environment and the fetched templates between runs.
set -eu
build=${1:?usage: run.sh BUILD_DIR}
here=$(cd "$(dirname "$0")" && pwd)
tool=$(find "$build" -name template_render -type f -perm -u+x | head -n 1)
[ -n "$tool" ] || { echo "run.sh: no template_render under $build; build that target first" >&2; exit 2; }
tool=$(cd "$(dirname "$tool")" && pwd)/template_render
cache=${ISTHMUS_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/isthmus/tests}/templates
mkdir -p "$cache"
if [ ! -x "$cache/venv/bin/python" ] || ! "$cache/venv/bin/python" -c 'import jinja2' 2>/dev/null; then
  rm -rf "$cache/venv"
  python3 -m venv "$cache/venv"
  "$cache/venv/bin/pip" install -q 'jinja2==3.1.6'
fi
cd "$here"
exec "$cache/venv/bin/python" oracle.py "$tool" "$cache"
