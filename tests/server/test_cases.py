"""Faults that others had between a body and its answer, each asked of a running server. A name or a
docstring holds the case's id; the other cases of text, HTTP and api have theirs in other files,
and the last test here knows them all."""
import json
import math
import os
import random
import re
import sys

import rig
from rig import JSON, events

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MODEL = os.path.join(ROOT, ".deps", "models", "SmolLM2-135M-Instruct.Q4_1.gguf")
CASES = {"TXT": 15, "HTTP": 11, "API": 34}
CHAT = {"messages": [{"role": "user", "content": "hello"}]}


def no_constant(name):
    raise AssertionError(f"{name} is no JSON")


def strict(data):
    return json.loads(data.decode(), parse_constant=no_constant)


class Cases(rig.Case):
    options = ("--slots", "4")

    def chat(self, **fields):
        status, _, body = self.server.ask("POST", "/v1/chat/completions", {**CHAT, **fields})
        self.assertEqual(status, 200, body)
        return strict(body)

    def refused(self, body, param, path="/v1/completions"):
        answer = self.server.ask("POST", path, body, JSON)
        self.assertEqual(answer[0], 400, answer[2])
        error = json.loads(answer[2])["error"]
        self.assertEqual(error["param"], param, error)
        return error

    def test_txt_07_fragments_among_twenty_alternatives(self):
        """TXT-07."""
        for _ in range(20):
            status, _, body = self.server.ask(
                "POST", "/v1/completions",
                {"prompt": "“He said ‘no’ 🙂”", "logprobs": 20, "max_tokens": 20, "temperature": 2})
            self.assertEqual(status, 200)
            for top in strict(body)["choices"][0]["logprobs"]["top_logprobs"]:
                self.assertGreater(len(top), 15)  # twins share a key
            entries = self.chat(logprobs=True, top_logprobs=20, temperature=2, max_tokens=20)
            for entry in entries["choices"][0]["logprobs"]["content"]:
                self.assertEqual(len(entry["top_logprobs"]), 20)

    def test_txt_09_a_fragment_counts_its_own_bytes(self):
        """TXT-09."""
        body = {"prompt": [65], "continuations": [[token] for token in range(256)]}
        scores = strict(self.server.ask("POST", "/v1/score", body)[2])["scores"]
        self.assertEqual([score["n_bytes"] for score in scores], [1] * 256)
        self.assertEqual(scores[0xF0]["logprob_per_byte"], scores[0xF0]["sum_logprob"])

    def test_http_01_bytes_that_are_no_text_end_nobody(self):
        """HTTP-01."""
        chance = random.Random(1)
        for _ in range(20):
            prompt = [chance.randrange(256) for _ in range(30)]
            answer = self.server.ask("POST", "/v1/completions",
                                     {"prompt": prompt, "temperature": 2, "max_tokens": 30,
                                      "echo": True, "logprobs": 3})
            self.assertEqual(answer[0], 200)
            strict(answer[2])
        for wrong in (b'{"prompt":"a\xff\xfe"}', b'{"model":"\xc3","prompt":"a"}',
                      b'{"\xff":1,"prompt":"a"}', b'{"prompt":"a","user":"\xed\xa0\x80"}'):
            status, _, body = self.server.ask("POST", "/v1/completions", wrong, JSON)
            self.assertEqual(status, 400)
            strict(body)
        self.server.complete(max_tokens=1)

    def test_http_03_numbers_that_are_none(self):
        """HTTP-03."""
        fields = ("temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty",
                  "repetition_penalty")
        for field in fields:
            for value in ("NaN", "Infinity", "-Infinity", "1e400", "-1e400", '"NaN"'):
                with self.subTest(field=field, value=value):
                    body = b'{"prompt":"a","%s":%s}' % (field.encode(), value.encode())
                    status, _, answer = self.server.ask("POST", "/v1/completions", body, JSON)
                    self.assertEqual(status, 400, answer)
        self.server.complete(max_tokens=1)

    def test_http_05_wrong_types_are_named(self):
        """HTTP-05."""
        for value in ("true", 1, {}):
            self.refused({"prompt": "a", "stream": value}, "stream")
        self.refused({"prompt": "a", "temperature": "0.5"}, "temperature")
        self.refused({"prompt": 7}, "prompt")
        self.refused({"messages": {}}, "messages", "/v1/chat/completions")

    def test_http_06_a_choice_ends_once(self):
        """HTTP-06."""
        for n in (1, 2):
            for path, body in (("/v1/completions", {"prompt": "a"}),
                               ("/v1/chat/completions", CHAT)):
                asked = {**body, "n": n, "stream": True, "max_tokens": 6, "ignore_eos": True}
                ends = {i: [] for i in range(n)}
                for event in events(self.server.ask("POST", path, asked)[2]):
                    for choice in event["choices"]:
                        ends[choice["index"]].append(choice["finish_reason"])
                for reasons in ends.values():
                    self.assertEqual(reasons, [None] * (len(reasons) - 1) + ["length"])

    def test_http_07_every_event_has_its_empty_line(self):
        """HTTP-07."""
        _, _, data = self.server.ask("POST", "/v1/completions",
                                     {"prompt": "a", "stream": True, "max_tokens": 3})
        self.assertTrue(data.endswith(b"}\n\ndata: [DONE]\n\n"), data[-60:])
        self.assertEqual(data.count(b"data: "), data.count(b"\n\n"))

    def test_http_08_a_stream_names_its_charset(self):
        """HTTP-08."""
        body = {"prompt": "🙂", "echo": True, "stream": True, "max_tokens": 1}
        _, headers, data = self.server.ask("POST", "/v1/completions", body)
        self.assertEqual(headers["Content-Type"], "text/event-stream; charset=utf-8")
        self.assertIn("🙂", "".join(event["choices"][0]["text"] for event in events(data)))

    def test_api_05_two_choices_and_a_field_that_is_ignored(self):
        """API-05."""
        self.assertEqual(len(self.server.complete(n=2, max_tokens=1)["choices"]), 2)
        self.assertEqual(len(self.server.complete(best_of=3, max_tokens=1)["choices"]), 1)

    def test_api_06_twenty_are_real_and_more_are_refused(self):
        """API-06."""
        top = self.server.complete(logprobs=20, max_tokens=1)["choices"][0]["logprobs"]
        self.assertGreaterEqual(len(top["top_logprobs"][0]), 20)
        self.assertTrue(all(-100 < value <= 0 for value in top["top_logprobs"][0].values()))
        entry = self.chat(logprobs=True, top_logprobs=20, max_tokens=1)
        top = entry["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
        self.assertEqual(len({tuple(other["bytes"]) for other in top}), 20)
        self.assertIn("20", self.refused({"prompt": "a", "logprobs": 21}, "logprobs")["message"])
        self.assertIn("20", self.refused({**CHAT, "logprobs": True, "top_logprobs": 21},
                                         "top_logprobs", "/v1/chat/completions")["message"])

    def test_api_09_offsets_rise_from_zero(self):
        """API-09."""
        for echo in (False, True):
            choice = self.server.complete(prompt="hé hello", echo=echo, logprobs=1, max_tokens=30,
                                          temperature=1.5)["choices"][0]
            offsets = choice["logprobs"]["text_offset"]
            self.assertEqual(offsets, sorted(offsets))
            self.assertTrue(all(isinstance(offset, int) and 0 <= offset <= len(choice["text"])
                                for offset in offsets))

    def test_api_18_each_request_keeps_its_settings(self):
        """API-18."""
        pairs = [{"max_tokens": 4, "temperature": 0}, {"max_tokens": 64, "temperature": 1.5}]
        asked = [{"prompt": "hello", "seed": 5, "ignore_eos": True, "logprobs": 1, **pair}
                 for pair in pairs]

        def core_of(answer):
            choice = answer["choices"][0]
            return choice["text"], choice["logprobs"], answer["usage"]["completion_tokens"]
        alone = [core_of(self.server.complete(**body)) for body in asked]
        self.assertEqual([tokens for _, _, tokens in alone], [4, 64])
        together = [[] for _ in range(12)]

        def ask(i):
            for _ in range(5):
                together[i].append(core_of(self.server.complete(**asked[i % 2])))
        rig.in_parallel([lambda i=i: ask(i) for i in range(12)])
        for i, answers in enumerate(together):
            self.assertEqual(answers, [alone[i % 2]] * 5)

    def test_api_19_a_temperature_is_applied_as_sent(self):
        """API-19: told by the distribution that was drawn from, over three tokens."""
        ids = [65, 66, 67]
        for temperature in (0.05, 0.5, 1, 2):
            body = {"prompt": "hello", "max_tokens": 1, "logprobs": 0, "logprobs_mode": "all",
                    "logprob_token_ids": ids, "allowed_token_ids": ids, "temperature": temperature,
                    "return_tokens_as_token_ids": True}
            logprobs = self.server.complete(**body)["choices"][0]["logprobs"]
            raw = {int(key[9:]): value for key, value in logprobs["top_logprobs"][0].items()}
            chosen = int(logprobs["tokens"][0][9:])
            scaled = {token: value / temperature for token, value in raw.items()}
            most = max(scaled.values())
            total = most + math.log(sum(math.exp(value - most) for value in scaled.values()))
            self.assertAlmostEqual(logprobs["processed_logprobs"][0], scaled[chosen] - total,
                                   delta=1e-3)
        self.refused({"prompt": "a", "temperature": 5}, "temperature")

    def test_api_24_words_are_banned_in_both_forms(self):
        """API-24."""
        plain = self.server.complete(prompt="hello", temperature=0, max_tokens=12, ignore_eos=True)
        word = plain["choices"][0]["text"].split()[0][:2]
        banned = self.server.complete(prompt="hello", temperature=0, max_tokens=40,
                                      ignore_eos=True, bad_words=[word])["choices"][0]["text"]
        self.assertNotIn(word, banned)
        self.refused({"prompt": "a", "bad_words": [""]}, "bad_words")

    def test_api_25_ids_come_back_in_order(self):
        """API-25."""
        ids = random.Random(3).sample(range(320), 128)
        content = self.chat(logprobs=True, logprob_token_ids=ids, max_tokens=1,
                            return_tokens_as_token_ids=True)["choices"][0]["logprobs"]["content"]
        self.assertEqual([other["token"] for other in content[0]["top_logprobs"]],
                         [f"token_id:{token}" for token in ids])

    def test_api_26_the_next_request_works_after_an_empty_prompt(self):
        """API-26."""
        for prompt in ("", [""], [], [[]], ["a", ""], None):
            self.refused({"prompt": prompt}, "prompt")
            self.server.complete(max_tokens=1)
        self.server.complete(prompt=" ", max_tokens=1)

    def test_api_27_no_tokens_go_with_echo_alone(self):
        """API-27."""
        for logprobs in (None, 1):
            answer = self.server.complete(prompt="hello", max_tokens=0, echo=True,
                                          logprobs=logprobs)
            choice = answer["choices"][0]
            self.assertEqual((choice["text"], choice["finish_reason"]), ("hello", "length"))
            self.assertEqual(answer["usage"]["completion_tokens"], 0)
            if logprobs is not None:
                self.assertEqual("".join(choice["logprobs"]["tokens"]), "<|bos|>hello")
            self.refused({"prompt": "hello", "max_tokens": 0, "logprobs": logprobs}, "max_tokens")

    def test_api_28_huge_counts_take_no_memory(self):
        """API-28."""
        before = self.server.resident_bytes()
        for n in (0, -2, 2000000):
            self.refused({"prompt": "a", "n": n}, "n")
        for most in (-1, 2**63):
            self.refused({"prompt": "a", "max_tokens": most}, "max_tokens")
        self.server.complete(max_tokens=4000000000, temperature=1)
        if not rig.SANITIZED:
            self.assertLess(self.server.resident_bytes() - before, 32 << 20)

    def test_api_30_what_a_legacy_evaluation_client_reads(self):
        """API-30."""
        context, rest = "The sky is", " blue"
        choice = self.server.complete(prompt=context + rest, logprobs=10, temperature=0,
                                      max_tokens=1, echo=True)["choices"][0]
        logprobs = choice["logprobs"]
        names = ("text_offset", "token_logprobs", "tokens", "top_logprobs")
        self.assertEqual({len(logprobs[name]) for name in names}, {len(logprobs["tokens"])})
        self.assertIsNone(logprobs["token_logprobs"][0])
        first = next(i for i, at in enumerate(logprobs["text_offset"]) if at >= len(context))
        said = "".join(logprobs["tokens"][first:])
        self.assertTrue(said.startswith(rest), said)

    def test_api_31_scores_without_any_flag(self):
        """API-31."""
        if not os.path.exists(MODEL):
            self.skipTest("the default model is not there")
        if rig.THREADS_WATCHED:
            self.skipTest("libllama is not built for the thread sanitizer")
        server = self.start("--threads", "2", "--context", "256", model=MODEL)
        choice = server.complete(prompt="The capital of France is", max_tokens=2, temperature=0,
                                 logprobs=2)["choices"][0]
        self.assertEqual(len(choice["logprobs"]["token_logprobs"]), 2)
        body = server.ask("POST", "/v1/chat/completions",
                          {**CHAT, "logprobs": True, "top_logprobs": 2, "max_tokens": 2})[2]
        for entry in strict(body)["choices"][0]["logprobs"]["content"]:
            self.assertEqual(len(entry["top_logprobs"]), 2)
        self.assertEqual(server.stop(), 0)

    def test_every_case_has_a_test(self):
        found = set()
        for folder, _, names in os.walk(os.path.join(ROOT, "tests")):
            for name in names:
                if name.endswith((".py", ".c")):
                    with open(os.path.join(folder, name), encoding="utf-8") as file:
                        found |= set(re.findall(r"\b(?:TXT|HTTP|API)-\d\d\b", file.read()))
        self.assertEqual({f"{area}-{i + 1:02}" for area, n in CASES.items() for i in range(n)} - found,
                         set())


if __name__ == "__main__":
    sys.exit(rig.closing.run())
