"""Answers: their layout to the letter, streams against whole bodies, stops, errors, field cases.

The toy core's vocabulary has bytes, fragments of characters, twins and control tokens; a scripted
core says what a case needs.
"""
import json
import os
import random
import subprocess
import sys
import unittest

import rig

# The toy vocabulary (src/core/toy/toy_vocab.c).
BOS, EOS, IM_START, IM_END, PAD, THINK, THINK_END = range(256, 263)
THE, SP_THE, SP_THE_TWIN, SP_AND = 263, 264, 265, 266
HELLO, SP_WORLD = 276, 277
E_ACUTE = 284
HALF, THREE_QUARTERS, LINE_AND_FRAGMENT, END_AND_BLANK = 291, 292, 293, 294
UNUSED = 310
COMPLETION_KEYS = ["id", "object", "created", "model", "choices", "service_tier",
                   "system_fingerprint", "usage", "kv_transfer_params", "ec_transfer_params",
                   "metrics"]
CHAT_KEYS = ["id", "object", "created", "model", "choices", "service_tier", "system_fingerprint",
             "usage", "prompt_logprobs", "prompt_token_ids", "prompt_text", "kv_transfer_params",
             "ec_transfer_params", "metrics"]
COMPLETION_CHOICE = ["index", "text", "logprobs", "finish_reason", "stop_reason", "token_ids",
                     "prompt_logprobs", "prompt_token_ids", "routed_experts"]
CHAT_CHOICE = ["index", "message", "logprobs", "finish_reason", "stop_reason", "token_ids",
               "routed_experts"]
MESSAGE = ["role", "content", "refusal", "annotations", "audio", "function_call", "reasoning"]


def text_of(choice):
    return choice["message"]["content"] if "message" in choice else choice["text"]


