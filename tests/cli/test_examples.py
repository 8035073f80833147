"""The examples of README.md and docs/cli.md are what the program prints. Every command line behind a
`$ ` in which alea takes part is run as it stands, in a folder with the default model, and its output
held against the text below it; `…` stands for anything.

`$ cat FILE` makes the file. A server in the background takes a free port, which the requests behind
it then go to. Digits of logprobs are those of one set of libllama's kernels: without AVX-512 the
whole is skipped."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from rig import PROGRAM, closing, environment

PAGES = ("README.md", os.path.join("docs", "cli.md"))
MODEL = os.path.join(".deps", "models", "SmolLM2-135M-Instruct.Q4_1.gguf")
HERE = "http://127.0.0.1:8000"  # where the examples say that a server is


def blocks_of(page):
    """(text in front, lines) of every block of code: fenced, or indented by four."""
    with open(os.path.join(closing.ROOT, page), encoding="utf-8") as file:
        lines = file.read().split("\n")
    front, at = [], 0
    while at < len(lines):
        fenced = lines[at].startswith("```")
        if not fenced and not (lines[at].startswith("    ") and not lines[at - 1].strip()):
            front.append(lines[at])
            at += 1
            continue
        end = at + 1
        while end < len(lines) and not (
                lines[end].startswith("```") if fenced else
                lines[end].strip() and not lines[end].startswith("    ")):
            end += 1
        yield "\n".join(front), lines[at + 1:end] if fenced else [line[4:] for line in lines[at:end]]
        front, at = [], end + fenced


class Example:
    def __init__(self, command, output):
        self.command, self.output, self.is_end = command, output, False


def examples_of(page):
    """The commands of a page, block by block."""
    found = []
    for front, lines in blocks_of(page):
        block = []
        while lines and lines[-1] == "":
            lines.pop()
        for line in lines:
            if line.startswith("$ "):
                block.append(Example(line[2:], []))
            elif block and block[-1].command.endswith("\\"):
                block[-1].command += "\n" + line
            elif block:
                block[-1].output.append(line)
        last = found[-1][-1] if found and found[-1] else None
        says = re.match(r"\s*prints (?:[^`]* ends in\s*$|`(.*?)`\.)", front, re.S)
        if last and not last.output and says:
            last.is_end = not says[1]
            last.output = [says[1]] if says[1] else lines
        found.append(block)
    return [block for block in found if block]


def is_of_alea(command):
    return re.search(r"(^|\| )alea ", command) is not None


def pattern_of(expected):
    """What an output must be; keys of builds differ from machine to machine."""
    text = re.escape(expected).replace("…", ".*")
    return re.sub(r"\b[0-9a-f]{12}\b", "[0-9a-f]{12}", text)


class Runner:
    """Runs one block after another."""

    def __init__(self, case):
        self.case, self.server, self.address = case, None, HERE
        folder = tempfile.TemporaryDirectory()
        case.addCleanup(folder.cleanup)
        case.addCleanup(self.stop)
        self.folder, self.n_run = folder.name, 0
        os.symlink(os.path.join(closing.ROOT, ".deps"), os.path.join(self.folder, ".deps"))
        os.symlink(os.path.join(closing.ROOT, MODEL), os.path.join(self.folder, "model.gguf"))
        self.environment = environment(NO_COLOR="1", PATH=os.path.dirname(PROGRAM) + os.pathsep
                                       + os.environ["PATH"])

    def stop(self):
        if self.server:
            self.server.terminate()
            self.server.wait(60)
            self.server.stdout.close()
        self.server = None

    def serve(self, command):
        self.stop()
        self.server = subprocess.Popen(
            command.rstrip("& ").split() + ["--port", "0", "--quiet"], cwd=self.folder,
            env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.address = self.server.stdout.readline().strip().removeprefix("listening on ")
        self.case.assertRegex(self.address, r"^http://127\.0\.0\.1:\d+$", command)
        subprocess.run(["curl", "-sS", "--retry", "100", "--retry-delay", "1", "--fail",
                        self.address + "/health"], check=True, stdout=subprocess.DEVNULL)

    def run(self, example):
        command = example.command
        name = re.match(r"cat ([\w.]+)$", command)
        if name:
            with open(os.path.join(self.folder, name[1]), "w", encoding="utf-8") as file:
                file.writelines(line + "\n" for line in example.output)
        elif command.startswith("alea serve "):
            self.n_run += 1
            self.serve(command)
        elif is_of_alea(command) or (self.server and command.startswith("curl ")):
            self.n_run += 1
            command = command.replace(HERE, self.address).replace("curl ", "curl -sS --fail ", 1)
            done = subprocess.run(["bash", "-o", "pipefail", "-c", command], cwd=self.folder,
                                  env=self.environment, capture_output=True, text=True, timeout=300,
                                  check=False)
            self.case.assertEqual(done.returncode, 0, f"{command}\n{done.stderr}")
            self.compare(example, done.stdout)

    def compare(self, example, printed):
        if not example.output:
            return
        expected, printed = "\n".join(example.output), printed.rstrip("\n")
        if expected.startswith("{"):  # one object, which the page wraps
            expected, printed = expected.replace("\n", ""), printed.replace("\n", "")
        pattern = ("" if not example.is_end else ".*") + pattern_of(expected)
        self.case.assertIsNotNone(re.fullmatch(pattern, printed, re.S),
                                  f"{example.command}\nprints\n{printed}\nthe page has\n{expected}")


def reason_to_skip():
    build = os.path.join(closing.ROOT, ".deps", "llama", "BUILD")
    if not os.path.exists(os.path.join(closing.ROOT, MODEL)) or not os.path.exists(build):
        return "the default model or libllama is not in .deps"
    with open(build, encoding="ascii") as file:
        if "AVX512_VNNI" not in file.read().upper():
            return "the digits of the examples are those of a processor with AVX-512"
    missing = [tool for tool in ("curl", "jq") if not shutil.which(tool)]
    return f"not installed: {', '.join(missing)}" if missing else ""


REASON = reason_to_skip()


@unittest.skipIf(REASON, REASON)
class Examples(unittest.TestCase):
    maxDiff = None

    def check_page(self, page, least):
        runner = Runner(self)
        for block in examples_of(page):
            for example in block:
                with self.subTest(page=page, command=example.command):
                    runner.run(example)
        self.assertGreaterEqual(runner.n_run, least, "examples that this test does not see")

    def test_the_readme_prints_what_it_says(self):
        self.check_page(PAGES[0], 8)

    def test_the_page_of_the_command_line_prints_what_it_says(self):
        self.check_page(PAGES[1], 8)


class Reading(unittest.TestCase):
    def test_every_command_of_alea_is_seen(self):
        for page in PAGES:
            with open(os.path.join(closing.ROOT, page), encoding="utf-8") as file:
                text = file.read()
            there = len(re.findall(r"^(?:    )?\$ (?:alea |.*\| alea )", text, re.M))
            seen = sum(is_of_alea(example.command) for block in examples_of(page) for example in block)
            self.assertEqual(seen, there, page)

    def test_elisions_stand_for_anything_and_the_rest_for_itself(self):
        for expected, printed, same in (('{"id":"…","n":1}', '{"id":"x","n":1}', True),
                                        ('{"id":"…","n":1}', '{"id":"x","n":2}', False),
                                        ("native 81d40b30b927,", "native 0123456789ab,", True),
                                        ("a.b", "axb", False)):
            self.assertEqual(re.fullmatch(pattern_of(expected), printed, re.S) is not None, same)


if __name__ == "__main__":
    sys.exit(closing.run())
