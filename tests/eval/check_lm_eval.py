"""lm-evaluation-harness itself against the server, with the server's own tokenizer and no network:
three tasks of 240 items, at batch sizes 1 and 16 and concurrency 1 and 8. Every log-likelihood
must be the sum of what `alea score` reports, and near the sum of a long double oracle's.

API-34. Run by tests/eval/run, in an environment that has lm_eval.
"""
import argparse
import json
import math
import os
import socket
import subprocess
import sys
import tempfile
import time

FOLDER = tempfile.TemporaryDirectory()
os.environ.update({"HF_HOME": FOLDER.name, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1",
                   "HF_DATASETS_DISABLE_PROGRESS_BARS": "1", "TQDM_DISABLE": "1"})
os.environ.pop("OPENAI_API_KEY", None)

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import eval_server
import eval_text
import test_scoring

import lm_eval
from lm_eval.models.openai_completions import LocalCompletionsAPI
from lm_eval.tasks import TaskManager

CHOICE_TASK = """task: {name}
dataset_path: json
dataset_kwargs:
  data_files:
    test: {data}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{context}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: answer
metric_list:
  - {{metric: acc, aggregation: mean, higher_is_better: true}}
  - {{metric: acc_norm, aggregation: mean, higher_is_better: true}}
"""
ROLLING_TASK = """task: {name}
dataset_path: json
dataset_kwargs:
  data_files:
    test: {data}
test_split: test
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{{{text}}}}"
metric_list:
  - metric: word_perplexity
  - metric: byte_perplexity
  - metric: bits_per_byte
"""
TASKS = {"tom_phrases": (CHOICE_TASK, eval_text.phrases), "tom_words": (CHOICE_TASK,
         eval_text.next_words), "tom_passages": (ROLLING_TASK, eval_text.passages)}
PER_TOKEN = 3e-7  # docs/numerics.md, with 2^-23 of the value


def stay_here():
    """A connection to anywhere but this machine is an error."""
    real = socket.socket.connect

    def connect(self, address):
        if self.family != socket.AF_UNIX and address[0] not in ("127.0.0.1", "::1", "localhost"):
            raise OSError(f"the network is off: {address}")
        return real(self, address)
    socket.socket.connect = connect


def check(truth, what):
    if not truth:
        raise SystemExit(f"check_lm_eval: error: {what}")


def write_tasks(n_items):
    for name, (form, make) in TASKS.items():
        data = os.path.join(FOLDER.name, f"{name}.json")
        with open(data, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(item) + "\n" for item in make(n_items))
        with open(os.path.join(FOLDER.name, f"{name}.yaml"), "w", encoding="utf-8") as file:
            file.write(form.format(name=name, data=data))
    return TaskManager(include_path=FOLDER.name, include_defaults=False)


def run_harness(server, tasks, batch, concurrent, names):
    """Its results, and of each task each item's (log-likelihood, is_greedy) in order."""
    started = time.monotonic()
    done = lm_eval.simple_evaluate(
        model="local-completions",
        model_args={"model": server.name, "base_url": server.root + "/v1/completions",
                    "num_concurrent": concurrent, "tokenizer_backend": "auto",
                    "max_length": server.context},
        tasks=names, batch_size=batch, task_manager=tasks, log_samples=True,
        bootstrap_iters=0, verbosity="ERROR")
    items = {}
    for name in names:
        samples = sorted(done["samples"][name], key=lambda sample: sample["doc_id"])
        items[name] = [[tuple(answer[0]) if isinstance(answer[0], (list, tuple)) else answer[0]
                        for answer in sample["resps"]] for sample in samples]
    return done["results"], items, time.monotonic() - started


class Asked:
    """The texts of a task as token ids, cut as the harness cuts them."""

    def __init__(self, server, name, n_items):
        self.prompts, self.first, self.items = [], [], TASKS[name][1](n_items)
        info = eval_server.parse(server.get("/tokenizer_info")[1])
        # As the harness has it: the first token, unless its id is 0.
        first = server.tokenize(info["bos_token"])[:1] if info["bos_token"] else []
        prefix = first if any(first) else server.tokenize(info["eos_token"])[:1]
        for item in self.items:
            if "text" in item:
                self.add(prefix + server.tokenize(item["text"]), 1)
                continue
            n_context = len(server.tokenize(item["context"]))
            for choice in item["choices"]:
                self.add(server.tokenize(item["context"] + " " + choice), n_context)

    def add(self, ids, first):
        self.prompts.append(ids)
        self.first.append(first)


def flat(items):
    return [answer for item in items for answer in item]