class Layout(rig.Case):
    def test_a_completion_has_every_key_in_order(self):
        body = self.good("completions", {"prompt": "hello", "max_tokens": 3, "seed": 1}).body
        self.assertEqual(list(body), COMPLETION_KEYS)
        self.assertEqual(list(body["choices"][0]), COMPLETION_CHOICE)
        self.assertEqual(body["object"], "text_completion")
        self.assertEqual(body["id"], "cmpl-" + "0" * 15 + "1" + "0" * 15 + "2")
        self.assertEqual(body["created"], 1700000001)
        self.assertRegex(body["system_fingerprint"], r"^fp_[0-9a-f]{16}$")
        self.assertEqual(list(body["usage"].items()), [
            ("prompt_tokens", 2), ("total_tokens", 5), ("completion_tokens", 3),
            ("prompt_tokens_details", None), ("completion_tokens_details", None)])
        choice = body["choices"][0]
        self.assertEqual([choice[name] for name in ("logprobs", "token_ids", "prompt_token_ids")],
                         [None] * 3)
        self.assertEqual((choice["finish_reason"], choice["stop_reason"]), ("length", None))

    def test_a_chat_has_every_key_in_order(self):
        body = self.good("chat", {**rig.prompt_of("chat"), "max_tokens": 3, "seed": 1}).body
        self.assertEqual(list(body), CHAT_KEYS)
        self.assertEqual(list(body["choices"][0]), CHAT_CHOICE)
        self.assertEqual(list(body["choices"][0]["message"]), MESSAGE)
        self.assertEqual(body["object"], "chat.completion")
        self.assertTrue(body["id"].startswith("chatcmpl-"))
        self.assertEqual(body["choices"][0]["message"]["role"], "assistant")

    def test_ids_come_from_header_body_or_chance(self):
        body = {"prompt": "a", "max_tokens": 1, "request_id": "mine"}
        self.assertEqual(self.good("completions", body).body["id"], "cmpl-mine")
        answer = self.good("completions", body, request_id="from-header")
        self.assertEqual(answer.body["id"], "cmpl-from-header")

    def test_priority_of_the_header_wins(self):
        body = {"prompt": "a", "max_tokens": 1, "priority": 1}
        self.good("completions", body, priority="-5")
        for text in ("x", "1.5", "9999999999", " "):
            self.refused("completions", body, "priority", priority=text)

    def test_legacy_arrays(self):
        body = {"prompt": "hello", "max_tokens": 6, "temperature": 0, "logprobs": 3}
        logprobs = self.good("completions", body).choice["logprobs"]
        self.assertEqual(list(logprobs), ["text_offset", "token_logprobs", "tokens",
                                          "top_logprobs"])
        for i, top in enumerate(logprobs["top_logprobs"]):
            self.assertEqual(next(iter(top)), logprobs["tokens"][i])
            self.assertEqual(len(top), 3)
            values = list(top.values())
            self.assertEqual(values, sorted(values, reverse=True))
            self.assertEqual(logprobs["token_logprobs"][i], max(values))

    def test_a_chosen_token_beyond_the_top_is_one_more(self):
        body = {"prompt": "hello", "max_tokens": 64, "seed": 3, "temperature": 2, "logprobs": 2}
        logprobs = self.good("completions", body).choice["logprobs"]
        sizes = set()
        for i, top in enumerate(logprobs["top_logprobs"]):
            self.assertEqual(next(iter(top)), logprobs["tokens"][i])
            self.assertEqual(top[logprobs["tokens"][i]], logprobs["token_logprobs"][i])
            rest = list(top.values())[1:]
            self.assertEqual(rest, sorted(rest, reverse=True))
            sizes.add(len(top))
        self.assertEqual(sizes, {2, 3})

    def test_zero_is_on(self):
        """API-01."""
        body = {"prompt": "hello", "max_tokens": 6, "seed": 2, "logprobs": 0}
        logprobs = self.good("completions", body).choice["logprobs"]
        self.assertEqual(len(logprobs["token_logprobs"]), 6)
        self.assertEqual([list(top) for top in logprobs["top_logprobs"]],
                         [[token] for token in logprobs["tokens"]])
        chat = {**rig.prompt_of("chat"), "max_tokens": 6, "seed": 2, "logprobs": True}
        content = self.good("chat", chat).choice["logprobs"]["content"]
        self.assertEqual([entry["top_logprobs"] for entry in content], [[]] * 6)
        self.assertIsNone(self.good("chat", {**chat, "logprobs": False}).choice["logprobs"])
        self.assertIsNone(self.good("completions", {**body, "logprobs": None}).choice["logprobs"])

    def test_chat_entries(self):
        """API-02."""
        body = {**rig.prompt_of("chat"), "max_tokens": 40, "seed": 5, "temperature": 2,
                "logprobs": True, "top_logprobs": 4}
        content = self.good("chat", body).choice["logprobs"]["content"]
        self.assertEqual(len(content), 40)
        outside = 0
        for entry in content:
            self.assertEqual(list(entry), ["token", "logprob", "bytes", "top_logprobs"])
            top = entry["top_logprobs"]
            self.assertEqual(len(top), 4)
            values = [other["logprob"] for other in top]
            self.assertEqual(values, sorted(values, reverse=True))
            self.assertTrue(all(list(other) == ["token", "logprob", "bytes"] for other in top))
            same = [o for o in top if (o["token"], o["logprob"]) == (entry["token"],
                                                                   entry["logprob"])]
            outside += not same
        self.assertGreater(outside, 3)

    def test_numbers_of_both_endpoints_are_the_same(self):
        tokens = [IM_START, 117]
        body = {"prompt": tokens, "max_tokens": 8, "temperature": 0, "logprobs": 5}
        logprobs = self.good("completions", body).choice["logprobs"]
        text = self.good("completions", {**body, "logprobs": None}).choice["text"]
        self.assertEqual(self.good("completions", body).choice["text"], text)
        again = self.good("completions", {**body, "logprobs": 20}).choice["logprobs"]
        self.assertEqual(again["token_logprobs"], logprobs["token_logprobs"])
        for few, many in zip(logprobs["top_logprobs"], again["top_logprobs"]):
            self.assertEqual(list(few.items()), list(many.items())[:5])

    def test_modes_add_numbers(self):
        body = {"prompt": "hello", "max_tokens": 12, "seed": 9, "temperature": 0.7, "top_p": 0.6,
                "logprobs": 2}
        raw = self.good("completions", body).choice["logprobs"]
        every = self.good("completions", {**body, "logprobs_mode": "all"}).choice["logprobs"]
        self.assertEqual(list(every)[4:], ["processed_logprobs", "kept_mass", "entropy"])
        for name in raw:
            self.assertEqual(raw[name], every[name])
        for mass, value, entropy in zip(every["kept_mass"], every["processed_logprobs"],
                                        every["entropy"]):
            self.assertTrue(0 < mass <= 1 and value <= 0 and entropy > 0)
        processed = self.good("completions", {**body, "logprobs": 0,
                                              "logprobs_mode": "processed"}).choice["logprobs"]
        self.assertEqual(processed["token_logprobs"], every["processed_logprobs"])
        chat = {**rig.prompt_of("chat"), "max_tokens": 4, "seed": 9, "logprobs": True,
                "logprobs_mode": "all"}
        entry = self.good("chat", chat).choice["logprobs"]["content"][0]
        self.assertEqual(list(entry), ["token", "logprob", "bytes", "processed_logprob",
                                       "kept_mass", "entropy", "top_logprobs"])

    def test_several_prompts_are_one_list_prompt_by_prompt(self):
        body = {"prompt": ["a", "b", "c"], "n": 2, "max_tokens": 3, "seed": 4,
                "return_token_ids": True}
        answer = self.good("completions", body).body
        self.assertEqual([choice["index"] for choice in answer["choices"]], list(range(6)))
        self.assertEqual([choice["prompt_token_ids"][-1] for choice in answer["choices"]],
                         [97, 97, 98, 98, 99, 99])
        self.assertEqual(answer["usage"]["prompt_tokens"], 6)
        self.assertEqual(answer["usage"]["completion_tokens"], 18)
        alone = self.good("completions", {**body, "prompt": "b"}).body["choices"]
        self.assertEqual([choice["text"] for choice in answer["choices"]][2:4],
                         [choice["text"] for choice in alone])

    def test_token_ids_are_taken_as_they_stand(self):
        answer = self.good("completions", {"prompt": [[5], [6, 7]], "max_tokens": 1,
                                           "return_token_ids": True}).body
        self.assertEqual([choice["prompt_token_ids"] for choice in answer["choices"]],
                         [[5], [6, 7]])

    def test_texts_begin_with_the_first_token_unless_told(self):
        body = {"prompt": "a<|im_end|>", "max_tokens": 1, "return_token_ids": True}
        self.assertEqual(self.good("completions", body).choice["prompt_token_ids"],
                         [BOS, 97, IM_END])
        body["add_special_tokens"] = False
        self.assertEqual(self.good("completions", body).choice["prompt_token_ids"], [97, IM_END])

    def test_cached_tokens_show_where_the_server_says_so(self):
        api = rig.Driver(toy="", prompt_tokens_details=True)
        usage = api.post("completions", {"prompt": "abc", "max_tokens": 1}).body["usage"]
        self.assertEqual(usage["prompt_tokens_details"], {"cached_tokens": 0})
        api.close()

    def test_seeds_decide(self):
        """API-16."""
        def text(seed):
            return self.good("completions", {"prompt": "hello", "max_tokens": 24,
                                             "seed": seed}).choice["text"]
        self.assertEqual(text(3), text(3))
        self.assertEqual(text(4), text(4))
        self.assertNotEqual(text(3), text(4))
        self.assertNotEqual(text(-1), text(-1))

    def test_truncation_keeps_the_asked_side(self):
        body = {"prompt": [1, 2, 3, 4, 5], "max_tokens": 1, "return_token_ids": True,
                "truncate_prompt_tokens": 2}
        self.assertEqual(self.good("completions", body).choice["prompt_token_ids"], [4, 5])
        body["truncation_side"] = "right"
        self.assertEqual(self.good("completions", body).choice["prompt_token_ids"], [1, 2])
        body["truncate_prompt_tokens"] = 5
        self.assertEqual(len(self.good("completions", body).choice["prompt_token_ids"]), 5)
        long = {"prompt": [7] * 5000, "max_tokens": 6, "truncate_prompt_tokens": -1,
                "return_token_ids": True}
        self.assertEqual(len(self.good("completions", long).choice["prompt_token_ids"]), 4090)
        long["truncate_prompt_tokens"] = 4091
        self.refused("completions", long, "truncate_prompt_tokens")

    def test_a_long_prompt_is_context_length_exceeded(self):
        for tokens, code in (([7] * 4095, None), ([7] * 4096, "context_length_exceeded")):
            body = {"prompt": tokens, "max_tokens": 50}
            if code:
                self.refused("completions", body, "prompt", code)
            else:
                usage = self.good("completions", body).body["usage"]
                self.assertEqual(usage["completion_tokens"], 1)
        self.refused("completions", {"prompt": "x" * 1_000_000}, "prompt",
                     "context_length_exceeded")
        self.refused("chat", rig.prompt_of("chat", "x" * 5000), "messages",
                     "context_length_exceeded")
        self.refused("chat", rig.prompt_of("chat", "x" * 1_000_000), "messages",
                     "context_length_exceeded")

    def test_selected_ids_come_in_the_asked_order(self):
        """API-25."""
        ids = list(range(130, 258))
        random.Random(1).shuffle(ids)
        body = {"prompt": "hello", "max_tokens": 3, "seed": 1, "logprobs": 1,
                "return_tokens_as_token_ids": True, "logprob_token_ids": ids}
        logprobs = self.good("completions", body).choice["logprobs"]
        for token, top in zip(logprobs["tokens"], logprobs["top_logprobs"]):
            self.assertEqual(next(iter(top)), token)
            expected = [f"token_id:{i}" for i in ids if f"token_id:{i}" != token]
            self.assertEqual([name for name in top if name != token or name in expected],
                             expected)
        chat = {**rig.prompt_of("chat"), "max_tokens": 3, "seed": 1, "logprobs": True,
                "return_tokens_as_token_ids": True, "logprob_token_ids": ids}
        for entry in self.good("chat", chat).choice["logprobs"]["content"]:
            self.assertEqual([other["token"] for other in entry["top_logprobs"]],
                             [f"token_id:{i}" for i in ids])

    def test_two_doors_give_one_answer(self):
        """API-08: the same request by `alea generate`."""
        program = os.environ["ALEA"]
        for seed in (1, 2, 3):
            asked = [program, "generate", "--model", "toy:text=1", "--prompt", "é hello",
                     "--logprobs", "4", "--json", "--seed", str(seed), "--max-tokens", "30",
                     "--temperature", "0.9", "--top-p", "0.95", "--stop", "ing"]
            said = json.loads(subprocess.run(asked, capture_output=True, check=True).stdout)
            body = {"prompt": "é hello", "logprobs": 4, "seed": seed, "max_tokens": 30,
                    "temperature": 0.9, "top_p": 0.95, "stop": "ing", "return_token_ids": True}
            choice = self.good("completions", body).choice
            self.assertEqual(choice["text"], said["text"])
            self.assertEqual(choice["finish_reason"], said["finish_reason"])
            self.assertEqual(choice["token_ids"], [token["id"] for token in said["tokens"]])
            logprobs = choice["logprobs"]
            self.assertEqual(logprobs["tokens"], [token["text"] for token in said["tokens"]])
            self.assertEqual(logprobs["token_logprobs"],
                             [token["logprob"] for token in said["tokens"]])
            for top, token in zip(logprobs["top_logprobs"], said["tokens"]):
                self.assertEqual(set(top.values()) - {token["logprob"]},
                                 {other["logprob"] for other in token["top"]} -
                                 {token["logprob"]})

    def test_no_top_k_is_all(self):
        """API-20: 0 and -1 draw from all eight equals."""
        api = rig.Driver(toy="ties=1")
        for top_k in (0, -1):
            body = {"prompt": "a", "allowed_token_ids": list(range(65, 73)), "top_k": top_k,
                    "max_tokens": 200, "seed": 1, "return_token_ids": True}
            self.assertEqual(set(api.post("completions", body).choice["token_ids"]),
                             set(range(65, 73)))
        api.close()

    def test_a_ban_holds_and_changes_no_score(self):
        """API-23."""
        body = {"prompt": "hello", "max_tokens": 1, "temperature": 0, "logprobs": 2,
                "return_token_ids": True}
        plain = self.good("completions", body).choice
        best = plain["token_ids"][0]
        banned = self.good("completions", {**body, "logit_bias": {str(best): -100}}).choice
        first, second = list(plain["logprobs"]["top_logprobs"][0].items())
        self.assertEqual(banned["logprobs"]["tokens"], [second[0]])
        self.assertEqual(banned["logprobs"]["token_logprobs"], [second[1]])
        self.assertEqual(banned["logprobs"]["top_logprobs"], [dict([second, first])])


