"""Every field of the table, with every kind of value, at both endpoints, streamed and not.

Cases are derived from the table; what they must give is derived here, and for what matters it is
written down by hand (RULES), from vLLM's behaviour and from where Alea differs.
"""
import json
import sys
import unittest

import rig

COMPLETIONS, CHAT = 1, 2
BOOL, INT, NUMBER, STRING, STRINGS, WORDS, IDS, BIAS, PROMPT, OBJECTS, OBJECT, ANY = range(12)
HONOURED, REFUSED, NO_EFFECT = range(3)
INT64_MAX, INT64_MIN = 2**63 - 1, -2**63

# What a field needs beside it to be good.
WITH = {
    ("chat", "top_logprobs"): {"logprobs": True},
    ("chat", "logprob_token_ids"): {"logprobs": True},
    ("completions", "logprob_token_ids"): {"logprobs": 0},
    ("chat", "tools"): {"tool_choice": "none"},
    ("chat", "continue_final_message"): {"add_generation_prompt": False},
}

# (endpoint or both, field, value): status, code. By hand; None: good.
RULES = [
    ("completions", "max_tokens", 0, "invalid_value"),
    ("completions", "max_tokens", -1, "invalid_value"),
    ("completions", "max_tokens", 2**63, "invalid_value"),
    ("completions", "max_tokens", 4_000_000_000, None),
    ("completions", "max_tokens", None, None),
    ("chat", "max_tokens", 0, "invalid_value"),
    ("chat", "max_completion_tokens", 0, "invalid_value"),
    ("chat", "max_completion_tokens", 4_000_000_000, None),
    ("completions", "n", None, "invalid_type"),
    ("chat", "n", None, None),
    ("both", "n", 0, "invalid_value"),
    ("both", "n", -2, "invalid_value"),
    ("both", "n", 2_000_000, "invalid_value"),
    ("both", "n", True, "invalid_type"),
    ("both", "seed", -1, None),
    ("both", "seed", INT64_MIN, None),
    ("both", "seed", INT64_MAX, None),
    ("both", "seed", 2**63, "invalid_value"),
    ("both", "seed", 1.0, "invalid_type"),
    ("both", "temperature", 5, "invalid_value"),
    ("both", "temperature", 2, None),
    ("both", "temperature", 0.05, None),
    ("both", "temperature", -0.1, "invalid_value"),
    ("both", "temperature", 1e-300, None),
    ("both", "top_p", 0, "invalid_value"),
    ("both", "top_p", 1.0000001, "invalid_value"),
    ("both", "top_p", 1, None),
    ("both", "top_k", 0, None),
    ("both", "top_k", -1, None),
    ("both", "top_k", -2, "invalid_value"),
    ("both", "top_k", INT64_MAX, None),
    ("both", "min_p", -0.01, "invalid_value"),
    ("both", "min_p", 1, None),
    ("both", "presence_penalty", 2.01, "invalid_value"),
    ("both", "frequency_penalty", -2.01, "invalid_value"),
    ("both", "repetition_penalty", 0, "invalid_value"),
    ("both", "repetition_penalty", -1, "invalid_value"),
    ("both", "repetition_penalty", 1.0, None),
    ("both", "repetition_penalty", 1.1, None),
    ("both", "repetition_penalty", 1e9, None),
    ("both", "repetition_penalty", 1e-60, "invalid_value"),
    ("both", "repetition_penalty", 1e39, "invalid_value"),
    ("completions", "logprobs", 0, None),
    ("completions", "logprobs", 4, None),
    ("completions", "logprobs", 6, None),
    ("completions", "logprobs", 20, None),
    ("completions", "logprobs", 21, "invalid_value"),
    ("completions", "logprobs", -1, "invalid_value"),
    ("completions", "logprobs", "4", "invalid_type"),
    ("completions", "logprobs", True, "invalid_type"),
    ("chat", "logprobs", 1, "invalid_type"),
    ("chat", "top_logprobs", 20, None),
    ("chat", "top_logprobs", 21, "invalid_value"),
    ("chat", "top_logprobs", -1, "invalid_value"),
    ("chat", "top_logprobs", None, None),
    ("both", "logprob_token_ids", [], "invalid_value"),
    ("both", "logprob_token_ids", [320], "invalid_value"),
    ("both", "logprob_token_ids", [-1], "invalid_value"),
    ("both", "logprob_token_ids", [5, 5], "invalid_value"),
    ("both", "logprob_token_ids", list(range(129)), "invalid_value"),
    ("both", "logprob_token_ids", list(range(128)), None),
    ("both", "logprob_token_ids", 5, "invalid_type"),
    ("both", "logprob_token_ids", ["5"], "invalid_type"),
    ("both", "stop", "", "invalid_value"),
    ("both", "stop", ["a", ""], "invalid_value"),
    ("both", "stop", [], None),
    ("both", "stop", None, None),
    ("both", "stop", ["a"] * 64, None),
    ("both", "stop", ["a"] * 65, "invalid_value"),
    ("both", "stop", ["a", 1], "invalid_type"),
    ("both", "stop", "x" * 4097, "invalid_value"),
    ("both", "stop_token_ids", [320], "invalid_value"),
    ("both", "stop_token_ids", [], None),
    ("both", "min_tokens", -5, "invalid_value"),
    ("both", "min_tokens", 0, None),
    ("both", "min_tokens", 10**9, "invalid_value"),
    ("both", "min_tokens", 2.5, "invalid_type"),
    ("both", "allowed_token_ids", [], "invalid_value"),
    ("both", "allowed_token_ids", [320], "invalid_value"),
    ("both", "allowed_token_ids", [42], None),
    ("both", "bad_words", [""], "invalid_value"),
    ("both", "bad_words", ["\u0001"], None),
    ("both", "bad_words", ["describe", " of", "é", " "], None),
    ("both", "bad_words", ["a"] * 65, "invalid_value"),
    ("both", "bad_words", ["ab" * 300], "invalid_value"),
    ("both", "bad_words", ["ab" * 300_000], "invalid_value"),
    ("both", "bad_words", "word", "invalid_type"),
    ("both", "truncate_prompt_tokens", -5, "invalid_value"),
    ("both", "truncate_prompt_tokens", 0, "invalid_value"),
    ("both", "truncate_prompt_tokens", 10**9, "invalid_value"),
    ("both", "truncate_prompt_tokens", 2.5, "invalid_type"),
    ("both", "truncate_prompt_tokens", -1, None),
    ("both", "truncation_side", "middle", "invalid_value"),
    ("both", "stream_interval", 0, "invalid_value"),
    ("both", "logit_bias", {"5": 1000, "6": -1e30}, None),
    ("both", "logit_bias", {"x": 1}, "invalid_value"),
    ("both", "logit_bias", {"-1": 1}, "invalid_value"),
    ("both", "logit_bias", {"320": 1}, "invalid_value"),
    ("both", "logit_bias", {"5": "1"}, "invalid_type"),
    ("both", "logit_bias", [[5, 1]], "invalid_type"),
    ("both", "response_format", {"type": "text"}, None),
    ("both", "response_format", {"type": "json_object"}, "unsupported_parameter"),
    ("both", "response_format", {"type": "json_schema"}, "unsupported_parameter"),
    ("both", "response_format", {}, "invalid_value"),
    ("both", "structured_outputs", {"regex": "a"}, "unsupported_parameter"),
    ("both", "guided_json", {}, "unsupported_parameter"),
    ("both", "use_beam_search", True, "unsupported_parameter"),
    ("both", "use_beam_search", False, None),
    ("chat", "echo", True, "unsupported_parameter"),
    ("completions", "echo", True, None),
    ("both", "echo", False, None),
    ("both", "prompt_logprobs", -2, "invalid_value"),
    ("both", "prompt_logprobs", -1, "invalid_value"),
    ("both", "prompt_logprobs", 0, None),
    ("both", "prompt_logprobs", 1, None),
    ("both", "prompt_logprobs", 9, None),
    ("both", "prompt_logprobs", 10, None),
    ("both", "prompt_logprobs", 20, None),
    ("both", "prompt_logprobs", 21, "invalid_value"),
    ("completions", "suffix", "", None),
    ("completions", "suffix", "end", "unsupported_parameter"),
    ("both", "thinking_token_budget", -1, None),
    ("both", "thinking_token_budget", 5, "unsupported_parameter"),
    ("both", "thinking_token_budget", 1.5, "invalid_type"),
    ("both", "thinking_token_budget", True, "invalid_type"),
    ("both", "cache_salt", "", "invalid_value"),
    ("both", "cache_salt", "a@b", "invalid_value"),
    ("both", "cache_salt", "a\0b", "invalid_value"),
    ("both", "cache_salt", "é" * 128, None),
    ("both", "cache_salt", "é" * 129, "invalid_value"),
    ("both", "priority", 2**31, "invalid_value"),
    ("both", "request_id", "x" * 257, "invalid_value"),
    ("both", "user", 5, "invalid_type"),
    ("both", "best_of", 3, None),
    ("both", "options", {"seed": 7, "temperature": 0}, None),
    ("both", "vllm_compat", "yes", "invalid_type"),
    ("both", "logprobs_mode", "cooked", "invalid_value"),
    ("chat", "tools", [], "invalid_value"),
    ("chat", "tools", [{"type": "function", "function": {"name": "f"}}], None),
    ("chat", "tool_choice", "auto", "unsupported_parameter"),
    ("chat", "tool_choice", {"type": "function"}, "unsupported_parameter"),
    ("chat", "tool_choice", 3, "invalid_type"),
    ("chat", "chat_template", "x", "unsupported_parameter"),
    ("chat", "reasoning_effort", "huge", "invalid_value"),
    ("chat", "modalities", ["text"], None),
    ("chat", "modalities", ["text", "audio"], "unsupported_parameter"),
    ("chat", "functions", [], "unsupported_parameter"),
    ("chat", "messages", [], "invalid_value"),
    ("chat", "messages", None, "missing_required_parameter"),
    ("chat", "messages", "hi", "invalid_type"),
    ("chat", "messages", ["hi"], "invalid_type"),
    ("chat", "messages", [{"content": "hi"}], "invalid_value"),
    ("chat", "messages", [{"role": "user", "content": 5}], "invalid_type"),
    ("chat", "messages", [{"role": "user", "content": [{"type": "image_url"}]}],
     "unsupported_parameter"),
    ("chat", "messages", [{"role": "user", "content": [{"type": "text", "text": "hi"}]}], None),
    ("chat", "messages", [{"role": "user", "content": None}], None),
    ("chat", "messages", [{"role": "user"}], None),
    ("completions", "prompt", "", "invalid_value"),
    ("completions", "prompt", [""], "invalid_value"),
    ("completions", "prompt", [], "invalid_value"),
    ("completions", "prompt", [[]], "invalid_value"),
    ("completions", "prompt", ["a", ""], "invalid_value"),
    ("completions", "prompt", None, "missing_required_parameter"),
    ("completions", "prompt", " ", None),
    ("completions", "prompt", [1, 2], None),
    ("completions", "prompt", [[1], [2, 3]], None),
    ("completions", "prompt", ["a", "b"], None),
    ("completions", "prompt", [[1], "a"], "invalid_type"),
    ("completions", "prompt", ["a", [1]], "invalid_type"),
    ("completions", "prompt", [1, "a"], "invalid_type"),
    ("completions", "prompt", [1.5], "invalid_type"),
    ("completions", "prompt", [True], "invalid_type"),
    ("completions", "prompt", {"text": "a"}, "invalid_type"),
    ("completions", "prompt", [-1], "invalid_value"),
    ("completions", "prompt", [320], "invalid_value"),
    ("completions", "prompt", [[1]] * 1025, "invalid_value"),
    ("completions", "prompt", [[1]] * 1024, None),
]


