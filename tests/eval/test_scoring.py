"""What evaluation clients send to the server and what they make of its answers, to the letter and
without them: every way in which a server is known to spoil an evaluation without an error is a
test. The bodies are those that the clients' own code builds, and the readers follow it line by
line: lm-evaluation-harness 0.4.13 (local-completions, the older gguf), HELM 0.5.16, inspect-ai.
"""
import concurrent.futures
import itertools
import json
import math
import operator
import os
import random
import re
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tools"))
import closing
import eval_server
import eval_text

SANITIZED = os.environ.get("ALEA_SANITIZED", "") != ""
EMPTY_BEARER = {"Authorization": "Bearer "}
VOCAB = 320  # of the toy core


def lm_eval_body(prompt, **more):
    """The seven members of a loglikelihood request."""
    return {"model": "toy", "prompt": prompt, "temperature": 0, "max_tokens": 1, "logprobs": 1,
            "seed": 1234, "echo": True, **more}


def lm_eval_read(answer, ctxlens):
    """(sum, is_greedy) of each choice, as the harness computes them."""
    results = []
    for choice, ctxlen in zip(sorted(answer["choices"], key=operator.itemgetter("index")), ctxlens):
        assert ctxlen > 0
        logprobs = choice["logprobs"]["token_logprobs"][ctxlen:-1]
        tops = choice["logprobs"]["top_logprobs"][ctxlen:-1]
        is_greedy = True
        for token, top in zip(logprobs, tops):
            if token != max(top.values()):
                is_greedy = False
                break
        results.append((sum(logprobs), is_greedy))
    return results


def bits(value):
    return struct.pack("<f", value)


def arrays(choice):
    return choice["logprobs"]["token_logprobs"]


def some_prompts(n, seed=1, low=2, high=40):
    chance = random.Random(seed)
    return [[chance.randrange(VOCAB) for _ in range(chance.randint(low, high))] for _ in range(n)]


class Case(unittest.TestCase):
    MODEL = "toy:text=1"
    OPTIONS = ()
    maxDiff = 4000

    @classmethod
    def setUpClass(cls):
        cls.server = eval_server.Server("--model", cls.MODEL, "--served-model-name", "toy",
                                        *cls.OPTIONS)

    @classmethod
    def tearDownClass(cls):
        cls.server.close()

    def complete(self, body, **more):
        return self.server.good("/v1/completions", body, **more)

    def refused(self, path, body, param, code, words=""):
        status, answer = self.server.post(path, body)
        self.assertEqual(status, 400, answer)
        error = answer["error"]
        self.assertEqual((error["param"], error["code"]), (param, code), error)
        self.assertIn(words, error["message"])

    def values_of(self, prompts, **more):
        """Token logprobs of each prompt, from one request."""
        answer = self.complete(lm_eval_body(prompts, **more))
        self.assertEqual([choice["index"] for choice in answer["choices"]],
                         list(range(len(prompts))))
        return [arrays(choice) for choice in answer["choices"]]