class Streams(rig.Case):
    def body_of(self, endpoint, chance):
        body = rig.prompt_of(endpoint, chance.choice(["hello", "the world is", "é 中国"]))
        if endpoint == "completions" and chance.random() < 0.3:
            body["prompt"] = [[chance.randrange(256)] for _ in range(chance.randint(1, 3))]
        options = {
            "max_tokens": chance.randint(1, 40), "seed": chance.randrange(1000),
            "temperature": chance.choice([0.5, 1, 1.7]), "top_p": chance.choice([0.5, 0.9, 1]),
            "top_k": chance.choice([0, 3, 40]), "n": chance.choice([1, 1, 2, 3]),
            "return_token_ids": chance.random() < 0.5,
            "return_tokens_as_token_ids": chance.random() < 0.2,
            "stream_interval": chance.choice([1, 1, 2, 3, 7]),
            "ignore_eos": chance.random() < 0.3, "skip_special_tokens": chance.random() < 0.7,
            "include_stop_str_in_output": chance.random() < 0.3,
            "vllm_compat": chance.random() < 0.3,
            "frequency_penalty": chance.choice([0, 0.5]),
            "min_tokens": chance.choice([0, 0, 1]),
        }
        if chance.random() < 0.5:
            options["stop"] = chance.sample(["e", " a", "ing", "\n", "он", "z", "the"], 2)
        if chance.random() < 0.3:
            options["stop_token_ids"] = chance.sample(range(300), 6)
        if endpoint == "chat" and chance.random() < 0.7:
            options.update(logprobs=True, top_logprobs=chance.choice([0, 1, 5]))
        if endpoint == "completions" and chance.random() < 0.7:
            options["logprobs"] = chance.choice([0, 1, 5])
        if options.get("logprobs") is not None and chance.random() < 0.3:
            options["logprobs_mode"] = "all"
        if options.get("logprobs") is not None and chance.random() < 0.2:
            options["logprob_token_ids"] = chance.sample(range(320), 7)
        return {**body, **options}

    def test_joined_streams_are_the_whole(self):
        """API-04, API-12, API-13, TXT-08, TXT-13, TXT-14."""
        chance = random.Random(20)
        ends = set()
        for _ in range(300):
            endpoint = chance.choice(rig.ENDPOINTS)
            body = self.body_of(endpoint, chance)
            whole, usage, prompt_ids = rig.whole_of(self.good(endpoint, body))
            streamed = self.good(endpoint, {**body, "stream": True,
                                            "stream_options": {"include_usage": True}})
            joined, joined_usage, joined_ids = rig.joined_of(streamed, rig.asks(body))
            if body["return_token_ids"]:
                for made in joined.values():
                    made["token_ids"] = made["token_ids"] or []
            self.assertEqual(joined, whole, body)
            self.assertEqual(joined_ids, prompt_ids)
            self.assertEqual(joined_usage, {k: v for k, v in usage.items() if v is not None})
            ends.update((made["finish"], type(made["stop"])) for made in whole.values())
        self.assertEqual(ends, {("length", type(None)), ("stop", str), ("stop", int),
                                ("stop", type(None))})

    def test_a_completion_stream_to_the_letter(self):
        body = {"prompt": "hello", "max_tokens": 3, "temperature": 0, "stream": True}
        answer = self.good("completions", body)
        whole = self.good("completions", {**body, "stream": False}).choice["text"]
        head = {"id": "cmpl-00000000000000010000000000000002", "object": "text_completion",
                "created": 1700000001, "model": "toy"}
        text = ["n", " of", "    "]
        self.assertEqual("".join(text), whole)
        expected = [{**head, "choices": [{
            "index": 0, "text": piece, "logprobs": None, "finish_reason": None,
            "stop_reason": None, "prompt_token_ids": None, "token_ids": None}]} for piece in text]
        expected.append({**head, "choices": [{
            "index": 0, "text": "", "logprobs": None, "finish_reason": "length",
            "stop_reason": None, "prompt_token_ids": None, "token_ids": None}],
            "system_fingerprint": answer.chunks[-1]["system_fingerprint"]})
        self.assertEqual([json.dumps(chunk, separators=(",", ":")) for chunk in expected],
                         answer.payloads[:-1])

    def test_a_chat_stream_to_the_letter(self):
        body = {**rig.prompt_of("chat"), "max_tokens": 2, "temperature": 0, "stream": True,
                "stream_options": {"include_usage": True}}
        answer = self.good("chat", body)
        head = {"id": "chatcmpl-00000000000000010000000000000002",
                "object": "chat.completion.chunk", "created": 1700000001, "model": "toy"}
        text = self.good("chat", {**body, "stream": False, "stream_options": None}
                         ).choice["message"]["content"]
        chunks = answer.chunks
        self.assertEqual(chunks[0], {**head, "choices": [{
            "index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None,
            "finish_reason": None}], "prompt_token_ids": None, "prompt_text": None})
        self.assertEqual("".join(chunk["choices"][0]["delta"]["content"] for chunk in chunks[1:3]),
                         text)
        self.assertEqual(chunks[3], {**head, "choices": [{
            "index": 0, "delta": {}, "logprobs": None, "finish_reason": "length",
            "stop_reason": None, "token_ids": None}]})
        self.assertEqual(list(chunks[4].items())[4:], [
            ("choices", []), ("system_fingerprint", chunks[4]["system_fingerprint"]),
            ("usage", {"prompt_tokens": chunks[4]["usage"]["prompt_tokens"],
                       "total_tokens": chunks[4]["usage"]["prompt_tokens"] + 2,
                       "completion_tokens": 2})])
        self.assertEqual(len(chunks), 5)

    def test_usage_in_every_chunk_counts_up(self):
        body = {"prompt": "hello", "max_tokens": 5, "temperature": 0, "stream": True,
                "stream_options": {"include_usage": True, "continuous_usage_stats": True}}
        chunks = self.good("completions", body).chunks
        self.assertEqual([chunk["usage"]["completion_tokens"] for chunk in chunks],
                         [1, 2, 3, 4, 5, 5, 5])
        body["stream_options"] = {"continuous_usage_stats": True}
        self.assertTrue(all("usage" not in chunk for chunk in
                            self.good("completions", body).chunks))

    def test_the_interval_cuts_chunks(self):
        """API-12."""
        body = {"prompt": "hello", "max_tokens": 8, "temperature": 0, "stream": True,
                "logprobs": 1, "stream_interval": 3, "return_token_ids": True}
        chunks = self.good("completions", body).chunks
        self.assertEqual([len(chunk["choices"][0]["token_ids"]) for chunk in chunks], [1, 3, 3, 1])
        for chunk in chunks:
            part = chunk["choices"][0]
            self.assertEqual(len(part["logprobs"]["tokens"]), len(part["token_ids"]))
        self.assertEqual(chunks[-1]["choices"][0]["finish_reason"], "length")

    def test_the_server_may_force_usage(self):
        api = rig.Driver(toy="", force_include_usage=True)
        chunks = api.post("completions", {"prompt": "a", "max_tokens": 2, "stream": True}).chunks
        self.assertTrue(all("usage" in chunk for chunk in chunks))
        self.assertEqual(chunks[-1]["choices"], [])
        api.close()

    def test_the_fingerprint_is_on_the_last_chunk_alone(self):
        for endpoint in rig.ENDPOINTS:
            for options in (None, {"include_usage": True}):
                body = {**rig.prompt_of(endpoint), "max_tokens": 4, "n": 2, "stream": True,
                        "stream_options": options}
                chunks = self.good(endpoint, body).chunks
                self.assertEqual(["system_fingerprint" in chunk for chunk in chunks],
                                 [False] * (len(chunks) - 1) + [True])