def wrong_values(kind):
    """Values of every other kind."""
    values = [True, 1, 1.5, "x", [1], ["x"], [{}], {"a": 1}]
    fits = {
        BOOL: lambda v: isinstance(v, bool),
        INT: lambda v: isinstance(v, int) and not isinstance(v, bool),
        NUMBER: lambda v: isinstance(v, (int, float)) and not isinstance(v, bool),
        STRING: lambda v: isinstance(v, str),
        STRINGS: lambda v: v in ("x", ["x"]),
        WORDS: lambda v: v == ["x"],
        IDS: lambda v: v == [1] and not isinstance(v, bool),
        BIAS: lambda v: isinstance(v, dict),
        PROMPT: lambda v: isinstance(v, (str, list)),
        OBJECTS: lambda v: v == [{}],
        OBJECT: lambda v: isinstance(v, dict),
        ANY: lambda v: True,
    }[kind]
    return [value for value in values if not fits(value)]


def edge_values(row):
    kind = row["type"]
    if kind == BOOL:
        return [True, False]
    if kind == INT:
        return sorted({row["min"], row["max"]})
    if kind == NUMBER:
        low = row["low"] + 1e-3 if row["above"] else row["low"]
        return [value for value in (low, row["high"]) if abs(value) < 1e30]
    if kind == STRING and row["words"]:
        return row["words"]
    return []


