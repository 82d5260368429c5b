"""transformers' `generate`, eager and greedy, as the examples gpt2 and llama do it: one JSON object at the end.

    python tools/gpu_day/torch_generate.py DIR --dtype bf16 --device cuda --prompt-ids 1,2,3 --new-tokens 128 --repeat 3
"""

import argparse
import json
import os
import time

os.environ["HF_HUB_OFFLINE"] = "1"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--dtype", choices=["f32", "bf16"], required=True)
    parser.add_argument("--device", choices=["cpu", "cuda"], required=True)
    parser.add_argument("--prompt-ids", required=True)
    parser.add_argument("--new-tokens", type=int, required=True)
    parser.add_argument("--repeat", type=int, required=True)
    options = parser.parse_args()

    import torch
    import transformers
    from transformers import AutoModelForCausalLM, StoppingCriteria
    from transformers.utils import logging

    logging.disable_progress_bar()
    dtype = dict(f32=torch.float32, bf16=torch.bfloat16)[options.dtype]
    begun = time.perf_counter()
    model = AutoModelForCausalLM.from_pretrained(options.model, dtype=dtype).to(options.device).eval()
    load_seconds = time.perf_counter() - begun
    ids = torch.tensor([[int(token) for token in options.prompt_ids.split(",")]], device=options.device)

    class FirstToken(StoppingCriteria):
        """Never stops, and notes when the first token is there."""

        at = None

        def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor, **_: object) -> torch.Tensor:
            if self.at is None:
                synchronise()
                self.at = time.perf_counter()
            return torch.zeros(input_ids.shape[0], dtype=torch.bool, device=input_ids.device)

    def synchronise() -> None:
        if options.device == "cuda":
            torch.cuda.synchronize()

    def generate() -> tuple[list[int], dict[str, float]]:
        synchronise()
        begun, first = time.perf_counter(), FirstToken()
        made = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            use_cache=True,
            min_new_tokens=options.new_tokens,
            max_new_tokens=options.new_tokens,
            pad_token_id=0,
            stopping_criteria=[first],
        )
        made = made[0, ids.shape[1] :].tolist()
        end = time.perf_counter()
        rate = (len(made) - 1) / (end - first.at)
        return made, dict(seconds=end - begun, first_token_seconds=first.at - begun, tokens_per_second=rate)

    # As many times as grove, and as there the last one counts.
    runs = [generate() for _ in range(options.repeat)]
    peak = torch.cuda.max_memory_allocated() if options.device == "cuda" else None
    made, times = runs[-1]
    result = dict(generated_ids=made, **times, first_run=runs[0][1], load_seconds=load_seconds)
    result |= dict(device_peak_bytes=peak, version=f"transformers {transformers.__version__}, PyTorch {torch.__version__}")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
