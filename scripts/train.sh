#!/usr/bin/env bash
# From a fresh checkout to a trained model: installs missing packages, builds, and trains keras_mnist with two workers
# on this machine. Options go to keras_mnist:
#   scripts/train.sh --epochs 3 --model-dir /tmp/model
# The data comes from --data-dir, else DATA_DIR, else LOCKSTEP_MNIST_DIR, else the synthetic digits.
set -euo pipefail
here=$PWD
cd "$(dirname "$0")/.."
root=$PWD

# A mistake shows at once, not after the build. README lists all options of keras_mnist.
for argument in "$@"; do
  option=${argument%%=*}
  case "$option" in --help | --version) continue ;; --*) ;; *) continue ;; esac
  if ! grep -qF -e "| \`$option " -e "| \`$option\`" README.md; then
    echo "train.sh: there is no option '$option'; README.md lists all of them" >&2
    exit 64
  fi
done

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

cd "$here" # paths in the options are relative to the caller's directory
started=$(mktemp)
trap 'rm -f "$started"' EXIT
"$root/scripts/mpirun.sh" -np 2 "$root/build/release/bin/keras_mnist" "$@"

history=$model_dir/history.json
if [ "$history" -nt "$started" ]; then # false after --help
  # The last accuracy in history.json is that of the evaluation on the test images.
  accuracy=$(grep -o '"accuracy": *[0-9.eE+-]*' "$history" | tail -n 1 | grep -o '[0-9.eE+-]*$')
  awk -v file="$(realpath "$model_dir")/model.h5" -v accuracy="$accuracy" \
    'BEGIN { printf "Saved %s, test accuracy: %.1f %%\n", file, 100 * accuracy }'
fi