def far_values(row):
    kind = row["type"]
    if kind == INT:
        values = [row["max"] + 1, row["min"] - 1]
        return [value for value in values if INT64_MIN <= value < 2**64]
    if kind == NUMBER:
        low = row["low"] if row["above"] else row["low"] - 1e-3
        return [value for value in (low, row["high"] * 1.001) if abs(value) < 1e30]
    if kind == STRING and row["words"]:
        return ["none of these"]
    return []


def key(value):
    return json.dumps(value, sort_keys=True)


class Fields(rig.Case):
    OPTIONS = {"toy": "", "slots": 8}
    table = []

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.rows = cls.api.line(do="fields")["body"]
        cls.by_hand = {}
        for endpoint, field, value, code in RULES:
            for at in rig.ENDPOINTS if endpoint == "both" else (endpoint,):
                cls.by_hand[at, field, key(value)] = code

    @classmethod
    def tearDownClass(cls):
        """What was tried, for whoever wants to read it."""
        super().tearDownClass()
        with open("conformance.tsv", "w", encoding="utf-8") as file:
            file.write("endpoint\tfield\tkind\tvalue\tstream\tstatus\n")
            for row in cls.table:
                file.write("\t".join(str(cell) for cell in row) + "\n")
        print(f"conformance: {len(cls.table)} requests, table in conformance.tsv")

    def body(self, endpoint, field, value, stream):
        body = rig.prompt_of(endpoint)
        body["max_tokens"] = 2
        body.update(WITH.get((endpoint, field), {}))
        body[field] = value
        if field in ("max_completion_tokens", "max_tokens"):
            body["stop_token_ids"] = list(range(256))  # else it would fill the context
        if field != "stream":
            body["stream"] = stream
        return body

    def check(self, endpoint, field, kind, value, stream, code):
        body = self.body(endpoint, field, value, stream)
        if field == "prompt_logprobs" and stream and value is not None:
            code = code or "invalid_value"  # they are a part of whole answers alone
        answer = self.api.post(endpoint, body)
        Fields.table.append((endpoint, field, kind, key(value)[:40], stream, answer.status))
        with self.subTest(endpoint=endpoint, field=field, value=key(value)[:60], stream=stream):
            if code is None:
                said = "" if answer.streamed else answer.text
                self.assertEqual(answer.status, 200, said)
                self.assertEqual(answer.streamed, body.get("stream") or False)
                return
            self.assertEqual(answer.status, 400, getattr(answer, "text", ""))
            self.assertFalse(answer.streamed)
            self.assert_error(answer)
            self.assertEqual(answer.error["param"], field, answer.text)
            self.assertEqual(answer.error["code"], code, answer.text)
            self.assertEqual(answer.error["type"], "BadRequestError")

    def test_a_range_without_its_lower_end_is_told_at_both_ends(self):
        for value in (0, 1.5):
            answer = self.api.post("completions", {**rig.prompt_of("completions"), "top_p": value})
            self.assertEqual(answer.error["message"], "top_p must be a number above 0 and at most 1")

    def rows_of(self, endpoint):
        bit = COMPLETIONS if endpoint == "completions" else CHAT
        return [row for row in self.rows if row["at"] & bit]

    def expected(self, endpoint, row, value, code):
        """By hand where there is a rule; else a refused field refuses what is right too."""
        at = endpoint, row["name"], key(value)
        if at in self.by_hand:
            return self.by_hand[at]
        if row["treatment"] == REFUSED and code is None and value is not None:
            return None if value == json.loads(row["fallback"]) else "unsupported_parameter"
        return code

    def each(self, kind, values_of, code):
        """Runs one kind of value through all fields, places and modes; how many there were."""
        n = 0
        for endpoint in rig.ENDPOINTS:
            for row in self.rows_of(endpoint):
                for value in values_of(row):
                    for stream in (False, True):
                        self.check(endpoint, row["name"], kind, value, stream,
                                   self.expected(endpoint, row, value, code))
                        n += 1
        self.assertGreater(n, 50)

    def test_absent_fields_are_defaults(self):
        for endpoint in rig.ENDPOINTS:
            for stream in (False, True):
                body = {**rig.prompt_of(endpoint), "stream": stream, "max_tokens": 2}
                self.assertEqual(self.api.post(endpoint, body).status, 200)
            for row in self.rows_of(endpoint):
                if row["required"]:
                    self.refused(endpoint, {"model": "toy"}, row["name"],
                                 "missing_required_parameter")

    def test_null_is_absent_but_where_it_is_refused(self):
        for endpoint in rig.ENDPOINTS:
            for row in self.rows_of(endpoint):
                code = "missing_required_parameter" if row["required"] else \
                    "invalid_type" if row["no_null"] else None
                for stream in (False, True):
                    self.check(endpoint, row["name"], "null", None, stream,
                               self.expected(endpoint, row, None, code))

    def test_defaults_may_be_said(self):
        def values(row):
            return [] if row["fallback"] == "null" else [json.loads(row["fallback"])]
        for endpoint in rig.ENDPOINTS:
            for row in self.rows_of(endpoint):
                for value in values(row):
                    for stream in (False, True):
                        self.check(endpoint, row["name"], "default", value, stream, None)

    def test_edges_are_inside(self):
        special = {  # what the range alone does not say
            "min_tokens": {INT64_MAX: "invalid_value"},
            "truncate_prompt_tokens": {INT64_MAX: "invalid_value"},
            "thinking_token_budget": {(2**31 - 1) // 2: "unsupported_parameter"},
        }
        for endpoint in rig.ENDPOINTS:
            for row in self.rows_of(endpoint):
                for value in edge_values(row):
                    code = special.get(row["name"], {}).get(value)
                    for stream in (False, True):
                        self.check(endpoint, row["name"], "edge", value, stream,
                                   self.expected(endpoint, row, value, code))

    def test_wrong_types_are_named(self):
        for endpoint in rig.ENDPOINTS:
            for row in self.rows_of(endpoint):
                for value in wrong_values(row["type"]):
                    for stream in (False, True):
                        self.check(endpoint, row["name"], "type", value, stream, "invalid_type")

    def test_what_is_out_of_range_is_named(self):
        self.each("range", far_values, "invalid_value")

    def test_rules_by_hand(self):
        """API-05, API-06, API-07, API-19, API-22, API-24, API-26, API-28, API-29."""
        for endpoint, field, value, code in RULES:
            for at in rig.ENDPOINTS if endpoint == "both" else (endpoint,):
                for stream in (False, True):
                    self.check(at, field, "rule", value, stream, code)

    def test_the_table_has_the_known_fields(self):
        names = {row["name"] for row in self.rows if row["at"] & (COMPLETIONS | CHAT)}
        self.assertGreater(len(names), 80)


class FieldsTogether(rig.Case):
    """Rules that tie fields together."""
    OPTIONS = {"toy": "", "context": 4096}

    def test_stream_options_need_a_stream(self):
        for endpoint in rig.ENDPOINTS:
            body = {**rig.prompt_of(endpoint), "max_tokens": 2}
            self.good(endpoint, {**body, "stream_options": {}})
            self.good(endpoint, {**body, "stream_options": None})
            for options in ({"include_usage": True}, {"include_usage": None}, {"x": 1}):
                self.refused(endpoint, {**body, "stream_options": options}, "stream_options",
                             "invalid_value")
            body["stream"] = True
            self.good(endpoint, {**body, "stream_options": {"include_usage": None}})
            self.refused(endpoint, {**body, "stream_options": {"include_usage": 1}},
                         "stream_options", "invalid_type")
            self.refused(endpoint, {**body, "stream_options": {"continuous_usage_stats": "x"}},
                         "stream_options", "invalid_type")

    def test_several_choices_need_a_temperature(self):
        for endpoint in rig.ENDPOINTS:
            body = {**rig.prompt_of(endpoint), "max_tokens": 2, "n": 2}
            self.refused(endpoint, {**body, "temperature": 0}, "n", "invalid_value")
            self.assertEqual(len(self.good(endpoint, body).body["choices"]), 2)

    def test_alternatives_need_logprobs(self):
        body = {**rig.prompt_of("chat"), "max_tokens": 2}
        self.refused("chat", {**body, "top_logprobs": 3}, "top_logprobs", "invalid_value")
        self.good("chat", {**body, "top_logprobs": 0})
        self.refused("chat", {**body, "logprobs": False, "top_logprobs": 1}, "top_logprobs")
        for endpoint in rig.ENDPOINTS:
            self.refused(endpoint, {**rig.prompt_of(endpoint), "logprob_token_ids": [1]},
                         "logprob_token_ids", "invalid_value")

    def test_processed_logprobs_go_without_alternatives(self):
        body = {"prompt": "a", "max_tokens": 2, "logprobs_mode": "processed"}
        self.good("completions", {**body, "logprobs": 0})
        self.good("completions", body)
        self.refused("completions", {**body, "logprobs": 1}, "logprobs_mode",
                     "unsupported_parameter")
        self.refused("completions", {**body, "logprobs": 0, "logprob_token_ids": [1]},
                     "logprobs_mode", "unsupported_parameter")

    def test_min_tokens_is_at_most_max_tokens_after_its_cut(self):
        self.good("completions", {"prompt": "a", "min_tokens": 16})
        self.refused("completions", {"prompt": "a", "min_tokens": 17}, "min_tokens")
        ids = [65] * 4090
        self.good("completions", {"prompt": ids, "max_tokens": 100, "min_tokens": 6})
        self.refused("completions", {"prompt": ids, "max_tokens": 100, "min_tokens": 7},
                     "min_tokens")

    def test_tools_need_a_choice_of_none(self):
        """API-15."""
        body = {**rig.prompt_of("chat"), "tools": [{"type": "function"}], "max_tokens": 2}
        self.refused("chat", body, "tool_choice", "unsupported_parameter")
        self.good("chat", {**body, "tool_choice": "none"})

    def test_a_constraint_without_tokens_is_refused(self):
        body = {"prompt": "a", "allowed_token_ids": [42], "bad_words": [chr(42)]}
        self.refused("completions", body, "allowed_token_ids", "invalid_value")
        answer = self.good("completions", {**body, "allowed_token_ids": [42, 43],
                                           "return_token_ids": True, "max_tokens": 4})
        self.assertEqual(answer.choice["token_ids"], [43] * 4)

    def test_both_ends_of_a_prompt_cannot_be_asked_for(self):
        body = {**rig.prompt_of("chat"), "continue_final_message": True}
        self.refused("chat", body, "continue_final_message", "invalid_value")
        self.refused("chat", {**body, "add_generation_prompt": True}, "continue_final_message")

    def test_the_first_bad_field_is_named_in_vllms_form_when_asked(self):
        answer = self.refused("completions", {"prompt": "a", "n": 0, "vllm_compat": True}, "n")
        self.assertEqual(answer.error["code"], 400)


class Bodies(rig.Case):
    """Bodies that are no request at all."""
    OPTIONS = {"toy": "", "body_bytes_max": 100000}

    def test_what_is_no_object_is_refused(self):
        for text in ("", "[]", "1", "null", '"x"', "{", '{"prompt":"a"} x', "{'prompt':'a'}",
                     '{"prompt":"a","prompt":"b"}', '{"prompt":"a","temperature":NaN}',
                     '{"prompt":"a","seed":100000000000000000000000}', '{"prompt":"\\ud800"}',
                     "[" * 200, '{"prompt":' + "[" * 70 + "]" * 70 + "}"):
            for endpoint in rig.ENDPOINTS:
                answer = self.refused(endpoint, text, None)
                self.assertEqual(answer.error["code"], "invalid_json")

    def test_bytes_that_are_no_text_are_refused(self):
        for data in (b"\xff\xfe", b'{"prompt":"\xff"}', b'{"prompt":"\xed\xa0\x80"}',
                     b'{"prompt":"a\x00b"}', b'\xef\xbb\xbf{"prompt":"a"}'):
            answer = self.api.post_bytes("completions", data)
            self.assertEqual(answer.status, 400)
            self.assert_error(answer)

    def test_a_body_above_the_limit_is_refused(self):
        self.refused("completions", json.dumps({"prompt": "a" * 100000}), None)

    def test_too_many_members_are_refused(self):
        body = {"prompt": "a", **{f"x{i}": 0 for i in range(1024)}}
        self.refused("completions", body, None, "invalid_json")

    def test_a_prompt_may_hold_nul(self):
        answer = self.good("completions", {"prompt": "a\0b", "max_tokens": 1,
                                           "return_token_ids": True})
        self.assertEqual(answer.choice["prompt_token_ids"], [256, 97, 0, 98])

    def test_unknown_models_are_404(self):
        for endpoint in rig.ENDPOINTS:
            body = rig.prompt_of(endpoint)
            answer = self.refused(endpoint, {**body, "model": "other\u2028\"x\n\t"}, "model",
                                  "model_not_found", status=404)
            self.assertEqual(answer.error["type"], "NotFoundError")
            answer = self.refused(endpoint, {**body, "model": "é中" * 50}, "model", status=404)
            self.assertTrue(answer.error["message"].endswith('served here is "toy"'))
            for name in ("toy", "alias", "", None):
                answer = self.good(endpoint, {**body, "model": name, "max_tokens": 1})
                self.assertEqual(answer.body["model"], "toy")


class Strict(rig.Case):
    """A server that refuses unknown fields."""
    OPTIONS = {"toy": "", "refuse_unknown_fields": True}

    def test_unknown_fields_are_named(self):
        """API-17."""
        for endpoint in rig.ENDPOINTS:
            self.refused(endpoint, {**rig.prompt_of(endpoint), "options": {"seed": 7}}, "options",
                         "unknown_parameter")
            answer = self.refused(endpoint, {**rig.prompt_of(endpoint), "é" * 40: 1}, "é" * 23)
            self.assertEqual(answer.error["message"], "é" * 23 + " is no field of this endpoint")
            self.good(endpoint, {**rig.prompt_of(endpoint), "user": "me", "max_tokens": 1})


class WithoutLogprobs(rig.Case):
    """A core that declares no logprob buffers."""
    OPTIONS = {"toy": "", "no_logprobs": True, "no_token_ids": True}

    def test_logprobs_are_refused_and_not_dropped(self):
        """API-03."""
        self.refused("completions", {"prompt": "a", "logprobs": 1}, "logprobs",
                     "unsupported_parameter")
        self.refused("completions", {"prompt": "a", "logprobs": 0}, "logprobs")
        self.refused("chat", {**rig.prompt_of("chat"), "logprobs": True}, "logprobs")
        self.good("completions", {"prompt": "a", "max_tokens": 1})
        model = self.api.get("models").body["data"][0]
        self.assertIs(model["allow_logprobs"], False)
        self.assertIs(model["permission"][0]["allow_logprobs"], False)


class NaturalOnly(rig.Case):
    """A core without the inputs for selected ids."""
    OPTIONS = {"toy": "", "no_token_ids": True}

    def test_selected_ids_are_refused(self):
        self.good("completions", {"prompt": "a", "logprobs": 2, "max_tokens": 1})
        self.refused("completions", {"prompt": "a", "logprobs": 2, "logprob_token_ids": [1]},
                     "logprob_token_ids", "unsupported_parameter")


if __name__ == "__main__":
    sys.exit(rig.closing.run())