class Harness(Case):
    """lm-evaluation-harness, local-completions."""

    def test_the_arrays_have_prompt_and_one_more(self):
        prompts = some_prompts(16)
        answer = self.complete(lm_eval_body(prompts), headers=EMPTY_BEARER)
        for prompt, choice in zip(prompts, answer["choices"]):
            logprobs = choice["logprobs"]
            self.assertEqual({len(column) for column in logprobs.values()}, {len(prompt) + 1})
            self.assertIsNone(logprobs["token_logprobs"][0])
            self.assertIsNone(logprobs["top_logprobs"][0])
            self.assertNotIn(None, logprobs["token_logprobs"][1:])
            self.assertNotIn(None, logprobs["top_logprobs"][1:])
            self.assertNotIn("content", logprobs)
        self.assertEqual(answer["usage"]["prompt_tokens"], sum(map(len, prompts)))

    def test_an_end_token_has_its_entry(self):
        """Swallowed, it would take the last token of the prompt from the sum."""
        prompt = [104, 101, 108]
        for more in ({"allowed_token_ids": [257]}, {"logit_bias": {"97": 100},
                                                    "stop_token_ids": [97]}):
            choice = self.complete(lm_eval_body([prompt], **more))["choices"][0]
            self.assertEqual(choice["finish_reason"], "stop")
            self.assertEqual({len(column) for column in choice["logprobs"].values()}, {4})
            without = {**lm_eval_body([prompt], **more), "echo": False}
            self.assertEqual(arrays(self.complete(without)["choices"][0]), [])

    def test_ids_are_taken_as_they_stand(self):
        """This model's texts begin with a token of their own; ids never do."""
        answer = self.complete(lm_eval_body([[104, 101]], return_token_ids=True, max_tokens=0))
        self.assertEqual(answer["choices"][0]["prompt_token_ids"], [104, 101])
        self.assertEqual(answer["choices"][0]["logprobs"]["tokens"], ["h", "e"])

    def test_texts_begin_with_the_models_token_unless_told(self):
        text = "hello world"
        ids = self.server.tokenize(text)
        one, = self.values_of([text])
        self.assertEqual(len(one), len(ids) + 2)  # the harness counts without the first token
        told, = self.values_of([text], add_special_tokens=False)
        self.assertEqual(told, self.values_of([ids])[0])
        bare = self.complete(lm_eval_body(text, add_special_tokens=False))
        self.assertEqual(arrays(bare["choices"][0]), told)

    def test_one_number_is_written_in_one_way(self):
        for prompt in some_prompts(8, seed=3):
            choice = self.complete(lm_eval_body([prompt], logprobs=5,
                                                return_tokens_as_token_ids=True))["choices"][0]
            columns = choice["logprobs"]
            for i in range(1, len(prompt)):
                name = f"token_id:{prompt[i]}"
                self.assertEqual(columns["tokens"][i], name)
                top = columns["top_logprobs"][i]
                self.assertEqual(next(iter(top)), name)
                self.assertEqual(top[name], columns["token_logprobs"][i])
                there = choice["prompt_logprobs"][i]
                self.assertEqual(next(iter(there)), str(prompt[i]))
                self.assertEqual({f"token_id:{token}": entry["logprob"]
                                  for token, entry in there.items()}, top)

    def test_the_greedy_token_is_always_listed(self):
        prompts = some_prompts(24, seed=4)
        for i in range(0, 24, 2):  # so that some are greedy
            prompts[i] += self.greedy_run(prompts[i], 3)[0]
        answer = self.complete(lm_eval_body(prompts, return_tokens_as_token_ids=True))
        scored = eval_server.alea_score(self.MODEL, prompts, top=1)
        n_greedy = 0
        for prompt, choice, line in zip(prompts, answer["choices"], scored):
            for i in range(1, len(prompt)):
                best = line["tokens"][i]["top"][0]
                top = choice["logprobs"]["top_logprobs"][i]
                self.assertEqual(max(top.values()), best["logprob"])
                self.assertIn(f"token_id:{best['id']}", top)
                self.assertIn(len(top), (1, 2))
                n_greedy += line["tokens"][i]["rank"] == 1
        self.assertGreater(n_greedy, 0)

    def greedy_run(self, prompt, n):
        """What the model itself says next, and its logprobs."""
        answer = self.complete({"prompt": [prompt], "temperature": 0, "max_tokens": n,
                                "ignore_eos": True, "logprobs": 0, "return_token_ids": True})
        choice = answer["choices"][0]
        return choice["token_ids"], arrays(choice)

    def test_greedy_is_greedy(self):
        prompt = [104, 101, 108, 108, 111]
        said, _ = self.greedy_run(prompt, 6)
        wrong = said[:3] + [(said[3] + 1) % VOCAB] + said[4:]
        answer = self.complete(lm_eval_body([prompt + said, prompt + wrong]))
        right, other = lm_eval_read(answer, [len(prompt)] * 2)
        self.assertEqual((right[1], other[1]), (True, False))
        scores = self.server.good("/v1/score", {"prompt": prompt,
                                                "continuations": [said, wrong]})["scores"]
        self.assertEqual([score["is_greedy"] for score in scores], [True, False])
        self.assertEqual(scores[0]["ranks"], [1] * len(said))

    def test_prompts_and_answers_have_the_same_bits(self):
        """What a token was worth when it was said, it is worth when it is read."""
        prompt = [104, 101, 108, 108, 111]
        said, logprobs = self.greedy_run(prompt, 12)
        values, = self.values_of([prompt + said])
        self.assertEqual(values[len(prompt):-1], logprobs)

    def test_batches_change_nothing(self):
        prompts = sorted(some_prompts(48, seed=5), key=len, reverse=True)
        alone = [self.values_of([prompt])[0] for prompt in prompts]
        for size in (7, 16, 48):
            batched = list(itertools.chain.from_iterable(
                self.values_of(prompts[i:i + size]) for i in range(0, len(prompts), size)))
            self.assertEqual(batched, alone)

    def test_company_changes_nothing(self):
        prompts = some_prompts(64, seed=6)
        alone = [self.values_of([prompt])[0] for prompt in prompts]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            together = list(pool.map(lambda prompt: self.values_of([prompt])[0], prompts))
        self.assertEqual(together, alone)

    def test_the_program_reports_the_same_bits(self):
        prompts = some_prompts(40, seed=7)
        answer = self.complete(lm_eval_body(prompts, logprobs=20, return_tokens_as_token_ids=True))
        lines = eval_server.alea_score(self.MODEL, prompts, top=20)
        for prompt, choice, line in zip(prompts, answer["choices"], lines):
            for i in range(1, len(prompt)):
                token = line["tokens"][i]
                self.assertEqual(choice["logprobs"]["token_logprobs"][i], token["logprob"])
                there = choice["prompt_logprobs"][i]
                self.assertEqual(there[str(prompt[i])]["rank"], token["rank"])
                best = [(entry["id"], entry["logprob"]) for entry in token["top"]]
                rest = [(str(token), value) for token, value in best if token != prompt[i]]
                self.assertEqual([(key, entry["logprob"]) for key, entry in there.items()][1:],
                                 rest)

    def test_a_thousand_prompts_in_one_body(self):
        prompts = some_prompts(200 if SANITIZED else 1000, seed=8, high=12)
        got = self.values_of(prompts)
        for i in range(0, len(prompts), 97):
            self.assertEqual(got[i], self.values_of([prompts[i]])[0])
        self.refused("/v1/completions", lm_eval_body([[1]] * 1025), "prompt", "invalid_value",
                     "1024")

    def test_the_tokenizer_comes_from_the_server(self):
        status, text = self.server.get("/tokenizer_info")
        info = eval_server.parse(text)
        self.assertEqual(status, 200)
        self.assertIn("chat_template", info)
        self.assertEqual(self.server.tokenize(info["eos_token"]), [info["eos_token_id"]])
        self.assertTrue(all(isinstance(token, int) for token in self.server.tokenize("test")))
        text = " ".join(eval_text.words()[:60])
        back = self.server.good("/detokenize", {"tokens": self.server.tokenize(text)})
        self.assertEqual(back, {"prompt": text})

    def test_only_the_scores_are_asked_for(self):
        """Older clients: no token is to be generated, and more alternatives."""
        prompt = [104, 101, 108, 108]
        body = lm_eval_body([prompt, prompt[:3]], max_tokens=0, logprobs=10, seed=1)
        answer = self.complete(body)
        self.assertEqual([len(arrays(choice)) for choice in answer["choices"]], [4, 3])
        self.assertEqual({choice["finish_reason"] for choice in answer["choices"]}, {"length"})
        self.assertEqual([choice["text"] for choice in answer["choices"]], ["hell", "hel"])
        self.assertEqual(answer["usage"]["completion_tokens"], 0)
        self.assertEqual(arrays(answer["choices"][0]), self.values_of([prompt])[0][:-1])

    def test_generation_is_read_by_index(self):
        """generate_until: nested ids, a list of stops; its chat sends four of them at most."""
        prompts, stop = some_prompts(3, seed=9), ["\n\n", "a", "e"]
        body = {"prompt": prompts, "model": "toy", "max_tokens": 24, "temperature": 0, "stop": stop,
                "seed": 1234}
        choices = self.complete(body)["choices"]
        self.assertEqual([choice["index"] for choice in choices], [0, 1, 2])
        for prompt, choice in zip(prompts, choices):
            alone = self.complete({**body, "prompt": [prompt]})["choices"][0]
            self.assertEqual(choice["text"], alone["text"])
            self.assertFalse(any(word in choice["text"] for word in stop))
        chat = {"messages": [{"role": "user", "content": "Tom said"}], "model": "toy",
                "max_tokens": 24, "temperature": 0, "stop": stop, "seed": 1234}
        message = self.server.good("/v1/chat/completions", chat)["choices"][0]["message"]
        self.assertFalse(any(word in message["content"] for word in stop))

    def test_the_older_gguf_client_cuts_by_characters(self):
        context, continuation = "The fence is tall. é", " and wide"
        body = {"prompt": context + continuation, "logprobs": 10, "temperature": 0.0,
                "max_tokens": 1, "echo": True}
        logprobs = self.complete(body)["choices"][0]["logprobs"]
        first = next(i for i, offset in enumerate(logprobs["text_offset"])
                     if offset >= len(context) and logprobs["tokens"][i] != "<|bos|>")
        scores = self.server.good("/v1/score", {"prompt": context,
                                                "continuations": continuation})["scores"]
        self.assertEqual(logprobs["token_logprobs"][first:-1], scores[0]["token_logprobs"])
        self.assertEqual(logprobs["text_offset"], sorted(logprobs["text_offset"]))


