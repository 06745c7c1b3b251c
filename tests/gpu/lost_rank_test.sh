#!/usr/bin/env bash
# lost_rank_test.sh PROGRAM RANKS: kills one of RANKS, which train over NCCL. All others must end within seconds, long
# before any time-out, one of them at least with 75 and a sentence that says why. Ends with 77 where there is no GPU.
set -euo pipefail
program=$1
ranks=$2
limit=30
here=$(dirname "$0")
[ -n "${LOCKSTEP_PLAYED_GPUS:-}" ] || [ -e /dev/nvidiactl ] || [ -e /dev/nvidia0 ] ||
  { echo "skipped: no NVIDIA device"; exit 77; }

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
options=(--device cuda --communication nccl --epochs 100000 --steps-per-epoch 20 --global-batch-size 64
  --verbose 2 --resume never --model-dir "$folder/model")

# Shells that outlive their ranks, and stay until mpirun ends them: it would end the other ranks itself if it saw one
# gone. A host of its own for every rank, in NCCL's eyes: so a ring stands on one GPU.
# shellcheck disable=SC2016 # the rank's own shell expands it
LOST_RANK_FOLDER=$folder LOCKSTEP_COLLECTIVE_TIMEOUT=120 timeout 240 \
  "$here/../../scripts/mpirun.sh" -np "$ranks" bash -c '
    rank=$OMPI_COMM_WORLD_RANK
    NCCL_HOSTID=rank$rank NCCL_SOCKET_IFNAME=lo "$@" &
    echo $! >"$LOST_RANK_FOLDER/$rank.pid"
    trap : TERM
    status=0
    while kill -0 $! 2>/dev/null; do wait $! && status=0 || status=$?; done
    echo $status >"$LOST_RANK_FOLDER/$rank.status"
    sleep 300' rank "$program" "${options[@]}" >"$folder/log" 2>&1 &
mpirun=$!

fail() {
  echo "$1; the ranks said:"
  tail -n 30 "$folder/log"
  for rank in $(seq 0 $((ranks - 1))); do
    [ ! -e "$folder/$rank.pid" ] || kill -9 "$(cat "$folder/$rank.pid")" 2>/dev/null || true
  done
  kill "$mpirun" 2>/dev/null || true
  exit 1
}

# wait_for SECONDS WHAT COMMAND...
wait_for() {
  local end=$((SECONDS + $1)) what=$2
  shift 2
  until "$@"; do
    [ $SECONDS -lt $end ] || fail "$what"
    sleep 0.1
  done
}

trains() { grep -q '^Epoch 3/' "$folder/log"; }
ended() { # whatever the ranks' shells became of
  local rank
  for rank in $(seq 0 $((ranks - 1))); do
    ! kill -0 "$(cat "$folder/$rank.pid")" 2>/dev/null || return 1
  done
}

wait_for 180 "no third epoch began" trains
victim=$((ranks - 1))
kill -9 "$(cat "$folder/$victim.pid")"
began=$SECONDS
wait_for $limit "some rank still runs $limit s after rank $victim was killed" ended
wait "$mpirun" || true
echo "all ended within $((SECONDS - began)) s"
statuses=$(cat "$folder"/*.status | sort | uniq -c)
grep -qw 75 <<<"$statuses" || fail "no rank ended with 75 but with (count, status) $statuses"
grep -m 1 'error:' "$folder/log" || fail "no rank said why it ended"
