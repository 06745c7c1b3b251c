#!/usr/bin/env bash
# ranks_test.sh PROGRAM nccl|mpi RANKS: trains with one rank and with RANKS ranks, and compares the evaluation's loss
# and accuracy. Exits with 77 if there is no GPU.
set -euo pipefail
program=$1
communication=$2
ranks=$3
here=$(dirname "$0")
[ -e /dev/nvidiactl ] || [ -e /dev/nvidia0 ] || [ -n "${LOCKSTEP_FAKE_GPUS:-}" ] || { echo "skipped: no NVIDIA device"; exit 77; }

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
options=(--device cuda --epochs 1 --steps-per-epoch 10 --global-batch-size 64 --verbose 0 --deterministic)

"$program" "${options[@]}" --model-dir "$folder/one" >"$folder/one.log"
# With different NCCL_HOSTIDs, NCCL treats the ranks as being on different hosts, so that they can share one GPU. They
# communicate over the loopback interface.
# shellcheck disable=SC2016 # the rank's own shell expands it
"$here/../../scripts/mpirun.sh" -np "$ranks" bash -c \
  'NCCL_HOSTID=rank$OMPI_COMM_WORLD_RANK NCCL_SOCKET_IFNAME=lo exec "$@"' rank \
  "$program" "${options[@]}" --communication "$communication" --model-dir "$folder/several" >"$folder/several.log"

python3 - "$folder" <<'PYTHON'
import json, sys

one, several = (json.load(open(f"{sys.argv[1]}/{which}/history.json"))["evaluation"] for which in ("one", "several"))
print("one rank:", one, "several:", several)
for name, tolerance in (("loss", 1e-4), ("accuracy", 1e-3)):
    if not abs(one[name] - several[name]) <= tolerance:
        sys.exit(f"{name} differs by more than {tolerance}")
PYTHON
