#!/usr/bin/env bash
# Plan bc48bfc9-49a6-4065-a39b-c423869afddc, revision 1, made 2026-11-21T06:36:10.868054+00:00 by sutler.
# For vLLM 0.33.0, https://docs.vllm.ai/en/v0.33.0/serving/parallelism_scaling.html
# Usage: bash THIS_FILE MACHINE, on each machine, with the name that it has in the list below.
# Set RENTAL_0_MACHINE_0_ADDRESS to the IP address of rental-0-machine-0, as its other nodes reach it.
#
# Machines:
#   rental-0-machine-0: 2 x rtx-a6000, offer gpu_2x_a6000 of lambda, 1 of 3, on demand, site lambda/us-east-1
#   rental-0-machine-1: 2 x rtx-a6000, offer gpu_2x_a6000 of lambda, 2 of 3, on demand, site lambda/us-east-1
#   rental-0-machine-2: 2 x rtx-a6000, offer gpu_2x_a6000 of lambda, 3 of 3, on demand, site lambda/us-east-1
set -euo pipefail

# 2 x rtx-a6000, offer gpu_2x_a6000 of lambda, 1 of 3, on demand, site lambda/us-east-1
start_rental_0_machine_0() {
  # Replica chat-0 of model chat, node 1 of 3
  VLLM_PP_LAYER_PARTITION=27,27,26 vllm serve meta-llama/Llama-3.3-70B-Instruct --port 8000 --served-model-name chat --tensor-parallel-size 2 --pipeline-parallel-size 3 --dtype bfloat16 --max-num-seqs 256 --max-model-len 2048 --nnodes 3 --node-rank 0 --master-addr "${RENTAL_0_MACHINE_0_ADDRESS:?set it to the IP address of rental-0-machine-0}" --master-port 29501 &
}

# 2 x rtx-a6000, offer gpu_2x_a6000 of lambda, 2 of 3, on demand, site lambda/us-east-1
start_rental_0_machine_1() {
  # Replica chat-0 of model chat, node 2 of 3
  VLLM_PP_LAYER_PARTITION=27,27,26 vllm serve meta-llama/Llama-3.3-70B-Instruct --served-model-name chat --tensor-parallel-size 2 --pipeline-parallel-size 3 --dtype bfloat16 --max-num-seqs 256 --max-model-len 2048 --nnodes 3 --node-rank 1 --master-addr "${RENTAL_0_MACHINE_0_ADDRESS:?set it to the IP address of rental-0-machine-0}" --master-port 29501 --headless &
}

# 2 x rtx-a6000, offer gpu_2x_a6000 of lambda, 3 of 3, on demand, site lambda/us-east-1
start_rental_0_machine_2() {
  # Replica chat-0 of model chat, node 3 of 3
  VLLM_PP_LAYER_PARTITION=27,27,26 vllm serve meta-llama/Llama-3.3-70B-Instruct --served-model-name chat --tensor-parallel-size 2 --pipeline-parallel-size 3 --dtype bfloat16 --max-num-seqs 256 --max-model-len 2048 --nnodes 3 --node-rank 2 --master-addr "${RENTAL_0_MACHINE_0_ADDRESS:?set it to the IP address of rental-0-machine-0}" --master-port 29501 --headless &
}

# When one server ends, the others are stopped, so that whatever watches this script sees the fault.
trap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT
trap 'exit 143' TERM
trap 'exit 130' INT
case "${1-}" in
  rental-0-machine-0) start_rental_0_machine_0 ;;
  rental-0-machine-1) start_rental_0_machine_1 ;;
  rental-0-machine-2) start_rental_0_machine_2 ;;
  *)
    echo "usage: $0 MACHINE, one of: rental-0-machine-0 rental-0-machine-1 rental-0-machine-2" >&2
    exit 2
    ;;
esac
wait -n
