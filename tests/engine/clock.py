"""Serves requests with vLLM's own engine, on a clock of CPU seconds: `build/engine/bin/python clock.py MODEL DTYPE`.

Reads one job a line from standard input and answers each with a line, both JSON:

    {"clients": 4, "requests": [[0, 64, 32], ...]}   as many clients, each sending its next request when its last ends
    {"requests": [[0.31, 64, 32], ...]}              at their arrivals: seconds, tokens of prompt and answer

    {"first_s": [...], "last_s": [...], "sent_s": [...], "seconds": 1.9,
     "steps": [[sequences, prompt tokens, seconds], ...]}

Each step of the engine moves the clock by the CPU time that this process took for it, and by nothing else: what other
programs take of the machine hardly shows. Between two steps requests are handed over whose time has come. The model
is made up: a Llama of up to 25 million parameters without weights, written to the folder MODEL.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

os.environ |= {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
}

VOCABULARY = 2048
LAYERS = {"bfloat16": 8, "float32": 3}  # by DTYPE, so that a step takes about as long on either kind of processor
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 512,
    "intermediate_size": 1408,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def write_model(folder: Path, dtype: str) -> None:
    """A config and a tokenizer of the words w3, w4, ...; the engine makes up the weights (`--load-format dummy`)."""
    from tokenizers import Tokenizer, models, pre_tokenizers  # type: ignore[import-not-found, unused-ignore]
    from transformers import PreTrainedTokenizerFast  # type: ignore[import-not-found, unused-ignore]

    folder.mkdir(parents=True, exist_ok=True)
    words = ["<unk>", "<s>", "</s>", *(f"w{number}" for number in range(3, VOCABULARY))]
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    names = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)
    config = {**CONFIG, "num_hidden_layers": LAYERS[dtype]}
    (folder / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")


class Clocked:
    """vLLM's engine in this process; `now_s`: CPU seconds of all its steps, and what was waited for arrivals."""

    def __init__(self, model: Path, dtype: str) -> None:
        from vllm.engine.arg_utils import EngineArgs  # type: ignore[import-not-found, unused-ignore]
        from vllm.v1.engine.llm_engine import LLMEngine  # type: ignore[import-not-found, unused-ignore]

        arguments = EngineArgs(
            model=str(model),
            load_format="dummy",
            dtype=dtype,
            enforce_eager=True,
            max_num_seqs=256,
            max_num_batched_tokens=2048,
            enable_prefix_caching=False,
            async_scheduling=False,
            disable_log_stats=True,
            seed=0,
        )
        self._engine = LLMEngine.from_engine_args(arguments)
        self._scheduler = self._engine.engine_core.engine_core.scheduler
        self._schedule, self._scheduler.schedule = self._scheduler.schedule, self._scheduled
        self._requests = 0
        self.steps: list[list[float]] = []
        self.now_s = 0.0

    def _scheduled(self, *arguments: Any) -> Any:
        """What vLLM's scheduler puts into a step, noted by who is past its prompt and who is not."""
        prompts = {name: one.num_prompt_tokens for name, one in self._scheduler.requests.items()}
        done = {name: one.num_computed_tokens for name, one in self._scheduler.requests.items()}
        found = self._schedule(*arguments)
        tokens = found.num_scheduled_tokens
        decoding = sum(done[name] >= prompts[name] for name in tokens)
        self.steps.append([decoding, sum(tokens.values()) - decoding])
        return found

    def serve(self, requests: list[list[float]], clients: int | None) -> dict[str, Any]:
        """See the module; the clock begins anew."""
        from vllm import SamplingParams  # type: ignore[import-not-found, unused-ignore]

        self.now_s, self.steps = 0.0, []
        sent, first, last = ([0.0] * len(requests) for _ in range(3))
        waiting, running = list(range(len(requests)))[::-1], 0
        names: dict[str, int] = {}
        while waiting or running:
            if clients is None and not running:
                self.now_s = max(self.now_s, requests[waiting[-1]][0])
            while waiting and (running < clients if clients else requests[waiting[-1]][0] <= self.now_s):
                number = waiting.pop()
                arrival_s, prompt, answer = requests[number]
                sent[number] = self.now_s if clients else arrival_s
                self._requests += 1
                names[name := str(self._requests)] = number
                words = [3 + (7 * self._requests + 11 * at) % (VOCABULARY - 3) for at in range(int(prompt))]
                length = SamplingParams(max_tokens=int(answer), min_tokens=int(answer), ignore_eos=True)
                self._engine.add_request(name, {"prompt_token_ids": words}, length)
                running += 1
            before_s = time.process_time()
            outputs = self._engine.step()
            self.steps[-1].append(time.process_time() - before_s)
            self.now_s += self.steps[-1][-1]
            for output in outputs:
                number = names[output.request_id]
                first[number] = first[number] or self.now_s
                if output.finished:
                    last[number] = self.now_s
                    running -= 1
        return {"sent_s": sent, "first_s": first, "last_s": last, "seconds": self.now_s, "steps": self.steps}


def main(model: Path, dtype: str) -> int:
    answers = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is not an answer
    write_model(model, dtype)
    clocked = Clocked(model, dtype)
    answers.write(json.dumps({"ready_s": time.process_time()}) + "\n")
    for line in sys.stdin:
        job = json.loads(line)
        answers.write(json.dumps(clocked.serve(job["requests"], job.get("clients"))) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
