"""What the commands print, field by field, against sums made here from the printed values."""
import json
import math
import os
import pty
import re
import select
import subprocess
import sys
import unicodedata

from rig import BIGRAM, Case, PROGRAM, SANITIZED, TOY, closing, environment, float32, parse_lines

ROOT = closing.ROOT
SCORE_KEYS = ["id", "tokens", "n_tokens", "n_scored", "sum_logprob", "perplexity", "bits_per_byte"]
TOKEN_KEYS = ["id", "text", "bytes", "logprob", "rank", "top"]
SAMPLE_KEYS = ["id", "text", "tokens", "finish_reason", "stop_reason", "seed"]
MIXED = "Hello, wörld! \U0001f642\U0001f469\u200d\U0001f680 数学 and the \x00 end\n"


def join(tokens):
    return b"".join(bytes(token["bytes"]) for token in tokens)


def cells(character):
    """Columns of a terminal that a character takes."""
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


class Scores(Case):
    def check_token(self, token, top, first=False):
        self.assertEqual(list(token), TOKEN_KEYS)
        self.assertTrue(all(0 <= byte <= 255 for byte in token["bytes"]))
        if first:
            self.assertEqual((token["logprob"], token["rank"], token["top"]), (None, None, []))
            return
        self.assertEqual(token["logprob"], float(repr(token["logprob"])))
        self.assertLessEqual(token["logprob"], 0)
        self.assertGreaterEqual(token["rank"], 1)
        self.assertEqual(len(token["top"]), top)
        values = [(-other["logprob"], other["id"]) for other in token["top"]]
        self.assertEqual(values, sorted(values))
        for other in token["top"]:
            self.assertEqual(list(other), ["id", "text", "logprob"])
        better = sum(other["logprob"] > token["logprob"] for other in token["top"])
        if token["rank"] <= top:
            self.assertEqual(token["rank"], 1 + better)
            mine = [other for other in token["top"] if other["id"] == token["id"]]
            if mine:
                self.assertEqual((mine[0]["logprob"], mine[0]["text"]),
                                 (token["logprob"], token["text"]))
        else:
            self.assertEqual(better, top)

    def check_text(self, line, top, keys=None):
        self.assertEqual(list(line), keys or SCORE_KEYS)
        tokens = line["tokens"]
        self.assertEqual(line["n_tokens"], len(tokens))
        self.assertEqual(line["n_scored"], len(tokens) - 1)
        self.check_token(tokens[0], top, first=True)
        total = 0.0
        for token in tokens[1:]:
            self.check_token(token, top)
            total += float32(token["logprob"])
        self.assertEqual(line["sum_logprob"], total)
        n_bytes = sum(len(token["bytes"]) for token in tokens[1:])
        if line["n_scored"]:
            self.assertAlmostEqual(line["perplexity"] / math.exp(-total / line["n_scored"]), 1, 12)
        else:
            self.assertIsNone(line["perplexity"])
        if line["n_scored"] and n_bytes:
            self.assertAlmostEqual(line["bits_per_byte"], -total / math.log(2) / n_bytes, 12)
        else:
            self.assertIsNone(line["bits_per_byte"])

    def test_every_field_of_a_text(self):
        path = self.path("mixed.txt", MIXED)
        for top in (0, 1, 5, 20):
            line, = self.lines("score", *TOY, "--json", "--top", str(top), path)
            self.check_text(line, top)
            self.assertEqual(line["id"], path)
            self.assertEqual(join(line["tokens"]), MIXED.encode())

    def test_the_example_texts_come_back_byte_for_byte(self):
        names = [os.path.join(ROOT, "share", name)
                 for name in ("opening.txt", "tom-sawyer.txt", "mixed.txt")]
        lines = self.lines("score", *TOY, "--json", *names)
        for name, line in zip(names, lines, strict=True):
            with open(name, "rb") as file:
                self.assertEqual(join(line["tokens"]), file.read())

    def test_text_of_a_token_is_its_bytes_its_fragment_or_its_name(self):
        line, = self.lines("score", *TOY, "--json", "--text", MIXED.replace("\x00", ""))
        fragments = 0
        for token in line["tokens"]:
            data = bytes(token["bytes"])
            try:
                self.assertEqual(token["text"], data.decode() or "<|bos|>")
            except UnicodeDecodeError:
                fragments += 1
                self.assertEqual(token["text"], "bytes:" + "".join(f"\\x{b:02x}" for b in data))
        self.assertGreater(fragments, 0)

    def test_a_single_token_has_null_for_what_it_cannot_have(self):
        line, = self.lines("score", *TOY, "--json", "--jsonl", "-", stdin='{"token_ids":[65]}')
        self.check_text(line, 0)
        self.assertEqual((line["sum_logprob"], line["perplexity"]), (0, None))

    def test_the_three_forms_and_their_ids(self):
        data = ('{"id":"a","text":"hello"}\n\n  \n{"id":7,"prompt":"hel","continuation":"lo"}\n'
                '{"id":18446744073709551615,"token_ids":[256,104,101]}\n'
                '{"id":2.5,"text":"x","extra":[1,{"text":0}]}\n{"text":"no id","id":null}')
        lines = self.lines("score", *TOY, "--json", "--jsonl", "-", stdin=data)
        self.assertEqual([line["id"] for line in lines], ["a", 7, 18446744073709551615, 2.5, 7])
        self.check_text(lines[1], 0, SCORE_KEYS + ["continuation"])
        for line in lines[:1] + lines[2:]:
            self.check_text(line, 0)
        self.assertEqual([token["id"] for token in lines[2]["tokens"]], [256, 104, 101])

    def test_a_file_of_lines_is_read_like_standard_input(self):
        data = '{"text":"hello"}\n{"prompt":"a","continuation":" b"}\n'
        path = self.path("data.jsonl", data)
        self.assertEqual(self.good("score", *TOY, "--json", "--jsonl", path),
                         self.good("score", *TOY, "--json", "--jsonl", "-", stdin=data))

    def test_continuations(self):
        for prompt, continuation in (("Answer: ", "yes"), ("Answer:", " yes"), ("th", "e end"),
                                     ("a\n\n ", "b"), ("x", "\U0001f642"), ("", "hi")):
            data = json.dumps({"prompt": prompt, "continuation": continuation})
            line, = self.lines("score", *TOY, "--json", "--top", "1", "--jsonl", "-", stdin=data)
            first = line["continuation"]["first"]
            tokens = line["tokens"]
            self.assertEqual(join(tokens), (prompt + continuation).encode())
            self.assertLessEqual(len(join(tokens[:first])), len(prompt.rstrip().encode()))
            self.assertGreater(len(join(tokens[:first + 1])), len(prompt.rstrip().encode()))
            part = tokens[first:]
            self.assertEqual(line["continuation"]["sum_logprob"],
                             sum(float32(token["logprob"]) for token in part))
            self.assertEqual(line["continuation"]["is_greedy"],
                             all(token["id"] == token["top"][0]["id"] for token in part))

    def test_a_greedy_continuation_is_told(self):
        # this model's best token is the one whose id follows: "b" after "a"
        data = '{"prompt":"a","continuation":"bcd"}\n{"prompt":"a","continuation":"bd"}\n'
        lines = self.lines("score", "--model", "toy:peak=5", "--json", "--jsonl", "-", stdin=data)
        self.assertEqual([line["continuation"]["is_greedy"] for line in lines], [True, False])

    def test_a_probability_of_zero_is_the_floor_and_no_infinity(self):
        line, = self.lines("score", "--model", "toy:holes=60", "--json", "--text", "abcdefghij")
        self.assertIn(-9999.0, [token["logprob"] for token in line["tokens"]])
        self.assertIsNone(line["sum_logprob"])

    def test_windows_change_nothing_for_a_text_that_fits(self):
        text = self.path("text.txt", "the cat sat on the mat " * 20)
        whole = self.good("score", *TOY, "--json", text)
        n = self.lines("score", *TOY, "--json", text)[0]["n_tokens"]
        self.assertEqual(whole, self.good("score", *TOY, "--json", "-w", str(n - 1), text))
        self.assertNotEqual(whole, self.good("score", *TOY, "--json", "-w", str(n - 2), text))
        self.assertEqual(whole, self.good("score", *TOY, "--json", "-c", str(n - 1), text))

    def test_threads_and_instruction_sets_change_nothing(self):
        text = self.path("text.txt", MIXED * 5)
        first = self.good("score", *TOY, "--json", "-k", "20", text)
        for more in (["--threads", "1"], ["--threads", "3"], ["--caps", "ref"]):
            self.assertEqual(first, self.good("score", *TOY, "--json", "-k", "20", *more, text))

    def test_the_table_says_what_json_says(self):
        args = ["score", *TOY, "--text", "hello wörld"]
        line, = self.lines(*args, "--json")
        table = self.good(*args)
        rows = [row.split() for row in table.splitlines() if re.match(r" +\d+  ", row)]
        self.assertEqual(len(rows), line["n_tokens"])
        for row, token in zip(rows[1:], line["tokens"][1:], strict=True):
            self.assertEqual(row[2:4], [f"{token['logprob']:.4f}", str(token["rank"])])
        self.assertIn(f"perplexity {line['perplexity']:.4f}", table)
        self.assertNotIn("\x1b", table)

    def test_memory_does_not_grow_with_the_text(self):
        if SANITIZED:
            self.skipTest("a sanitizer's own memory would be measured")
        sizes = []
        for n_bytes in (20000, 200000):
            text = self.path("text.txt", "abcdefgh" * (n_bytes // 8))
            with open(os.devnull, "wb") as null:
                running = subprocess.Popen([PROGRAM, "score", "--model", "toy:", "--json", "-k", "20",
                                            "-c", "512", "-w", "512", "-s", "512", text], stdout=null,
                                           env=environment())
                _, status, usage = os.wait4(running.pid, 0)
            running.returncode = os.waitstatus_to_exitcode(status)
            self.assertEqual(running.returncode, 0)
            sizes.append(usage.ru_maxrss)
        # ten times the text, 200 MB of JSON: the ids and the text itself are all that grows
        self.assertLess(sizes[1] - sizes[0], 4096, sizes)


class Samples(Case):
    def test_every_field_of_a_sample(self):
        lines = self.lines("generate", *TOY, "--json", "-p", "Hello", "--seed", "11", "--n", "3",
                           "--max-tokens", "40", "--logprobs", "4")
        self.assertEqual([line["id"] for line in lines], [0, 1, 2])
        for line in lines:
            self.assertEqual(list(line), SAMPLE_KEYS)
            self.assertEqual(line["text"], join(line["tokens"]).decode(errors="replace"))
            self.assertEqual((line["seed"], line["stop_reason"]), (11, None))
            self.assertIn(line["finish_reason"], ("stop", "length"))
            self.assertLessEqual(len(line["tokens"]), 40)
            self.assertEqual(line["finish_reason"] == "length", len(line["tokens"]) == 40)
            for token in line["tokens"]:
                self.assertEqual(list(token), TOKEN_KEYS)
                self.assertEqual(len(token["top"]), 4)
        self.assertGreater(len({line["text"] for line in lines}), 1)

    def test_the_same_seed_gives_the_same_text(self):
        args = ["generate", *TOY, "--json", "-p", "Hello", "--max-tokens", "30", "--ignore-end"]
        first = self.good(*args, "--seed", "5", "--n", "2")
        self.assertEqual(first, self.good(*args, "--seed", "5", "--n", "2"))
        self.assertEqual(first.split("\n")[0], self.good(*args, "--seed", "5").strip())
        self.assertNotEqual(first, self.good(*args, "--seed", "6", "--n", "2"))

    def test_separators_inside_a_text_do_not_end_its_line(self):
        ids = ["a\u0085b", "\u2028", "\u2029c"]
        data = "".join(json.dumps({"id": name, "prompt": "a"}) + "\n" for name in ids)
        out = self.good("generate", *TOY, "--json", "--jsonl", "-", "-n", "5", "--seed", "6", stdin=data)
        self.assertEqual(len(out.splitlines()), len(ids))  # which splits at each of those
        self.assertEqual([line["id"] for line in parse_lines(out)], ids)

    def test_the_first_samples_do_not_depend_on_how_many_follow(self):
        args = ["generate", *TOY, "--json", "-p", "Hello", "--max-tokens", "6", "--seed", "5"]
        many = self.good(*args, "--n", "300").split("\n")[:-1]
        self.assertEqual(len(many), 300)
        self.assertEqual(many[:3], self.good(*args, "--n", "3").split("\n")[:3])
        self.assertEqual([json.loads(line)["id"] for line in many], list(range(300)))
        self.assertGreater(len({json.loads(line)["text"] for line in many}), 250)

    def test_a_prompt_among_others_gives_what_it_gives_alone(self):
        prompts = ["Hello", "the cat ", "数", "a" * 60, "Hello", "Hell"]
        data = "".join(json.dumps({"id": f"q{i}", "prompt": prompt}) + "\n"
                       for i, prompt in enumerate(prompts))
        args = ["--json", "--seed", "5", "--n", "2", "-n", "12", "-k", "3", "--ignore-end",
                "--threads", "1"]
        for model in (TOY, ["--model", self.tiny()]):
            lines = self.lines("generate", *model, *args, "--jsonl", "-", stdin=data)
            self.assertEqual([(line.pop("id"), line.pop("sample")) for line in lines],
                             [(f"q{i}", c) for i in range(len(prompts)) for c in (0, 1)])
            for parallel in ("1", "7"):
                again = self.lines("generate", *model, *args, "--jsonl", "-", "--parallel", parallel,
                                   stdin=data)
                for line, other in zip(lines, again, strict=True):
                    del other["id"], other["sample"]
                    self.assertEqual(line, other)
            for i, prompt in enumerate(prompts):
                alone = self.lines("generate", *model, *args, "-p", prompt)
                for line in alone:
                    self.assertEqual(list(line), SAMPLE_KEYS)
                    del line["id"]
                self.assertEqual(lines[2 * i:2 * i + 2], alone)

    def test_more_lines_than_are_held_at_once(self):
        data = "".join('{"prompt":"line %d "}\n' % i for i in range(100))
        lines = self.lines("generate", *TOY, "--json", "--seed", "5", "-n", "4", "--n", "5",
                           "--jsonl", self.path("many.jsonl", data))
        self.assertEqual([(line["id"], line["sample"]) for line in lines],
                         [(i, c) for i in range(1, 101) for c in range(5)])

    def test_each_line_of_a_pipe_is_answered_before_the_next_is_written(self):
        for command in (["generate", "--seed", "1", "-n", "4"], ["score"]):
            running = subprocess.Popen([PROGRAM, *command, *TOY, "--json", "--jsonl", "-"],
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                       env=environment())
            kind = "prompt" if command[0] == "generate" else "text"
            for number in range(3):
                running.stdin.write(b'{"id":%d,"%s":"abc"}\n' % (number, kind.encode()))
                running.stdin.flush()
                self.assertTrue(select.select([running.stdout], [], [], 60)[0], "no answer")
                self.assertEqual(json.loads(os.read(running.stdout.fileno(), 1 << 20))["id"], number)
            running.stdin.close()
            self.assertEqual(running.wait(timeout=60), 0)
            running.stdout.close()

    def test_prompts_before_a_bad_line_are_answered(self):
        said = self.refused(3, "line 2", "generate", *TOY, "--json", "-n", "3", "--jsonl", "-",
                            stdin='{"id":1,"prompt":"a"}\n{"id":2}\n{"id":3,"prompt":"a"}\n')
        self.assertEqual([line["id"] for line in parse_lines(said)], [1])

    def test_an_end_token_has_no_entry_and_no_text(self):
        line, = self.lines("generate", "--model", "toy:peak=50", "--json", "-T", "0", "-p", "~")
        # this model counts up: 256 is the token of the beginning, 257 that of the end
        self.assertEqual([token["id"] for token in line["tokens"]], list(range(127, 257)))
        self.assertEqual((line["finish_reason"], line["stop_reason"]), ("stop", None))

    def test_a_stop_string_ends_the_text_before_it(self):
        args = ["generate", *TOY, "--json", "-p", "Hello", "--seed", "11", "-n", "40", "--ignore-end"]
        whole, = self.lines(*args)
        for start in (3, 5, 8):
            stop = whole["text"][start:start + 3]
            line, = self.lines(*args, "--stop", "nowhere", "--stop", stop)
            self.assertEqual(line["text"], whole["text"][:whole["text"].index(stop)])
            self.assertEqual((line["finish_reason"], line["stop_reason"]), ("stop", stop))
            n = len(line["tokens"])
            self.assertEqual(line["tokens"], whole["tokens"][:n])
            self.assertLessEqual(len(line["text"].encode()), len(join(line["tokens"])))
            self.assertLess(len(join(line["tokens"][:-1])), len(line["text"].encode()) + (n == 0))

    def test_an_absent_seed_is_drawn_and_reported(self):
        args = ["generate", *TOY, "--json", "-p", "Hello", "--max-tokens", "30", "--ignore-end"]
        line, = self.lines(*args)
        self.assertLess(line["seed"], 2**53)
        again, = self.lines(*args, "--seed", str(line["seed"]))
        self.assertEqual(line, again)
        self.assertNotEqual(line["seed"], self.lines(*args)[0]["seed"])

    def test_a_sample_scores_as_it_was_made(self):
        line, = self.lines("generate", *TOY, "--json", "-p", "Hello", "--seed", "3", "-n", "50",
                           "--ignore-end", "--top-k", "40", "--temperature", "0.7")
        prompt = self.lines("score", *TOY, "--json", "--text", "Hello")[0]["tokens"]
        ids = [token["id"] for token in prompt + line["tokens"]]
        scored, = self.lines("score", *TOY, "--json", "--jsonl", "-",
                             stdin=json.dumps({"token_ids": ids}))
        self.assertEqual([(t["id"], t["logprob"], t["rank"]) for t in line["tokens"]],
                         [(t["id"], t["logprob"], t["rank"])
                          for t in scored["tokens"][len(prompt):]])

    def test_temperature_zero_takes_the_best(self):
        line, = self.lines("generate", *TOY, "--json", "-p", "Hello", "--temperature", "0",
                           "--logprobs", "1", "-n", "20")
        for token in line["tokens"]:
            self.assertEqual(token["id"], token["top"][0]["id"])

    def test_text_is_streamed_and_the_seed_told_beside_it(self):
        args = ["generate", *TOY, "--seed", "5", "-n", "30", "--ignore-end", "-p", "Hello"]
        done = self.run_alea(*args)
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.stderr.decode(), r"\Aalea: 30 tokens, ended by length, seed 5\n\Z")
        line, = self.lines(*args, "--json")
        self.assertEqual(done.stdout.decode(), line["text"] + "\n")
        self.assertEqual(self.run_alea(*args, "-q").stderr, b"")

    def test_the_prompt_may_come_from_a_file_or_standard_input(self):
        args = ["generate", *TOY, "--json", "--seed", "5", "-n", "5"]
        first = self.good(*args, "-p", "Hello")
        self.assertEqual(first, self.good(*args, "-", stdin="Hello"))
        self.assertEqual(first, self.good(*args, self.path("prompt.txt", "Hello")))

    def test_markup_counts_only_when_asked_for(self):
        args = ["generate", *TOY, "--json", "--seed", "5", "-n", "5", "-p", "<|im_start|>"]
        self.assertNotEqual(self.good(*args), self.good(*args, "--markup"))


class Cores(Case):
    """examples/core-c, as its README shows it."""

    def setUp(self):
        super().setUp()
        self.core = ["--core", BIGRAM, "--model", self.path("some.txt", "ab" * 50000)]

    def test_a_core_of_ones_own_generates(self):
        line, = self.lines("generate", *self.core, "-p", "a", "--json", "-n", "6", "-T", "0")
        self.assertEqual(line["text"], "bababa")
        self.assertEqual(self.good("generate", *self.core, "-p", "a", "-q", "-n", "6", "-T", "0"),
                         "bababa\n")

    def test_a_core_of_ones_own_scores(self):
        line, = self.lines("score", *self.core, "--json", "--text", "abab")
        for token in line["tokens"][1:]:
            self.assertEqual(token["rank"], 1)
            self.assertGreater(token["logprob"], -0.01)

    def test_a_core_of_ones_own_is_inspected(self):
        line, = self.lines("inspect", "--json", *self.core[:2], self.core[3])
        self.assertEqual(line["core"], "bigram")
        self.assertEqual(self.lines("inspect", "--json", *self.core), [line])


class Terminal(Case):
    def on_terminal(self, *args, env=None):
        """What a terminal of 100 columns would get."""
        master, slave = pty.openpty()
        subprocess.run(["stty", "cols", "100"], stdin=slave, check=True)
        done = subprocess.Popen([PROGRAM, *args], stdout=slave, stderr=subprocess.DEVNULL,
                                stdin=subprocess.DEVNULL, env=env or environment(TERM="xterm"))
        os.close(slave)
        said = b""
        try:
            while part := os.read(master, 65536):
                said += part
        except OSError:
            pass
        os.close(master)
        self.assertEqual(done.wait(timeout=60), 0)
        return said.decode()

    def test_colours_on_a_terminal_unless_refused(self):
        args = ["score", *TOY, "--text", "hello"]
        self.assertIn("\x1b[3", self.on_terminal(*args))
        for env in (environment(TERM="xterm", NO_COLOR="1"), environment(TERM="dumb")):
            self.assertNotIn("\x1b[3", self.on_terminal(*args, env=env))
        self.assertNotIn("\x1b[3", self.on_terminal(*args, "--color", "never"))
        self.assertIn("\x1b[3", self.good(*args, "--color", "always"))

    def test_columns_hold_for_wide_and_invisible_characters(self):
        text = "数学 \U0001f642 e\u0301 \u202eabc\u200b\t\x1b[31m\n"
        table = self.good("score", *TOY, "--text", text)
        self.assertNotIn("\x1b", table)
        self.assertNotIn("\u202e", table)
        self.assertNotIn("\u200b", table)
        rows = [row for row in table.splitlines() if re.match(r" +\d+  [^—]*$", row)]
        self.assertGreater(len(rows), 8)
        for row in rows:
            before = row[:re.search(r" -\d+\.\d{4} ", row).end() - 1]
            self.assertEqual(sum(cells(c) for c in before), 38, row)

    def test_a_terminal_gets_no_control_bytes_of_a_model(self):
        # The model says the byte after the last one: here 0x02, 0x03 and on beyond 0x1b.
        args = ["generate", "--model", "toy:peak=60", "-p", "\x01", "-n", "40", "-T", "0", "-q"]
        shown = self.on_terminal(*args, "--color", "never")
        self.assertIn("\\x07", shown)
        self.assertIn("\\x1b\\x1c", shown)
        self.assertIn("!", shown)
        for byte in range(32):
            self.assertFalse(chr(byte) in shown and chr(byte) not in "\t\n\r", f"{byte:#x}")
        self.assertIn("\x1b\x1c", self.good(*args))

    def test_no_row_ends_in_blanks(self):
        for top in ("0", "2"):
            for row in self.good("score", *TOY, "--text", "hello", "--top", top).splitlines():
                self.assertEqual(row, row.rstrip())

    def test_one_token_is_no_tokens(self):
        self.assertIn("\n1 token, 0 scored", self.good("score", "--model", "toy:bos=0", "--text", "a"))
        said = self.run_alea("generate", *TOY, "-p", "a", "-n", "1", "--seed", "1").stderr.decode()
        self.assertTrue(said.startswith("alea: 1 token, ended by"), said)

    def test_rows_fit_the_terminal(self):
        plain = re.sub(r"\x1b\[[0-9;]*m", "",
                       self.on_terminal("score", *TOY, "--text", "hello", "--top", "20"))
        for row in plain.splitlines():
            self.assertLessEqual(len(row), 100)

    def test_progress_is_a_line_a_second_where_asked_for(self):
        text = self.path("text.txt", "the cat " * 2000)
        args = ["score", "--model", "toy:slow_ms=30", "--json", "-o", "/dev/null", text]
        done = self.run_alea(*args, "--progress")
        said = done.stderr.decode()
        self.assertGreater(len(said.splitlines()), 0)
        for line in said.splitlines():
            self.assertRegex(line, r" +\d+ %  \d+ tokens/s$")
        self.assertEqual(self.run_alea(*args).stderr, b"")


class Facts(Case):
    def test_a_file_of_any_name_is_described_in_one_line(self):
        odd = os.path.join(self.folder.encode(), b"we\nird\xff.gguf")
        os.symlink(self.tiny().encode(), odd)
        facts = json.loads(self.run_alea("inspect", "--json", odd).stdout)
        self.assertRegex(facts["model"], r"^we\?ird\?, \d+[KM] ")

    def test_help_names_every_command_and_option(self):
        top = self.good("help")
        for command in ("score", "generate", "inspect", "bench"):
            self.assertIn(f"alea {command}", top)
            own = self.good("help", command)
            self.assertEqual(own, self.good(command, "--help"))
            self.assertIn("--help", own)
            self.assertIn("exit codes", own)
        self.assertRegex(self.good("--version"), r"\Aalea \d+\.\d+\.\d+\n\Z")

    def test_this_machine(self):
        line, = self.lines("inspect", "--json")
        for key in ("version", "libllama", "compiler", "features", "threads", "target", "kernels"):
            self.assertIn(key, line)
        self.assertTrue(set(line["kernels"].values()) <= {"ref", "avx2", "avx512", "neon"})
        for leaf in line["kernels"]:
            self.assertIn(leaf, self.good("inspect"))
        line, = self.lines("inspect", "--json", "--caps", "ref")
        self.assertEqual(set(line["kernels"].values()), {"ref"})
        self.assertEqual(line["target"], "ref")

    def test_a_model(self):
        line, = self.lines("inspect", "--json", self.tiny())
        self.assertEqual(line["architecture"], "llama")
        self.assertEqual(line["trained_context_tokens"], 512)
        self.assertEqual(line["context_tokens"], 512) # fewer than the standard
        self.assertTrue(line["batch_invariant"])
        self.assertEqual(line["memory_bytes"],
                         line["weight_bytes"] + line["cache_bytes"] + line["row_bytes"])
        toy, = self.lines("inspect", "--json", "toy:vocab=300,chat=0")
        self.assertEqual((toy["vocab"], toy["chat_template"]), (300, False))

    def test_a_tiny_model_scores_and_generates(self):
        model = self.tiny()
        line, = self.lines("score", "--model", model, "--json", "--text", "hello world")
        self.assertEqual(join(line["tokens"]), b"hello world")
        chunked, = self.lines("score", "--model", model, "--json", "--threads", "1", "--text",
                              "hello world")
        self.assertEqual(line, chunked)
        sample, = self.lines("generate", "--model", model, "--json", "-p", "hello", "--seed", "1",
                             "-n", "8", "--ignore-end")
        self.assertEqual(len(sample["tokens"]), 8)


if __name__ == "__main__":
    sys.exit(closing.run())
