"""Whatever is wrong gets one line on stderr, its documented exit code, and nothing half-written."""
import os
import re
import resource
import signal
import subprocess
import sys
import time
import unittest

from rig import BIGRAM, Case, PROGRAM, SANITIZED, TOY, closing, environment, parse_lines

USAGE, INPUT, MODEL, OUTPUT = 2, 3, 4, 5

# name, exit code, pattern of the line, arguments, standard input
REFUSALS = [
    ("no command", USAGE, "which command", [], ""),
    ("unknown command", USAGE, "no command 'scroe'", ["scroe"], ""),
    ("help of an unknown command", USAGE, "no command 'x'", ["help", "x"], ""),
    ("help of two commands", USAGE, "what to do with 'serve'", ["help", "score", "serve"], ""),
    ("a word behind the version", USAGE, "what to do with 'x'", ["--version", "x"], ""),
    ("unknown option", USAGE, "no option '--tpo'", ["score", "--tpo", "1"], ""),
    ("an option mistyped", USAGE, "did you mean --window;", ["score", "--windows", "1"], ""),
    ("another command's name for it", USAGE, "'--top', did you mean --logprobs;", ["generate", "--top", "1"], ""),
    ("and the other way round", USAGE, "did you mean --top;", ["score", "--logprobs=1"], ""),
    ("an option like no other", USAGE, "no option '--nonsense'; see", ["score", "--nonsense"], ""),
    ("unknown letter", USAGE, "no option '-z'", ["score", "-z"], ""),
    ("missing value", USAGE, "'--top' needs a value", ["score", "--top"], ""),
    ("nothing to score", USAGE, "needs something to score", ["score", *TOY], ""),
    ("two sources", USAGE, "one of them", ["score", *TOY, "--text", "a", "-"], ""),
    ("K above", USAGE, r"--top is '21'.*0\.\.20", ["score", *TOY, "--text", "a", "--top", "21"], ""),
    ("K below", USAGE, r"--top is '-1'", ["score", *TOY, "--text", "a", "--top", "-1"], ""),
    ("K no number", USAGE, r"--top is '3x'", ["score", *TOY, "--text", "a", "--top", "3x"], ""),
    ("K beyond 64 bits", USAGE, r"--top is '9{30}'", ["score", *TOY, "--text", "a", "-k", "9" * 30], ""),
    ("window 0", USAGE, "--window is '0'", ["score", *TOY, "--text", "a", "--window", "0"], ""),
    ("window above context", USAGE, r"--window is 65.*64", ["score", *TOY, "-c", "64", "--text", "a", "-w", "65"], ""),
    ("stride above window", USAGE, r"--stride is 9.*8", ["score", *TOY, "--text", "a", "-w", "8", "-s", "9"], ""),
    ("bad caps", USAGE, "--caps", ["inspect", "--caps", "sse9"], ""),
    ("bad color", USAGE, "auto always never", ["score", *TOY, "--text", "a", "--color", "maybe"], ""),
    ("toy key", USAGE, "nonsense", ["score", "--model", "toy:nonsense=1", "--text", "a"], ""),
    ("temperature NaN", USAGE, "--temperature is 'nan'", ["generate", *TOY, "-p", "a", "--temperature", "nan"], ""),
    ("temperature infinite", USAGE, "--temperature is 'inf'", ["generate", *TOY, "-p", "a", "--temperature", "inf"], ""),
    ("temperature negative", USAGE, "--temperature is '-1'", ["generate", *TOY, "-p", "a", "--temperature", "-1"], ""),
    ("temperature too small", USAGE, "temperature", ["generate", *TOY, "-p", "a", "--temperature", "1e-300"], ""),
    ("top-p NaN", USAGE, "--top-p is 'nan'", ["generate", *TOY, "-p", "a", "--top-p", "nan"], ""),
    ("top-p 0", USAGE, "top_p is 0", ["generate", *TOY, "-p", "a", "--top-p", "0"], ""),
    ("min-p above", USAGE, "--min-p is '1.5'", ["generate", *TOY, "-p", "a", "--min-p", "1.5"], ""),
    ("logprobs above", USAGE, "--logprobs is '21'", ["generate", *TOY, "-p", "a", "--logprobs", "21"], ""),
    ("seed negative", USAGE, "--seed is '-1'", ["generate", *TOY, "-p", "a", "--seed", "-1"], ""),
    ("seed above", USAGE, "--seed is", ["generate", *TOY, "-p", "a", "--seed", "18446744073709551616"], ""),
    ("no samples", USAGE, "--n is '0'", ["generate", *TOY, "-p", "a", "--n", "0"], ""),
    ("more tokens than any request may ask for", USAGE, r"--max-tokens is '2147483647'", ["generate", *TOY, "-p", "a", "-n", "2147483647"], ""),
    ("no prompt", USAGE, "needs one source", ["generate", *TOY], ""),
    ("two prompts", USAGE, "needs one source", ["generate", *TOY, "-p", "a", "-"], ""),
    ("a prompt and lines", USAGE, "needs one source", ["generate", *TOY, "-p", "a", "-l", "-"], ""),
    ("an empty stop", USAGE, "--stop is empty", ["generate", *TOY, "-p", "a", "--stop", ""], ""),
    ("too many stops", USAGE, "more than 64", ["generate", *TOY, "-p", "a", *["--stop", "x"] * 65], ""),
    ("no place to compute", USAGE, "--parallel is '0'", ["generate", *TOY, "-p", "a", "--parallel", "0"], ""),
    ("a core without a model", USAGE, "--core needs", ["generate", "--core", BIGRAM, "-p", "a"], ""),
    ("bench what", USAGE, "core, engine or ops", ["bench", "everything"], ""),
    ("two models", USAGE, "MODEL or --model, not both", ["inspect", "-m", "toy:", "toy:"], ""),
    ("too many operands", USAGE, "what to do with 'b'", ["inspect", "a", "b"], ""),
    ("no such text", INPUT, "cannot open nowhere.txt", ["score", *TOY, "nowhere.txt"], ""),
    ("a directory as text", INPUT, "Is a directory", ["score", *TOY, "/"], ""),
    ("empty text", INPUT, "standard input.*empty", ["score", *TOY, "-"], ""),
    ("empty --text", INPUT, "--text.*empty", ["score", *TOY, "--text", ""], ""),
    ("text not UTF-8", INPUT, "not UTF-8 at byte 2", ["score", *TOY, "-"], b"ab\xff"),
    ("prompt longer than the context", INPUT, "context holds 8", ["generate", *TOY, "-c", "8", "-p", "0123456789"], ""),
    ("line no JSON", INPUT, "line 1", ["score", *TOY, "--jsonl", "-"], "{bad\n"),
    ("line cut short", INPUT, "line 1: column 12: unexpected end of data$", ["score", *TOY, "--jsonl", "-"], '{"text":"a"\n'),
    ("line without a prompt", INPUT, "line 1: .*prompt", ["generate", *TOY, "-l", "-"], '{"text":"a"}\n'),
    ("line with an empty prompt", INPUT, "line 1: .*empty", ["generate", "--model", "toy:bos=0", "-l", "-"], '{"prompt":""}\n'),
    ("line no object", INPUT, "line 1.*object", ["score", *TOY, "--jsonl", "-"], "[1]\n"),
    ("line without a form", INPUT, "line 1.*must have.*has none$", ["score", *TOY, "--jsonl", "-"], '{"id":1}\n'),
    ("line with one form and a half", INPUT, "this one has text prompt$", ["score", *TOY, "--jsonl", "-"], '{"text":"a","prompt":"b"}\n'),
    ("line with two forms", INPUT, "this one has text token_ids$", ["score", *TOY, "--jsonl", "-"], '{"text":"a","token_ids":[1]}\n'),
    ("prompt alone", INPUT, "must have", ["score", *TOY, "--jsonl", "-"], '{"prompt":"a"}\n'),
    ("text no string", INPUT, "text", ["score", *TOY, "--jsonl", "-"], '{"text":5}\n'),
    ("id no scalar", INPUT, "id must be", ["score", *TOY, "--jsonl", "-"], '{"id":[],"text":"a"}\n'),
    ("empty text in a line", INPUT, "line 2.*empty", ["score", *TOY, "--jsonl", "-", "-o", "/dev/null"], '{"text":"a"}\n{"text":""}\n'),
    ("empty continuation", INPUT, "continuation is empty", ["score", *TOY, "--jsonl", "-"], '{"prompt":"a","continuation":""}\n'),
    ("nothing before the continuation", INPUT, "longer prompt", ["score", "--model", "toy:bos=0", "--jsonl", "-"], '{"prompt":"","continuation":"a"}\n'),
    ("token id above", INPUT, r"token 1 is 320.*0\.\.319", ["score", *TOY, "--jsonl", "-"], '{"token_ids":[1,320]}\n'),
    ("token id below", INPUT, r"token_ids\[1\]", ["score", *TOY, "--jsonl", "-"], '{"token_ids":[1,-1]}\n'),
    ("token id no integer", INPUT, r"token_ids\[0\]", ["score", *TOY, "--jsonl", "-"], '{"token_ids":[1.5]}\n'),
    ("no token ids", INPUT, "token_ids", ["score", *TOY, "--jsonl", "-"], '{"token_ids":[]}\n'),
    ("no such JSONL", INPUT, "cannot open", ["score", *TOY, "--jsonl", "nowhere.jsonl"], ""),
    ("row with NaN", MODEL, "token 4 ", ["score", "--model", "toy:nan_at=3", "--text", "abcdefg", "--json"], ""),
    ("generated row with NaN", MODEL, "--prompt: at position 2", ["generate", "--model", "toy:nan_at=1", "-p", "a", "--json"], ""),
    ("no such core", MODEL, "nowhere.so", ["generate", "--core", "nowhere.so", "--model", "x", "-p", "a"], ""),
    ("a core that is none", MODEL, "cannot be loaded", ["inspect", "--core", __file__, "x"], ""),
    ("no model for the core", MODEL, "nowhere.txt", ["score", "--core", BIGRAM, "--model", "nowhere.txt", "--text", "a"], ""),
    ("no such model", MODEL, "nowhere.gguf", ["score", "--model", "nowhere.gguf", "--text", "a"], ""),
    ("a directory as model", MODEL, "directory", ["inspect", "/"], ""),
    ("a model that is no GGUF", MODEL, "GGUF", ["inspect", PROGRAM], ""),
    ("an empty model", MODEL, "regular file", ["inspect", "/dev/null"], ""),
    ("no folder for the output", OUTPUT, "cannot create", ["score", *TOY, "--text", "a", "-o", "/nowhere/x"], ""),
    ("no folder for the output, before the model", OUTPUT, "cannot create", ["generate", "-m", "nowhere.gguf", "-p", "a", "-o", "/nowhere/x"], ""),
    ("an output without a name", USAGE, "--output is empty", ["score", *TOY, "--text", "a", "-o", ""], ""),
    ("a socket without a name", USAGE, "--unix is empty", ["serve", *TOY, "--unix", ""], ""),
    ("a model without a name", USAGE, "--model is empty", ["score", "--model", "", "--text", "a"], ""),
    ("a directory as output", OUTPUT, "Is a directory", ["score", *TOY, "--text", "a", "-o", "/"], ""),
    ("a full device as output", OUTPUT, "No space left", ["score", *TOY, "--text", "a", "-o", "/dev/full"], ""),
]


