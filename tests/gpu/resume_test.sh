#!/usr/bin/env bash
# resume_test.sh PROGRAM: training on the GPU that is killed and resumed must end with the same bits as an uninterrupted
# run. Training that is killed on the CPU and resumed on the GPU, or vice versa, must reach the same loss. Exits with 77
# if there is no GPU.
set -euo pipefail
program=$1
[ -n "${LOCKSTEP_FAKE_GPUS:-}" ] || [ -e /dev/nvidiactl ] || [ -e /dev/nvidia0 ] ||
  { echo "skipped: no NVIDIA device"; exit 77; }

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export LOCKSTEP_EPOCHS=8 LOCKSTEP_STEPS_PER_EPOCH=5 LOCKSTEP_GLOBAL_BATCH_SIZE=32 LOCKSTEP_VERBOSE=0
export LOCKSTEP_DETERMINISTIC=1

# kill_after_backup DEVICE NAME: starts training and kills it after its first backup
kill_after_backup() {
  local model=$folder/$2 pid end=$((SECONDS + 60))
  "$program" --device "$1" --model-dir "$model" --backup-save-freq 1 --epochs 100000 >"$model.log" 2>&1 &
  pid=$!
  until compgen -G "$model/backup/fit-1-step-*.h5" >/dev/null; do
    if [ $SECONDS -ge $end ] || ! kill -0 $pid; then
      echo "no backup was written on $1 within 60 s"
      cat "$model.log"
      exit 1
    fi
    sleep 0.01
  done
  kill -9 $pid
  wait $pid 2>/dev/null || true
}

# resume_on DEVICE NAME: resumes the training
resume_on() {
  "$program" --device "$1" --model-dir "$folder/$2" --resume require >"$folder/$2.log" 2>&1 ||
    { cat "$folder/$2.log"; exit 1; }
}

"$program" --device cuda --model-dir "$folder/whole" >"$folder/whole.log"
kill_after_backup cuda again
resume_on cuda again
cmp "$folder/whole/model.h5" "$folder/again/model.h5"
echo "killed and resumed: the same bits"
for devices in cpu,cuda cuda,cpu; do
  kill_after_backup "${devices%,*}" "$devices"
  resume_on "${devices#*,}" "$devices"
done
python3 - "$folder" <<'PYTHON'
import json, sys

losses = {name: json.load(open(f"{sys.argv[1]}/{name}/history.json"))["evaluation"]["loss"]
          for name in ("whole", "cpu,cuda", "cuda,cpu")}
print(losses)
if not all(abs(loss - losses["whole"]) <= 1e-4 for loss in losses.values()):
    sys.exit("training that resumed on another device reached a different loss")
PYTHON
