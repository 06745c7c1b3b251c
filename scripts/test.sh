#!/usr/bin/env bash
# Builds Lockstep and runs its tests. All three modes use the same build folder.
#   test.sh --quick   unit tests and tests of two ranks: under 2 minutes after a small change
#   test.sh           the tests but variants and long ones, and quick checks against real Keras: some 15 minutes after
#                     the build on 2 cores. It says what it left out
#   test.sh --full    all tests; also format, lint, scripts, sanitizers, fuzzers, and in turn, by commit, half of the Python package's
#                     long tests, or all checks against real Keras and either the examples or the image and its pods:
#                     60 minutes. It says what it left out
#   test.sh --everything    as --full, but all of what --full takes in turn
# All checks run, even after one has failed. The exit code is 1 if any failed.
set -euo pipefail
cd "$(dirname "$0")/.."

mode=${1:-}
case "$mode" in
  "" | --quick | --full | --everything) ;;
  *) echo "test.sh: unknown option '$mode'; the options are --quick, --full and --everything" >&2; exit 64 ;;
esac
full=0
[[ $mode != --full && $mode != --everything ]] || full=1

commit_seed() { echo $((16#$(git rev-parse --short=7 HEAD 2>/dev/null || echo 1))); }
# is_turn_of I N: whether this commit's turn is the I-th of N. With --everything it is everything's turn.
is_turn_of() { [ "$mode" = --everything ] || (($(commit_seed) % $2 == $1)); }

# Budgets of the checks of --full, in minutes of processor time with cold caches. A check that takes more than 1.5 times
# its budget is reported. A check that is not listed takes less than a minute.
declare -A budget=([build]=20 [includes]=2 [lint]=7 [sanitized_build]=12 [sanitizers]=3 [fuzzers]=3 [threads]=2 [cuda_build]=6 [interop]=13 [tests]=18 [manifests]=3 [pods]=12 [fault_matrix]=2 [examples]=9 [python_package]=20)

failed=()
notes=()
times_file=$(mktemp)
output_file=$(mktemp)   # of the check that runs
failures_file=$(mktemp) # the end of the output of each check that failed
trap 'rm -f "$times_file" "$output_file" "$failures_file"' EXIT
# Sets `processor_time` to the processor time of this script's children so far, in seconds.
read_processor_time() {
  times >"$times_file" # not in a subshell, which would report its own times
  processor_time=$(awk 'NR == 2 { gsub(/s/, ""); split($1, u, "m"); split($2, k, "m"); print int(60 * (u[1] + k[1]) + u[2] + k[2]) }' "$times_file")
}

# check NAME COMMAND...: runs the command, and records its time and whether it failed. --full keeps the end of a failed
# check's output for this script's end: its output is long.
check() {
  local name=$1 began=$SECONDS processor_time code=0
  shift
  read_processor_time
  local before=$processor_time
  printf '\n== %s\n' "$name"
  if [ $full = 1 ]; then
    "$@" > >(tee "$output_file") 2>&1 || code=$?
    wait $!
    [ $code = 0 ] || { printf '\n== %s failed; the end of its output:\n' "$name" && tail -n 60 "$output_file"; } >>"$failures_file"
  else
    "$@" || code=$?
  fi
  read_processor_time
  local used=$((processor_time - before)) limit=$((60 * ${budget[$name]:-0}))
  if [ $full = 1 ] && [ $limit -gt 0 ] && [ $((2 * used)) -gt $((3 * limit)) ]; then
    notes+=("$name took $used s of processor time, more than 1.5 times its budget of $limit s")
  fi
  printf '== %s: %s after %d s, processor time %d s\n' "$name" "$([ $code = 0 ] && echo passed || echo FAILED)" \
    $((SECONDS - began)) $used
  [ $code = 0 ] || failed+=("$name")
}

# Other versions than Debian 12's format and warn differently.
has_version_14() { command -v "$1" >/dev/null && "$1" --version | grep -q 'version 14\.'; }

configure_and_build() { cmake --preset release "$@" >/dev/null && cmake --build --preset release; }

check_format() {
  find include src models tests bench python -name '*.[ch]pp' -print0 | xargs -0 clang-format --dry-run --Werror
}

check_scripts() {
  find scripts tests bench .ci \( -name '*.sh' -o -path .ci/run \) -print0 | xargs -0 shellcheck
}

check_python() {
  find scripts tests bench python -name '*.py' -print0 |
    xargs -0 -r python3 -c 'import ast, sys; [ast.parse(open(name, encoding="utf-8").read(), name) for name in sys.argv[1:]]'
}

# Of whole modules: most of the time goes into the headers, which each source would read again.
check_lint() {
  cmake --preset release -B build/lint -DCMAKE_UNITY_BUILD_BATCH_SIZE=0 -DLOCKSTEP_TESTS=OFF -DLOCKSTEP_BENCHES=OFF \
    >/dev/null && timeout 2400 scripts/lint.py build/lint
}

# Half of the modules in turn, and the fuzzers, under the address and undefined-behaviour sanitizers, in one build by clang. Not backend, nor
# plan, parallel, session, training and cli, which link it: clang 14 leaves out templates of its losses, so that it does not
# link (an undefined LossKernel::run), and it takes three minutes more.
sanitized=()
if is_turn_of 0 2; then sanitized+=(core data checkpoint report); fi
if is_turn_of 1 2; then sanitized+=(layers losses metrics optimizers graph options cluster collective); fi

build_sanitized() {
  local fuzzers
  mapfile -t fuzzers < <(fuzzer_names)
  cmake --preset fuzz >/dev/null && cmake --build --preset fuzz --target "${sanitized[@]/#/test_}" "${fuzzers[@]}"
}

# run_sanitized MODULE [FILTER]: FILTER selects test cases, by file too. A process that reads a file must crash by a signal
# to count as crashed. Open MPI does not free all of its memory, which LeakSanitizer would report.
run_sanitized() {
  local log
  log=$(mktemp)
  local code=0
  ASAN_OPTIONS=abort_on_error=1$([ "$1" != cluster ] || echo :detect_leaks=0) \
    "build/fuzz/bin/test_$1" --filenames-as-tags "${@:2}" >"$log" 2>&1 || code=1
  printf '%s: ' "$*"
  if [ $code = 0 ]; then tail -n 2 "$log" | head -n 1; else cat "$log"; fi
  rm "$log"
  return $code
}

# One module per core at a time, the longest in two parts.
check_sanitizers() {
  export -f run_sanitized
  printf '%s\n' "${sanitized[@]}" | sed 's/^checkpoint$/checkpoint [#model_file_test]\ncheckpoint ~[#model_file_test]/' |
    xargs -L 1 -P "$(nproc)" bash -c "run_sanitized \"\$@\"" _
}

fuzzer_names() { find tests/fuzz -name '*_fuzz.cpp' -exec basename {} .cpp \; | sort; }

# On the corpus of earlier runs, for 20 seconds.
run_fuzzer() {
  local name=$1 corpus=build/fuzz/corpus/$1
  mkdir -p "$corpus"
  if "build/fuzz/bin/$name" -max_total_time=20 -rss_limit_mb=3000 "$corpus" >"$corpus.log" 2>&1; then
    echo "$name: $(find "$corpus" -type f | wc -l) inputs kept"
  else
    tail -n 30 "$corpus.log"
    return 1
  fi
}

check_fuzzers() {
  export -f run_fuzzer
  fuzzer_names | xargs -n 1 -P "$(nproc)" bash -c "run_fuzzer \"\$1\"" _
}

# ThreadSanitizer over what has a second thread. The tests of programs then run its program too.
check_threads() {
  cmake --build --preset release --target lockstep_with_tsan test_collective_with_tsan &&
    TSAN_OPTIONS=suppressions=tests/threads/suppressions.txt build/release/bin/test_collective_with_tsan
}

# Compiles what only a build with CUDA has; the fake GPU's build has compiled the same sources with the host's compiler.
check_cuda_build() {
  cmake --preset release -B build/cuda -DLOCKSTEP_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES=90 -DLOCKSTEP_TESTS=OFF \
    -DLOCKSTEP_BENCHES=OFF >/dev/null && cmake --build build/cuda --target lockstep_core lockstep_backend lockstep_collective
}

# Against real Keras, in a virtual environment. Skipped with a note if there is no network.
check_interop() {
  local log=build/interop.log
  local options=()
  if [ $full = 1 ]; then
    if is_turn_of 0 2; then options=(--full); else notes+=("all checks against real Keras: not this commit's turn; the quick ones ran"); fi
  fi
  tests/interop/run.sh build/release "${options[@]}" | tee "$log" || return 1
  if grep -q '^skipped:' "$log"; then notes+=("checks against real Keras $(grep '^skipped:' "$log")"); fi
}

# The Python package, on all backends: all of it, or a share I/N. Skipped with a note if there is no network.
check_python_package() {
  local code=0
  tests/python/run.sh build/release --full "$@" || code=$?
  [ $code = 77 ] || return $code
  notes+=("the packages of tests/python cannot be installed: the Python package not tested")
}

# Validates manifests against all versions of Kubernetes' schemas; the default tests use a few of them.
check_manifests() {
  local code=0
  tests/kubernetes/run.py build/release schemas --full || code=$?
  [ $code = 77 ] || return $code
  notes+=("the schemas of Kubernetes are not available: manifests not validated")
}

# Builds the image and runs the template's pods in containers of it. Skipped with a note where containers cannot run.
check_pods() {
  local log=build/pods.log
  tests/pods/podman/run.py build/release | tee "$log" || return 1
  if grep -q '^skipped:' "$log"; then notes+=("pods in containers $(grep '^skipped:' "$log")"); fi
}

# A sample of the fault matrix.
check_fault_matrix() {
  local code=0 seed
  seed=$(commit_seed)
  echo "seed of the fault matrix: $seed"
  tests/pods/namespaces/run.py build/release fault_matrix --count 8 --seed "$seed" || code=$?
  [ $code = 77 ] || return $code
  notes+=("no network namespaces: faults of pods not tested")
}

# CONTRIBUTING's worked examples, built in a copy of the tree.
check_examples() {
  local code=0
  tests/contributing/replay_examples.py || code=$?
  [ $code = 77 ] || return $code
  notes+=("no git: CONTRIBUTING's worked examples not replayed")
}

run_ctest() { ctest --preset release --no-tests=error -j "$(nproc)" "$@"; }

if [ $full = 1 ]; then scripts/install_packages.sh --full; else scripts/install_packages.sh; fi
# The wheel, the examples and the image compile the same sources with the same flags, perhaps in another locale.
if command -v ccache >/dev/null; then
  export CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache CCACHE_BASEDIR=$PWD CCACHE_SLOPPINESS=locale
fi

if [ $full = 1 ]; then
  if has_version_14 clang-format; then check format check_format; else notes+=("no clang-format 14: format not checked"); fi
  check scripts check_scripts
  check python check_python
  check build configure_and_build -DLOCKSTEP_BENCHES=ON
  check includes scripts/check_includes.py --one-in 8 --seed "$(commit_seed)"
else
  check build configure_and_build -DLOCKSTEP_BENCHES=OFF # BENCHES changes no flags
fi
if [[ " ${failed[*]} " != *" build "* ]]; then # the other checks need the build
  if [ $full = 1 ]; then
    if has_version_14 clang-tidy; then check lint check_lint; else notes+=("no clang-tidy 14: lint not run"); fi
    check sanitized_build build_sanitized
    check sanitizers check_sanitizers
    check fuzzers check_fuzzers
    check threads check_threads
    if ! command -v nvcc >/dev/null; then
      notes+=("no nvcc: the CUDA sources not compiled for a GPU")
    elif is_turn_of 2 4; then
      check cuda_build check_cuda_build
    else
      notes+=("the CUDA sources: not this commit's turn to be compiled for a GPU")
    fi
  fi
  if [ $full = 1 ]; then
    check manifests check_manifests
    check fault_matrix check_fault_matrix
    if is_turn_of 0 4; then check pods check_pods; else notes+=("the image and its pods: not this commit's turn"); fi
    if is_turn_of 2 4; then check examples check_examples; else notes+=("the worked examples: not this commit's turn"); fi
    for share in 0 1; do
      if is_turn_of $((2 * share + 1)) 4; then
        check python_package check_python_package $share/2
      else
        notes+=("share $share/2 of the Python package's long tests: not this commit's turn")
      fi
    done
  fi
  if [ "$mode" = --quick ]; then
    check tests run_ctest -R '^unit\.|^distributed\.[a-z_]+\.2$'
  else
    check interop check_interop
    # --full has run all tests of schemas, and perhaps half of those of the Python package
    if [ $full = 1 ]; then
      left_out='^kubernetes\.schemas$'
      layouts=(nhwc nChw16c nChw8c) # the backend's tests in a layout that the CPU would not choose
      for i in 0 1 2; do is_turn_of $i 3 || left_out+="|^unit\.backend\.${layouts[i]}$"; done
      if is_turn_of 1 2; then left_out+='|^python\.'; fi
      check tests run_ctest -E "$left_out"
    else
      # In other layouts, instruction sets and networks than this machine's, and what takes a minute or more.
      left_out='^unit\.backend\.|^distributed\..*\.(hosts|nhwc|nChw16c|nChw8c|winograd|AVX2)'
      left_out+='|^fake-gpu\.(backend\.minimal|programs|resume)$|^python\.more$'
      left_out+='|^programs\.(asynchronous|faults|health|job_identity|launch|parallelism|parameter_servers|resume)$'
      check tests run_ctest -E "$left_out"
      notes+=("tests in other layouts, instruction sets and networks, and long ones: only with --full")
    fi
  fi
fi

[ -n "${LOCKSTEP_MNIST_DIR:-}" ] || notes+=("LOCKSTEP_MNIST_DIR is not set: tests with real MNIST skipped")
[ -e /dev/nvidia0 ] || notes+=("no CUDA device: GPU tests ran on a fake GPU, or were skipped if this build has CUDA")
cat "$failures_file"
printf '\n'
for note in "${notes[@]}"; do printf '%s\n' "$note"; done
if [ ${#failed[@]} -gt 0 ]; then
  printf 'FAILED: %s\n' "${failed[*]}"
  exit 1
fi
printf 'All passed in %d minutes\n' $(((SECONDS + 59) / 60))
