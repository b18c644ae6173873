#!/bin/bash
# build_llama.sh [FOLDER]: fetches llama.cpp's source as the Python package llama-cpp-python carries it, builds it the way
# it is fastest on this machine (clang, native instructions, OpenMP) and puts it into FOLDER (default: peers/llama.cpp in
# the cache folder): bin/, lib/ and include/, with our two drivers llama_peer (speed) and llama_oracle (logits) in bin/.
# Needs clang, cmake, ninja, python3 and some 10 minutes of two cores; does nothing when FOLDER is complete.
set -euo pipefail

package=llama-cpp-python
version=0.3.36
sha256=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e
here=$(cd "$(dirname "$0")" && pwd)
cache=${ISTHMUS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/isthmus}
folder=${1:-$cache/peers/llama.cpp-$version}
work=$folder/work
jobs=$(nproc)

say() { echo "build_llama: $*" >&2; }

need() {
  command -v "$1" > /dev/null || { say "$1 is missing; install the Debian package $2"; exit 1; }
}

fetch() {
  [ -f "$work/source.tar.gz" ] && return
  say "fetching $package $version"
  python3 -m venv "$work/venv"
  # The package's own build back end, which pip asks for the metadata of a source package.
  "$work/venv/bin/pip" install --quiet scikit-build-core
  "$work/venv/bin/pip" download --quiet --no-deps --no-binary :all: --no-build-isolation -d "$work/download" \
    "$package==$version"
  mv "$work/download/"*.tar.gz "$work/source.tar.gz"
}

unpack() {
  [ -d "$work/llama.cpp" ] && return
  echo "$sha256  $work/source.tar.gz" | sha256sum --check --quiet
  mkdir -p "$work/unpacked"
  tar xzf "$work/source.tar.gz" -C "$work/unpacked"
  mv "$work/unpacked"/*/vendor/llama.cpp "$work/llama.cpp"
  rm -rf "$work/unpacked" "$work/llama.cpp/.git"  # the latter points to a repository that is not there
}

build_library() {
  say "building llama.cpp with $(clang --version | head -n 1), $jobs jobs"
  cmake -S "$work/llama.cpp" -B "$work/build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++ -DGGML_NATIVE=ON -DGGML_OPENMP=ON -DBUILD_SHARED_LIBS=ON \
    -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=OFF -DLLAMA_BUILD_TOOLS=ON \
    -DLLAMA_OPENSSL=OFF -DCMAKE_BUILD_WITH_INSTALL_RPATH=ON "-DCMAKE_INSTALL_RPATH=\$ORIGIN;\$ORIGIN/../lib" \
    > "$work/configure.log"
  grep -q -e "-fopenmp" "$work/build/build.ninja" ||
    say "no OpenMP for clang (Debian package libomp-dev): llama.cpp falls back to its own thread pool"
  cmake --build "$work/build" -j "$jobs" --target llama llama-quantize llama-bench > "$work/build.log"
}

collect() {
  mkdir -p "$folder/bin" "$folder/lib" "$folder/include"
  cp -a "$work/build/bin/"*.so* "$folder/lib/"
  cp "$work/llama.cpp/include/llama.h" "$work/llama.cpp/ggml/include/"*.h "$folder/include/"
  cp "$work/build/bin/llama-quantize" "$work/build/bin/llama-bench" "$folder/bin/"
}

build_driver() {
  clang++ -std=c++20 -O2 -Wall -Wextra -I "$folder/include" "$1" -L "$folder/lib" -lllama -lggml -lggml-base \
    -Wl,-rpath,"\$ORIGIN/../lib" -o "$folder/bin/$(basename "$1" .cc)"
}

need clang clang
need cmake cmake
need ninja ninja-build
need python3 python3
mkdir -p "$work"
if [ ! -f "$folder/complete" ]; then
  fetch
  unpack
  build_library
  collect
fi
build_driver "$here/llama_peer.cc"
build_driver "$here/../../tests/oracle/llama_oracle.cc"
echo "llama.cpp of $package $version, clang, native" > "$folder/complete"
echo "$folder"
