#!/usr/bin/env bash
# mpirun for a workstation: allows root and more ranks than cores, and lets Ctrl-C end a run after the step.
# Programs never set these variables. Those of Open MPI 4 and 5 differ; both are set.
set -euo pipefail
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# All ranks run on this machine. Without this, Open MPI 5 warns about network interfaces that it cannot pair.
export OMPI_MCA_btl_tcp_if_include=lo
export OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
# Threads that wait for each other sleep soon (src/core/bound_spinning.hpp). A choice of the user's wins.
if [ -z "${GOMP_SPINCOUNT:-}${OMP_WAIT_POLICY:-}" ]; then export GOMP_SPINCOUNT=1000; fi

# mpirun kills its ranks one second after an interrupt, which may be in the middle of a step. It passes SIGUSR1 on to
# them, and they take it as a request to stop. The second interrupt kills them: mpirun of Open MPI 4 crashes where it
# would do that itself.
is_signalled=0
was_asked=0
was_stopped=0
# Sets `ranks` to the processes of the programs.
find_ranks() {
  ranks=()
  read -r -a ranks < <(cat "/proc/$mpirun/task/"*/children 2>/dev/null) || true
}
# Whether there are ranks, and all of them handle SIGUSR1.
all_expect_signal() {
  local rank mask
  for rank in "${ranks[@]}"; do
    mask=$(sed -n 's/^SigCgt:\t*//p' "/proc/$rank/status") || return 1
    (((0x0$mask >> 9) & 1)) || return 1 # SIGUSR1 is 10
  done
  [ ${#ranks[@]} -gt 0 ]
}
ask_to_stop() {
  is_signalled=1
  was_asked=1
  for _ in {1..100}; do # mpirun of Open MPI 4 hangs if a rank ends before all have started
    find_ranks
    if all_expect_signal || ! kill -0 "$mpirun"; then break; fi
    sleep 0.1
  done
  kill -USR1 "$mpirun" || true
  trap stop INT TERM
}
stop() {
  is_signalled=1
  was_stopped=1
  find_ranks
  if [ ${#ranks[@]} -gt 0 ]; then kill -KILL "${ranks[@]}" || true; else kill -TERM "$mpirun" || true; fi
}
hang_up() {
  is_signalled=1
  kill -TERM "$mpirun" || true
}

# mpirun describes an error after the program has done so, in a block between two rules. What only mpirun knows stays.
repeats_a_program() { # block
  local ours='(64|65|70|74|75)'
  [[ $1 == *"Primary job  terminated normally"* || $1 =~ 'exited with non-zero status'.*'Exit code:'\ +$ours ||
    $1 =~ 'MPI_ABORT was invoked'.*errorcode\ $ours ]]
}
leave_out_repetitions() {
  local line block=''
  while IFS= read -r line || [ -n "$line" ]; do
    if [[ ! $line =~ ^-{30,}$ ]]; then
      if [[ -n $block && ! $line =~ (error|warning):\  ]]; then block+=$'\n'$line; else printf '%s\n' "$line"; fi
    elif [ -z "$block" ]; then
      block=$line
    else
      repeats_a_program "$block" || printf '%s\n' "$block" "$line"
      block=''
    fi
  done
  [ -z "$block" ] || printf '%s\n' "$block"
}
end() { # exit code
  local tries=50
  while ((tries-- > 0)) && kill -0 "$filter" 2>/dev/null; do sleep 0.1; done
  exit "$1"
}

exec {filtered}> >(trap '' INT TERM HUP; leave_out_repetitions >&2)
filter=$!
set -m # a process group of its own: Ctrl-C in a terminal reaches this script alone
setpriv --pdeathsig TERM mpirun --bind-to none "$@" <&0 2>&"$filtered" {filtered}>&- &
mpirun=$!
exec {filtered}>&-
trap ask_to_stop INT TERM
trap hang_up HUP
while true; do
  is_signalled=0
  code=0
  wait "$mpirun" || code=$?
  if [ $is_signalled = 1 ]; then continue; fi
  if [ $was_stopped = 1 ] && [ "$code" != 0 ]; then
    echo "mpirun.sh: interrupted twice, so stopped at once; the same command goes on from the last backup, if there is one" >&2
    end 75
  fi
  if [ $was_asked = 1 ] && [ "$code" = 138 ]; then # SIGUSR1 came before a program could expect it
    echo "mpirun.sh: interrupted while the programs started; nothing was trained, and files are as they were" >&2
    end 75
  fi
  if [ "$code" = 137 ] || [ "$code" = 143 ]; then
    echo "mpirun.sh: a rank was killed by signal $((code - 128)); the same command goes on from the last backup, if there is one" >&2
    end 75
  fi
  end "$code"
done
