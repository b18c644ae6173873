# Shared by the scripts of tests/e2e: counts checks and ends with "N passed, N failed".
# shellcheck shell=bash
passed=0
failed=0

# check NAME CMD…: the command must succeed.
check() {
  local name=$1
  shift
  if "$@" >"$scratch/check.log" 2>&1; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "FAILED: $name: $*"
    sed 's/^/  | /' "$scratch/check.log"
  fi
}

# run_program ARG…: runs the program, keeps stdout, stderr and the exit code in $scratch/out, $scratch/err and $code.
run_program() {
  code=0
  "$program" "$@" >"$scratch/out" 2>"$scratch/err" </dev/null || code=$?
}

# expect NAME CODE [stdout-regex [stderr-regex]]: judges the last run_program. An empty regex asks for nothing.
expect() {
  local name=$1 wanted=$2 out=${3:-} err=${4:-} problem=""
  [ "$code" -eq "$wanted" ] || problem="exit code $code instead of $wanted"
  [ -z "$out" ] || grep -qE -- "$out" "$scratch/out" || problem="$problem; stdout has no match of /$out/"
  [ -z "$err" ] || grep -qE -- "$err" "$scratch/err" || problem="$problem; stderr has no match of /$err/"
  if [ -z "$problem" ]; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "FAILED: $name: $problem"
    head -n 20 "$scratch/out" | sed 's/^/  out | /'
    head -n 20 "$scratch/err" | sed 's/^/  err | /'
  fi
}

# value EXPRESSION: of Python, over d, the JSON on the stdout of the last run_program.
value() { python3 -c 'import json, sys; d = json.load(open(sys.argv[1])); print(eval(sys.argv[2], {"d": d}))' "$scratch/out" "$1"; }
# is EXPRESSION: whether that is true.
is() { [ "$(value "$1")" = True ]; }

finish() {
  echo "$passed passed, $failed failed"
  [ "$failed" -eq 0 ]
}

program=$(realpath "${1:?usage: run.sh BUILD_FOLDER}")/isthmus
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export ISTHMUS_CACHE=$scratch/cache  # a user's own cache is neither used nor touched
