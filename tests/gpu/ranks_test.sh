#!/usr/bin/env bash
# ranks_test.sh PROGRAM nccl|mpi RANKS: trains on one rank and on RANKS, and compares loss and accuracy of the evaluation.
# Ends with 77 where there is no GPU.
set -euo pipefail
program=$1
communication=$2
ranks=$3
here=$(dirname "$0")
[ -e /dev/nvidiactl ] || [ -e /dev/nvidia0 ] || [ -n "${LOCKSTEP_PLAYED_GPUS:-}" ] || { echo "skipped: no NVIDIA device"; exit 77; }

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
options=(--device cuda --epochs 1 --steps-per-epoch 10 --global-batch-size 64 --verbose 0 --deterministic)

"$program" "${options[@]}" --model-dir "$folder/one" >"$folder/one.log"
# A host of its own for every rank, in NCCL's eyes: so a ring stands on one GPU. Sockets on the loopback carry it.
# shellcheck disable=SC2016 # the rank's own shell expands it
"$here/../../scripts/mpirun.sh" -np "$ranks" bash -c \
  'NCCL_HOSTID=rank$OMPI_COMM_WORLD_RANK NCCL_SOCKET_IFNAME=lo exec "$@"' rank \
  "$program" "${options[@]}" --communication "$communication" --model-dir "$folder/several" >"$folder/several.log"

python3 - "$folder" <<'PYTHON'
import json, sys

one, several = (json.load(open(f"{sys.argv[1]}/{which}/history.json"))["evaluation"] for which in ("one", "several"))
print("one rank:", one, "several:", several)
for name, most in (("loss", 1e-4), ("accuracy", 1e-3)):
    if not abs(one[name] - several[name]) <= most:
        sys.exit(f"{name} differs")
PYTHON