class Failures(rig.Case):
    OPTIONS = {"toy": "nan_at=6"}

    def test_a_failing_row_is_an_error_of_its_request(self):
        for endpoint in rig.ENDPOINTS:
            body = {**rig.prompt_of(endpoint, "hi"), "max_tokens": 30, "temperature": 0}
            if endpoint == "completions":
                body["prompt"] = [1, 2, 3]
            else:
                body["chat_template_kwargs"] = {}
            answer = self.api.post(endpoint, body)
            if answer.status == 200:
                continue  # its prompt is longer than the position that fails
            self.assertEqual(answer.status, 500)
            self.assert_error(answer)
            self.assertEqual(answer.error["type"], "InternalServerError")
        stream = self.good("completions", {"prompt": [1, 2, 3], "max_tokens": 30, "stream": True,
                                           "temperature": 0})
        self.assertEqual(list(stream.chunks[-1]), ["error"])
        self.assertEqual(stream.chunks[-1]["error"]["code"], "internal_error")
        self.assertIn("position", stream.chunks[-1]["error"]["message"])
        self.assertIsNone(stream.chunks[-2]["choices"][0]["finish_reason"])

    def test_a_constraint_that_leaves_nothing_is_an_error(self):
        """API-21: two tokens are allowed, and both are begun words."""
        body = {"prompt": [1], "max_tokens": 3, "temperature": 0,
                "allowed_token_ids": [97, 98], "bad_words": ["aa", "ab", "ba", "bb", "a", "b"]}
        self.refused("completions", body, "allowed_token_ids")
        body["bad_words"] = ["aa", "ab", "ba", "bb"]
        answer = self.api.post("completions", body)
        self.assertEqual(answer.status, 400, answer.text)
        self.assert_error(answer)


