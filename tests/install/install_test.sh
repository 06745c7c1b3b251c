#!/usr/bin/env bash
# Installs the library into a scratch prefix, then builds and runs a program outside the tree with
# find_package(lockstep).
#   install_test.sh BUILD
set -euo pipefail
build=$(realpath "$1")
source_dir=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

cmake --install "$build" --prefix "$scratch/prefix" >"$scratch/install.log"
if grep -rlF -e "$build" -e "${source_dir%/tests/install}" "$scratch/prefix/lib" --include='*.cmake'; then
  echo "install_test: the installed package config contains paths of the build" >&2
  exit 1
fi
CXXFLAGS="-O0 -g0" cmake -S "$source_dir/consumer" -B "$scratch/consumer" -G Ninja -DCMAKE_PREFIX_PATH="$scratch/prefix"
cmake --build "$scratch/consumer"
cd "$scratch"
consumer/mine --verbose 0 --model-dir model
"$scratch/prefix/bin/lockstep" --version
