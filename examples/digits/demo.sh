#!/usr/bin/env bash
# The demo: train.py as a TrainJob of 2 nodes x 2 processes on this machine. `make demo` runs it.
#
# TRAINWRIGHT names the command (default: trainwright on PATH), DEMO_DIR the folder for checkpoint and picture
# (default: demo-output in the working directory). The shell's python must be able to import torch and sklearn.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
trainwright=${TRAINWRIGHT:-trainwright}
output=$(mkdir -p "${DEMO_DIR:-demo-output}" && cd "${DEMO_DIR:-demo-output}" && pwd)
job=digits-$(date +%H%M%S)
rm -f "$output/digits.pt" # a checkpoint of an earlier demo would be resumed, with nothing left to train

"$trainwright" run "$here/train.py" --name "$job" --nodes 2 --nproc-per-node 2 -- \
  --epochs 20 --checkpoint-dir "$output"

echo
"$trainwright" get "$job" --plot "$output/digits.png"
echo
echo "checkpoint: $output/digits.pt"
echo "picture:    $output/digits.png"
"$trainwright" get "$job" -o json | python -c '
import json, sys
metrics = {m["name"]: float(m["value"]) for m in json.load(sys.stdin)["status"]["trainerStatus"]["metrics"]}
accuracy = metrics["accuracy"]
print(f"accuracy:   {accuracy:.1%} of the test images, from the status of the job")
sys.exit(accuracy < 0.95)'
