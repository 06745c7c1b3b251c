#!/usr/bin/env bash
# Tests Lockstep on a machine with a GPU. That machine needs only Python and NVIDIA's libraries: the package contains
# the other libraries that the programs need.
#   gpu_check.sh              packs and runs, on a machine that has the build packages and a GPU
#   gpu_check.sh pack [DIR]   builds for CUDA_ARCHITECTURES (default 90) and collects programs and libraries in DIR
#   gpu_check.sh run [DIR]    runs the tests, compute-sanitizer and bench/gpu on the GPU; prints a table
#                             GPU_CHECK_QUICK=1: fewer cases and a short benchmark, in ten minutes
# LOCKSTEP_MNIST_DIR names the real MNIST, which `pack` includes. Without it no accuracy is measured. DIR is
# build/gpu-check by default. DIR.tar.gz holds the same files and this script, to copy to the machine with the GPU.
set -euo pipefail
cd "$(dirname "$0")/.."
mode=${1:-all}
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
  local build=build/gpu name
  cmake -S . -B $build -G Ninja -DCMAKE_BUILD_TYPE=Release -DLOCKSTEP_CUDA=ON -DLOCKSTEP_BENCHES=OFF \
    -DCMAKE_CUDA_ARCHITECTURES="${CUDA_ARCHITECTURES:-90}" >/dev/null
  cmake --build $build --target keras_mnist custom_training_mnist test_gpu
  rm -rf "$folder"
  mkdir -p "$folder/usr/bin" "$folder/usr/lib" "$folder/usr/share" "$folder/etc" "$folder/bench" "$folder/tests"
  cp $build/bin/{keras_mnist,custom_training_mnist,test_gpu} "$folder/usr/bin"
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

results=()
# try SECONDS NAME COMMAND...: runs the command with this time limit and records the outcome. Exit code 77 means
# skipped.
try() {
  local limit=$1 name=$2 status=0 began=$SECONDS
  shift 2
  printf '\n== %s\n' "$name"
  timeout -k 5 "$limit" "$@" || status=$?
  case $status in
    0) results+=("$(printf '%-44s passed   %4d s' "$name" $((SECONDS - began)))") ;;
    77) results+=("$(printf '%-44s skipped' "$name")") ;;
    124 | 137) results+=("$(printf '%-44s FAILED   (longer than %d s)' "$name" "$limit")") ;;
    *) results+=("$(printf '%-44s FAILED   (exit %d)' "$name" $status)") ;;
  esac
  printf '%s\n' "${results[-1]}" | tee -a "$folder/results.txt" # at once: the machine may be lost before the end
}

run() {
  [ -d "$folder" ] || tar -C "$(dirname "$folder")" -xzf "$folder.tar.gz"
  : >"$folder/results.txt"
  local programs=$folder/usr/bin packages sanitizer
  packages=$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  local nvidia=/usr/local/cuda/lib64:/usr/local/cuda/lib path communication
  for path in "$packages"/nvidia/*/lib; do [ ! -d "$path" ] || nvidia=$nvidia:$path; done
  # Only for the packed programs: Python and system tools use the system's libraries.
  local libraries=$folder/usr/lib:$nvidia${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  local with=(env "LD_LIBRARY_PATH=$libraries" "OPAL_PREFIX=$folder/usr" "PATH=$programs:$PATH" OMPI_MCA_plm=isolated)

  local models=40 benchmark=()
  if [ -n "${GPU_CHECK_QUICK:-}" ]; then models=10 benchmark=(--quick --minutes 4); fi
  local data=${LOCKSTEP_MNIST_DIR:-}
  if [ -z "$data" ] && [ -d "$folder/mnist" ]; then data=$folder/mnist; fi
  if [ -n "$data" ]; then benchmark+=(--data-dir "$data"); fi

  try 60 "programs find their libraries" "${with[@]}" "$programs/keras_mnist" --version
  try 300 "every layer, CUDA graphs (test_gpu)" "${with[@]}" LOCKSTEP_TEST_MODELS=$models "$programs/test_gpu"
  try 300 "the same without CUDA graphs" "${with[@]}" LOCKSTEP_CUDA_GRAPHS=0 LOCKSTEP_TEST_MODELS=10 "$programs/test_gpu" \
    '~a replayed CUDA graph*'
  try 300 "the same with our own convolutions" "${with[@]}" LOCKSTEP_CUDA_DIRECT_CONVOLUTIONS=1 LOCKSTEP_TEST_MODELS=10 \
    "$programs/test_gpu"
  for communication in nccl mpi; do
    for ranks in 2 4; do
      try 120 "$ranks ranks on one GPU, $communication" "${with[@]}" "$folder/tests/gpu/ranks_test.sh" \
        "$programs/keras_mnist" $communication $ranks
    done
  done
  try 120 "resumes after SIGKILL, on GPU and CPU" "${with[@]}" "$folder/tests/gpu/resume_test.sh" "$programs/keras_mnist"
  try 260 "a rank of three is killed" "${with[@]}" "$folder/tests/gpu/lost_rank_test.sh" "$programs/keras_mnist" 3
  try 1800 "bench/gpu" python3 "$folder/bench/gpu/bench.py" --programs "$programs" --libraries "$libraries" \
    "${benchmark[@]}" --out "$folder/bench.json"
  if sanitizer=$(PATH=$PATH:/usr/local/cuda/bin command -v compute-sanitizer); then
    for tool in memcheck racecheck; do
      try 300 "compute-sanitizer $tool" "${with[@]}" "$sanitizer" --tool $tool --error-exitcode 1 \
        --log-file "$folder/$tool.log" "$programs/test_gpu" 'training on a GPU reduces the loss'
    done
  else
    echo "compute-sanitizer is not installed: not run"
  fi
  printf '\n'
  printf '%s\n' "${results[@]}"
  case "${results[*]}" in *FAILED*) exit 1 ;; esac
}

case $mode in
  pack) pack ;;
  run) run ;;
  all)
    pack
    run
    ;;
  *)
    echo "gpu_check.sh: unknown command '$mode'; use pack or run" >&2
    exit 64
    ;;
esac