class Helm(Case):
    """HELM's client of legacy completions."""

    def test_its_body_is_taken(self):
        body = {"model": "toy", "prompt": "Tom said", "temperature": 0.7, "n": 2, "max_tokens": 4,
                "best_of": 2, "logprobs": 2, "stop": None, "top_p": 1, "presence_penalty": 0,
                "frequency_penalty": 0, "echo": True}
        answer = self.complete(body)
        self.assertEqual(len(answer["choices"]), 2)
        for choice in answer["choices"]:
            logprobs = choice["logprobs"]
            pairs = [(token, value or 0)
                     for token, value in zip(logprobs["tokens"], logprobs["token_logprobs"])]
            said = "".join(token for token, _ in pairs[1:])  # an end token by its name
            self.assertTrue(said.startswith(choice["text"]), said)
            self.assertTrue(choice["text"].startswith("Tom said"))
            self.assertTrue(all(value <= 0 for _, value in pairs))
        first, second = answer["choices"]
        n = len(self.server.tokenize("Tom said")) + 1
        self.assertEqual(arrays(first)[:n], arrays(second)[:n])


class Inspect(Case):
    """inspect-ai: perplexity over chat."""

    def test_the_first_key_is_the_prompts_token(self):
        body = {"model": "toy", "messages": [{"role": "user", "content": "hello world"}],
                "max_tokens": 1, "prompt_logprobs": 1, "return_token_ids": True}
        answer = self.server.good("/v1/chat/completions", body)
        ids, scores = answer["prompt_token_ids"], answer["prompt_logprobs"]
        self.assertEqual(len(scores), len(ids))
        self.assertIsNone(scores[0])
        values = []
        for token, position in zip(ids[1:], scores[1:]):
            first = next(iter(position))
            self.assertEqual(first, str(token))
            self.assertEqual(set(position[first]), {"logprob", "rank", "decoded_token"})
            self.assertIn(len(position), (1, 2))
            if len(position) == 1:
                self.assertEqual(position[first]["rank"], 1)
            values.append(position[first]["logprob"])
        perplexity = math.exp(-sum(values) / len(values))
        line, = eval_server.alea_score(self.MODEL, [ids])
        self.assertAlmostEqual(perplexity, line["perplexity"], delta=1e-6 * perplexity)
        self.assertEqual(values, [token["logprob"] for token in line["tokens"][1:]])

    def test_every_number_of_alternatives(self):
        ids = [104, 101, 108, 108, 111]
        known = {}
        for k in (0, 1, 9, 10, 20):
            answer = self.complete({"prompt": ids, "max_tokens": 1, "prompt_logprobs": k})
            scores = answer["choices"][0]["prompt_logprobs"]
            self.assertIsNone(answer["choices"][0]["logprobs"])
            self.assertEqual(len(scores), len(ids))
            for at, position in enumerate(scores[1:], 1):
                self.assertIn(len(position), (max(k, 1), k + 1))
                for token, entry in position.items():
                    self.assertEqual(known.setdefault((at, token), entry), entry)
                ranks = [entry["rank"] for entry in position.values()][1:]
                self.assertEqual(ranks, sorted(ranks))
        for k in (-2, -1, 21):
            self.refused("/v1/completions", {"prompt": ids, "prompt_logprobs": k},
                         "prompt_logprobs", "invalid_value", "0..20")


