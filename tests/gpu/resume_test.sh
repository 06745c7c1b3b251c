#!/usr/bin/env bash
# resume_test.sh PROGRAM: a training on the GPU that is killed and started again ends with the bits of one that was not;
# one that begins on the CPU goes on on the GPU, and the other way round, and comes to the same loss. Ends with 77 where
# there is no GPU.
set -euo pipefail
program=$1
[ -n "${LOCKSTEP_PLAYED_GPUS:-}" ] || [ -e /dev/nvidiactl ] || [ -e /dev/nvidia0 ] ||
  { echo "skipped: no NVIDIA device"; exit 77; }

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export LOCKSTEP_EPOCHS=8 LOCKSTEP_STEPS_PER_EPOCH=5 LOCKSTEP_GLOBAL_BATCH_SIZE=32 LOCKSTEP_VERBOSE=0
export LOCKSTEP_DETERMINISTIC=1

# killed_on DEVICE NAME: begins a training and kills it when its first backup is there, long before its end
killed_on() {
  local model=$folder/$2 pid end=$((SECONDS + 60))
  "$program" --device "$1" --model-dir "$model" --backup-save-freq 1 --epochs 100000 >"$model.log" 2>&1 &
  pid=$!
  until compgen -G "$model/backup/fit-1-step-*.h5" >/dev/null; do
    if [ $SECONDS -ge $end ] || ! kill -0 $pid; then
      echo "no backup came on $1"
      cat "$model.log"
      exit 1
    fi
    sleep 0.01
  done
  kill -9 $pid
  wait $pid 2>/dev/null || true
}

# goes_on DEVICE NAME
goes_on() {
  "$program" --device "$1" --model-dir "$folder/$2" --resume require >"$folder/$2.log" 2>&1 ||
    { cat "$folder/$2.log"; exit 1; }
}

"$program" --device cuda --model-dir "$folder/whole" >"$folder/whole.log"
killed_on cuda again
goes_on cuda again
cmp "$folder/whole/model.h5" "$folder/again/model.h5"
echo "killed and gone on: the same bits"
for way in cpu,cuda cuda,cpu; do
  killed_on "${way%,*}" "$way"
  goes_on "${way#*,}" "$way"
done
python3 - "$folder" <<'PYTHON'
import json, sys

losses = {name: json.load(open(f"{sys.argv[1]}/{name}/history.json"))["evaluation"]["loss"]
          for name in ("whole", "cpu,cuda", "cuda,cpu")}
print(losses)
if not all(abs(loss - losses["whole"]) <= 1e-4 for loss in losses.values()):
    sys.exit("a training that changed its device came to another loss")
PYTHON
