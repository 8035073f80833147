"""bench/serve.py [--rounds N] [--rivals]: tokens per second and the time to the first event of `alea
serve`, beside those of its engine alone and, with --rivals, beside llama.cpp's own server: the one of
the pinned tree and the one that PyPI's xllamacpp carries. `make bench-serve`, `make bench-rival`.

Rows of `alea serve` and of its engine do not depend on the batch, which costs kernels that llama.cpp
does not take; with --rivals `alea serve --fast`, which leaves the choice of kernels to ggml as llama-server
does, takes part too.

One model, prompts of 16 ids without a common beginning, 48 tokens at temperature 0, 4 slots, a thread
for each processor. All take turns within a round; a ratio is the median of the ratios within rounds.
The client shares the processors with the server and shall take little of them, as one elsewhere
would take none: it is one thread, and once a stream has begun it sleeps until 64 KiB or the end have
come. Woken for every token it took some 0.08 ms of each, about one percent of a server's rate."""
import argparse
import http.client
import json
import os
import re
import selectors
import socket
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROGRAM = os.environ.get("ALEA", os.path.join(ROOT, "build", "alea"))
MODEL = os.environ.get("ALEA_MODEL") or os.path.join(ROOT, ".deps", "models",
                                                     "SmolLM2-135M-Instruct.Q4_1.gguf")
LLAMA_SERVER = os.path.join(ROOT, ".deps", "llama-server", "bin", "llama-server")
RIVAL_PYTHON = os.path.join(ROOT, ".deps", "rival", "bin", "python")
PROMPT, OUTPUT, SLOTS, CONTEXT = 16, 48, 4, 4096
THREADS = len(os.sched_getaffinity(0))
CASES = [(1, None), (1, 20), (4, None), (4, 20)]  # clients, logprobs
START_S, ANSWER_S = 120, 120
ENOUGH_BYTES = 1 << 16  # of a stream that has begun, before its reader wakes again


def name_of(clients, logprobs):
    return (f"{clients} client{'s' if clients > 1 else ''}"
            + (f", logprobs {logprobs}" if logprobs is not None else ""))


def say(text):
    """What goes on, on a terminal alone."""
    if sys.stderr.isatty():
        print(f"\r\033[Kbench: {text}", end="", file=sys.stderr, flush=True)


# ---- the servers ----

def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    def __init__(self, name, command, port=None):
        self.name, self.port = name, port
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, text=True,
                                        stdout=subprocess.DEVNULL if port else subprocess.PIPE,
                                        stderr=subprocess.DEVNULL)
        if not port:
            line = self.process.stdout.readline().strip()
            if not re.search(r":\d+$", line):
                raise SystemExit(f"bench: error: {name} does not start: {' '.join(command)}")
            self.port = int(line.rpartition(":")[2])
        self.wait_until_healthy(time.monotonic() + START_S)

    def wait_until_healthy(self, end):
        while self.process.poll() is None and time.monotonic() < end:
            client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
            try:
                client.request("GET", "/health")
                if client.getresponse().status == 200:
                    return
            except OSError:
                pass
            finally:
                client.close()
            time.sleep(0.1)
        self.close()
        raise SystemExit(f"bench: error: {self.name} does not become ready")

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def start(rivals):
    common = ["--port", "0", "--quiet", "--log-level", "error", "--threads", str(THREADS),
              "--slots", str(SLOTS), "--context", str(CONTEXT), "--model", MODEL]
    yield lambda: Server("alea serve", [PROGRAM, "serve", *common])
    if not rivals:
        return
    yield lambda: Server("alea serve --fast", [PROGRAM, "serve", "--fast", *common])
    port = free_port()
    yield lambda: Server("llama-server", [
        LLAMA_SERVER, "--model", MODEL, "--host", "127.0.0.1", "--port", str(port), "--threads",
        str(THREADS), "--threads-batch", str(THREADS), "--parallel", str(SLOTS), "--ctx-size",
        str(SLOTS * CONTEXT), "--log-disable"], port)
    yield lambda: Server("xllamacpp", [
        RIVAL_PYTHON, os.path.join(ROOT, "bench", "rival_xllamacpp.py"), MODEL, str(THREADS),
        str(SLOTS), str(SLOTS * CONTEXT)])


# ---- the client ----

def request(port, number, logprobs):
    prompt = [(number * PROMPT + i + 1) * 2654435761 % 49000 for i in range(PROMPT)]
    fields = {"prompt": prompt, "max_tokens": OUTPUT, "ignore_eos": True, "temperature": 0,
              "stream": True, "stream_options": {"include_usage": True}}
    if logprobs is not None:
        fields["logprobs"] = logprobs
    body = json.dumps(fields)
    return (f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}").encode()