class Refusals(Case):
    def test_streams_have_no_prompt_logprobs(self):
        body = {"prompt": [1, 2], "prompt_logprobs": 1, "stream": True}
        self.refused("/v1/completions", body, "prompt_logprobs", "invalid_value", "stream")
        chat = {"messages": [{"role": "user", "content": "a"}], "prompt_logprobs": 0,
                "stream": True}
        self.refused("/v1/chat/completions", chat, "prompt_logprobs", "invalid_value", "stream")

    def test_zero_tokens_need_echo(self):
        for body in ({"prompt": [1]}, {"prompt": [1], "logprobs": 1},
                     {"prompt": [1], "prompt_logprobs": 1}):
            self.refused("/v1/completions", {**body, "max_tokens": 0}, "max_tokens",
                         "invalid_value", "echo")
        plain = self.complete({"prompt": "ab", "max_tokens": 0, "echo": True})["choices"][0]
        self.assertEqual((plain["text"], plain["logprobs"], plain["prompt_logprobs"]),
                         ("ab", None, None))

    def test_selected_ids_are_of_generated_tokens(self):
        body = lm_eval_body([[104, 101]], logprob_token_ids=[7, 5])
        self.refused("/v1/completions", {**body, "max_tokens": 0}, "logprob_token_ids",
                     "invalid_value")
        tops = self.complete({**body, "return_tokens_as_token_ids": True}
                             )["choices"][0]["logprobs"]["top_logprobs"]
        self.assertEqual(list(tops[2])[-2:], ["token_id:7", "token_id:5"])
        self.assertLessEqual(len(tops[1]), 2)
        self.assertEqual(next(iter(tops[1])), "token_id:101")

    def test_the_context_is_full_at_its_size(self):
        context = 4096
        ids = [1 + i % 300 for i in range(context)]
        full = lm_eval_body([ids], max_tokens=0, logprobs=0)
        self.assertEqual(len(arrays(self.complete(full)["choices"][0])), context)
        self.refused("/v1/completions", lm_eval_body([ids]), "prompt", "context_length_exceeded")
        self.refused("/v1/completions", {**full, "prompt": [ids + [1]]}, "prompt",
                     "context_length_exceeded")
        last = lm_eval_body([ids[:-1]], logprobs=0)
        self.assertEqual(len(arrays(self.complete(last)["choices"][0])), context)

    def test_the_smallest_prompts(self):
        one, = self.values_of([[104]])
        self.assertEqual((len(one), one[0]), (2, None))
        none = lm_eval_body([[104]], max_tokens=0)
        self.assertEqual(arrays(self.complete(none)["choices"][0]), [None])
        for prompt in ("", [""], [], [[]], ["a", ""], [[1], []]):
            self.refused("/v1/completions", lm_eval_body(prompt), "prompt", "invalid_value")


