#!/usr/bin/env bash
# Tests the Python package on the command `lockstep` of a build.
#   run.sh BUILD_DIR            parts and lockstep.fit: five minutes
#   run.sh BUILD_DIR --more     programs under a launcher on the JAX backend, faults, sources and an example: five minutes
#   run.sh BUILD_DIR --full     also PyTorch, TensorFlow, random kills, foreign programs, ruff and mypy: up to 20 minutes
#   run.sh BUILD_DIR --full I/N    only the I-th of N shares of the modules, from 0 on
#   run.sh BUILD_DIR TEST...    some tests, such as equality_test.FullTest.test_torch
#   run.sh BUILD_DIR --kills N [OPTION...]    N trainings whose workers are killed at random: see random_kills.py
# Builds the extension module in BUILD_DIR-python. Exits with 77 and prints a line "skipped: ..." if the Python packages
# cannot be installed.
set -euo pipefail

if [ $# -lt 1 ]; then
  echo "usage: run.sh BUILD_DIR [--more | --full [I/N] | --kills N [OPTION...] | TEST...]" >&2
  exit 64
fi
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
build=$(cd "$1" && pwd)
shift
if [ ! -x "$build/bin/lockstep" ]; then
  echo "run.sh: $build/bin/lockstep is missing: build the target lockstep first" >&2
  exit 64
fi

log=$build/python.log
if ! venv=$("$root/tests/support/python_environment.sh" python --complete --without-cuda \
  "$root/bench/peers/requirements.txt" "$here/requirements.txt" 2>"$log"); then
  echo "skipped: $(cat "$log")"
  exit 77
fi

# ccache has the modules that the extension and the wheel link: both are compiled with BUILD_DIR's flags, in a folder as
# deep as BUILD_DIR, since ccache compares the paths relative to it.
own=$build-python
unity=$(sed -n 's/^CMAKE_UNITY_BUILD:[A-Z]*=//p' "$build/CMakeCache.txt")
export CMAKE_ARGS="-DCMAKE_UNITY_BUILD=$unity" CC=cc CXX=c++
if ! { cmake -S "$root" -B "$own" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_STANDARD=20 \
  -DCMAKE_CXX_STANDARD_REQUIRED=ON -DCMAKE_CXX_EXTENSIONS=OFF -DCMAKE_UNITY_BUILD="$unity" -DLOCKSTEP_WERROR=ON -DLOCKSTEP_TESTS=OFF \
  -DLOCKSTEP_BENCHES=OFF -DLOCKSTEP_CUDA=OFF -DLOCKSTEP_PYTHON=ON -DPython_EXECUTABLE="$venv/bin/python" &&
  cmake --build "$own" --target lockstep_python &&
  rm -rf "$own/site" &&
  cmake --install "$own" --component python --prefix "$own/site"; } >"$log" 2>&1; then
  tail -n 30 "$log"
  exit 1
fi

export PATH=$build/bin:$PATH PYTHONPATH=$own/site PYTHONDONTWRITEBYTECODE=1
tests=("$@")
if [ "${1:-}" = --full ]; then
  (cd "$root" && "$venv/bin/ruff" check --no-cache && "$venv/bin/ruff" format --no-cache --check &&
    "$venv/bin/mypy" --cache-dir "$own/mypy" && "$venv/bin/python" scripts/write_python_reference.py --check)
  cd "$here"
  share=${2:-0/1}
  # Most tests keep one core busy, so two modules run at a time, the longest first.
  # shellcheck disable=SC2016 # the inner shell's variables
  run_module='env --default-signal=INT "$0" -W ignore -m unittest "$1" >"$2.$1.log" 2>&1; code=$?; printf "%s: " "$1"; cat "$2.$1.log"; exit $((code > 0))'
  longest=$(printf '%s\n' wheel_test fit_sources_test fit_test examples_test faults_test)
  { echo "$longest" && basename -s .py ./*_test.py | grep -vxF "$longest"; } | awk "NR % ${share#*/} == ${share%/*}" |
    xargs -I {} -P 2 bash -c "$run_module" "$venv/bin/python" {} "$own/tests"
  exit
elif [ "${1:-}" = --kills ]; then
  exec "$venv/bin/python" -W ignore "$here/random_kills.py" --count "${@:2}"
elif [ "${1:-}" = --more ]; then
  tests=({fit_sources,fit_transfer,equality,faults,examples}_test.QuickTest faults_test.MistakesTest)
elif [ $# = 0 ]; then
  tests=(parts_test start_test division_test
    {fit,fit_callbacks,fit_inference,fit_interruption,fit_mistakes,notebooks}_test.QuickTest)
fi
cd "$here"
# Ctrl-C is tested; a shell's background jobs ignore it.
exec env --default-signal=INT "$venv/bin/python" -W ignore -m unittest "${tests[@]}"