class Stream:
    """One request under way."""

    def __init__(self, port, sent):
        self.received, self.first = [], None
        self.connection = socket.create_connection(("127.0.0.1", port), timeout=ANSWER_S)
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connection.sendall(sent)
        self.began = time.monotonic()
        self.connection.setblocking(False)

    def read(self):
        """False: the server has closed."""
        part = self.connection.recv(1 << 20)
        self.received.append(part)
        if self.first is None and b"data: " in b"".join(self.received):
            self.first = time.monotonic() - self.began
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, ENOUGH_BYTES)
        return bool(part)

    def check(self):
        data = b"".join(self.received)
        found = re.findall(rb'"completion_tokens": ?(\d+)', data)
        if not data.startswith(b"HTTP/1.1 200") or not found or int(found[-1]) != OUTPUT:
            raise SystemExit(f"bench: error: not the answer that was asked for: {data[:600]!r}")


def run(port, clients, logprobs, serial):
    """Tokens a second, and the median time to the first event."""
    sent = [request(port, serial * 64 + i, logprobs) for i in range(clients)]
    began = time.monotonic()
    streams = [Stream(port, each) for each in sent]
    with selectors.DefaultSelector() as selector:
        for stream in streams:
            selector.register(stream.connection, selectors.EVENT_READ, stream)
        while selector.get_map():
            ready = selector.select(ANSWER_S)
            if not ready:
                raise SystemExit(f"bench: error: nothing came for {ANSWER_S} s")
            for key, _ in ready:
                if not key.data.read():
                    selector.unregister(key.fileobj)
    took = time.monotonic() - began
    for stream in streams:
        stream.connection.close()
        stream.check()
    return clients * OUTPUT / took, statistics.median(stream.first for stream in streams)


def run_engine(clients, logprobs):
    """Tokens a second with so many requests; it measures with logprobs and without."""
    done = subprocess.run([PROGRAM, "bench", "engine", "--json", "--rounds", "1", "--requests",
                           str(clients), "--threads", str(THREADS), "--model", MODEL],
                          stdout=subprocess.PIPE, text=True, check=True)
    rates = {line["case"]: line["tokens_per_s"] for line in map(json.loads, done.stdout.splitlines())}
    name = f"engine, {clients} request{'s' if clients > 1 else ''}"
    return rates[name if logprobs is None else f"{name}, logprobs {logprobs}"]


# ---- rounds and the table ----

def measure(servers, rounds):
    """By peer and case a (rate, first) of each round; the engine has no first."""
    found = {name: {case: [] for case in CASES}
             for name in ["engine", *(server.name for server in servers)]}
    for at in range(-1, rounds):  # the first pages things in
        for i, case in enumerate(CASES):
            clients, logprobs = case
            say(f"round {at + 1} of {rounds}: {name_of(*case)}")
            peers = ["engine", *servers]
            for peer in peers[at % len(peers):] + peers[:at % len(peers)]:
                if peer == "engine":
                    name, sample = peer, (run_engine(clients, logprobs), None)
                else:
                    name = peer.name
                    sample = run(peer.port, clients, logprobs, len(CASES) * (at + 1) + i)
                if at >= 0:
                    found[name][case].append(sample)
    say("")
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    return found


def ratio(found, case, of, to, which):
    return statistics.median(a[which] / b[which] for a, b in zip(found[of][case], found[to][case]))


def show(found, rounds):
    print(f"{os.path.basename(MODEL)}, {THREADS} threads, {SLOTS} slots, {OUTPUT} tokens after a "
          f"prompt of {PROMPT}, streamed; {rounds} rounds, medians")
    for case in CASES:
        print(f"{name_of(*case)}:")
        for name, samples in found.items():
            line = f"  {name:<18} {statistics.median(rate for rate, _ in samples[case]):8.1f} tokens/s"
            if name != "engine":
                first = statistics.median(first for _, first in samples[case])
                line += f", first event after {1000 * first:5.1f} ms"
            if name.startswith("alea serve"):
                others = [to for to in found if not to.startswith("alea serve")]
                line += "; tokens/s " + ", ".join(f"{ratio(found, case, name, to, 0):.3f}x {to}"
                                                  for to in others)
                if others[1:]:
                    line += "; wait " + ", ".join(f"{ratio(found, case, name, to, 1):.3f}x {to}"
                                                  for to in others[1:])
            print(line)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--rivals", action="store_true", help="llama.cpp's servers too")
    settings = parser.parse_args()
    servers = []
    try:
        for make in start(settings.rivals):
            say("starting servers")
            servers.append(make())
        found = measure(servers, settings.rounds)
    finally:
        for server in servers:
            server.close()
    show(found, settings.rounds)


main()
