#!/usr/bin/env bash
# Tests Lockstep on a machine with a GPU. That machine needs only Python and NVIDIA's libraries: the package contains
# the other libraries that the programs need.
#   gpu_check.sh                   packs and runs all stages, on a machine that has the build packages and a GPU
#   gpu_check.sh pack [DIR]        builds for CUDA_ARCHITECTURES (default 90) and collects programs and libraries in DIR
#   gpu_check.sh run STAGE [DIR]   runs one stage, A to E (see gpu_stages.py), in at most 500 seconds
# GPU_CHECK_PROGRAMS names a folder of programs that are already built: `pack` then builds nothing. LOCKSTEP_MNIST_DIR
# names the real MNIST, which `pack` includes; without it the digits are synthetic. DIR is build/gpu-check by default.
# DIR.tar.gz holds the same files and this script, to copy to the machine with the GPU. A stage writes what came out into
# the folder that OUT names, by default DIR/out.
set -euo pipefail
cd "$(dirname "$0")/.."
mode=${1:-all}
stage=
if [ "$mode" = run ]; then
  stage=${2:-}
  case $stage in
    A | B | C | D | E) shift ;;
    *) echo "gpu_check.sh: run needs a stage, A to E, but got '$stage'" >&2; exit 64 ;;
  esac
fi
folder=$(realpath -m "${2:-build/gpu-check}")
[ -d build ] || [ "$mode" = pack ] || [ $# -ge 2 ] || folder=$PWD # this script is in a package

# Libraries that are not packed: those of every Linux distribution, and NVIDIA's.
not_packed='ld-linux|libc[.]so|libm[.]so|libdl[.]so|librt[.]so|libpthread[.]so|libresolv[.]so|libgcc_s|libstdc[+][+]|libcuda|libcublas|libcudnn|libnccl'

# pack_libraries FILE...: copies the shared libraries that the files need
pack_libraries() {
  local library
  while read -r library; do
    [ -e "$folder/usr/lib/$(basename "$library")" ] || cp -L "$library" "$folder/usr/lib"
  done < <({ ldd "$@" 2>/dev/null || true; } |
    awk -v not_packed="/($not_packed)" '$2 == "=>" && $3 ~ /^\// && $3 !~ not_packed { print $3 }' | sort -u)
}

pack() {
  local programs=${GPU_CHECK_PROGRAMS:-build/gpu/bin} name
  if [ -z "${GPU_CHECK_PROGRAMS:-}" ]; then
    cmake -S . -B build/gpu -G Ninja -DCMAKE_BUILD_TYPE=Release -DLOCKSTEP_CUDA=ON -DLOCKSTEP_BENCHES=OFF \
      -DCMAKE_CUDA_ARCHITECTURES="${CUDA_ARCHITECTURES:-90}" >/dev/null
    cmake --build build/gpu --target keras_mnist custom_training_mnist test_gpu
  fi
  rm -rf "$folder"
  mkdir -p "$folder/usr/bin" "$folder/usr/lib" "$folder/usr/share" "$folder/etc" "$folder/bench" "$folder/tests"
  cp -L "$programs"/{keras_mnist,custom_training_mnist,test_gpu} "$folder/usr/bin"
  strip "$folder"/usr/bin/*
  cp -r scripts "$folder"
  cp -r bench/gpu "$folder/bench"
  cp -r tests/gpu "$folder/tests"
  rm -rf "$folder/tests/gpu/fake" "$folder"/bench/gpu/__pycache__
  if [ -n "${LOCKSTEP_MNIST_DIR:-}" ]; then cp -rL "$LOCKSTEP_MNIST_DIR" "$folder/mnist"; fi
  # Open MPI, in its folders relative to OPAL_PREFIX
  cp -L "$(command -v orterun || command -v prterun)" "$folder/usr/bin/mpirun"
  for name in pkglibdir pkgdatadir; do
    local path
    path=$(ompi_info --path $name | awk '{ print $2 }')
    mkdir -p "$folder/$(dirname "$path")"
    cp -rL "$path" "$folder/$(dirname "$path")"
  done
  local orted
  if orted=$(command -v orted); then cp -L "$orted" "$folder/usr/bin"; fi
  pack_libraries "$folder"/usr/bin/*
  find "$folder/usr/lib" -path '*openmpi*' -name '*.so' -print0 | while IFS= read -r -d '' name; do pack_libraries "$name"; done
  tar -C "$(dirname "$folder")" -czf "$folder.tar.gz" "$(basename "$folder")"
  du -sh "$folder" "$folder.tar.gz"
}

# run STAGE: unpacks anew, since an earlier package may have been another one's
run() {
  if [ "$folder" != "$PWD" ] && [ -e "$folder.tar.gz" ]; then
    rm -rf "$folder"
    tar -C "$(dirname "$folder")" -xzf "$folder.tar.gz"
  fi
  python3 "$folder/scripts/gpu_stages.py" "$1" --folder "$folder" --out "${OUT:-$folder/out}"
}

case $mode in
  pack) pack ;;
  run) run "$stage" ;;
  all)
    pack
    code=0
    for stage in A B C D E; do run $stage || code=$?; done
    exit $code
    ;;
  *)
    echo "gpu_check.sh: unknown command '$mode'; use pack or run" >&2
    exit 64
    ;;
esac
