"""Starts the server under test and asks it. ALEA names the program; only the standard library."""
import http.client
import json
import os
import re
import subprocess
import tempfile
import time

PROGRAM = os.environ["ALEA"]
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
START_SECONDS = 120


def no_constant(name):
    raise AssertionError(f"{name} is no JSON")


def unique(pairs):
    names = [name for name, _ in pairs]
    if len(set(names)) != len(names):
        raise AssertionError(f"a key twice: {names}")
    return dict(pairs)


def parse(text):
    """Strict: no NaN, no Infinity, no duplicate keys."""
    return json.loads(text, parse_constant=no_constant, object_pairs_hook=unique)


class Server:
    """`alea serve` on a free port, until closed."""

    def __init__(self, *options):
        environment = {k: v for k, v in os.environ.items() if k not in ("ALEA_MODEL", "ALEA_CAPS")}
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen([PROGRAM, "serve", "--port", "0", *options],
                                        stdout=subprocess.PIPE, stderr=self.log, env=environment)
        first = self.process.stdout.readline().decode()
        found = re.match(r"listening on http://([\d.]+):(\d+)\n", first)
        if not found:
            raise AssertionError(f"the server said {first!r} and {self.said()!r}")
        self.host, self.port = found[1], int(found[2])
        self.root = f"http://{self.host}:{self.port}"
        until = time.monotonic() + START_SECONDS
        while self.get("/health")[0] != 200:
            if self.process.poll() is not None or time.monotonic() > until:
                raise AssertionError(f"no server: {self.said()!r}")
            time.sleep(0.05)
        self.serving = self.process.stdout.readline().decode()

    def said(self):
        self.log.seek(0)
        return self.log.read().decode()[-2000:]

    def ask(self, method, path, body=None, headers=None, timeout=600):
        connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"Content-Type": "application/json"} if data is not None else {}
        sent.update(headers or {})
        connection.request(method, path, data, sent)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, text

    def get(self, path):
        return self.ask("GET", path)

    def post(self, path, body, **more):
        """The status and the parsed body."""
        status, text = self.ask("POST", path, body, **more)
        return status, parse(text)

    def good(self, path, body, **more):
        status, answer = self.post(path, body, **more)
        if status != 200:
            raise AssertionError(f"{status}: {answer}")
        return answer

    def tokenize(self, text):
        return self.good("/tokenize", {"prompt": text, "add_special_tokens": False})["tokens"]

    def resident_bytes(self):
        with open(f"/proc/{self.process.pid}/status", encoding="utf-8") as file:
            return 1024 * int(re.search(r"VmRSS:\s+(\d+) kB", file.read())[1])

    def processor_seconds(self):
        with open(f"/proc/{self.process.pid}/stat", encoding="utf-8") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self):
        self.process.terminate()
        code = self.process.wait(60)
        self.process.stdout.close()
        if code:
            raise AssertionError(f"the server ended with {code}: {self.said()!r}")
        self.log.close()


def alea_score(model, prompts, top=0, threads=None):
    """`alea score --json` of lists of token ids: its parsed lines."""
    lines = "".join(json.dumps({"id": str(i), "token_ids": ids}) + "\n"
                    for i, ids in enumerate(prompts))
    command = [PROGRAM, "score", "--model", model, "--json", "--top", str(top), "--quiet",
               "--jsonl", "-"]
    command += ["--threads", str(threads)] if threads else []
    done = subprocess.run(command, input=lines.encode(), stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, check=False)
    if done.returncode:
        raise AssertionError(done.stderr.decode())
    return [json.loads(line) for line in done.stdout.decode().split("\n")[:-1]]
