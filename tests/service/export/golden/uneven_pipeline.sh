#!/usr/bin/env bash
# Plan 49ca3bfa-883f-46d6-91d6-f74884efb410, revision 1, made 2026-11-21T06:36:10.107445+00:00 by sutler.
# For vLLM 0.33.0, https://docs.vllm.ai/en/v0.33.0/serving/parallelism_scaling.html
# Usage: bash THIS_FILE MACHINE, on each machine, with the name that it has in the list below.
#
# Machines:
#   rental-0-machine-0: 4 x rtx-4090, offer box of acme, on demand
set -euo pipefail

# 4 x rtx-4090, offer box of acme, on demand
start_rental_0_machine_0() {
  # Replica chat-0 of model chat
  VLLM_PP_LAYER_PARTITION=17,16,16,15 vllm serve Qwen/Qwen2.5-32B --port 8000 --served-model-name chat --tensor-parallel-size 1 --pipeline-parallel-size 4 --dtype bfloat16 --max-num-seqs 35 --max-model-len 2048 &
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
