"""Requests to the layer and what it answers. DRIVE_API names the driver, which has no server."""
import json
import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tools"))
import closing

DRIVER = os.environ["DRIVE_API"]
MODEL = os.environ.get("ALEA_DEFAULT_MODEL", "")
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SANITIZED = os.environ.get("ALEA_SANITIZED", "") != ""
ENDPOINTS = ("completions", "chat")


def no_constant(name):
    raise AssertionError(f"{name} is no JSON")


def unique(pairs):
    names = [name for name, _ in pairs]
    if len(set(names)) != len(names):
        raise AssertionError(f"a key twice: {names}")
    return dict(pairs)


def parse(text):
    """Strict: no NaN, no duplicate keys."""
    return json.loads(text, parse_constant=no_constant, object_pairs_hook=unique)


class Answer:
    """status, and body or chunks; a stream's error is its last chunk."""

    def __init__(self, line):
        self.status = line["status"]
        self.streamed = "events" in line
        if not self.streamed:
            self.text = line["body"]
            self.body = parse(self.text) if self.text else None
            return
        self.payloads = line["events"]
        if self.payloads[-1] != "[DONE]" or "[DONE]" in self.payloads[:-1]:
            raise AssertionError("a stream ends with one [DONE]")
        self.chunks = [parse(payload) for payload in self.payloads[:-1]]

    @property
    def error(self):
        return self.body["error"]

    @property
    def choice(self):
        return self.body["choices"][0]


class Driver:
    def __init__(self, **options):
        self.process = subprocess.Popen([DRIVER, json.dumps(options)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE)

    def line(self, **command):
        self.process.stdin.write(json.dumps(command).encode() + b"\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(f"the driver ended with {self.process.wait()}")
        return json.loads(line)

    def post(self, endpoint, body, **more):
        text = body if isinstance(body, str) else json.dumps(body)
        return Answer(self.line(do=endpoint, body=text, **more))

    def post_bytes(self, endpoint, body):
        return Answer(self.line(do=endpoint, hex=body.hex()))

    def get(self, what, **more):
        return Answer(self.line(do=what, **more))

    def say(self, tokens):
        self.line(do="script", tokens=list(tokens))

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        code = self.process.wait()
        if code:
            raise AssertionError(f"the driver ended with {code}")


class Case(unittest.TestCase):
    OPTIONS = {"toy": "text=1"}
    maxDiff = 4000

    @classmethod
    def setUpClass(cls):
        cls.api = Driver(**cls.OPTIONS)

    @classmethod
    def tearDownClass(cls):
        cls.api.close()

    def good(self, endpoint, body, **more):
        answer = self.api.post(endpoint, body, **more)
        self.assertEqual(answer.status, 200, getattr(answer, "text", ""))
        return answer

    def refused(self, endpoint, body, param, code=None, status=400, **more):
        answer = self.api.post(endpoint, body, **more)
        self.assertEqual(answer.status, status, (body, getattr(answer, "text", "")))
        self.assert_error(answer)
        self.assertEqual(answer.error["param"], param, answer.text)
        if code:
            self.assertEqual(answer.error["code"], code, answer.text)
        return answer

    def assert_error(self, answer):
        self.assertEqual(list(answer.body), ["error"])
        self.assertEqual(list(answer.error), ["message", "type", "param", "code"])
        self.assertTrue(answer.error["message"])
        self.assertNotIn("\n", answer.error["message"])


def prompt_of(endpoint, text="hello"):
    if endpoint == "chat":
        return {"messages": [{"role": "user", "content": text}]}
    return {"prompt": text}


def asks(body):
    """Whether logprobs are asked for: 0 is yes."""
    return body.get("logprobs") is not None and body["logprobs"] is not False


def whole_of(answer):
    """Of each choice what both modes must share."""
    found = {}
    for choice in answer.body["choices"]:
        chat = "message" in choice
        logprobs = choice["logprobs"]
        if logprobs and chat:
            logprobs = logprobs["content"]
        found[choice["index"]] = {
            "text": choice["message"]["content"] if chat else choice["text"],
            "role": choice["message"]["role"] if chat else None,
            "logprobs": logprobs, "token_ids": choice["token_ids"],
            "finish": choice["finish_reason"], "stop": choice["stop_reason"],
            "prompt_ids": None if chat else choice["prompt_token_ids"]}
    return found, answer.body["usage"], answer.body.get("prompt_token_ids")


def joined_of(answer, asked_logprobs):
    """The same of a stream, put together."""
    found, usage, prompt_ids = {}, None, None
    for chunk in answer.chunks:
        if chunk.get("usage") and not chunk["choices"]:
            usage = chunk["usage"]
        for part in chunk["choices"]:
            chat = "delta" in part
            made = found.setdefault(part["index"], {
                "text": "", "role": None, "logprobs": None, "token_ids": None, "finish": None,
                "stop": None, "prompt_ids": None})
            if made["finish"] is not None:
                raise AssertionError("a chunk behind the end of its choice")
            text = part["delta"].get("content", "") if chat else part["text"]
            made["text"] += text
            if chat and "role" in part["delta"]:
                made["role"] = part["delta"]["role"]
                prompt_ids = chunk["prompt_token_ids"]
            if not chat and part["prompt_token_ids"] is not None:
                made["prompt_ids"] = part["prompt_token_ids"]
            logprobs = part["logprobs"]
            if logprobs and chat:
                made["logprobs"] = (made["logprobs"] or []) + logprobs["content"]
            elif logprobs:
                before = made["logprobs"] or {name: [] for name in logprobs}
                made["logprobs"] = {name: before[name] + logprobs[name] for name in logprobs}
                if len({len(column) for column in logprobs.values()}) != 1:
                    raise AssertionError("arrays of different lengths in a chunk")
            if part.get("token_ids") is not None:
                made["token_ids"] = (made["token_ids"] or []) + part["token_ids"]
            made["finish"] = part["finish_reason"]
            made["stop"] = part.get("stop_reason")
    for made in found.values():
        if asked_logprobs and made["logprobs"] is None:
            made["logprobs"] = [] if made["role"] else {
                "text_offset": [], "token_logprobs": [], "tokens": [], "top_logprobs": []}
    return found, usage, prompt_ids


