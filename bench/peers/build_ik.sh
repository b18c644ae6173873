#!/bin/bash
# build_ik.sh [FOLDER]: fetches ik_llama.cpp's libraries as the Python package ik-llama-cpp-python ships them (an AVX2 build,
# nothing is compiled but our driver) and puts them with llama_peer into FOLDER (default: peers/ik_llama.cpp in the cache
# folder). Compare it with ISTHMUS_ISA=avx2: the package has no kernels for newer instructions.
set -euo pipefail

package=ik-llama-cpp-python
version=0.1.5
sha256=52408f31dd05d16ada53b041155f14ec1fee9acd6ab0b4b4f77de04bd565bd67
here=$(cd "$(dirname "$0")" && pwd)
cache=${ISTHMUS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/isthmus}
folder=${1:-$cache/peers/ik_llama.cpp-$version}
work=$folder/work

say() { echo "build_ik: $*" >&2; }

mkdir -p "$work" "$folder/bin"
if [ ! -f "$folder/complete" ]; then
  say "fetching $package $version"
  python3 -m venv "$work/venv"
  "$work/venv/bin/pip" download --quiet --no-deps --only-binary :all: --python-version 3.11 --platform manylinux_2_28_x86_64 \
    -d "$work" "$package==$version"
  echo "$sha256  $(echo "$work"/*.whl)" | sha256sum --check --quiet
  python3 -m zipfile -e "$work"/*.whl "$work/wheel"
  cp -a "$work/wheel/include" "$folder/"
  mkdir -p "$folder/lib"
  cp -a "$work/wheel/ik_llama_cpp_python.libs/"* "$folder/lib/"
fi
clang++ -std=c++20 -O2 -Wall -Wextra -DPEER_IK -I "$folder/include" "$here/llama_peer.cc" "$folder/lib"/libllama-*.so \
  "$folder/lib"/libggml-*.so -Wl,--disable-new-dtags,-rpath,"\$ORIGIN/../lib" -Wl,-rpath-link,"$folder/lib" -o "$folder/bin/llama_peer"
echo "ik_llama.cpp of $package $version, its AVX2 build" > "$folder/complete"
echo "$folder"
