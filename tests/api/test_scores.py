"""Scores of prompts, as the layer writes them: echo, prompt_logprobs and /v1/score.

The server's side of it, with the bodies of evaluation clients, is tests/eval.
"""
import sys

import rig

TEXT = "hello world of é 中国"


def arrays(answer):
    return answer.choice["logprobs"]


class Echo(rig.Case):
    def echo(self, prompt, **more):
        body = {"prompt": prompt, "echo": True, "logprobs": 1, "max_tokens": 1, "temperature": 0}
        return self.good("completions", {**body, **more})

    def ids(self, text=TEXT):
        return self.api.post("tokenize", {"prompt": text}).body["tokens"]

    def test_the_text_is_the_prompts(self):
        """TXT-02, TXT-11: every token shows its own text, offsets point into the whole."""
        answer = self.echo(TEXT, max_tokens=3, ignore_eos=True)
        text, columns = answer.choice["text"], arrays(answer)
        self.assertTrue(text.startswith(TEXT))
        for token, offset in list(zip(columns["tokens"], columns["text_offset"]))[1:]:
            if not token.startswith("bytes:") and not token.startswith("<|"):
                self.assertEqual(text[offset:offset + len(token)], token)
        self.assertEqual(columns["tokens"][0], "<|bos|>")
        self.assertEqual(columns["text_offset"][:2], [0, 0])

    def test_names_of_control_tokens_stay_in_a_text(self):
        text = "a<|im_end|>b<|bos|>"
        self.assertEqual(self.echo(text, max_tokens=0).choice["text"], text)
        self.assertEqual(self.echo("<|bos|>a", max_tokens=0).choice["text"], "<|bos|>a")
        bare = self.echo(self.ids(text), max_tokens=0)
        self.assertEqual(bare.choice["text"], "ab")
        named = self.echo(self.ids(text), max_tokens=0, skip_special_tokens=False)
        self.assertEqual(named.choice["text"], "<|bos|>" + text)

    def test_a_character_may_begin_in_the_prompt(self):
        whole = self.ids("\U0001F682")[1:]
        answer = self.echo([97] + whole[:1], allowed_token_ids=whole[1:2])
        self.assertEqual(len(arrays(answer)["tokens"]), 3)
        self.assertEqual(set(arrays(answer)["text_offset"][1:]), {1})

    def test_the_first_token_is_named_without_numbers(self):
        """CON-11, CON-12."""
        answer = self.echo([104, 101, 108, 108], return_token_ids=True)
        self.assertEqual(arrays(answer)["tokens"][0], "h")
        self.assertIsNone(arrays(answer)["token_logprobs"][0])
        self.assertIsNone(arrays(answer)["top_logprobs"][0])
        self.assertEqual(answer.choice["prompt_token_ids"], [104, 101, 108, 108])
        self.assertEqual(len(answer.choice["token_ids"]), 1)
        self.assertTrue(answer.choice["text"].startswith("hell"))

    def test_both_ways_of_asking(self):
        """API-10; and an explicit number wins for the prompt."""
        ids = self.ids()
        echoed = self.echo(ids, logprobs=2)
        asked = self.good("completions", {"prompt": ids, "prompt_logprobs": 2, "max_tokens": 1})
        self.assertEqual(asked.choice["prompt_logprobs"], echoed.choice["prompt_logprobs"])
        self.assertEqual([None if entry is None else next(iter(entry.values()))["logprob"]
                          for entry in asked.choice["prompt_logprobs"]],
                         arrays(echoed)["token_logprobs"][:len(ids)])
        mixed = self.echo(ids, logprobs=2, prompt_logprobs=0)
        sizes = [len(top) for top in arrays(mixed)["top_logprobs"][1:]]
        self.assertEqual(sizes[:-1], [1] * (len(ids) - 1))
        self.assertGreater(sizes[-1], 1)

    def test_output_numbers_go_alone(self):
        """CON-09."""
        answer = self.good("completions", {"prompt": self.ids(), "logprobs": 1, "max_tokens": 2})
        self.assertIsNone(answer.choice["prompt_logprobs"])
        self.assertLessEqual(len(arrays(answer)["tokens"]), 2)

    def test_modes_are_of_what_was_drawn(self):
        answer = self.echo(self.ids("ab"), logprobs_mode="all")
        for name in ("processed_logprobs", "kept_mass", "entropy"):
            self.assertEqual([value is None for value in arrays(answer)[name]],
                             [True, True, True, False])
        raw = arrays(self.echo(self.ids("ab"), logprobs=0))
        processed = arrays(self.echo(self.ids("ab"), logprobs=0, logprobs_mode="processed"))
        self.assertEqual(processed["token_logprobs"][:3], raw["token_logprobs"][:3])

    def test_truncated_prompts_are_scored_as_they_stand(self):
        ids = self.ids()
        for side, kept in (("left", ids[-3:]), ("right", ids[:3])):
            cut = self.echo(ids, max_tokens=0, truncate_prompt_tokens=3, truncation_side=side)
            self.assertEqual(arrays(cut), arrays(self.echo(kept, max_tokens=0)))
        cut = self.echo("hello world", max_tokens=0, truncate_prompt_tokens=1)
        self.assertEqual(cut.choice["text"], " world")

    def test_choices_share_their_prompt(self):
        answer = self.good("completions", {"prompt": ["ab", "c"], "n": 3, "echo": True, "seed": 4,
                                           "logprobs": 0, "max_tokens": 2, "ignore_eos": True})
        for prompt, n in ((0, 3), (1, 2)):
            of_prompt = answer.body["choices"][3 * prompt:3 * prompt + 3]
            heads = [choice["logprobs"]["token_logprobs"][:n] for choice in of_prompt]
            self.assertEqual(heads, [heads[0]] * 3)
            self.assertEqual({len(choice["logprobs"]["tokens"]) for choice in of_prompt}, {n + 2})

    def test_ranks_count_what_is_greater(self):
        answer = self.good("completions", {"prompt": self.ids(), "prompt_logprobs": 20,
                                           "max_tokens": 1})
        for position in answer.choice["prompt_logprobs"][1:]:
            entries = list(position.values())
            values = [entry["logprob"] for entry in entries]
            for entry in entries[1:]:
                greater = sum(value > entry["logprob"] for value in values)
                self.assertEqual(entry["rank"], 1 + greater)

    def test_chat_has_no_text_to_echo(self):
        self.refused("chat", {**rig.prompt_of("chat"), "echo": True}, "echo",
                     "unsupported_parameter")

    def test_chat_scores_stand_at_the_top(self):
        body = {**rig.prompt_of("chat"), "prompt_logprobs": 1, "max_tokens": 1, "n": 2, "seed": 1,
                "return_token_ids": True}
        answer = self.good("chat", body)
        self.assertEqual(len(answer.body["prompt_logprobs"]), len(answer.body["prompt_token_ids"]))
        self.assertNotIn("prompt_logprobs", answer.choice)


