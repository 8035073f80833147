"""bench/serve.py [ROUNDS]: tokens per second of `alea serve` beside those of its engine alone, and the
time to the first byte. Same model, prompts of 16 ids, 48 tokens, no prefix in common.

The client shares the machine's processors with the server, as a client on the same machine would. The
engine's own numbers (`alea bench engine`) are taken before and after, so that a machine that grew
slower shows."""
import http.client
import json
import os
import re
import statistics
import subprocess
import sys
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROGRAM = os.environ.get("ALEA", os.path.join(ROOT, "build", "alea"))
PROMPT, OUTPUT = 16, 48
CASES = [(1, None, True), (4, None, True), (4, None, False), (4, 20, True)]


def start():
    process = subprocess.Popen([PROGRAM, "serve", "--port", "0", "--quiet", "--log-level", "error"],
                               stdout=subprocess.PIPE, text=True)
    port = int(re.search(r":(\d+)$", process.stdout.readline().strip()).group(1))
    while True:
        client = http.client.HTTPConnection("127.0.0.1", port)
        client.request("GET", "/health")
        if client.getresponse().status == 200:
            return process, port
        time.sleep(0.1)


def ask(port, number, logprobs, stream, out):
    prompt = [(number * PROMPT + i + 1) * 2654435761 % 49000 for i in range(PROMPT)]
    client = http.client.HTTPConnection("127.0.0.1", port)
    body = json.dumps({"prompt": prompt, "max_tokens": OUTPUT, "ignore_eos": True, "seed": 1,
                       "stream": stream, "logprobs": logprobs})
    began = time.monotonic()
    client.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
    answer = client.getresponse()
    if answer.status != 200:
        raise RuntimeError(answer.read())
    answer.read(1)
    first = time.monotonic() - began
    answer.read()
    out.append(first)


def run(port, clients, logprobs, stream, serial):
    firsts = []
    threads = [threading.Thread(target=ask, args=(port, serial * 64 + i, logprobs, stream, firsts))
               for i in range(clients)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if len(firsts) != clients:
        raise RuntimeError("a client failed")
    return clients * OUTPUT / (time.monotonic() - began), statistics.median(firsts)


def engine():
    done = subprocess.run([PROGRAM, "bench", "engine", "--json"], stdout=subprocess.PIPE, text=True,
                          check=True)
    return {line["case"]: line["tokens_per_s"] for line in map(json.loads, done.stdout.splitlines())}


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    before = engine()
    process, port = start()
    samples = [[] for _ in CASES]
    for at in range(-1, rounds):  # the first pages things in
        for i, (clients, logprobs, stream) in enumerate(CASES):
            sample = run(port, clients, logprobs, stream, 1000 * (at + 1) + i)
            if at >= 0:
                samples[i].append(sample)
    process.terminate()
    process.wait()
    after = engine()
    print("engine alone, before and after:")
    for name in before:
        print(f"  {name:<36} {before[name]:8.1f} {after[name]:8.1f} tokens/s")
    print(f"alea serve, {rounds} rounds, medians:")
    for (clients, logprobs, stream), found in zip(CASES, samples):
        name = (f"{clients} clients, {'streamed' if stream else 'whole'}"
                + (f", logprobs {logprobs}" if logprobs is not None else ""))
        rate = statistics.median(rate for rate, _ in found)
        first = statistics.median(first for _, first in found)
        print(f"  {name:<36} {rate:8.1f} tokens/s, first byte after {1000 * first:.0f} ms")


main()
