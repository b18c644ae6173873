#!/bin/bash
# `make install` into an empty folder: program, manual pages, completions and licence are where the system looks.
# not under asan: what is installed is the release build
set -uo pipefail
here=$(dirname "$(realpath "$0")")
# shellcheck source=tests/e2e/lib.sh
source "$here/../lib.sh"
build=$(realpath "$1")
prefix=$scratch/prefix

check "manual pages and completions are made" cmake --build "$build" --target isthmus_share
check "installs" cmake --install "$build" --prefix "$prefix"
program=$prefix/bin/isthmus
run_program version
expect "the installed program runs" 0 "^isthmus "
for file in share/man/man1/isthmus.1 share/man/man1/isthmus-run.1 share/bash-completion/completions/isthmus \
  share/zsh/vendor-completions/_isthmus share/fish/vendor_completions.d/isthmus.fish share/doc/isthmus/LICENSE; do
  check "$file is there" test -s "$prefix/$file"
done
check "man finds the page" grep -q "isthmus-run" <(MANPATH=$prefix/share/man man -P cat isthmus-run)
check "nothing of the build folder is needed" grep -qv "$build" <(ldd "$program")
finish
