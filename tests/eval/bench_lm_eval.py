"""How long lm-evaluation-harness takes for a task of four choices against Alea's server, and against
llama-cpp-python's, which also echoes prompts with logprobs and here runs the same libllama. The
harness reaches both with its gguf client, one request at a time, which is all that the peer takes;
and Alea also as one would use it. The task is cut in parts, which take turns.

Run by tests/eval/run, in an environment that has lm_eval.
"""
import argparse
import http.client
import json
import os
import socket
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import check_lm_eval
import eval_server
import eval_text
import test_scoring

import lm_eval
from lm_eval.tasks import TaskManager

PEER = os.path.join(eval_server.ROOT, ".deps", "llama-cpp-python", "bin", "python")
LLAMA_SERVER = os.path.join(eval_server.ROOT, ".deps", "llama-server", "bin", "llama-server")
PARTS = 4


class Peer:
    """Another server with the same model, until closed."""

    def __init__(self, *command):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.root = f"http://127.0.0.1:{self.port}"
        self.process = subprocess.Popen([*command, "--port", str(self.port)],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
        until = time.monotonic() + 60
        while not self.is_ready():
            if self.process.poll() is not None or time.monotonic() > until:
                raise SystemExit(f"bench_lm_eval: error: {command[0]} does not start")
            time.sleep(0.1)

    def ask(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        connection.request(method, path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read()

    def is_ready(self):
        try:
            return self.ask("GET", "/v1/models")[0] == 200
        except OSError:
            return False

    def close(self):
        self.process.terminate()
        self.process.wait(30)


def llama_server_says(settings, ids):
    """What llama.cpp's own server makes of the harness's request, in words."""
    if not os.access(LLAMA_SERVER, os.X_OK):
        return "is not built here (tools/build-llama server)"
    server = Peer(LLAMA_SERVER, "--model", settings.model, "--ctx-size", "512", "--threads",
                  str(settings.threads))
    try:
        status, text = server.ask("POST", "/v1/completions",
                                  json.dumps(test_scoring.lm_eval_body([ids])))
    finally:
        server.close()
    if status != 200:
        return f"answers {status}: {text.decode()[:160]}"
    logprobs = json.loads(text)["choices"][0].get("logprobs") or {}
    n = len(logprobs.get("token_logprobs") or logprobs.get("content") or [])
    shape = "in arrays" if "token_logprobs" in logprobs else f"under {sorted(logprobs)}"
    return f"answers 200 with {n} log-probabilities {shape}, where {len(ids) + 1} are asked"


def far_apart(a, b):
    return max(abs(x - y) for x, y in zip(a, b))


def peer_reads(server, peer, text):
    """Whose row a token's value of the peer is: the one before the token, or the one behind it."""
    status, answer = peer.ask("POST", "/v1/completions", json.dumps(
        {"prompt": text, "max_tokens": 1, "echo": True, "logprobs": 1, "temperature": 0}))
    if status != 200:
        raise SystemExit(f"bench_lm_eval: error: the peer answers {status}")
    said = json.loads(answer)["choices"][0]["logprobs"]["token_logprobs"][1:]
    ids = server.tokenize(text)
    score, = server.good("/v1/score", {"prompt": ids})["scores"]
    behind = [server.good("/v1/score", {"prompt": ids[:i], "continuations": [[ids[i - 1]]]}
                          )["scores"][0]["token_logprobs"][0] for i in range(2, len(ids) + 1)]
    right, wrong = far_apart(said, score["token_logprobs"]), far_apart(said, behind)
    if right < wrong:
        return f"as Alea's, to {right:.2f} a token"
    return (f"those of the row behind each token instead of the row before it (to {wrong:.2f} a "
            f"token; {right:.2f} from the right ones): without a first token of the model's it "
            "counts rows one too far")


def write_parts(folder, items, n_parts):
    """Tasks of the same kind, each with its share of the items."""
    names = []
    for i in range(n_parts):
        name, data = f"part_{i}", os.path.join(folder, f"part_{i}.jsonl")
        with open(data, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(item) + "\n" for item in items[i::n_parts])
        with open(os.path.join(folder, name + ".yaml"), "w", encoding="utf-8") as file:
            file.write(check_lm_eval.CHOICE_TASK.format(name=name, data=data))
        names.append(name)
    return TaskManager(include_path=folder, include_defaults=False), names


def run_part(tasks, name, model, arguments, **more):
    """Wall seconds of the harness, and what it got of each item: sums of log-probabilities."""
    began = time.monotonic()
    done = lm_eval.simple_evaluate(model=model, model_args=arguments, tasks=[name], bootstrap_iters=0,
                                   task_manager=tasks, log_samples=True, verbosity="ERROR", **more)
    seconds = time.monotonic() - began
    samples = sorted(done["samples"][name], key=lambda sample: sample["doc_id"])
    return seconds, [float(answer[0][0]) for sample in samples for answer in sample["resps"]]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--name", default="model")
    parser.add_argument("--items", type=int, default=200)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    settings = parser.parse_args()
    check_lm_eval.stay_here()
    items = eval_text.phrases(settings.items)
    tasks, names = write_parts(check_lm_eval.FOLDER.name, items, PARTS)
    server = eval_server.Server("--model", settings.model, "--served-model-name", settings.name,
                                "--threads", str(settings.threads))
    peer = Peer(PEER, "-m", "llama_cpp.server", "--model", settings.model, "--n_ctx", "512",
                "--n_threads", str(settings.threads), "--n_threads_batch", str(settings.threads))
    ways = {
        "llama-cpp-python": ("gguf", {"base_url": peer.root}, {}),
        "Alea": ("gguf", {"base_url": server.root}, {}),
        "Alea, local-completions, batch 16, concurrency 8": (
            "local-completions", {"model": settings.name, "num_concurrent": 8,
                                  "base_url": server.root + "/v1/completions",
                                  "max_length": 512}, {"batch_size": 16})}
    seconds, sums = dict.fromkeys(ways, 0.0), {way: [] for way in ways}
    try:
        for i, name in enumerate(names):
            for way, (model, arguments, more) in ways.items():
                taken, got = run_part(tasks, name, model, arguments, **more)
                seconds[way] += taken
                sums[way] += got
                print(f"{settings.name}: part {i + 1} of {PARTS}: {way}: {taken:.1f} s", flush=True)
        ids = server.tokenize(items[0]["context"])
        values = peer_reads(server, peer, items[0]["context"])
    finally:
        peer.close()
        server.close()
    print(f"{settings.name}: llama.cpp's own server, asked to score {len(ids)} tokens as the harness "
          f"asks, {llama_server_says(settings, ids)}", flush=True)
    first, second, third = ways
    if sums[second] != sums[third] or len(sums[first]) != 4 * settings.items:
        raise SystemExit("bench_lm_eval: error: the clients disagree")
    print(f"{settings.name}: {settings.items} items of four choices: llama-cpp-python "
          f"{seconds[first]:.1f} s, Alea {seconds[second]:.1f} s ({seconds[first] / seconds[second]:.1f} "
          f"times as fast; asked: 3), with batches and concurrency {seconds[third]:.1f} s "
          f"({seconds[first] / seconds[third]:.1f} times)", flush=True)
    print(f"{settings.name}: llama-cpp-python's values are {values}", flush=True)


if __name__ == "__main__":
    main()
