#!/usr/bin/env bash
# From a fresh checkout to a trained model: installs what is missing, builds, and trains keras_mnist with two workers on
# this machine. Options are passed on:   scripts/train.sh --epochs 3 --model-dir /tmp/model
# Data: --data-dir, else DATA_DIR, else the directory LOCKSTEP_MNIST_DIR names, else the embedded digits.
set -euo pipefail
here=$PWD
cd "$(dirname "$0")/.."
root=$PWD

scripts/install_packages.sh
if command -v ccache >/dev/null; then export CMAKE_CXX_COMPILER_LAUNCHER=ccache; fi
cmake --preset release >/dev/null
cmake --build --preset release --target keras_mnist

if [ -z "${LOCKSTEP_DATA_DIR:-}${DATA_DIR:-}" ] && [ -n "${LOCKSTEP_MNIST_DIR:-}" ]; then
  export LOCKSTEP_DATA_DIR=$LOCKSTEP_MNIST_DIR
fi
model_dir=${LOCKSTEP_MODEL_DIR:-${MODEL_DIR:-model}}
previous=
for argument in "$@"; do
  case "$argument" in --model-dir=*) model_dir=${argument#--model-dir=} ;; esac
  [ "$previous" != --model-dir ] || model_dir=$argument
  previous=$argument
done

cd "$here" # paths among the options are the caller's
started=$(mktemp)
trap 'rm -f "$started"' EXIT
"$root/scripts/mpirun.sh" -np 2 "$root/build/release/bin/keras_mnist" "$@"

history=$model_dir/history.json
if [ "$history" -nt "$started" ]; then # not after --help
  # the evaluation follows the epochs, so the file's last accuracy is the one on the test images
  accuracy=$(grep -o '"accuracy": *[0-9.eE+-]*' "$history" | tail -n 1 | grep -o '[0-9.eE+-]*$')
  awk -v file="$(realpath "$model_dir")/model.h5" -v accuracy="$accuracy" \
    'BEGIN { printf "The model is in %s; it is right on %.1f %% of the test images.\n", file, 100 * accuracy }'
fi