class Streams(Case):
    def events(self, body):
        status, text = self.server.ask("POST", "/v1/completions", {**body, "stream": True})
        self.assertEqual(status, 200)
        payloads = [event[6:] for event in text.split("\n\n") if event.startswith("data: ")]
        self.assertEqual(payloads[-1], "[DONE]")
        return [eval_server.parse(payload) for payload in payloads[:-1]]

    def test_joined_streams_are_the_whole(self):
        for more in ({"max_tokens": 5}, {"max_tokens": 5, "n": 3, "temperature": 1},
                     {"max_tokens": 0}, {"max_tokens": 4, "stream_interval": 3}):
            body = {**lm_eval_body(["hello", " world of é"]), "ignore_eos": True, **more}
            whole = self.complete(body)
            joined = {}
            for chunk in self.events(body):
                for choice in chunk["choices"]:
                    self.assertNotIn("prompt_logprobs", choice)
                    at = joined.setdefault(choice["index"], {"text": "", "logprobs": {}})
                    at["text"] += choice["text"]
                    for name, column in (choice["logprobs"] or {}).items():
                        at["logprobs"].setdefault(name, []).extend(column)
            for choice in whole["choices"]:
                at = joined[choice["index"]]
                self.assertEqual(at["text"], choice["text"])
                self.assertEqual(at["logprobs"], choice["logprobs"])


class Ties(Case):
    """Few different logits: the largest is shared, as the smallest ids know."""
    MODEL = "toy:ties=3"

    def test_rank_is_one_and_greedy_is_the_smallest_id(self):
        prompts = some_prompts(20, seed=11)
        answer = self.complete(lm_eval_body(prompts, logprobs=20, return_tokens_as_token_ids=True))
        lines = eval_server.alea_score(self.MODEL, prompts, top=1)
        n_tied = 0
        for prompt, choice, line in zip(prompts, answer["choices"], lines):
            for i in range(1, len(prompt)):
                rank = choice["prompt_logprobs"][i][str(prompt[i])]["rank"]
                best = line["tokens"][i]["top"][0]["id"]
                score, = self.server.good("/v1/score", {"prompt": prompt[:i],
                                                        "continuations": [prompt[i:i + 1]]}
                                          )["scores"]
                self.assertEqual(score["ranks"], [rank])
                self.assertEqual(score["is_greedy"], prompt[i] == best)
                one = {"choices": [{"index": 0, "logprobs": {
                    "token_logprobs": choice["logprobs"]["token_logprobs"][:i + 1] + [0],
                    "top_logprobs": choice["logprobs"]["top_logprobs"][:i + 1] + [{}]}}]}
                (_, client_says), = lm_eval_read(one, [i])
                self.assertEqual(client_says, rank == 1)  # it compares numbers
                n_tied += rank == 1 and prompt[i] != best
        self.assertGreater(n_tied, 10)


class Holes(Case):
    """Rows in which tokens are ruled out."""
    MODEL = "toy:holes=60"

    def test_there_is_one_floor_and_no_infinity(self):
        values = list(itertools.chain.from_iterable(self.values_of(some_prompts(16, seed=12))))
        self.assertIn(-9999.0, values)
        self.assertTrue(all(value is None or value >= -9999.0 for value in values))
        scores = self.server.good("/v1/score", {"prompt": [1], "continuations": some_prompts(16)}
                                  )["scores"]
        ruled_out = [score for score in scores if -9999.0 in score["token_logprobs"]]
        self.assertTrue(ruled_out)
        self.assertTrue(all(score["sum_logprob"] is None for score in ruled_out))


class BadRows(Case):
    MODEL = "toy:nan_at=5"

    def test_a_bad_row_is_an_error_of_its_prompt(self):
        status, answer = self.server.post("/v1/completions", lm_eval_body([list(range(1, 12))]))
        self.assertEqual((status, answer["error"]["type"]), (500, "InternalServerError"))
        self.assertIn("6", answer["error"]["message"])
        self.assertEqual(len(self.values_of([[1, 2, 3]])[0]), 4)
        status, _ = self.server.post("/v1/score", {"prompt": list(range(1, 12)),
                                                   "continuations": [[1], [2]]})
        self.assertEqual(status, 500)


