#!/usr/bin/env bash
# Tests Lockstep against real Keras: files in both directions, and numerical parity.
#   run.sh BUILD_DIR            uses lockstep and the interop_... programs in BUILD_DIR/bin
#   run.sh BUILD_DIR --full     all optimizers, losses and layers, more random models, TensorFlow: a few minutes more
# 50 random models in each direction: random_models_test.py BUILD_DIR/bin --count 50
# 5000 cases that are refused or equal: differential_test.py BUILD_DIR/bin --count 5000 --ledger FILE, which goes on there
# Exits with 0 and prints a line "skipped: ..." if the Python packages cannot be installed.
set -euo pipefail

if [ $# -lt 1 ] || [ $# -gt 2 ] || [ "${2:---full}" != --full ]; then
  echo "usage: run.sh BUILD_DIR [--full]" >&2
  exit 64
fi
full=${2:-}
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "$1" && pwd)

for program in lockstep interop_write_model interop_read_model interop_train_steps interop_train_for_tensorboard; do
  if [ ! -x "$build/bin/$program" ]; then
    echo "run.sh: $build/bin/$program is missing: build the target $program first" >&2
    exit 64
  fi
done

if ! venv=$("$here/../support/python_environment.sh" interop "$here/requirements.txt" 2>"$build/venv-interop.log"); then
  echo "skipped: $(cat "$build/venv-interop.log")"
  exit 0
fi

# tests/python has TensorFlow, which is large.
venv_with_tensorflow=
if [ "$full" ] && ! venv_with_tensorflow=$("$here/../support/python_environment.sh" python --complete --without-cuda \
  "$here/../../bench/peers/requirements.txt" "$here/../python/requirements.txt" 2>"$build/venv-tensorflow.log"); then
  echo "skipped: $(cat "$build/venv-tensorflow.log")"
fi

one_test() {
  local options=() log python=$venv/bin/python
  case $(basename "$1")$full in
    numerical_parity_test.py) options=(--quick) ;;
    random_models_test.py--full) options=(--count 10) ;;
    differential_test.py--full) options=(--count 40) ;;
    onnx_test.py--full) options=(--count 30 --applications) ;;
    tensorflow_test.py* | tf_keras_test.py* | saved_model_test.py*)
      python=$venv_with_tensorflow/bin/python
      [ "$venv_with_tensorflow" ] || return 0
      ;;
  esac
  log=$build/interop-$(basename "$1" .py).log
  if "$python" -W ignore "$1" "$build/bin" "${options[@]}" >"$log" 2>&1; then cat "$log"; else cat "$log" && return 1; fi
}
export -f one_test
export build full venv venv_with_tensorflow

# Runs one test per core at a time, the longest first. Each prints its output when it ends.
printf '%s\0' "$here"/*_test.py | sort -zr | xargs -0 -n 1 -P "$(nproc)" bash -c "one_test \"\$1\"" _