class Scripted(rig.Case):
    """What the model says is written down, token by token."""
    OPTIONS = {"toy": "", "script": True}

    def answers(self, tokens, body, endpoint="completions"):
        """The whole answer's choice, after it was found equal to the stream's."""
        self.api.say(tokens)
        body = {**rig.prompt_of(endpoint, "p"), "temperature": 0, "max_tokens": 1000, **body}
        answer = self.good(endpoint, body)
        whole, usage, _ = rig.whole_of(answer)
        joined, _, _ = rig.joined_of(self.good(endpoint, {**body, "stream": True}),
                                     rig.asks(body))
        if body.get("return_token_ids"):
            joined[0]["token_ids"] = joined[0]["token_ids"] or []
        self.assertEqual(joined, whole)
        self.usage = usage
        return answer.choice

    def test_a_natural_end_has_no_entry(self):
        """TXT-12, TXT-13."""
        for endpoint in rig.ENDPOINTS:
            on = {"logprobs": 1} if endpoint == "completions" else \
                {"logprobs": True, "top_logprobs": 1}
            choice = self.answers([HELLO, SP_WORLD, EOS], {**on, "return_token_ids": True},
                                  endpoint)
            self.assertEqual(text_of(choice), "hello world")
            self.assertEqual((choice["finish_reason"], choice["stop_reason"]), ("stop", None))
            self.assertEqual(choice["token_ids"], [HELLO, SP_WORLD])
            self.assertEqual(self.usage["completion_tokens"], 3)
            logprobs = choice["logprobs"]
            self.assertEqual(len(logprobs.get("content", logprobs.get("tokens"))), 2)

    def test_another_end_token_says_which(self):
        choice = self.answers([HELLO, IM_END], {})
        self.assertEqual((choice["finish_reason"], choice["stop_reason"]), ("stop", IM_END))

    def test_a_stop_id_says_which_and_has_no_entry(self):
        choice = self.answers([HELLO, THE, 66], {"stop_token_ids": [THE, 300], "logprobs": 0,
                                                "return_token_ids": True})
        self.assertEqual((choice["text"], choice["stop_reason"]), ("hello", THE))
        self.assertEqual(choice["token_ids"], [HELLO])
        self.assertEqual(choice["logprobs"]["tokens"], ["hello"])

    def test_a_stop_id_is_shown_when_asked(self):
        choice = self.answers([HELLO, THE, 66], {"stop_token_ids": [THE], "logprobs": 0,
                                                "return_token_ids": True,
                                                "include_stop_str_in_output": True})
        self.assertEqual(choice["text"], "hellothe")
        self.assertEqual(choice["logprobs"]["tokens"], ["hello", "the"])
        self.assertEqual(choice["token_ids"], [HELLO, THE])

    def test_ignored_ends_keep_their_place(self):
        choice = self.answers([HELLO, EOS, THE, IM_END, 66],
                              {"ignore_eos": True, "logprobs": 0, "max_tokens": 5,
                               "return_token_ids": True})
        self.assertEqual(choice["text"], "hellotheB")
        self.assertEqual(choice["logprobs"]["tokens"],
                         ["hello", "<|eos|>", "the", "<|im_end|>", "B"])
        self.assertEqual(choice["logprobs"]["text_offset"], [0, 5, 5, 8, 8])
        self.assertEqual(choice["token_ids"], [HELLO, EOS, THE, IM_END, 66])

    def test_control_tokens_have_names_in_the_text_when_asked(self):
        """TXT-03."""
        choice = self.answers([HELLO, PAD, THE, IM_START, EOS],
                              {"skip_special_tokens": False, "logprobs": 0})
        self.assertEqual(choice["text"], "hello<|pad|>the<|im_start|>")
        self.assertEqual(choice["logprobs"]["text_offset"], [0, 5, 12, 15])
        choice = self.answers([HELLO, PAD, THE, IM_START, EOS],
                              {"skip_special_tokens": False, "stop": ["<|im_st"]})
        self.assertEqual((choice["text"], choice["stop_reason"]), ("hello<|pad|>the", "<|im_st"))
        choice = self.answers([HELLO, EOS], {"skip_special_tokens": False,
                                            "include_stop_str_in_output": True})
        self.assertEqual(choice["text"], "hello<|eos|>")

    def test_stops_cut_inside_tokens(self):
        for stop, text, tokens in (("lo w", "hel", ["hello"]), ("o", "hell", ["hello"]),
                                   ("h", "", []), (" ", "hello", ["hello"]),
                                   ("wor", "hello ", ["hello", " world"])):
            choice = self.answers([HELLO, SP_WORLD, THE], {"stop": stop, "logprobs": 0})
            self.assertEqual((choice["text"], choice["stop_reason"]), (text, stop))
            self.assertEqual(choice["logprobs"]["tokens"], tokens)
            self.assertEqual(choice["finish_reason"], "stop")
            shown = self.answers([HELLO, SP_WORLD, THE],
                                 {"stop": stop, "include_stop_str_in_output": True})
            self.assertEqual(shown["text"], text + stop)

    def test_stops_cut_inside_characters(self):
        """The stop is a character of three tokens; one of them also begins with other text."""
        emoji = "\U0001F6A2"  # F0 9F 9A A2
        choice = self.answers([HELLO, LINE_AND_FRAGMENT, 0xA2, THE], {"stop": emoji, "logprobs": 0})
        self.assertEqual(choice["text"], "hello\n")
        self.assertEqual(choice["logprobs"]["tokens"], ["hello", "bytes:\\x0a\\xf0\\x9f\\x9a"])
        self.assertEqual(choice["logprobs"]["text_offset"], [0, 5])

    def test_the_first_stop_to_be_complete_wins(self):
        choice = self.answers([HELLO, SP_WORLD], {"stop": ["world", "lo", "l"]})
        self.assertEqual((choice["text"], choice["stop_reason"]), ("he", "l"))

    def test_no_stop_string_before_min_tokens(self):
        script = [HELLO, SP_WORLD, HELLO, SP_WORLD]
        choice = self.answers(script, {"stop": "lo", "min_tokens": 2})
        self.assertEqual((choice["text"], choice["stop_reason"]), ("hello worldhel", "lo"))
        choice = self.answers(script, {"stop": "lo", "min_tokens": 0})
        self.assertEqual(choice["text"], "hel")

    def test_characters_of_several_tokens(self):
        """TXT-05, TXT-06, TXT-15: text whole, offsets in code points, bytes the token's own."""
        script = [HELLO, HALF, 0x9A, 0x82, E_ACUTE, LINE_AND_FRAGMENT, END_AND_BLANK, THE, EOS]
        expected = "hello\U0001F682é\n\U0001F682 the"
        choice = self.answers(script, {"logprobs": 0})
        self.assertEqual(choice["text"], expected)
        self.assertEqual(choice["logprobs"]["text_offset"], [0, 5, 5, 5, 6, 7, 8, 10])
        self.assertEqual(choice["logprobs"]["tokens"],
                         ["hello", "bytes:\\xf0\\x9f", "bytes:\\x9a", "bytes:\\x82", "é",
                          "bytes:\\x0a\\xf0\\x9f\\x9a", "bytes:\\x82\\x20", "the"])
        chat = self.answers(script, {"logprobs": True, "top_logprobs": 2}, "chat")
        joined = b"".join(bytes(entry["bytes"]) for entry in chat["logprobs"]["content"])
        self.assertEqual(joined.decode(), expected)
        self.assertEqual(chat["logprobs"]["content"][5]["bytes"], [10, 240, 159, 154])

    def test_offsets_do_not_depend_on_how_tokens_are_written(self):
        """TXT-10."""
        script = [HELLO, HALF, 0x9A, 0x82, EOS]
        one = self.answers(script, {"logprobs": 0})["logprobs"]
        two = self.answers(script, {"logprobs": 0, "return_tokens_as_token_ids": True})["logprobs"]
        self.assertEqual(one["text_offset"], two["text_offset"])
        self.assertEqual(two["tokens"], [f"token_id:{token}" for token in script[:-1]])
        self.assertEqual([list(top) for top in two["top_logprobs"]],
                         [[name] for name in two["tokens"]])

    def test_broken_characters_are_replaced_in_the_text_alone(self):
        choice = self.answers([HELLO, 0xFF, THE, HALF, EOS], {"logprobs": 0})
        self.assertEqual(choice["text"], "hello\ufffdthe\ufffd")
        self.assertEqual(choice["logprobs"]["text_offset"], [0, 5, 6, 9])
        self.assertEqual(choice["logprobs"]["tokens"][1], "bytes:\\xff")

    def test_fragments_come_with_an_empty_delta(self):
        self.api.say([HALF, 0x9A, 0x82, EOS])
        body = {**rig.prompt_of("chat", "p"), "temperature": 0, "stream": True, "logprobs": True}
        chunks = self.good("chat", body).chunks
        self.assertEqual([chunk["choices"][0]["delta"] for chunk in chunks],
                         [{"role": "assistant", "content": ""}, {}, {},
                          {"content": "\U0001F682"}, {}])
        del body["logprobs"]
        chunks = self.good("chat", body).chunks  # without entries such chunks carry nothing
        self.assertEqual(len(chunks), 3)

    def test_twins_keep_the_higher_value(self):
        """TXT-01: two ids with one text, one key; with ids as keys, two."""
        self.api.say([SP_THE_TWIN, EOS])
        body = {"prompt": "p", "temperature": 0, "logprobs": 20, "max_tokens": 1}
        ids = {**body, "return_tokens_as_token_ids": True}
        by_id = self.good("completions", ids).choice["logprobs"]["top_logprobs"][0]
        self.assertEqual(len(by_id), 20)
        selected = {**body, "logprob_token_ids": [SP_THE, SP_THE_TWIN]}
        top = self.good("completions", selected).choice["logprobs"]["top_logprobs"][0]
        pair = self.good("completions", {**ids, "logprob_token_ids": [SP_THE, SP_THE_TWIN]}
                         ).choice["logprobs"]["top_logprobs"][0]
        self.assertEqual(list(top), [" the"])
        self.assertEqual(top[" the"], max(pair.values()))
        self.assertNotEqual(*pair.values())
        self.api.say([SP_THE, EOS])
        compat = self.good("completions", {**selected, "vllm_compat": True,
                                           "logprob_token_ids": [SP_THE, SP_THE_TWIN]})
        self.assertEqual(list(compat.choice["logprobs"]["top_logprobs"][0].values())[0],
                         self.good("completions", {**ids, "logprob_token_ids": [
                             SP_THE_TWIN]}).choice["logprobs"]["top_logprobs"][0]["token_id:265"])

    def test_unused_ids_are_strings(self):
        """TXT-04."""
        choice = self.answers([HELLO, UNUSED, EOS], {"logprobs": 20})
        self.assertEqual(choice["logprobs"]["tokens"], ["hello", "<unused>"])
        self.assertEqual(choice["text"], "hello")

    def test_line_ends_of_unicode_are_escaped(self):
        self.api.say([0xE2, 0x80, 0xA8, EOS])
        answer = self.api.line(do="completions", body=json.dumps(
            {"prompt": "p", "temperature": 0, "stream": True}))
        for payload in answer["events"]:
            self.assertEqual(len(payload.splitlines()), 1)
        self.assertIn("\\u2028", "".join(answer["events"]))

    def test_the_model_may_say_nothing(self):
        for endpoint in rig.ENDPOINTS:
            on = {"logprobs": 1} if endpoint == "completions" else {"logprobs": True}
            choice = self.answers([EOS], {**on, "return_token_ids": True}, endpoint)
            self.assertEqual((text_of(choice), choice["token_ids"]), ("", []))
            self.assertEqual(self.usage["completion_tokens"], 1)

    def test_forced_tokens_have_no_entry(self):
        api = rig.Driver(toy="", script=True, thinking_close=[THINK_END, 10])
        api.say([HELLO] * 50)
        body = {"prompt": "p", "temperature": 0, "max_tokens": 6, "thinking_token_budget": 2,
                "logprobs": 0, "return_token_ids": True}
        choice = api.post("completions", body).choice
        self.assertEqual(choice["token_ids"], [HELLO, HELLO, THINK_END, 10, HELLO, HELLO])
        self.assertEqual(choice["logprobs"]["tokens"], ["hello"] * 4)
        self.assertEqual(choice["logprobs"]["text_offset"], [0, 5, 19, 24])
        api.close()


