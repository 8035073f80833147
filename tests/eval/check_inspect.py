"""inspect-ai's perplexity scorers against the server, over chat and over completions: every score
must be what the values of `alea score` give. Run by tests/eval/run, in an environment that has
inspect_ai and openai."""
import argparse
import math
import os
import sys
import tempfile

FOLDER = tempfile.TemporaryDirectory()
os.environ.update({"INSPECT_LOG_DIR": FOLDER.name, "INSPECT_DISPLAY": "none",
                   "XDG_DATA_HOME": FOLDER.name, "XDG_CACHE_HOME": FOLDER.name})

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import eval_server
import eval_text

from inspect_ai import Task, eval as run_eval
from inspect_ai.dataset import Sample
from inspect_ai.model import GenerateConfig
from inspect_ai.scorer import perplexity, target_perplexity
from inspect_ai.solver import generate

TARGET_TOKENS = 3


def check(truth, what):
    if not truth:
        raise SystemExit(f"check_inspect: error: {what}")


def scores_of(log):
    check(log.status == "success", log.error)
    found = {}
    for sample in log.samples:
        for name, score in sample.scores.items():
            found[sample.id, name] = score.value
    return found


def expected_of(model, prompts):
    """(mean of all, mean of the last few) of each prompt, negated."""
    for line in eval_server.alea_score(model, prompts):
        values = [token["logprob"] for token in line["tokens"][1:]]
        yield -sum(values) / len(values), -sum(values[-TARGET_TOKENS:]) / TARGET_TOKENS


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--items", type=int, default=40)
    settings = parser.parse_args()
    server = eval_server.Server("--model", settings.model, "--served-model-name", "alea")
    os.environ.update({"ALEA_BASE_URL": server.root + "/v1", "ALEA_API_KEY": "none"})
    texts = [item["text"] for item in eval_text.passages(settings.items)]
    samples = [Sample(input=text, id=i, metadata={"num_target_tokens": TARGET_TOKENS})
               for i, text in enumerate(texts, 1)]
    task = Task(dataset=samples, solver=generate(), scorer=[perplexity(), target_perplexity()],
                config=GenerateConfig(max_tokens=1, prompt_logprobs=1, temperature=0))
    try:
        for kind in ("openai-api", "openai-api-completions"):
            log, = run_eval(task, model=f"{kind}/alea/alea", log_level="error", score=True)
            found = scores_of(log)
            if kind == "openai-api":
                prompts = [server.good("/tokenize", {
                    "messages": [{"role": "user", "content": text}]})["tokens"] for text in texts]
            else:
                prompts = [server.good("/tokenize", {"prompt": text})["tokens"] for text in texts]
            for i, (whole, last) in enumerate(expected_of(settings.model, prompts), 1):
                check(math.isclose(found[i, "perplexity"], whole, rel_tol=1e-12), f"{kind} {i}")
                check(math.isclose(found[i, "target_perplexity"], last, rel_tol=1e-12),
                      f"{kind} {i}: target")
            print(f"inspect: {kind}: {len(texts)} samples, both scorers as alea score has them",
                  flush=True)
    finally:
        server.close()


if __name__ == "__main__":
    main()
