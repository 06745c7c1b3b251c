#!/usr/bin/env bash
# lost_rank_test.sh PROGRAM RANKS: kills one of RANKS ranks that train over NCCL. The others must exit within seconds,
# long before any timeout, at least one of them with 75 and an error message. Exits with 77 if there is no GPU.
set -euo pipefail
program=$1
ranks=$2
limit=30
here=$(dirname "$0")
[ -n "${LOCKSTEP_FAKE_GPUS:-}" ] || [ -e /dev/nvidiactl ] || [ -e /dev/nvidia0 ] ||
  { echo "skipped: no NVIDIA device"; exit 77; }

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
options=(--device cuda --communication nccl --epochs 100000 --steps-per-epoch 20 --global-batch-size 64
  --verbose 2 --resume never --model-dir "$folder/model")

# The shells outlive their ranks until mpirun ends, because mpirun would kill the other ranks if it saw one exit. With
# different NCCL_HOSTIDs, NCCL treats the ranks as being on different hosts, so that they can share one GPU.
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
  echo "$1; output of the ranks:"
  tail -n 30 "$folder/log"
  for rank in $(seq 0 $((ranks - 1))); do
    [ ! -e "$folder/$rank.pid" ] || kill -9 "$(cat "$folder/$rank.pid")" 2>/dev/null || true
  done
  kill "$mpirun" 2>/dev/null || true
  exit 1
}

# wait_for SECONDS MESSAGE COMMAND...: waits until the command succeeds, or fails with the message
wait_for() {
  local end=$((SECONDS + $1)) what=$2
  shift 2
  until "$@"; do
    [ $SECONDS -lt $end ] || fail "$what"
    sleep 0.1
  done
}

trains() { grep -q '^Epoch 3/' "$folder/log"; }
ended() { # whether all ranks have exited; their shells may still run
  local rank
  for rank in $(seq 0 $((ranks - 1))); do
    ! kill -0 "$(cat "$folder/$rank.pid")" 2>/dev/null || return 1
  done
}

wait_for 180 "the third epoch did not begin within 180 s" trains
victim=$((ranks - 1))
kill -9 "$(cat "$folder/$victim.pid")"
began=$SECONDS
wait_for $limit "a rank still runs $limit s after rank $victim was killed" ended
code=0
wait "$mpirun" || code=$?
echo "all ranks exited within $((SECONDS - began)) s"
statuses=$(cat "$folder"/*.status | sort | uniq -c)
# The mpirun of Open MPI 5 may kill a shell before it writes its rank's status, but ends with that status itself.
[ $code = 75 ] || grep -qw 75 <<<"$statuses" || fail "no rank exited with 75; (count, exit code): $statuses"
grep -m 1 'error:' "$folder/log" || fail "no rank printed an error"