class Off(Case):
    OPTIONS = ("--prompt-logprobs", "off")

    def test_what_is_off_says_so(self):
        self.assertEqual(self.server.serving, "serving toy: prompt logprobs off\n")
        for path, body, param in (
                ("/v1/completions", lm_eval_body([[1, 2]]), "echo"),
                ("/v1/completions", {"prompt": [1, 2], "prompt_logprobs": 0}, "prompt_logprobs"),
                ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}],
                                          "prompt_logprobs": 1}, "prompt_logprobs"),
                ("/v1/score", {"prompt": "a", "continuations": "b"}, "continuations")):
            self.refused(path, body, param, "unsupported_parameter", "--prompt-logprobs off")
        self.assertEqual(self.complete({"prompt": "ab", "echo": True, "max_tokens": 0}
                                       )["choices"][0]["text"], "ab")


class Cache(Case):
    OPTIONS = ("--prompt-tokens-details", "--scored-cache", "on")

    def test_what_is_on_is_said_at_the_start(self):
        self.assertEqual(self.server.serving,
                         "serving toy: prompt logprobs on, scored cache on\n")

    def test_cached_numbers_are_the_computed_ones(self):
        context = some_prompts(1, seed=20, low=300, high=300)[0]
        prompts = [context + tail for tail in some_prompts(8, seed=21, high=9)]
        body = lm_eval_body(prompts, logprobs=20)
        first = self.complete(body)
        again = self.complete(body)
        anew = self.complete({**body, "scored_cache": False})
        cached = [answer["usage"]["prompt_tokens_details"]["cached_tokens"]
                  for answer in (first, again, anew)]
        self.assertGreater(cached[0], 299)
        self.assertGreater(cached[1], cached[0])
        self.assertEqual(cached[2], 0)
        self.assertEqual(first["choices"], again["choices"])
        self.assertEqual(first["choices"], anew["choices"])

    def test_one_context_is_scored_once(self):
        context = some_prompts(1, seed=22, low=500, high=500)[0]
        tails = some_prompts(16, seed=23, high=9)
        answer = self.server.good("/v1/score", {"prompt": context, "continuations": tails})
        lines = eval_server.alea_score(self.MODEL, [context + tail for tail in tails])
        # Not 15 times: while a reader lags behind, others begin on their own.
        self.assertGreater(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 10 * 499)
        for tail, score, line in zip(tails, answer["scores"], lines):
            there = line["tokens"][len(context):]
            self.assertEqual(score["token_ids"], tail)
            self.assertEqual(score["token_logprobs"], [token["logprob"] for token in there])
            self.assertEqual(score["ranks"], [token["rank"] for token in there])
            self.assertEqual(score["n_bytes"], sum(len(token["bytes"]) for token in there))
            exact = sum(struct.unpack("<f", bits(value))[0] for value in score["token_logprobs"])
            self.assertEqual(score["sum_logprob"], exact)
            self.assertEqual(score["mean_logprob"], exact / len(tail))


class Score(Case):
    def test_texts_are_those_of_the_program(self):
        """Joint tokens, blanks that move, a continuation that begins inside one."""
        pairs = [("The fence is", " tall"), ("The fence is ", "tall"), ("Answer:\n", " yes"),
                 ("hel", "lo world"), ("x", "y"), ("中", "国 of the")]
        lines = "".join(json.dumps({"id": str(i), "prompt": a, "continuation": b}) + "\n"
                        for i, (a, b) in enumerate(pairs))
        done = subprocess.run([eval_server.PROGRAM, "score", "--model", self.MODEL, "--json",
                               "--jsonl", "-", "--quiet"], input=lines.encode(), check=True,
                              stdout=subprocess.PIPE)
        for (prompt, continuation), line in zip(pairs, done.stdout.decode().splitlines()):
            expected = json.loads(line)
            score, = self.server.good("/v1/score", {"prompt": prompt,
                                                    "continuations": [continuation]})["scores"]
            self.assertEqual(score["first"], expected["continuation"]["first"])
            self.assertEqual(score["sum_logprob"], expected["continuation"]["sum_logprob"])
            self.assertEqual(score["is_greedy"], expected["continuation"]["is_greedy"])

    def test_one_continuation_needs_no_list(self):
        many = self.server.good("/v1/score", {"prompt": "a", "continuations": [" b"]})["scores"]
        one = self.server.good("/v1/score", {"prompt": "a", "continuations": " b"})["scores"]
        self.assertEqual(one, many)
        ids = self.server.good("/v1/score", {"prompt": [97], "continuations": [98, 99]})["scores"]
        self.assertEqual([score["n_tokens"] for score in ids], [2])

    def test_refusals(self):
        for body, param, code in (
                ({"continuations": "a"}, "prompt", "missing_required_parameter"),
                ({"prompt": "a", "continuations": []}, "continuations", "invalid_value"),
                ({"prompt": "a", "continuations": [""]}, "continuations", "invalid_value"),
                ({"prompt": "a", "continuations": [[1]]}, "continuations", "invalid_type"),
                ({"prompt": [1], "continuations": ["a"]}, "continuations", "invalid_type"),
                ({"prompt": [], "continuations": [[1]]}, "prompt", "invalid_value"),
                ({"prompt": [1], "continuations": [[]]}, "continuations", "invalid_value"),
                ({"prompt": [1], "continuations": [[VOCAB]]}, "continuations", "invalid_value"),
                ({"prompt": [["a"]], "continuations": "b"}, "prompt", "invalid_type"),
                ({"prompt": "", "continuations": ["a"], "add_special_tokens": False},
                 "continuations", "invalid_value"),
                ({"prompt": [1] * 4096, "continuations": [[1]]}, "continuations",
                 "context_length_exceeded"),
                ({"prompt": [1], "continuations": [[1]] * 1025}, "continuations",
                 "invalid_value")):
            self.refused("/v1/score", body, param, code)