class Compat(rig.Case):
    OPTIONS = {"toy": "text=1", "vllm_compat": True}

    def test_the_text_is_left_out_where_ids_are_given(self):
        body = {"prompt": "hello", "echo": True, "logprobs": 0, "max_tokens": 2, "temperature": 0,
                "ignore_eos": True}
        plain = self.good("completions", body).choice
        with_ids = self.good("completions", {**body, "return_token_ids": True}).choice
        self.assertEqual(plain["text"], "hello" + with_ids["text"])
        self.assertEqual(plain["logprobs"], with_ids["logprobs"])

    def test_offsets_sum_token_strings(self):
        answer = self.good("completions", {"prompt": "hello é", "echo": True, "logprobs": 0,
                                           "max_tokens": 2, "ignore_eos": True})
        columns = arrays(answer)
        place = 0
        for token, offset in zip(columns["tokens"], columns["text_offset"]):
            self.assertEqual(offset, place)
            place += len(token)

    def test_streams_are_the_whole(self):
        body = {"prompt": "hello", "echo": True, "logprobs": 1, "max_tokens": 3, "seed": 3, "n": 2}
        whole = self.good("completions", body)
        chunks = self.good("completions", {**body, "stream": True}).chunks
        for choice in whole.body["choices"]:
            mine = [part for chunk in chunks for part in chunk["choices"]
                    if part["index"] == choice["index"]]
            self.assertEqual("".join(part["text"] for part in mine), choice["text"])
            for name, column in choice["logprobs"].items():
                joined = [cell for part in mine for cell in (part["logprobs"] or {}).get(name, [])]
                self.assertEqual(joined, column)


class Without(rig.Case):
    OPTIONS = {"toy": "", "no_scoring": True}

    def test_a_core_that_cannot_is_named(self):
        """API-11."""
        for endpoint, body, param in (
                ("completions", {"prompt": "a", "echo": True, "logprobs": 0}, "echo"),
                ("chat", {**rig.prompt_of("chat"), "prompt_logprobs": 0}, "prompt_logprobs"),
                ("score", {"prompt": "a", "continuations": "b"}, "continuations")):
            self.refused(endpoint, body, param, "unsupported_parameter")
        self.good("completions", {"prompt": "a", "echo": True, "max_tokens": 1})


class SwitchedOff(rig.Case):
    OPTIONS = {"toy": "", "scoring_off": True}

    def test_the_switch_is_named(self):
        """API-11."""
        for body, param in (({"prompt": "a", "prompt_logprobs": 1}, "prompt_logprobs"),
                            ({"prompt": "a", "echo": True, "logprobs": 1}, "echo")):
            answer = self.refused("completions", body, param, "unsupported_parameter")
            self.assertIn("--prompt-logprobs off", answer.error["message"])


class Score(rig.Case):
    def test_a_body_has_its_keys_in_order(self):
        answer = self.good("score", {"prompt": "hello", "continuations": [" world", " of"],
                                     "request_id": "x", "user": "u"})
        self.assertEqual(list(answer.body), ["id", "object", "created", "model", "scores",
                                             "system_fingerprint", "usage"])
        self.assertEqual((answer.body["id"], answer.body["object"]), ("score-x", "score"))
        self.assertEqual(list(answer.body["scores"][0]), [
            "index", "sum_logprob", "mean_logprob", "logprob_per_byte", "n_tokens", "n_bytes",
            "is_greedy", "first", "tokens", "token_ids", "token_logprobs", "ranks"])
        usage = answer.body["usage"]
        self.assertEqual((usage["prompt_tokens"], usage["completion_tokens"]), (6, 0))

    def test_names_of_control_tokens_are_plain_text(self):
        score = self.good("score", {"prompt": "a", "continuations": ["<|im_end|>"]}).body
        self.assertGreater(score["scores"][0]["n_tokens"], 1)

    def test_an_empty_prompt_needs_the_models_first_token(self):
        score = self.good("score", {"prompt": "", "continuations": ["a"]}).body["scores"][0]
        self.assertEqual((score["first"], score["token_ids"]), (1, [97]))


if __name__ == "__main__":
    sys.exit(rig.closing.run())
