"""A server under test: `alea serve` on a port of its own, and clients down to single bytes.

ALEA names the program, ALEA_SANITIZED a build that is slower and larger than it should be."""
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tools"))
import closing

PROGRAM = os.environ["ALEA"]
SANITIZED = os.environ.get("ALEA_SANITIZED", "") != ""
# The thread sanitizer keeps a stack of its own, of 65,536 calls, and looks into no library.
THREADS_WATCHED = os.environ.get("ALEA_SANITIZED", "") == "thread"
TOY = "toy:text=1"
WAIT_S = 60
JSON = {"Content-Type": "application/json"}


def environment(**more):
    """The caller's, without what would change the program's ways."""
    clean = {k: v for k, v in os.environ.items()
             if k not in ("ALEA_MODEL", "ALEA_CAPS", "NOTIFY_SOCKET")}
    clean.update(more)
    return clean


class Server:
    """A running server. `options` as on the command line; --port and --quiet are given, unless
    port and quiet are False."""

    def __init__(self, *options, model=None, env=None, prefix=(), wait=True, stderr=None, port=True,
                 quiet=True):
        where = ["--port", "0"] if port else []
        self.log_file = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            [*prefix, PROGRAM, "serve", "--model", model or TOY,
             *["--quiet"] * quiet, *where, *options],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr or self.log_file,
            env=env or environment())
        line = self.process.stdout.readline().decode()
        self.listens = re.sub("^listening on ", "", line.strip())
        self.address = self.listens.partition(" and unix:")[0]
        if not line:
            raise RuntimeError(f"the server did not listen: {self.log()}")
        self.host, self.port = "127.0.0.1", None
        if self.address.startswith("http:"):
            self.port = int(self.address.rpartition(":")[2])
        if wait:
            self.wait_until(lambda: self.ask("GET", "/health")[0] == 200)

    def log(self):
        self.log_file.seek(0)
        return self.log_file.read().decode()

    def log_lines(self, event="request"):
        """Those that are whole; each must be an object."""
        lines = [json.loads(line) for line in self.log().split("\n")[:-1]]
        return [line for line in lines if line["event"] == event]

    @staticmethod
    def wait_until(holds, seconds=WAIT_S):
        end = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > end:
                raise AssertionError("waited in vain")
            time.sleep(0.02)

    def connect(self, receive_bytes=None):
        """receive_bytes: of the kernel's, for what is not read."""
        if self.address.startswith("unix:"):
            connection = socket.socket(socket.AF_UNIX)
            connection.settimeout(WAIT_S)
            connection.connect(self.address[5:])
            return connection
        connection = socket.socket()
        connection.settimeout(WAIT_S)
        if receive_bytes:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        try:
            connection.connect((self.host, self.port))
        except OSError:
            connection.close()
            raise
        return connection

    def ask(self, method, path, body=None, headers=None):
        """(status, headers, body) on a connection of its own."""
        client = http.client.HTTPConnection("localhost", timeout=WAIT_S)
        client.sock = self.connect()
        if isinstance(body, (dict, list)):
            body, headers = json.dumps(body), {**JSON, **(headers or {})}
        client.request(method, path, body, headers or {})
        answer = client.getresponse()
        data = answer.read()
        client.close()
        return answer.status, answer.headers, data

    def complete(self, **fields):
        status, _, body = self.ask("POST", "/v1/completions", {"prompt": "a", **fields})
        if status != 200:
            raise AssertionError(f"{status}: {body}")
        return json.loads(body)

    def raw(self, data):
        """Everything that comes for these bytes until the server closes."""
        with self.connect() as connection:
            connection.sendall(data)
            received = b""
            while True:
                try:
                    part = connection.recv(65536)
                except ConnectionResetError:
                    break
                if not part:
                    break
                received += part
            return received

    def open_stream(self, max_tokens=100000, read=True, receive_bytes=None, **fields):
        """A connection whose stream has begun: its header and first event were read."""
        connection = self.connect(receive_bytes)
        body = json.dumps({"prompt": "a", "max_tokens": max_tokens, "stream": True,
                           "ignore_eos": True, **fields}).encode()
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\n"
                           b"Content-Type: application/json\r\n"
                           b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        if read:
            read_until(connection, b"data: ")
        return connection

    def load(self):
        return json.loads(self.ask("GET", "/load")[2])["server_load"]

    def metric(self, name):
        text = self.ask("GET", "/metrics")[2].decode()
        return float(re.search(rf"^{re.escape(name)} (\S+)$", text, re.M).group(1))

    def resident_bytes(self):
        with open(f"/proc/{self.process.pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")

    def discard(self):
        if self.process.poll() is None:
            self.stop(signal.SIGKILL)
        self.process.stdout.close()
        self.log_file.close()

    def stop(self, number=signal.SIGTERM, seconds=WAIT_S):
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(seconds)
        finally:
            if self.process.poll() is None:
                self.process.kill()


def read_until(connection, end):
    received = b""
    while end not in received:
        part = connection.recv(65536)
        if not part:
            raise AssertionError(f"the stream ended after {received[-500:]}")
        received += part
    return received


def events(data):
    """The payloads of a stream's body; the framing is checked."""
    parts = data.split(b"\n\n")
    assert parts[-1] == b"", data[-200:]
    found = []
    for part in parts[:-1]:
        if not part.startswith(b":"):
            assert part.startswith(b"data: ") and b"\n" not in part, part
            found.append(part[6:].decode())
    assert found[-1] == "[DONE]", found[-1]
    return [json.loads(text) for text in found[:-1]]


class Case(unittest.TestCase):
    options = ()
    server = None

    @classmethod
    def setUpClass(cls):
        cls.server = Server(*cls.options)

    @classmethod
    def tearDownClass(cls):
        code = cls.server.stop()
        log = cls.server.log()[-3000:]
        cls.server.discard()
        if code != 0:
            raise AssertionError(f"the server ended with {code}:\n{log}")

    def folder(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        return folder.name

    def start(self, *options, **more):
        server = Server(*options, **more)
        self.addCleanup(server.discard)
        return server

    def assert_error(self, answer, status, code):
        self.assertEqual(answer[0], status, answer[2])
        error = json.loads(answer[2])["error"]
        self.assertEqual(set(error), {"message", "type", "param", "code"})
        self.assertEqual(error["code"], code)
        return error


def in_parallel(functions):
    """Runs them at once; the first failure is raised."""
    failures = []

    def run(function):
        try:
            function()
        except BaseException as failure:  # pylint: disable=broad-except
            failures.append(failure)
    threads = [threading.Thread(target=run, args=(function,)) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
