#!/usr/bin/env bash
# Plan cb622d90-521c-4b6e-a5e8-f9ad2d171d22, revision 1, made 2026-11-21T06:36:11.610874+00:00 by sutler.
# For vLLM 0.33.0, https://docs.vllm.ai/en/v0.33.0/serving/parallelism_scaling.html
# Usage: bash THIS_FILE MACHINE, on each machine, with the name that it has in the list below.
# Set RENTAL_0_MACHINE_0_ADDRESS to the IP address of rental-0-machine-0, as its other nodes reach it.
#
# Machines:
#   rental-0-machine-0: 4 x h100-sxm, offer hopper of acme, on demand, site acme/a
#   rental-1-machine-0: 8 x l40s, offer ada of acme, on demand, site acme/a
#
# Before running it:
#   - chat-0 is left out: its stages have 2, 4 GPUs and vLLM takes one --tensor-parallel-size for all: start it with an engine that places stages one by one
#   - code-0 mixes h100-sxm and l40s: vLLM starts it, but sizes the KV cache of all stages by the smallest and is not tested on mixed GPUs; measure it before relying on its rate
#   - chat-0, code-0: stages differ in GPU or tensor parallelism: use an engine that places stages one by one (search.mixed_gpu_pipelines: false avoids mixed GPUs)
set -euo pipefail

# 4 x h100-sxm, offer hopper of acme, on demand, site acme/a
start_rental_0_machine_0() {
  # Replica code-0 of model code, node 1 of 2
  CUDA_VISIBLE_DEVICES=2 vllm serve meta-llama/Llama-3.1-8B --port 8000 --served-model-name code --tensor-parallel-size 1 --pipeline-parallel-size 2 --dtype bfloat16 --max-model-len 2048 --nnodes 2 --node-rank 0 --master-addr "${RENTAL_0_MACHINE_0_ADDRESS:?set it to the IP address of rental-0-machine-0}" --master-port 29501 &
}

# 8 x l40s, offer ada of acme, on demand, site acme/a
start_rental_1_machine_0() {
  # Replica code-0 of model code, node 2 of 2
  CUDA_VISIBLE_DEVICES=4 vllm serve meta-llama/Llama-3.1-8B --served-model-name code --tensor-parallel-size 1 --pipeline-parallel-size 2 --dtype bfloat16 --max-model-len 2048 --nnodes 2 --node-rank 1 --master-addr "${RENTAL_0_MACHINE_0_ADDRESS:?set it to the IP address of rental-0-machine-0}" --master-port 29501 --headless &
}

# When one server ends, the others are stopped, so that whatever watches this script sees the fault.
trap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT
trap 'exit 143' TERM
trap 'exit 130' INT
case "${1-}" in
  rental-0-machine-0) start_rental_0_machine_0 ;;
  rental-1-machine-0) start_rental_1_machine_0 ;;
  *)
    echo "usage: $0 MACHINE, one of: rental-0-machine-0 rental-1-machine-0" >&2
    exit 2
    ;;
esac
wait -n
