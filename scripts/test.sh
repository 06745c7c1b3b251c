#!/usr/bin/env bash
# Builds Lockstep and runs its tests.
#   test.sh           unit tests, runs of 1 to 4 ranks, the quick checks against real Keras: up to 12 minutes on 2 cores
#   test.sh --full    also warnings as errors, format, lint, scripts, sanitizers, fuzzing, the image and its pods: up to an hour
# A check that fails does not keep the others from running; the exit status tells whether any did.
set -euo pipefail
cd "$(dirname "$0")/.."

full=0
case "${1:-}" in
  "") ;;
  --full) full=1 ;;
  *) echo "test.sh: there is no option '$1', only --full" >&2; exit 64 ;;
esac

failed=()
notes=()
# check NAME COMMAND... runs the command and remembers whether it failed
check() {
  local name=$1 began=$SECONDS
  shift
  printf '\n== %s\n' "$name"
  if "$@"; then
    printf '== %s: passed in %d s\n' "$name" $((SECONDS - began))
  else
    printf '== %s: FAILED after %d s\n' "$name" $((SECONDS - began))
    failed+=("$name")
  fi
}

# Debian 12's version decides: others format and warn differently.
has_version_14() { command -v "$1" >/dev/null && "$1" --version | grep -q 'version 14\.'; }

configure_and_build() { cmake --preset release "$@" >/dev/null && cmake --build --preset release; }

check_format() {
  find include src models tests bench -name '*.[ch]pp' -print0 | xargs -0 clang-format --dry-run --Werror
}

check_scripts() {
  find scripts tests bench .ci \( -name '*.sh' -o -path .ci/run \) -print0 | xargs -0 shellcheck
}

check_python() {
  find scripts tests bench -name '*.py' -print0 |
    xargs -0 -r python3 -c 'import ast, sys; [ast.parse(open(name, encoding="utf-8").read(), name) for name in sys.argv[1:]]'
}

check_lint() {
  # what is built for GPUs alone has no compile command here
  find src models -name '*.cpp' -not -path '*/cuda/*' -print0 | timeout 2400 xargs -0 -n 1 -P "$(nproc)" \
    clang-tidy -p build/release --quiet --extra-arg=-Wno-unknown-warning-option 2>/dev/null # the build's are g++'s
}

# The rooms that read untrusted bytes and count indices, with address and undefined-behaviour sanitizers.
check_sanitizers() {
  # (cli would bring all rooms with it: three times the time)
  local rooms=(core data nn checkpoint report cluster)
  # -O1: half the time of compiling, for these tests
  cmake --preset asan -DCMAKE_CXX_FLAGS_RELWITHDEBINFO='-O1 -g1' >/dev/null &&
    cmake --build --preset asan --target "${rooms[@]/#/test_}" || return 1
  local room
  for room in "${rooms[@]}"; do
    # (what Open MPI keeps until its end is no leak of ours)
    ASAN_OPTIONS=$([ "$room" != cluster ] || echo detect_leaks=0) "build/asan/bin/test_$room" || return 1
  done
}

# A short walk from an empty corpus each: what untrusted bytes can do is looked for, not proved.
check_fuzzers() {
  local fuzzers name corpus
  mapfile -t fuzzers < <(find tests/fuzz -name '*_fuzz.cpp' -exec basename {} .cpp \; | sort)
  cmake -S . -B build/fuzz -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_CXX_COMPILER=clang++ \
    -DCMAKE_C_COMPILER=clang -DLOCKSTEP_FUZZERS=ON -DLOCKSTEP_BENCHES=OFF >/dev/null &&
    cmake --build build/fuzz --target "${fuzzers[@]}" || return 1
  for name in "${fuzzers[@]}"; do
    corpus=build/fuzz/corpus/$name
    mkdir -p "$corpus"
    if ! build/fuzz/bin/"$name" -max_total_time=20 -rss_limit_mb=3000 "$corpus" >"$corpus.log" 2>&1; then
      tail -n 30 "$corpus.log"
      return 1
    fi
    echo "$name: $(grep -c . < <(find "$corpus" -type f)) inputs kept"
  done
}

# Real Keras, in a virtual environment of its own; without a network it says so and is skipped.
check_interop() {
  local log=build/interop.log
  local options=()
  if [ $full = 1 ]; then options=(--full); fi
  tests/interop/run.sh build/release "${options[@]}" | tee "$log" || return 1
  if grep -q '^skipped:' "$log"; then notes+=("checks against real Keras $(grep '^skipped:' "$log")"); fi
}

# By every version of Kubernetes' schemas; the ordinary tests take some.
check_manifests() {
  local code=0
  tests/kubernetes/run.py build/release schemas --full || code=$?
  [ $code = 77 ] || return $code
  notes+=("the schemas of Kubernetes cannot be had: manifests not validated")
}

# The image, built for real, and the template's pods in containers of it; where those cannot run it says so and is skipped.
check_pods() {
  local log=build/pods.log
  tests/pods/podman/run.py build/release | tee "$log" || return 1
  if grep -q '^skipped:' "$log"; then notes+=("pods in containers $(grep '^skipped:' "$log")"); fi
}

# Random faults of pods; the ordinary tests try a few.
check_chaos() {
  local code=0
  tests/pods/namespaces/run.py build/release chaos --count 10 || code=$?
  [ $code = 77 ] || return $code
  notes+=("there are no network namespaces here: no faults of pods tried")
}

run_ctest() { ctest --preset release --no-tests=error -j "$(nproc)"; }

if [ $full = 1 ]; then scripts/install_packages.sh --full; else scripts/install_packages.sh; fi
if command -v ccache >/dev/null; then export CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache; fi

if [ $full = 1 ]; then
  if has_version_14 clang-format; then check format check_format; else notes+=("no clang-format 14: format not checked"); fi
  check scripts check_scripts
  check python check_python
  check build configure_and_build -DLOCKSTEP_WERROR=ON -DLOCKSTEP_BENCHES=ON
else
  check build configure_and_build -DLOCKSTEP_WERROR=OFF -DLOCKSTEP_BENCHES=OFF
fi
if [[ " ${failed[*]} " != *" build "* ]]; then # nothing else has anything to stand on
  if [ $full = 1 ]; then
    if has_version_14 clang-tidy; then check lint check_lint; else notes+=("no clang-tidy 14: lint not run"); fi
    check sanitizers check_sanitizers
    check fuzzers check_fuzzers
  fi
  if [ $full = 1 ]; then
    check manifests check_manifests
    check pods check_pods
    check chaos check_chaos
  fi
  check interop check_interop
  check tests run_ctest
fi

[ -n "${LOCKSTEP_MNIST_DIR:-}" ] || notes+=("LOCKSTEP_MNIST_DIR is not set: tests with real MNIST skipped")
[ -e /dev/nvidia0 ] || notes+=("no CUDA device: GPU tests skipped, or run on a GPU played on the host")
printf '\n'
for note in "${notes[@]}"; do printf '%s\n' "$note"; done
if [ ${#failed[@]} -gt 0 ]; then
  printf 'FAILED: %s\n' "${failed[*]}"
  exit 1
fi
printf 'All passed in %d minutes\n' $(((SECONDS + 59) / 60))
