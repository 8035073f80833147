"""What scored prompts cost over HTTP: beside ordinary ones, with and without the scored cache, in
memory, and beside another server if --peer names one. Cases take turns, round after round; a ratio
is the median of the ratios within a round. Processor seconds of the server stand beside wall time:
on a busy machine they say more.

ALEA names the program (default build/alea).
"""
import argparse
import json
import os
import random
import re
import statistics
import sys
import time
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
os.environ.setdefault("ALEA", os.path.join(ROOT, "build", "alea"))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import eval_server
import eval_text

DEFAULT_MODEL = os.path.join(ROOT, ".deps", "models", "SmolLM2-135M-Instruct.Q4_1.gguf")


def timed(server, work):
    """(wall seconds, processor seconds) of some work that a server does."""
    wall, processor = time.monotonic(), server.processor_seconds()
    work()
    return time.monotonic() - wall, server.processor_seconds() - processor


def post(server, body):
    """The answer stays unread: what a client makes of it is not the server's time."""
    status, text = server.ask("POST", "/v1/completions", body)
    if status != 200:
        raise SystemExit(text)


def ratios(rounds, first, second):
    """Medians over the rounds of first / second, of wall and of processor time."""
    return [statistics.median(one[first][i] / one[second][i] for one in rounds) for i in (0, 1)]


def fresh_prompts(chance, vocab, n, n_tokens):
    return [[chance.randrange(300, vocab) for _ in range(n_tokens)] for _ in range(n)]


def vocab_of(server):
    return eval_server.parse(server.get("/tokenizer_info")[1])["vocab_size"]


def bench_prefill(settings):
    """Scored against ordinary prefill of new tokens."""
    server = eval_server.Server("--model", settings.model, *settings.options)
    chance, vocab, rounds = random.Random(1), vocab_of(server), []
    n, length = settings.prompts, settings.length
    ways = {"ordinary": {}, "K = 0": {"prompt_logprobs": 0}, "K = 20": {"prompt_logprobs": 20}}
    for _ in range(settings.rounds):
        one = {}
        for way, more in ways.items():
            body = {"prompt": fresh_prompts(chance, vocab, n, length), "max_tokens": 1,
                    "temperature": 0, **more}
            one[way] = timed(server, lambda body=body: post(server, body))
        rounds.append(one)
        print(f"  round: {({way: round(n * length / one[way][0]) for way in ways})} tokens/s",
              file=sys.stderr)
    server.close()
    rate = statistics.median(n * length / one["ordinary"][0] for one in rounds)
    print(f"prefill, {n} prompts of {length} tokens: ordinary {rate:.0f} tokens/s")
    for way in ("K = 0", "K = 20"):
        wall, processor = ratios(rounds, "ordinary", way)
        print(f"  scored, {way}: {wall:.3f} of that ({processor:.3f} by processor time)")


def bench_switch(settings):
    """Ordinary requests with scoring on and off."""
    servers = {way: eval_server.Server("--model", settings.model, "--prompt-logprobs", way,
                                       *settings.options) for way in ("on", "off")}
    chance, rounds = random.Random(2), []
    vocab = vocab_of(servers["on"])
    for _ in range(settings.rounds):
        prompts, one = fresh_prompts(chance, vocab, 4, 32), {}
        body = {"prompt": prompts, "max_tokens": 32, "temperature": 0, "ignore_eos": True}
        for way, server in servers.items():
            one[way] = timed(server, lambda server=server: post(server, body))
        rounds.append(one)
    memory = {way: server.resident_bytes() / 2**20 for way, server in servers.items()}
    for server in servers.values():
        server.close()
    wall, processor = ratios(rounds, "off", "on")
    print(f"ordinary requests with --prompt-logprobs on: {wall:.3f} of the speed with off "
          f"({processor:.3f} by processor time); resident {memory['on']:.0f} and "
          f"{memory['off']:.0f} MiB")


def choice_prompts(server, n_items, context_words):
    """Four-choice items as the harness sends them: the same context four times."""
    text, items = eval_text.words(), []
    for at in eval_text.starts(n_items, len(text) - context_words - 40):
        context = " ".join(text[at:at + context_words])
        for choice in range(4):
            begin = (at + context_words + 331 * choice) % (len(text) - 4)
            items.append(server.tokenize(context + " " + " ".join(text[begin:begin + 4])))
    return items