class Compat(Scripted):
    """vLLM's own habits. It runs the cases of Scripted that hold in both."""

    def compat(self, tokens, body, endpoint="completions"):
        return self.answers(tokens, {**body, "vllm_compat": True}, endpoint)

    def test_the_terminating_token_has_an_entry(self):
        choice = self.compat([HELLO, EOS], {"logprobs": 0, "return_token_ids": True})
        self.assertEqual(choice["token_ids"], [HELLO, EOS])
        self.assertEqual(choice["logprobs"]["tokens"], ["hello", "<|eos|>"])
        self.assertEqual(choice["text"], "hello")

    def test_stops_cut_the_text_alone(self):
        choice = self.compat([HELLO, SP_WORLD, THE], {"stop": "lo w", "logprobs": 0,
                                                      "return_token_ids": True})
        self.assertEqual(choice["text"], "hel")
        self.assertEqual(choice["token_ids"], [HELLO, SP_WORLD])
        self.assertEqual(choice["logprobs"]["tokens"], ["hello", " world"])

    def test_offsets_sum_token_strings(self):
        script = [HELLO, HALF, 0x9A, 0x82, THE, EOS]
        choice = self.compat(script, {"logprobs": 0})
        self.assertEqual(choice["logprobs"]["tokens"],
                         ["hello", "", "", "\U0001F682", "the", "<|eos|>"])
        self.assertEqual(choice["logprobs"]["text_offset"], [0, 5, 5, 5, 6, 9])
        ids = self.compat(script, {"logprobs": 0, "return_tokens_as_token_ids": True})
        self.assertEqual(ids["logprobs"]["text_offset"], [0, 12, 24, 36, 48, 60])

    def test_chat_lists_begin_with_the_chosen_token(self):
        api = rig.Driver(toy="text=1")
        body = {**rig.prompt_of("chat"), "max_tokens": 60, "seed": 5, "temperature": 2,
                "logprobs": True, "top_logprobs": 3}
        plain = api.post("chat", body).choice["logprobs"]["content"]
        content = api.post("chat", {**body, "vllm_compat": True}).choice["logprobs"]["content"]
        lost = 0
        for ours, theirs in zip(plain, content):
            self.assertEqual(len(theirs["top_logprobs"]), 3)
            self.assertEqual(theirs["top_logprobs"][0]["logprob"], theirs["logprob"])
            chosen = (theirs["token"], theirs["logprob"])
            rest = [(o["token"], o["logprob"]) for o in ours["top_logprobs"]
                    if (o["token"], o["logprob"]) != chosen]
            shown = [(o["token"], o["logprob"]) for o in theirs["top_logprobs"][1:]]
            if all(o["token"].isascii() and "bytes:" not in o["token"]
                   for o in ours["top_logprobs"]):
                self.assertEqual(shown, rest[:2])
            lost += len(rest) == 3
        self.assertGreater(lost, 3)
        api.close()

    def test_bytes_are_of_the_decoded_text(self):
        chat = self.compat([HALF, 0x9A, 0x82, EOS], {"logprobs": True}, "chat")
        self.assertEqual([entry["bytes"] for entry in chat["logprobs"]["content"]],
                         [[], [], [240, 159, 154, 130], list(b"<|eos|>")])
        chat = self.compat([HELLO, EOS], {"logprobs": True, "top_logprobs": 1,
                                         "return_tokens_as_token_ids": True}, "chat")
        entry = chat["logprobs"]["content"][0]
        self.assertEqual(bytes(entry["bytes"]), b"hello")
        self.assertEqual(bytes(entry["top_logprobs"][0]["bytes"]), b"token_id:276")

    def test_small_temperatures_are_raised(self):
        api = rig.Driver(toy="ties=40")
        body = {"prompt": "a", "max_tokens": 30, "seed": 1, "temperature": 0.001}
        raised = {**body, "temperature": 0.01}
        self.assertEqual(api.post("completions", {**body, "vllm_compat": True}).choice["text"],
                         api.post("completions", raised).choice["text"])
        api.close()

    def test_min_p_with_top_p_is_refused(self):
        body = {"prompt": "a", "min_p": 0.1, "top_p": 0.9, "max_tokens": 1}
        self.good("completions", body)
        answer = self.api.post("completions", {**body, "vllm_compat": True})
        self.assertEqual((answer.status, answer.error["param"]), (400, "min_p"))
        self.good("completions", {**body, "top_p": 1, "vllm_compat": True})


if __name__ == "__main__":
    sys.exit(rig.closing.run())