class Document(Case):
    """A whole text, in the windows of the program."""
    CONTEXT = 4096

    def program(self, ids, *options):
        done = subprocess.run([eval_server.PROGRAM, "score", "--model", self.MODEL, "--json",
                               "--jsonl", "-", "--quiet", *options],
                              input=json.dumps({"id": "0", "token_ids": ids}).encode(),
                              check=True, stdout=subprocess.PIPE)
        return json.loads(done.stdout)["tokens"][1:]

    def check(self, ids, options, **more):
        score, = self.server.good("/v1/score", {"prompt": ids, **more})["scores"]
        lines = self.program(ids, *options)
        self.assertEqual(score["token_ids"], ids[1:])
        self.assertEqual(score["token_logprobs"], [line["logprob"] for line in lines])
        self.assertEqual(score["ranks"], [line["rank"] for line in lines])
        self.assertEqual((score["index"], score["first"], score["n_tokens"]), (0, 1, len(ids) - 1))
        total = 0.0
        for value in score["token_logprobs"]:
            total += struct.unpack("<f", bits(value))[0]
        self.assertEqual(score["sum_logprob"], total)

    def test_windows_are_those_of_the_program(self):
        ids, = some_prompts(1, seed=40, low=300, high=300)
        for window, stride in ((64, 32), (64, 64), (100, 1), (7, 3), (299, 5), (298, 298), (1, 1)):
            for n in (300, 2, max(window, 2), window + 1, window + stride + 1):
                self.check(ids[:n], ["--window", str(window), "--stride", str(stride)],
                           window=window, stride=stride)
        self.check(ids, ["--window", "80"], window=80)

    def test_the_context_is_the_window_unless_told(self):
        for n in (self.CONTEXT, self.CONTEXT + 1, self.CONTEXT + 2, 2 * self.CONTEXT + 70):
            ids, = some_prompts(1, seed=n, low=n, high=n)
            self.check(ids, [])

    def test_a_text_is_tokenized_as_the_program_does_it(self):
        text = " ".join(eval_text.words()[:200])
        done = subprocess.run([eval_server.PROGRAM, "score", "--model", self.MODEL, "--json",
                               "--quiet", "-"], input=text.encode(), check=True,
                              stdout=subprocess.PIPE)
        lines = json.loads(done.stdout)["tokens"]
        answer = self.server.good("/v1/score", {"prompt": text})
        score, = answer["scores"]
        self.assertEqual(score["token_ids"], [line["id"] for line in lines[1:]])
        self.assertEqual(score["token_logprobs"], [line["logprob"] for line in lines[1:]])
        self.assertEqual(answer["usage"]["prompt_tokens"], len(lines))

    def test_refusals(self):
        ids = list(range(1, 200))
        for more, param, code in (
                ({"prompt": []}, "prompt", "invalid_value"),
                ({"prompt": [1]}, "prompt", "invalid_value"),
                ({"prompt": "", "add_special_tokens": False}, "prompt", "invalid_value"),
                ({"prompt": [1, VOCAB]}, "prompt", "invalid_value"),
                ({"prompt": [["a"]]}, "prompt", "invalid_type"),
                ({"window": 0}, "window", "invalid_value"),
                ({"window": self.CONTEXT + 1}, "window", "invalid_value"),
                ({"stride": 0}, "stride", "invalid_value"),
                ({"window": 10, "stride": 11}, "stride", "invalid_value"),
                ({"prompt": ids * 20, "window": 3, "stride": 3}, "stride", "invalid_value"),
                ({"continuations": [[1]], "window": 10}, "window", "invalid_value"),
                ({"continuations": [[1]], "stride": 10}, "stride", "invalid_value")):
            self.refused("/v1/score", {"prompt": ids, **more}, param, code)