def check_program(model, asked, answers, every, name):
    """Log-likelihoods and greedy flags to the bit; how many, and how many greedy ones."""
    check(len(answers) == len(asked.prompts), f"{name}: {len(answers)} answers")
    picked = range(0, len(asked.prompts), every)
    lines = eval_server.alea_score(model, [asked.prompts[i] for i in picked], top=1)
    n_greedy = 0
    for line, i in zip(lines, picked):
        tokens, answer = line["tokens"][asked.first[i]:], answers[i]
        total = sum(token["logprob"] for token in tokens)
        greedy = all(token["logprob"] == token["top"][0]["logprob"] for token in tokens)
        said, flag = answer if isinstance(answer, tuple) else (answer, greedy)
        check(said == total, f"{name}: {said!r} is not {total!r} of alea score")
        check(flag == greedy, f"{name}: is_greedy {flag}")
        n_greedy += greedy
    return len(picked), n_greedy


def check_oracle(model, asked, answers, every, name):
    """Sums of the oracle; the largest distance in units of what is allowed."""
    picked = range(0, len(asked.prompts), every)
    fed = "".join(" ".join(map(str, asked.prompts[i])) + "\n" for i in picked)
    done = subprocess.run([os.environ["ORACLE_SCORES"], model], input=fed.encode(), check=True,
                          stdout=subprocess.PIPE)
    worst = 0.0
    for i, line in zip(picked, done.stdout.decode().splitlines()):
        cells = [cell.split(":") for cell in line.split()][asked.first[i] - 1:]
        values = [float(value) for value, _ in cells]
        allowed = sum(2**-23 * abs(value) + PER_TOKEN for value in values)
        answer = answers[i]
        said, flag = answer if isinstance(answer, tuple) else (answer, None)
        worst = max(worst, abs(said - math.fsum(values)) / allowed)
        check(worst <= 1, f"{name}: {said!r}, the oracle says {math.fsum(values)!r}")
        ids = asked.prompts[i][asked.first[i]:]
        if all(token == int(best) for token, (_, best) in zip(ids, cells)):
            check(flag is not False, f"{name}: the oracle's greedy answer is not greedy")
    return len(picked), worst


def check_results(name, results, asked, answers):
    """What the harness makes of the numbers, made again."""
    if name == "tom_passages":
        n_words = sum(len(item["text"].split()) for item in asked.items)
        expected = math.exp(-sum(answers) / n_words)
        check(math.isclose(results[name]["word_perplexity,none"], expected, rel_tol=1e-9), name)
        return f"word perplexity {expected:.4f}"
    n_right = at = 0
    for item in asked.items:
        sums = [answer[0] for answer in answers[at:at + len(item["choices"])]]
        n_right += sums.index(max(sums)) == item["answer"]
        at += len(sums)
    expected = n_right / len(asked.items)
    check(math.isclose(results[name]["acc,none"], expected), f"{name}: accuracy")
    return f"accuracy {expected:.4f}"


def check_body():
    """The body that the tests send in its place is the one that it builds."""
    harness = LocalCompletionsAPI(base_url="http://127.0.0.1:1/v1/completions", model="toy",
                                  tokenizer_backend=None)
    body = harness._create_payload([[1, 2]], generate=False)
    check(body == test_scoring.lm_eval_body([[1, 2]]), f"the harness sends {body}")
    check(harness.header == test_scoring.EMPTY_BEARER, f"the harness sends {harness.header}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--name", default="model")
    parser.add_argument("--ways", default="1x1,1x8,16x1,16x8", help="batch x concurrency")
    parser.add_argument("--items", type=int, default=eval_text.N_ITEMS)
    parser.add_argument("--score-every", type=int, default=1, help="hold one in N to alea score")
    parser.add_argument("--oracle-every", type=int, default=1, help="one in N to the oracle")
    parser.add_argument("--threads", type=int, default=0)
    settings = parser.parse_args()
    stay_here()
    check_body()
    tasks = write_tasks(settings.items)
    options = ["--model", settings.model, "--served-model-name", settings.name]
    options += ["--threads", str(settings.threads)] if settings.threads else []
    server = eval_server.Server(*options)
    server.name = settings.name
    server.context = eval_server.parse(server.get("/v1/models")[1])["data"][0]["max_model_len"]
    first = None
    try:
        asked = {name: Asked(server, name, settings.items) for name in TASKS}
        for way in settings.ways.split(","):
            batch, concurrent = map(int, way.split("x"))
            results, items, seconds = run_harness(server, tasks, batch, concurrent, list(TASKS))
            first = first or (results, items)
            check(items == first[1], f"{way} differs from {settings.ways.split(',')[0]}")
            print(f"{settings.name}: batch {batch}, concurrency {concurrent}: {seconds:.1f} s",
                  flush=True)
    finally:
        server.close()
    for name in TASKS:
        answers = flat(first[1][name])
        shown = check_results(name, first[0], asked[name], answers)
        n_scored, n_greedy = check_program(settings.model, asked[name], answers,
                                           settings.score_every, name)
        n, worst = check_oracle(settings.model, asked[name], answers, settings.oracle_every, name)
        print(f"{settings.name}: {name}: {len(asked[name].items)} items, {shown}; "
              f"{n_scored} log-likelihoods equal alea score, {n_greedy} of them greedy; "
              f"{n} near the oracle ({worst:.3f} of what is allowed)", flush=True)


if __name__ == "__main__":
    main()
