#!/usr/bin/env bash
# Lets real Keras open our files and us Keras' own.
#   run.sh BUILD_DIR    where lockstep, interop_write_model and interop_read_model are built (in BUILD_DIR/bin)
# Exits 0 with a line "skipped: ..." where the Python packages cannot be had.
set -euo pipefail

if [ $# -ne 1 ]; then
  echo "usage: run.sh BUILD_DIR" >&2
  exit 64
fi
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "$1" && pwd)
venv=$build/venv-interop

for program in lockstep interop_write_model interop_read_model interop_train_for_tensorboard; do
  if [ ! -x "$build/bin/$program" ]; then
    echo "run.sh: $build/bin/$program is missing: build the target $program first" >&2
    exit 64
  fi
done

# The copy of the requirements appears last, so a half-made environment is made again.
if ! cmp -s "$here/requirements.txt" "$venv/requirements.txt"; then
  rm -rf "$venv"
  if ! python3 -m venv "$venv" >"$build/venv-interop.log" 2>&1; then
    echo "skipped: python3 cannot make a virtual environment (see $build/venv-interop.log)"
    exit 0
  fi
  if ! "$venv/bin/pip" install --quiet --requirement "$here/requirements.txt" >>"$build/venv-interop.log" 2>&1; then
    echo "skipped: the packages of tests/interop/requirements.txt cannot be had (see $build/venv-interop.log)"
    exit 0
  fi
  cp "$here/requirements.txt" "$venv/requirements.txt"
fi

for test in "$here"/*_test.py; do
  "$venv/bin/python" -W ignore "$test" "$build/bin"
done
