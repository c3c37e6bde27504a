#!/usr/bin/env bash
# Plan 37af59e9-dfd8-4487-82a0-ac4aecdf3349, revision 1, made 2026-11-21T06:36:08.601382+00:00 by sutler.
# For vLLM 0.33.0, https://docs.vllm.ai/en/v0.33.0/serving/parallelism_scaling.html
# Usage: bash THIS_FILE MACHINE, on each machine, with the name that it has in the list below.
#
# Machines:
#   rental-0-machine-0: 1 x rtx-4090, offer 4711 of vastai, 1 of 2, interruptible
#   rental-0-machine-1: 1 x rtx-4090, offer 4711 of vastai, 2 of 2, interruptible
#   rental-1-machine-0: 1 x h100-sxm, offer NVIDIA H100 80GB HBM3 of runpod, on demand
set -euo pipefail

# 1 x rtx-4090, offer 4711 of vastai, 1 of 2, interruptible
start_rental_0_machine_0() {
  # Replica chat-0 of model chat
  vllm serve meta-llama/Llama-3.1-8B --port 8000 --served-model-name chat --tensor-parallel-size 1 --pipeline-parallel-size 1 --dtype bfloat16 --max-num-seqs 48 --max-model-len 8192 &
}

# 1 x rtx-4090, offer 4711 of vastai, 2 of 2, interruptible
start_rental_0_machine_1() {
  # Replica chat-1 of model chat
  vllm serve meta-llama/Llama-3.1-8B --port 8000 --served-model-name chat --tensor-parallel-size 1 --pipeline-parallel-size 1 --dtype bfloat16 --max-num-seqs 48 --max-model-len 8192 &
}

# 1 x h100-sxm, offer NVIDIA H100 80GB HBM3 of runpod, on demand
start_rental_1_machine_0() {
  # Replica chat-2 of model chat
  vllm serve meta-llama/Llama-3.1-8B --port 8000 --served-model-name chat --tensor-parallel-size 1 --pipeline-parallel-size 1 --dtype bfloat16 --max-num-seqs 256 --max-model-len 8192 &
}

# When one server ends, the others are stopped, so that whatever watches this script sees the fault.
trap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT
trap 'exit 143' TERM
trap 'exit 130' INT
case "${1-}" in
  rental-0-machine-0) start_rental_0_machine_0 ;;
  rental-0-machine-1) start_rental_0_machine_1 ;;
  rental-1-machine-0) start_rental_1_machine_0 ;;
  *)
    echo "usage: $0 MACHINE, one of: rental-0-machine-0 rental-0-machine-1 rental-1-machine-0" >&2
    exit 2
    ;;
esac
wait -n