def bench_cache(settings):
    """The scored cache on a task of four choices."""
    server = eval_server.Server("--model", settings.model, *settings.options)
    rounds, n = [], settings.items
    prompts = choice_prompts(server, 2 * n * settings.rounds, settings.words)
    for number in range(settings.rounds):
        one = {}
        for way in (False, True):  # other items each time: what one leaves the other may use
            first = 4 * n * (2 * number + way)
            mine = prompts[first:first + 4 * n]

            def work(way=way, mine=mine):
                for i in range(0, len(mine), 16):
                    post(server, {
                        "prompt": mine[i:i + 16], "temperature": 0, "max_tokens": 1,
                        "logprobs": 1, "seed": 1234, "echo": True, "scored_cache": way})
            one[way] = timed(server, work)
        rounds.append(one)
    server.close()
    wall, processor = ratios(rounds, False, True)
    rate = statistics.median(n / one[True][0] for one in rounds)
    print(f"four choices, {settings.words} words of context: {rate:.2f} items/s with the scored cache, "
          f"{wall:.2f} times as many as without ({processor:.2f} by processor time)")


def peak_bytes(server):
    with open(f"/proc/{server.process.pid}/status", encoding="utf-8") as file:
        return 1024 * int(re.search(r"VmHWM:\s+(\d+) kB", file.read())[1])


def bench_memory(settings):
    """The largest resident size while a long and a short prompt are scored."""
    for model in ("toy:vocab=50000,context=8192", settings.model):
        more = [] if model.startswith("toy") else ["--context", "8192", *settings.options]
        server = eval_server.Server("--model", model, *more)
        chance, peaks = random.Random(3), []
        for n_tokens in (500, 8000):
            prompt, = fresh_prompts(chance, 40000, 1, n_tokens)
            with open(f"/proc/{server.process.pid}/clear_refs", "w", encoding="utf-8") as file:
                file.write("5")  # the peak begins anew
            server.good("/v1/completions", {"prompt": prompt, "prompt_logprobs": 20,
                                            "max_tokens": 1})
            peaks.append(peak_bytes(server))
        server.close()
        print(f"memory, K = 20, {os.path.basename(model)}: {peaks[0] / 2**20:.0f} MiB with 500 "
              f"tokens, {(peaks[1] - peaks[0]) / 2**20:.0f} MiB more with 8000")


def bench_peer(settings):
    """Another server's answer to the harness's requests for texts, one at a time."""
    server = eval_server.Server("--model", settings.model, *settings.options)
    texts = [item["context"] + " " + choice for item in eval_text.phrases(settings.items)
             for choice in item["choices"]]

    def body_of(text):
        return json.dumps({"model": settings.peer_model, "prompt": text, "temperature": 0,
                           "max_tokens": 1, "logprobs": 1, "seed": 1234, "echo": True}).encode()

    def ask(root, text):
        request = urllib.request.Request(root + "/v1/completions", body_of(text),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=600) as answer:
            return json.load(answer)

    seconds = {}
    settings.peer_model = eval_server.parse(server.get("/v1/models")[1])["data"][0]["id"]
    for name, root in (("Alea", server.root), ("peer", settings.peer)):
        began = time.monotonic()
        for text in texts:
            answer = ask(root, text)
            if "logprobs" not in answer["choices"][0]:
                raise SystemExit(f"{name} answers without logprobs")
        seconds[name] = time.monotonic() - began
    server.close()
    print(f"{settings.items} items of four choices, one request at a time: Alea "
          f"{seconds['Alea']:.1f} s, peer {seconds['peer']:.1f} s, "
          f"{seconds['peer'] / seconds['Alea']:.1f} times as long")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--words", type=int, default=100, help="of a context")
    parser.add_argument("--items", type=int, default=12)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--peer", help="root address of another server with the same model")
    parser.add_argument("--only", default="prefill,switch,cache,memory")
    settings = parser.parse_args()
    settings.options = ["--threads", str(settings.threads)] if settings.threads else []
    benches = {"prefill": bench_prefill, "switch": bench_switch, "cache": bench_cache,
               "memory": bench_memory}
    for name in [] if settings.peer else settings.only.split(","):
        benches[name](settings)
        sys.stdout.flush()
    if settings.peer:
        bench_peer(settings)


if __name__ == "__main__":
    main()
