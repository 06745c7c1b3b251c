#!/usr/bin/env bash
# Prints the path of a Python environment with pinned packages, which it makes if it does not exist yet.
#   python_environment.sh NAME [--without-cuda] REQUIREMENTS...    packages as in the files, and those they need
#   python_environment.sh NAME --complete [--without-cuda] REQUIREMENTS...    exactly the packages in the files
# The environment lies in ~/.cache/lockstep, named by the digest of the files. --without-cuda lets PyTorch load without
# CUDA's libraries. Exits with 69 and says why if packages cannot be installed.
set -euo pipefail

name=$1
shift
options=(--quiet)
without_cuda=0
while [[ ${1:-} == --* ]]; do
  case $1 in
    --complete) options+=(--no-deps) ;;
    --without-cuda) without_cuda=1 ;;
    *) echo "python_environment.sh: unknown option '$1'" >&2; exit 64 ;;
  esac
  shift
done
here=$(cd "$(dirname "$0")" && pwd)
digest=$({ python3 --version; cat "$@"; } | sha256sum | cut -c 1-16)
root=${XDG_CACHE_HOME:-$HOME/.cache}/lockstep
environment=$root/$name-$digest
mkdir -p "$root"
exec 9>"$environment.lock"
flock 9 # of two runs at once, one makes it
if [ ! -e "$environment/complete" ]; then
  rm -rf "$environment"
  log=$environment.log
  if ! python3 -m venv "$environment" >"$log" 2>&1; then
    echo "python3 cannot create a virtual environment (see $log)" >&2
    exit 69
  fi
  for file in "$@"; do options+=(--requirement "$file"); done
  if ! "$environment/bin/pip" install "${options[@]}" >>"$log" 2>&1; then
    echo "the packages of $* cannot be installed (see $log)" >&2
    exit 69
  fi
  if [ $without_cuda = 1 ]; then
    python3 "$here/../../bench/peers/torch_without_cuda.py" "$environment" >>"$log" 2>&1
  fi
  touch "$environment/complete" # last, so that an incomplete environment is made again
fi
echo "$environment"
