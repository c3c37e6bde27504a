#!/usr/bin/env bash
# Plan 00af10ae-64fa-4bcf-b03b-e6388686d0e5, revision 1, made 2026-11-22T15:09:45.320074+00:00 by sutler.
# For vLLM 0.33.0, https://docs.vllm.ai/en/v0.33.0/serving/parallelism_scaling.html
# Usage: bash THIS_FILE MACHINE, on each machine, with the name that it has in the list below.
# Set RENTAL_0_MACHINE_0_ADDRESS to the IP address of rental-0-machine-0, as its other nodes reach it.
#
# Machines:
#   rental-0-machine-0: 4 x h100-sxm, offer hopper of acme, on demand, site acme/a
#   rental-1-machine-0: 8 x l40s, offer ada of acme, on demand, site acme/a
#
# Before running it:
#   - chat-0 mixes h100-sxm and l40s: vLLM starts it, but sizes the KV cache of all stages by the smallest and is not tested on mixed GPUs; measure it before relying on its rate
#   - code-0 mixes h100-sxm and l40s: vLLM starts it, but sizes the KV cache of all stages by the smallest and is not tested on mixed GPUs; measure it before relying on its rate
set -euo pipefail

# 4 x h100-sxm, offer hopper of acme, on demand, site acme/a
start_rental_0_machine_0() {
  # Replica chat-0 of model chat, node 1 of 2
  CUDA_VISIBLE_DEVICES=0,1 vllm serve meta-llama/Meta-Llama-3-70B --port 8000 --served-model-name chat --tensor-parallel-size 2 --pipeline-parallel-size 2 --dtype bfloat16 --max-num-seqs 256 --max-num-batched-tokens 2048 --max-model-len 2048 --nnodes 2 --node-rank 0 --master-addr "${RENTAL_0_MACHINE_0_ADDRESS:?set it to the IP address of rental-0-machine-0}" --master-port 29501 &
  # Replica code-0 of model code, node 1 of 2
  CUDA_VISIBLE_DEVICES=2 vllm serve meta-llama/Llama-3.1-8B --port 8001 --served-model-name code --tensor-parallel-size 1 --pipeline-parallel-size 2 --dtype bfloat16 --max-num-seqs 256 --max-num-batched-tokens 2048 --max-model-len 2048 --nnodes 2 --node-rank 0 --master-addr "${RENTAL_0_MACHINE_0_ADDRESS:?set it to the IP address of rental-0-machine-0}" --master-port 29502 &
}

# 8 x l40s, offer ada of acme, on demand, site acme/a
start_rental_1_machine_0() {
  # Replica chat-0 of model chat, node 2 of 2
  CUDA_VISIBLE_DEVICES=0,1 vllm serve meta-llama/Meta-Llama-3-70B --served-model-name chat --tensor-parallel-size 2 --pipeline-parallel-size 2 --dtype bfloat16 --max-num-seqs 256 --max-num-batched-tokens 2048 --max-model-len 2048 --nnodes 2 --node-rank 1 --master-addr "${RENTAL_0_MACHINE_0_ADDRESS:?set it to the IP address of rental-0-machine-0}" --master-port 29501 --headless &
  # Replica code-0 of model code, node 2 of 2
  CUDA_VISIBLE_DEVICES=2 vllm serve meta-llama/Llama-3.1-8B --served-model-name code --tensor-parallel-size 1 --pipeline-parallel-size 2 --dtype bfloat16 --max-num-seqs 256 --max-num-batched-tokens 2048 --max-model-len 2048 --nnodes 2 --node-rank 1 --master-addr "${RENTAL_0_MACHINE_0_ADDRESS:?set it to the IP address of rental-0-machine-0}" --master-port 29502 --headless &
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
