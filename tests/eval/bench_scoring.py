"""What scored prompts cost over HTTP, on tiny models and on the default one: beside ordinary
prefill, which leaves out most of the last layer, a third of a model of two; beside libllama alone,
which computes the same rows in the same rounds and reads none; with scoring on and off; with and
without the scored cache; and in memory. Cases take turns, round after round; a ratio is the median
of the ratios within a round. Processor seconds of the server stand beside wall time: on a busy
machine they say more.

ALEA_BUILD names the build folder (default build/gcc).
"""
import argparse
import json
import os
import random
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(ROOT, os.environ.get("ALEA_BUILD", "build/gcc"))
os.environ.setdefault("ALEA", os.path.join(BUILD, "alea"))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import eval_server
import eval_text

DEFAULT_MODEL = os.path.join(ROOT, ".deps", "models", "SmolLM2-135M-Instruct.Q4_1.gguf")
BEGAN = time.monotonic()
DROPPED = bytearray(1 << 20)


def say(text):
    print(f"bench-eval: {time.monotonic() - BEGAN:4.0f} s: {text}", file=sys.stderr, flush=True)


def timed(server, work):
    """(wall seconds, processor seconds) of some work that a server does."""
    wall, processor = time.monotonic(), server.processor_seconds()
    work()
    return time.monotonic() - wall, server.processor_seconds() - processor


def post(server, body):
    """The answer is taken and dropped: what a client makes of it is not the server's time."""
    data = json.dumps(body).encode()
    head = (f"POST /v1/completions HTTP/1.1\r\nHost: {server.host}\r\nConnection: close\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n")
    with socket.create_connection((server.host, server.port), timeout=600) as client:
        client.sendall(head.encode() + data)
        first = client.recv(1 << 16)
        while client.recv_into(DROPPED):
            pass
    if not first.startswith(b"HTTP/1.1 200 "):
        raise SystemExit(first.decode())


def ratios(rounds, first, second):
    """Medians over the rounds of first / second, of wall and of processor time."""
    return [statistics.median(one[first][i] / one[second][i] for one in rounds) for i in (0, 1)]


def fresh_prompts(chance, vocab, n, n_tokens):
    return [[chance.randrange(300, vocab) for _ in range(n_tokens)] for _ in range(n)]


def vocab_of(server):
    return eval_server.parse(server.get("/tokenizer_info")[1])["vocab_size"]


class Core:
    """libllama in a process of its own: seconds for rows of every position, or of the last."""

    def __init__(self, settings):
        command = [os.path.join(BUILD, "tests", "eval", "core_rows"), settings.model,
                   str(settings.prompts), str(settings.length)]
        command += [str(settings.threads)] if settings.threads else []
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def seconds(self, rows):
        self.process.stdin.write(f"{rows}\n".encode())
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


WAYS = {"ordinary": {}, "K = 0": {"prompt_logprobs": 0}, "K = 20": {"prompt_logprobs": 20}}


def bench_prefill(settings, n_rounds):
    """Scored against ordinary prefill of new tokens, and against the rows alone."""
    server, core = eval_server.Server("--model", settings.model, *settings.options), Core(settings)
    chance, vocab, rounds = random.Random(1), vocab_of(server), []
    n, length = settings.prompts, settings.length
    post(server, {"prompt": fresh_prompts(chance, vocab, 4, 64), "max_tokens": 1,
                  "prompt_logprobs": 0})
    for number in range(n_rounds):
        one, ways = {}, list(WAYS) + ["rows alone"]
        for way in ways[number % 4:] + ways[:number % 4]:
            if way == "rows alone":
                seconds = core.seconds("all")
                one[way] = seconds, seconds
            else:
                body = {"prompt": fresh_prompts(chance, vocab, n, length), "max_tokens": 1,
                        "temperature": 0, **WAYS[way]}
                one[way] = timed(server, lambda body=body: post(server, body))
            say(f"{settings.name}: prefill {number + 1} of {n_rounds}: {way}: "
                f"{n * length / one[way][0]:.0f} tokens/s")
        rounds.append(one)
    server.close()
    core.close()
    rate = {way: statistics.median(n * length / one[way][0] for one in rounds) for way in one}
    print(f"{settings.name}: {n} prompts of {length} tokens: ordinary {rate['ordinary']:.0f} "
          f"tokens/s; rows of all positions by libllama alone, none of them read: "
          f"{rate['rows alone']:.0f} tokens/s, {ratios(rounds, 'ordinary', 'rows alone')[0]:.3f} "
          f"of ordinary (the ceiling)")
    for way, aim in (("K = 0", 0.75), ("K = 20", 0.65)):
        wall, processor = ratios(rounds, "ordinary", way)
        print(f"{settings.name}:   scored, {way}: {wall:.3f} of ordinary (asked: {aim}; "
              f"{processor:.3f} by processor time), {ratios(rounds, 'rows alone', way)[0]:.3f} "
              f"of the ceiling")