class Refusals(Case):
    def test_the_model_is_named_with_the_remedy_when_it_is_missing(self):
        said = self.run_alea("score", "--text", "a", env=environment(ALEA_MODEL="nowhere.gguf"))
        self.assertEqual(said.returncode, MODEL)
        self.assertIn(b"ALEA_MODEL names nowhere.gguf", said.stderr)
        self.assertIn(b"--model", said.stderr)

    def test_a_truncated_model_is_refused(self):
        with open(self.tiny(), "rb") as file:
            whole = file.read()
        for part in (3, 20, 1000, len(whole) // 2, len(whole) - 1):
            path = self.path("cut.gguf", whole[:part])
            self.refused(MODEL, "cut.gguf", "inspect", path)

    def test_a_model_that_claims_an_impossible_context_is_refused(self):
        with open(self.tiny(), "rb") as file:
            whole = file.read()
        at = whole.index(b"llama.context_length") + len("llama.context_length") + 4
        for claimed in (0, 1 << 31, (1 << 32) - 1):
            data = whole[:at] + claimed.to_bytes(4, "little") + whole[at + 4:]
            self.refused(MODEL, "claims.gguf", "inspect", self.path("claims.gguf", data))

    def test_an_unknown_architecture_is_refused(self):
        self.refused(MODEL, "clippy", "inspect", self.tiny("--architecture", "clippy"))

    def test_an_embedding_model_is_refused(self):
        self.refused(MODEL, "embedding", "score", "--model", self.tiny("--embedding-only"),
                     "--text", "abc")

    def test_a_context_beyond_the_model_is_refused(self):
        self.refused(USAGE, "at most 512", "score", "--model", self.tiny(), "--text", "abc",
                     "--context", "513")

    def test_bad_caps_in_the_environment_are_refused(self):
        self.refused(USAGE, "ALEA_CAPS", "inspect", env=environment(ALEA_CAPS="sse9"))

    def test_an_output_file_appears_whole_or_not_at_all(self):
        path = self.path("out.jsonl")
        data = '{"text":"abc"}\n{"text":""}\n'
        self.refused(INPUT, "line 2", "score", *TOY, "--jsonl", "-", "--json", "-o", path, stdin=data)
        self.assertEqual(os.listdir(self.folder), [])
        self.good("score", *TOY, "--text", "abc", "--json", "-o", path)
        self.assertEqual(os.listdir(self.folder), ["out.jsonl"])
        with open(path, encoding="utf-8") as file:
            self.assertEqual(len(parse_lines(file.read())), 1)
        mask = os.umask(0)
        os.umask(mask)
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o666 & ~mask)

    def test_an_output_keeps_the_rights_of_the_file_that_it_replaces(self):
        path = self.path("out.jsonl", "older\n")
        os.chmod(path, 0o640)
        self.good("score", *TOY, "--text", "abc", "--json", "-o", path)
        self.assertEqual(os.stat(path).st_mode & 0o7777, 0o640)
        with open(path, encoding="utf-8") as file:
            self.assertEqual(len(parse_lines(file.read())), 1)

    def test_a_link_as_output_stays_and_what_it_names_is_replaced(self):
        os.mkdir(self.path("data"))
        target = self.path("data/target", "older\n")
        os.symlink("data/target", self.path("near"))
        os.symlink(self.path("near"), self.path("far"))
        os.symlink("data/new", self.path("dangling"))
        for link, file in (("far", target), ("dangling", self.path("data/new"))):
            self.good("score", *TOY, "--text", "abc", "--json", "-o", self.path(link))
            self.assertTrue(os.path.islink(self.path(link)))
            with open(file, encoding="utf-8") as made:
                self.assertEqual(len(parse_lines(made.read())), 1)
        self.assertEqual(sorted(os.listdir(self.path("data"))), ["new", "target"])
        os.symlink("loop", self.path("loop"))
        self.refused(OUTPUT, "cannot create .*symbolic links", "score", *TOY, "--text", "a", "-o",
                     self.path("loop"))

    def test_a_failed_run_leaves_an_older_output_alone(self):
        path = self.path("out.jsonl", "older\n")
        self.refused(INPUT, "empty", "score", *TOY, "--text", "", "-o", path)
        with open(path, encoding="utf-8") as file:
            self.assertEqual(file.read(), "older\n")

    def test_what_was_finished_before_a_bad_line_is_whole(self):
        said = self.refused(INPUT, "line 2", "score", *TOY, "--jsonl", "-", "--json",
                            stdin='{"text":"abc"}\n{"text":""}\n')
        self.assertEqual(len(parse_lines(said)), 1)

    def test_a_bad_row_leaves_no_line(self):
        said = self.refused(MODEL, "token 4 ", "score", "--model", "toy:nan_at=3", "--json",
                            "--text", "abcdefg")
        self.assertEqual(said, "")

    def test_a_full_disk_is_one_line(self):
        for command in (["score", *TOY, "--text", "abc"], ["score", *TOY, "--text", "abc", "--json"],
                        ["generate", *TOY, "-q", "-p", "a"], ["generate", *TOY, "-p", "a", "--json"],
                        ["inspect"], ["inspect", "--json"], ["inspect", "toy:"]):
            with open("/dev/full", "wb") as full:
                self.refused(OUTPUT, "No space left", *command, stdout=full)

    def test_a_reader_that_leaves_is_one_line(self):
        for command in (["score", *TOY, "--text", "abc"], ["score", *TOY, "--text", "abc", "--json"],
                        ["generate", *TOY, "-q", "-p", "a"], ["inspect", "--json"]):
            reading, writing = os.pipe()
            os.close(reading)
            self.refused(OUTPUT, "closed by its reader", *command, stdout=writing)
            os.close(writing)

    def test_a_closed_stdout_is_one_line_and_no_other_file_is_written(self):
        text = self.path("text.txt", "some text")
        done = subprocess.run(["sh", "-c", f'"{PROGRAM}" score --model toy: --json "{text}" >&-'],
                              stderr=subprocess.PIPE, env=environment(), check=False)
        self.assertEqual(done.returncode, OUTPUT, done.stderr)
        self.assertRegex(done.stderr.decode(), r"\Aalea: [^\n]*Bad file descriptor\n\Z")
        with open(text, encoding="utf-8") as file:
            self.assertEqual(file.read(), "some text")

    @unittest.skipIf(SANITIZED, "a sanitizer reserves more memory than the limit leaves")
    def test_a_line_beyond_the_memory_is_no_end_of_the_file(self):
        limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
        self.refused(1, "out of memory for /dev/zero line 1", "score", *TOY, "--threads", "1",
                     "--jsonl", "/dev/zero", preexec_fn=limit)

    def test_help_and_version_into_a_full_disk_are_one_line(self):
        for args in (["--version"], ["help"], ["help", "score"], ["score", "--help"]):
            with open("/dev/full", "wb") as full:
                self.refused(OUTPUT, "No space left", *args, stdout=full)

    def test_a_long_line_without_room_for_it_is_one_line(self):
        env = environment(TMPDIR=os.path.join(self.folder, "nowhere"))
        text = self.path("long.txt", "abcdefgh" * 2500)
        said = self.refused(OUTPUT, "TMPDIR", "score", *TOY, "--json", "--top", "20", text, env=env)
        self.assertEqual(said, "")