class Leaving(Case):
    MODEL = "toy:text=1,slow_ms=20"

    def test_a_client_that_leaves_takes_its_work_along(self):
        body = json.dumps(lm_eval_body(some_prompts(200, seed=30, low=300, high=400))).encode()
        head = (f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\n\r\n").encode()
        with socket.create_connection((self.server.host, self.server.port)) as client:
            client.sendall(head + body)
            time.sleep(0.3)
        until = time.monotonic() + 20
        while json.loads(self.server.get("/load")[1])["server_load"] > 0:
            self.assertLess(time.monotonic(), until, "the work goes on")
            time.sleep(0.02)
        self.assertEqual(len(self.values_of([[1, 2, 3]])[0]), 4)


class Queue(Case):
    MODEL = "toy:text=1,slow_ms=20"
    OPTIONS = ("--slots", "1", "--max-queue", "1")

    def test_a_full_queue_refuses_and_the_others_are_scored(self):
        prompts = some_prompts(6, seed=31, low=700, high=800)

        def ask(prompt):
            return self.server.post("/v1/completions", lm_eval_body([prompt]))
        with concurrent.futures.ThreadPoolExecutor(len(prompts)) as pool:
            answers = list(pool.map(ask, prompts))
        self.assertEqual({status for status, _ in answers}, {200, 429})
        for prompt, (status, answer) in zip(prompts, answers):
            if status == 429:
                self.assertEqual(answer["error"]["code"], "rate_limit_exceeded")
            else:
                self.assertEqual(arrays(answer["choices"][0]), self.values_of([prompt])[0])


@unittest.skipIf(SANITIZED, "a sanitizer's own memory is not the server's")
class Memory(unittest.TestCase):
    """What a long prompt takes beside a short one, its body of some megabytes included."""

    def peak_mib(self, server):
        with open(f"/proc/{server.process.pid}/status", encoding="utf-8") as file:
            return int(re.search(r"VmHWM:\s+(\d+) kB", file.read())[1]) / 1024

    def test_8000_tokens_take_little_more_than_500(self):
        server = eval_server.Server("--model", "toy:vocab=50000,context=8192")
        chance, peaks = random.Random(50), []
        for n in (500, 8000):
            with open(f"/proc/{server.process.pid}/clear_refs", "w", encoding="utf-8") as file:
                file.write("5")  # the peak begins anew
            ids = [chance.randrange(50000) for _ in range(n)]
            answer = server.good("/v1/completions", {"prompt": ids, "prompt_logprobs": 20,
                                                     "max_tokens": 1})
            self.assertEqual(len(answer["choices"][0]["prompt_logprobs"]), n)
            peaks.append(self.peak_mib(server))
        server.close()
        self.assertLess(peaks[1] - peaks[0], 64)


class TinyModel(Case):
    """The same over libllama, on a model that is made for the test."""
    MADE_WITH = ()

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.MODEL = os.path.join(cls.folder.name, "tiny.gguf")
        subprocess.run([os.environ["ALEA_TINY_GGUF"], "--out", cls.MODEL, *cls.MADE_WITH],
                       check=True, stdout=subprocess.DEVNULL)
        super().setUpClass()

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        cls.folder.cleanup()

    def prompts(self):
        texts = [item["context"] + " " + item["choices"][item["answer"]]
                 for item in eval_text.phrases(16)]
        return [self.server.tokenize(text)[:200] for text in texts]

    def test_server_program_and_oracle_agree(self):
        prompts = self.prompts()
        answer = self.complete(lm_eval_body(prompts))
        lines = eval_server.alea_score(self.MODEL, prompts)
        fed = "".join(" ".join(map(str, ids)) + "\n" for ids in prompts)
        said = subprocess.run([os.environ["ORACLE_SCORES"], self.MODEL, "1"], input=fed.encode(),
                              check=True, stdout=subprocess.PIPE).stdout.decode().splitlines()
        for prompt, choice, line, oracle in zip(prompts, answer["choices"], lines, said):
            values = arrays(choice)
            self.assertEqual(values[1:-1], [token["logprob"] for token in line["tokens"][1:]])
            exact = [float(cell.split(":")[0]) for cell in oracle.split()]
            self.assertEqual(len(exact), len(prompt) - 1)
            for value, truth in zip(values[1:-1], exact):
                self.assertLessEqual(abs(value - truth), 2**-23 * abs(truth) + 3e-7)

    def test_batches_change_nothing(self):
        prompts = self.prompts()
        alone = [self.values_of([prompt])[0] for prompt in prompts]
        self.assertEqual(self.values_of(prompts), alone)
        self.assertEqual(self.values_of(prompts, scored_cache=False), alone)


class BlankModel(TinyModel):
    """A tokenizer that puts a blank before a text."""
    MADE_WITH = ("--vocab", "spm")

    def test_the_echoed_text_is_the_sent_one(self):
        for text in ("hello world", " hello", "a", "the fence \u00e9"):
            choice = self.complete(lm_eval_body([text], max_tokens=0))["choices"][0]
            self.assertEqual(choice["text"], text)
            columns = choice["logprobs"]
            for token, offset in list(zip(columns["tokens"], columns["text_offset"]))[2:]:
                if not token.startswith("bytes:"):
                    self.assertEqual(text[offset:offset + len(token)], token)


if __name__ == "__main__":
    sys.exit(closing.run())
