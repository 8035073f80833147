"""Runs the program under test and reads what it says. ALEA and ALEA_TINY_GGUF name the programs."""
import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tools"))
import closing

PROGRAM = os.environ["ALEA"]
TINY_GGUF = os.environ["ALEA_TINY_GGUF"]
BIGRAM = os.environ["ALEA_BIGRAM"]
SANITIZED = os.environ.get("ALEA_SANITIZED", "") != ""
TOY = ["--model", "toy:text=1"]


def environment(**more):
    """The caller's, without what would change the program's ways."""
    clean = {k: v for k, v in os.environ.items() if k not in ("ALEA_MODEL", "ALEA_CAPS", "NO_COLOR")}
    clean.update(more)
    return clean


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name, content=None):
        path = os.path.join(self.folder, name)
        if content is not None:
            with open(path, "wb") as file:
                file.write(content if isinstance(content, bytes) else content.encode())
        return path

    def run_alea(self, *args, stdin="", env=None, **more):
        more.setdefault("stdout", subprocess.PIPE)
        data = stdin if isinstance(stdin, bytes) else stdin.encode()
        return subprocess.run([PROGRAM, *args], input=data, stderr=subprocess.PIPE, check=False,
                              env=env or environment(), timeout=300, **more)

    def good(self, *args, **more):
        done = self.run_alea(*args, **more)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.decode()

    def lines(self, *args, **more):
        """The JSON lines that a run prints; NaN and Infinity are no JSON."""
        return parse_lines(self.good(*args, **more))

    def refused(self, code, pattern, *args, **more):
        """One line on stderr, this exit code; returns stdout."""
        done = self.run_alea(*args, **more)
        said = done.stderr.decode()
        self.assertEqual(done.returncode, code, said)
        self.assertRegex(said, r"\Aalea: [^\n]+\n\Z")
        self.assertRegex(said, pattern)
        return done.stdout.decode() if done.stdout is not None else ""

    def tiny(self, *options):
        """A tiny GGUF model made for this test."""
        path = self.path("model.gguf")
        subprocess.run([TINY_GGUF, "--out", path, *options], check=True, stdout=subprocess.DEVNULL)
        return path


def refuse_constant(word):
    raise ValueError(f"{word} is no JSON")


def parse_lines(text):
    if text and not text.endswith("\n"):
        raise ValueError("the last line is not whole")
    # Not splitlines(): that also splits at U+0085 and U+2028, which a JSON string may hold as such.
    return [json.loads(line, parse_constant=refuse_constant) for line in text.split("\n")[:-1]]


def float32(value):
    return struct.unpack("f", struct.pack("f", value))[0]
