"""docs/api.md holds the table of fields as it is; /openapi.json is made of the same rows.

`test_docs.py --write` puts the present rows into the page.
"""
import os
import re
import sys

import rig

PAGE = os.path.join(rig.ROOT, "docs", "api.md")
MARKS = ["honoured", "refused", "without effect"]


def part(mark):
    return re.compile(rf"(<!-- fields: {mark} -->\n)(.*?)(<!-- end -->)", re.S)


def read_page():
    with open(PAGE, encoding="utf-8") as file:
        return file.read()


def rows_of(api):
    return api.line(do="markdown")["body"]


def write_page():
    api = rig.Driver(toy="")
    page = read_page()
    for mark, rows in zip(MARKS, rows_of(api)):
        page = part(mark).sub(lambda found, rows=rows: found[1] + rows + found[3], page)
    api.close()
    with open(PAGE, "w", encoding="utf-8") as file:
        file.write(page)


class Docs(rig.Case):
    OPTIONS = {"toy": ""}

    def test_the_page_has_the_rows(self):
        page = read_page()
        for mark, rows in zip(MARKS, rows_of(self.api)):
            found = part(mark).search(page)
            self.assertTrue(found, mark)
            self.assertEqual(found[2], rows, "run tests/api/test_docs.py --write")

    def test_every_code_is_on_the_page(self):
        with open(os.path.join(rig.ROOT, "src", "api", "error.c"), encoding="utf-8") as file:
            source = file.read()
        codes = re.findall(r'\{\d+, "\w+", "(\w+)"\}|return "(\w+_\w+)";', source)
        self.assertGreater(len(codes), 20)
        page = read_page()
        for code in (first or second for first, second in codes):
            if code != "http_error":
                self.assertIn(f"`{code}`", page)

    def test_the_schema_has_the_rows(self):
        schema = self.api.get("openapi").body
        self.assertEqual(schema["openapi"], "3.1.0")
        names = {1: "CompletionRequest", 2: "ChatCompletionRequest", 4: "TokenizeRequest",
                 8: "DetokenizeRequest", 16: "ScoreRequest"}
        for row in self.api.line(do="fields")["body"]:
            for bit, name in names.items():
                there = row["name"] in schema["components"]["schemas"][name]["properties"]
                if row["at"] & bit:
                    self.assertTrue(there, row["name"])
        for name in names.values():
            request = schema["components"]["schemas"][name]
            self.assertLessEqual(set(request["required"]), set(request["properties"]))
        for path, methods in schema["paths"].items():
            for operation in methods.values():
                self.assertIn("200", operation["responses"], path)

    def test_references_lead_somewhere(self):
        schema = self.api.get("openapi").body

        def walk(value):
            if isinstance(value, dict):
                if "$ref" in value:
                    at = schema
                    for step in value["$ref"].split("/")[1:]:
                        at = at[step]
                for inner in value.values():
                    walk(inner)
            elif isinstance(value, list):
                for inner in value:
                    walk(inner)
        walk(schema)


class SmallEndpoints(rig.Case):
    """What an evaluation client asks of a server before it begins (ecosystem of lm-eval)."""
    OPTIONS = {"toy": ""}

    def test_models(self):
        body = self.api.get("models").body
        self.assertEqual([model["id"] for model in body["data"]], ["toy", "alias"])
        model = body["data"][0]
        self.assertEqual(model["max_model_len"], 4096)
        self.assertIs(model["allow_logprobs"], True)
        self.assertIs(model["permission"][0]["allow_logprobs"], True)
        self.assertEqual(self.api.get("model", name="alias").body["id"], "alias")
        answer = self.api.get("model", name="other")
        self.assertEqual((answer.status, answer.error["code"]), (404, "model_not_found"))
        self.assertEqual(self.api.get("model", name="").status, 404)

    def test_tokens_there_and_back(self):
        for text in ("hello world", "é 中国 \U0001F682", "a<|im_end|>b", ""):
            tokens = self.api.post("tokenize", {"prompt": text, "add_special_tokens": False}).body
            self.assertEqual(tokens["count"], len(tokens["tokens"]))
            self.assertEqual(tokens["max_model_len"], 4096)
            self.assertIsNone(tokens["token_strs"])
            back = self.api.post("detokenize", {"tokens": tokens["tokens"]}).body
            self.assertEqual(back, {"prompt": text})

    def test_special_tokens_of_tokenize(self):
        info = self.api.get("tokenizer_info").body
        body = {"prompt": info["eos_token"], "add_special_tokens": False}
        self.assertEqual(self.api.post("tokenize", body).body["tokens"], [info["eos_token_id"]])
        with_first = self.api.post("tokenize", {"prompt": "a"}).body["tokens"]
        self.assertEqual(with_first, [info["bos_token_id"], 97])
        shown = self.api.post("tokenize", {"prompt": "hello", "return_token_strs": True}).body
        self.assertEqual(shown["token_strs"], ["<|bos|>", "hello"])

    def test_messages_with_tools(self):
        body = {"messages": [{"role": "user", "content": "hi"}],
                "tools": [{"type": "function", "function": {"name": "f"}}]}
        tokens = self.api.post("tokenize", body).body["tokens"]
        self.assertEqual(tokens, self.api.post("tokenize", {"messages": body["messages"]}
                                               ).body["tokens"])  # the toy's template has none
        begun = self.api.post("tokenize", {"messages": body["messages"],
                                           "add_generation_prompt": False}).body["tokens"]
        self.assertEqual(tokens[:len(begun)], begun)
        self.assertGreater(len(tokens), len(begun))

    def test_refusals(self):
        for body in ({}, {"prompt": "a", "messages": []}, {"prompt": None}):
            answer = self.api.post("tokenize", body)
            self.assertEqual((answer.status, answer.error["param"]), (400, "prompt"))
        for body, code in (({}, "missing_required_parameter"), ({"tokens": [320]}, "invalid_value"),
                           ({"tokens": "x"}, "invalid_type"), ({"tokens": [1.5]}, "invalid_type")):
            answer = self.api.post("detokenize", body)
            self.assertEqual((answer.status, answer.error["code"]), (400, code))
        self.assertEqual(self.api.post("detokenize", {"tokens": []}).body, {"prompt": ""})
        self.assertEqual(self.api.post("tokenize", {"prompt": "a", "model": "x"}).status, 404)

    def test_version(self):
        self.assertRegex(self.api.get("version").body["version"], r"^\d+\.\d+\.\d+$")


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        write_page()
    else:
        sys.exit(rig.closing.run())
