#!/usr/bin/env bash
# Plan f59e49df-7602-4cb7-b85f-e72412ad9b42, revision 1, made 2026-11-21T06:36:09.347007+00:00 by sutler.
# For vLLM 0.33.0, https://docs.vllm.ai/en/v0.33.0/serving/parallelism_scaling.html
# Usage: bash THIS_FILE MACHINE, on each machine, with the name that it has in the list below.
#
# Machines:
#   rental-0-machine-0: 8 x h100-sxm, offer gpu_8x_h100_sxm5 of lambda, on demand
#
# Before running it:
#   - large: engine_args name meta-llama/Llama-3.3-70B-Instruct; disk and rates are those of a checkpoint already at fp8, so put the name of one there
set -euo pipefail

# 8 x h100-sxm, offer gpu_8x_h100_sxm5 of lambda, on demand
start_rental_0_machine_0() {
  # Replica large-0 of model large
  CUDA_VISIBLE_DEVICES=0,1 vllm serve meta-llama/Llama-3.3-70B-Instruct --port 8000 --served-model-name large --tensor-parallel-size 2 --pipeline-parallel-size 1 --quantization fp8 --max-num-seqs 163 --max-model-len 4096 &
  # Replica large-1 of model large
  CUDA_VISIBLE_DEVICES=2,3 vllm serve meta-llama/Llama-3.3-70B-Instruct --port 8001 --served-model-name large --tensor-parallel-size 2 --pipeline-parallel-size 1 --quantization fp8 --max-num-seqs 163 --max-model-len 4096 &
  # Replica small-0 of model small
  CUDA_VISIBLE_DEVICES=4 vllm serve meta-llama/Llama-3.1-8B --port 8002 --served-model-name small --tensor-parallel-size 1 --pipeline-parallel-size 1 --dtype bfloat16 --max-num-seqs 256 --max-model-len 1024 &
  # Replica small-1 of model small
  CUDA_VISIBLE_DEVICES=5 vllm serve meta-llama/Llama-3.1-8B --port 8003 --served-model-name small --tensor-parallel-size 1 --pipeline-parallel-size 1 --dtype bfloat16 --max-num-seqs 256 --max-model-len 1024 &
  # Replica small-2 of model small
  CUDA_VISIBLE_DEVICES=6 vllm serve meta-llama/Llama-3.1-8B --port 8004 --served-model-name small --tensor-parallel-size 1 --pipeline-parallel-size 1 --dtype bfloat16 --max-num-seqs 256 --max-model-len 1024 &
}

# When one server ends, the others are stopped, so that whatever watches this script sees the fault.
trap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT
trap 'exit 143' TERM
trap 'exit 130' INT
case "${1-}" in
  rental-0-machine-0) start_rental_0_machine_0 ;;
  *)
    echo "usage: $0 MACHINE, one of: rental-0-machine-0" >&2
    exit 2
    ;;
esac
wait -n