def bench_switch(settings, n_rounds):
    """Ordinary requests with scoring on and off."""
    servers = {way: eval_server.Server("--model", settings.model, "--prompt-logprobs", way,
                                       *settings.options) for way in ("on", "off")}
    chance, rounds = random.Random(2), []
    vocab = vocab_of(servers["on"])
    for number in range(n_rounds):
        prompts, one = fresh_prompts(chance, vocab, 4, 32), {}
        body = {"prompt": prompts, "max_tokens": 32, "temperature": 0, "ignore_eos": True}
        for way in ("on", "off") if number % 2 else ("off", "on"):
            server = servers[way]
            one[way] = timed(server, lambda server=server: post(server, body))
        rounds.append(one)
    say(f"{settings.name}: scoring on and off: done")
    memory = {way: server.resident_bytes() / 2**20 for way, server in servers.items()}
    for server in servers.values():
        server.close()
    wall, processor = ratios(rounds, "off", "on")
    print(f"{settings.name}: ordinary requests with --prompt-logprobs on: {wall:.3f} of the speed "
          f"with off ({processor:.3f} by processor time); resident {memory['on']:.0f} and "
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


def bench_cache(settings, n_rounds):
    """The scored cache on a task of four choices."""
    server = eval_server.Server("--model", settings.model, *settings.options)
    rounds, n = [], settings.items
    prompts = choice_prompts(server, 2 * n * n_rounds, settings.words)
    for number in range(n_rounds):
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
            say(f"{settings.name}: cache {'on' if way else 'off'}, {number + 1} of {n_rounds}: "
                f"{n / one[way][0]:.2f} items/s")
        rounds.append(one)
    server.close()
    wall, processor = ratios(rounds, False, True)
    rate = statistics.median(n / one[True][0] for one in rounds)
    print(f"{settings.name}: four choices, {settings.words} words of context: {rate:.2f} items/s "
          f"with the scored cache, {wall:.2f} times as many as without (asked: 2; "
          f"{processor:.2f} by processor time)")


def peak_bytes(server):
    with open(f"/proc/{server.process.pid}/status", encoding="utf-8") as file:
        return 1024 * int(re.search(r"VmHWM:\s+(\d+) kB", file.read())[1])


def bench_memory(settings, _):
    """The largest resident size while a long and a short prompt are scored."""
    context = ["--context", "8192"]
    if settings.name.startswith("tiny"):  # whose context is too short
        settings = argparse.Namespace(model="toy:vocab=50000,context=8192", name="toy", options=[])
        context = []
    server = eval_server.Server("--model", settings.model, *context, *settings.options)
    chance, peaks = random.Random(3), []
    for n_tokens in (500, 8000):
        prompt, = fresh_prompts(chance, 40000, 1, n_tokens)
        with open(f"/proc/{server.process.pid}/clear_refs", "w", encoding="utf-8") as file:
            file.write("5")  # the peak begins anew
        post(server, {"prompt": prompt, "prompt_logprobs": 20, "max_tokens": 1})
        peaks.append(peak_bytes(server))
        say(f"{settings.name}: memory, {n_tokens} tokens: done")
    server.close()
    print(f"{settings.name}: memory, K = 20: {peaks[0] / 2**20:.0f} MiB with 500 tokens, "
          f"{(peaks[1] - peaks[0]) / 2**20:.0f} MiB more with 8000 (asked: 64)")


BENCHES = {"prefill": bench_prefill, "switch": bench_switch, "cache": bench_cache,
           "memory": bench_memory}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default=f"tiny-2,tiny-8,{DEFAULT_MODEL}",
                        help="GGUF files; tiny-N: one of N layers that is made for it")
    parser.add_argument("--rounds", type=int, default=5,
                        help="half as many for what takes minutes, two more for what takes none")
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--words", type=int, default=100, help="of a context")
    parser.add_argument("--items", type=int, default=8)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--only", default="prefill,switch,cache,memory")
    settings = parser.parse_args()
    settings.options = ["--threads", str(settings.threads)] if settings.threads else []
    with tempfile.TemporaryDirectory() as folder:
        for model in settings.models.split(","):
            settings.model, settings.name = model, os.path.basename(model).partition(".")[0]
            layers = re.fullmatch(r"tiny-(\d+)", model)
            if layers:
                settings.model = os.path.join(folder, "tiny.gguf")
                subprocess.run([os.path.join(BUILD, "tools", "alea-tiny-gguf"), "--context", "1024",
                                "--layers", layers[1], "--out", settings.model], check=True,
                               stdout=subprocess.DEVNULL)
            for name in settings.only.split(","):
                if model == "tiny-2" and name != "prefill":
                    continue  # the same as with more layers
                fewer = not layers and name in ("prefill", "cache")
                n_rounds = max(settings.rounds // 2, 1) if fewer else settings.rounds + 2
                BENCHES[name](settings, n_rounds)
                sys.stdout.flush()


if __name__ == "__main__":
    main()