def add(name, code, pattern, args, stdin):
    def test(self):
        self.assertEqual(self.refused(code, pattern, *args, stdin=stdin), "")
    setattr(Refusals, "test_refuses_" + re.sub(r"\W+", "_", name), test)


for refusal in REFUSALS:
    add(*refusal)


class Interrupts(Case):
    def interrupted(self, args, lines_first, number=signal.SIGINT):
        """Start, wait for that many lines, send the signal; returns the code, stdout and stderr."""
        path = self.path("stdout")
        with open(path, "wb") as out:
            running = subprocess.Popen([PROGRAM, *args], stdout=out, stderr=subprocess.PIPE,
                                       stdin=subprocess.DEVNULL, env=environment())
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with open(path, "rb") as so_far:
                if so_far.read().count(b"\n") >= lines_first:
                    break
            time.sleep(0.02)
        time.sleep(0.3)
        running.send_signal(number)
        said = running.communicate(timeout=60)[1]
        with open(path, encoding="utf-8") as out:
            return running.returncode, out.read(), said.decode()

    def test_what_was_finished_in_a_long_scoring_is_whole(self):
        data = "".join('{"id":%d,"text":"%s"}\n' % (i, "word " * (4 if i < 3 else 2000))
                       for i in range(6))
        path = self.path("long.jsonl", data)
        code, out, said = self.interrupted(
            ["score", "--model", "toy:slow_ms=50", "--json", "--jsonl", path], 3)
        self.assertEqual(code, 130)
        self.assertEqual(said, "alea: interrupted\n")
        self.assertEqual([line["id"] for line in parse_lines(out)], [0, 1, 2])

    def test_an_interrupted_generation_is_whole_lines(self):
        code, out, said = self.interrupted(
            ["generate", "--model", "toy:slow_ms=20", "-p", "a", "--max-tokens", "5", "--n", "1000",
             "--json", "--ignore-end"], 2)
        self.assertEqual(code, 130)
        self.assertEqual(said, "alea: interrupted\n")
        self.assertGreaterEqual(len(parse_lines(out)), 2)

    def test_an_interrupted_run_makes_no_output_file(self):
        path = self.path("long.txt", "word " * 5000)
        result = self.path("result.jsonl")
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            code, _, said = self.interrupted(
                ["score", "--model", "toy:slow_ms=50", "--json", "-o", result, path], 0, number)
            self.assertEqual(code, 130)
            self.assertEqual(said, "alea: interrupted\n")
            self.assertEqual(sorted(os.listdir(self.folder)), ["long.txt", "stdout"])

    def test_a_second_signal_leaves_no_part_of_an_output_file(self):
        path = self.path("long.txt", "word " * 50)
        running = subprocess.Popen(
            [PROGRAM, "score", "--model", "toy:slow_ms=20000", "--json", "-o", self.path("out"), path],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment())
        while len(os.listdir(self.folder)) < 2:
            time.sleep(0.02)
        time.sleep(0.5)
        running.send_signal(signal.SIGINT)
        time.sleep(0.5)
        self.assertIsNone(running.poll())
        running.send_signal(signal.SIGINT)
        self.assertEqual(running.wait(timeout=10), -signal.SIGINT)
        self.assertEqual(os.listdir(self.folder), ["long.txt"])

    def test_waiting_for_input_can_be_interrupted(self):
        running = subprocess.Popen([PROGRAM, "score", *TOY, "-"], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
        time.sleep(1)
        running.send_signal(signal.SIGINT)
        self.assertEqual(running.wait(timeout=30), 130)
        self.assertEqual(running.stderr.read(), b"alea: interrupted\n")
        for pipe in (running.stdin, running.stdout, running.stderr):
            pipe.close()


    def test_a_measurement_ends_at_the_first_signal(self):
        running = subprocess.Popen([PROGRAM, "bench", "ops"], stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL, env=environment())
        time.sleep(0.2)
        running.send_signal(signal.SIGTERM)
        self.assertEqual(running.wait(timeout=30), -signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(closing.run())
