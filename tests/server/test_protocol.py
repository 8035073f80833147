"""What the server says to requests of every kind, good and bad: routes, keys, headers, logs."""
import json
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import time

import rig
from rig import JSON, events

HOST = b"Host: a\r\n"
POST = b"POST /v1/completions HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
MALFORMED = {
    "both lengths": (400, POST + b"Content-Length: 5\r\n" + CHUNKED + b"\r\n0\r\n\r\n"),
    "two lengths": (400, POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!"),
    "a signed length": (400, POST + b"Content-Length: +5\r\n\r\nhello"),
    "an unknown coding": (501, POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"),
    "two codings": (501, POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
    "a hexadecimal mark": (400, POST + CHUNKED + b"\r\n0x5\r\nhello\r\n0\r\n\r\n"),
    "bare LF": (400, b"GET /health HTTP/1.1\nHost: a\n\n"),
    "NUL in a value": (400, b"GET /health HTTP/1.1\r\n" + HOST + b"X: a\0b\r\n\r\n"),
    "a space before the colon": (400, POST + b"Content-Length : 5\r\n\r\nhello"),
    "a bare CR": (400, POST + b"X: a\rTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    "no host": (400, b"GET /health HTTP/1.1\r\n\r\n"),
    "two hosts": (400, b"GET /health HTTP/1.1\r\n" + HOST + HOST + b"\r\n"),
    "version 2.0": (505, b"GET /health HTTP/2.0\r\n" + HOST + b"\r\n"),
    "version 0.9": (505, b"GET /health HTTP/0.9\r\n" + HOST + b"\r\n"),
    "a folded line": (400, b"GET /health HTTP/1.1\r\n" + HOST + b"X: a\r\n b\r\n\r\n"),
    "another protocol": (400, b"GET /health RTSP/1.0\r\n" + HOST + b"\r\n"),
    "a header that is too large": (431, b"GET / HTTP/1.1\r\n" + HOST + b"X: " + b"y" * 20000),
    "a target that is too long": (414, b"GET /" + b"y" * 20000),
    "a body that is too large": (413, POST + b"Content-Length: 99999999999\r\n\r\n"),
}


class Requests(rig.Case):
    def test_malformed_requests_are_refused_in_the_same_shape(self):
        for name, (status, data) in MALFORMED.items():
            with self.subTest(name):
                head, _, body = self.server.raw(data).partition(b"\r\n\r\n")
                self.assertEqual(int(head.split()[1]), status, head)
                self.assertIn(b"Connection: close", head)
                self.assertEqual(set(json.loads(body)["error"]),
                                 {"message", "type", "param", "code"})
        self.server.complete(max_tokens=1)

    def test_bodies_that_are_no_request_are_400(self):
        """HTTP-04."""
        bodies = [b"", b"{", b"[1]", b'"x"', b"null", b'{"n":1,}', b"[" * 1000000, b"\xfe\xff",
                  b'\xef\xbb\xbf{"prompt":"a"}',
                  b'{"prompt":"\xff"}', b'{"prompt":"\\ud800"}', b'{"prompt":"a","prompt":"b"}',
                  b'{"prompt":"a","temperature":NaN}', b'{"prompt":"a","temperature":1e400}',
                  b'{"prompt":"a","temperature":"0.5"}', b'{"prompt":"a","stream":"true"}',
                  b'{"prompt":"a","stream":1}', b'{"prompt":7}', b'{"prompt":{}}']
        for body in bodies:
            with self.subTest(body[:40]):
                status, _, answer = self.server.ask("POST", "/v1/completions", body, JSON)
                self.assertEqual(status, 400, answer)
                self.assertIn("message", json.loads(answer)["error"])
        self.server.complete(max_tokens=1)

    def test_a_prompt_of_ten_megabytes_is_refused_and_delays_nobody(self):
        answers = []

        def ask_much():
            answers.append(self.server.ask("POST", "/v1/completions", {"prompt": "wombat " * 1500000}))
        rig.in_parallel([ask_much] + [lambda: self.server.complete(max_tokens=20)] * 4)
        self.assert_error(answers[0], 400, "context_length_exceeded")

    def test_a_large_answer_is_its_small_parts(self):
        """It is written on another thread; some clients leave meanwhile."""
        prompts = [[(7 * i + j) % 250 for i in range(900)] for j in range(4)]
        asked = {"max_tokens": 0, "echo": True, "logprobs": 3}
        parts = [self.server.complete(prompt=prompt, **asked) for prompt in prompts]
        body = json.dumps({"prompt": prompts, **asked}).encode()
        for _ in range(8):
            with self.server.connect() as connection:
                connection.sendall(POST + b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
                time.sleep(random.random() / 8)
        whole = self.server.complete(prompt=prompts, **asked)
        for part, choice in zip(parts, whole["choices"]):
            self.assertEqual(part["choices"][0]["logprobs"], choice["logprobs"])

    def test_unknown_paths_methods_and_types_are_told_apart(self):
        """API-14, API-33: the Responses API is not offered, and says so."""
        ask = self.server.ask
        self.assert_error(ask("GET", "/"), 404, "unknown_url")
        answer = ask("DELETE", "/v1/models")
        self.assert_error(answer, 405, "method_not_allowed")
        self.assertEqual(answer[1]["Allow"], "GET, HEAD")
        self.assert_error(ask("POST", "/tokenize", b"{}", {"Content-Type": "text/plain"}), 415,
                          "unsupported_media_type")
        self.assertEqual(ask("POST", "/tokenize", b'{"prompt":"a"}', {})[0], 200)
        self.assert_error(ask("POST", "/tokenize", b'{"prompt":"a"}', {"Origin": "http://page"}), 415,
                          "unsupported_media_type")
        self.assert_error(ask("POST", "/v1/responses", {}), 400, "unsupported_parameter")
        self.assert_error(ask("GET", "/v1/models/no%2Fsuch"), 404, "model_not_found")
        self.assertEqual(ask("GET", "/v1/models/toy")[0], 200)
        self.assertEqual(ask("HEAD", "/health")[0], 200)
        self.assertEqual(ask("POST", "/ping")[2], b"")

    def test_a_request_keeps_the_name_that_its_client_gave(self):
        headers = {**JSON, "X-Request-Id": "mine-7"}
        _, answered, body = self.server.ask("POST", "/v1/completions",
                                            b'{"prompt":"a","max_tokens":1}', headers)
        self.assertEqual(answered["x-request-id"], "mine-7")
        self.assertIn("mine-7", json.loads(body)["id"])
        _, answered, body = self.server.ask("POST", "/v1/completions",
                                            b'{"prompt":"a","max_tokens":1}', JSON)
        self.assertRegex(answered["x-request-id"], "^[0-9a-f]{32}$")
        _, answered, _ = self.server.ask("GET", "/health", headers={"X-Request-Id": "a b"})
        self.assertRegex(answered["x-request-id"], "^[0-9a-f]{32}$")

    def test_a_stream_equals_the_whole_answer(self):
        asked = {"prompt": ["ab", "cd"], "n": 2, "max_tokens": 40, "seed": 3, "logprobs": 2}
        whole = self.server.complete(**asked)
        _, headers, body = self.server.ask("POST", "/v1/completions", {**asked, "stream": True})
        self.assertEqual(headers["Content-Type"], "text/event-stream; charset=utf-8")
        texts, logprobs = [""] * 4, [[] for _ in range(4)]
        for event in events(body):
            for choice in event["choices"]:
                texts[choice["index"]] += choice["text"]
                if choice["logprobs"]:
                    logprobs[choice["index"]] += choice["logprobs"]["token_logprobs"]
        self.assertEqual(texts, [choice["text"] for choice in whole["choices"]])
        self.assertEqual(logprobs,
                         [choice["logprobs"]["token_logprobs"] for choice in whole["choices"]])

    def test_many_prompts_in_one_body_are_answered_in_order(self):
        whole = self.server.complete(prompt=[[i % 200] for i in range(300)], max_tokens=2, seed=1)
        self.assertEqual([choice["index"] for choice in whole["choices"]], list(range(300)))
        self.assertEqual(whole["usage"]["completion_tokens"], 600)

    def test_a_relay_that_cuts_anywhere_changes_nothing(self):
        """HTTP-02."""
        body = json.dumps({"messages": [{"role": "user", "content": "a"}], "max_tokens": 20,
                           "stream": True, "seed": 1, "request_id": "x", "logprobs": True,
                           "top_logprobs": 3}).encode()
        request = (b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
                   b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
                   % (len(body), body))
        direct = self.server.raw(request).partition(b"\r\n\r\n")[2]
        with self.server.connect() as connection:
            for at in range(len(request)):
                connection.sendall(request[at:at + 1])
            relayed = b""
            while part := connection.recv(7):
                relayed += part
        created = lambda data: [json.loads(line[6:]) | {"created": 0} for line in data.split(b"\n")
                                if line.startswith(b"data: {")]
        self.assertEqual(created(relayed.partition(b"\r\n\r\n")[2]), created(direct))

    def test_a_browser_may_ask_from_any_page(self):
        """HTTP-10."""
        status, headers, _ = self.server.ask(
            "OPTIONS", "/v1/chat/completions",
            headers={"Origin": "http://b", "Access-Control-Request-Method": "POST",
                     "Access-Control-Request-Headers": "authorization,content-type"})
        self.assertEqual(status, 204)
        self.assertEqual(headers["Access-Control-Allow-Origin"], "*")
        self.assertEqual(headers["Access-Control-Allow-Headers"], "authorization,content-type")

    def test_the_log_tells_of_requests_and_not_what_they_said(self):
        secret = "wombat-in-the-attic"
        self.server.ask("POST", f"/v1/completions?{secret}",
                        json.dumps({"prompt": secret, "max_tokens": 3, "seed": 1}),
                        {**JSON, "X-Request-Id": "told"})
        self.server.ask("POST", "/v1/completions", json.dumps({"prompt": secret, "n": 0}),
                        {**JSON, "X-Request-Id": "refused"})
        told = {}
        while "told" not in told or "refused" not in told:  # a line comes after its answer
            told = {line.get("id"): line for line in self.server.log_lines()}
        line = told["told"]
        self.assertEqual((line["status"], line["output_tokens"], line["finish"]), (200, 3, "length"))
        self.assertNotIn(secret, self.server.log())

    def test_the_document_has_every_route_that_is_served(self):
        document = json.loads(self.server.ask("GET", "/openapi.json")[2])
        for path, methods in document["paths"].items():
            for method, operation in methods.items():
                with self.subTest(f"{method} {path}"):
                    at = path.replace("{model}", "toy")
                    body = b"{}" if "requestBody" in operation else None
                    status = self.server.ask(method.upper(), at, body, JSON)[0]
                    self.assertIn(status, (200, 400))
                    self.assertEqual(status == 400, body is not None)
                    names = [one["name"] for one in operation.get("parameters", [])]
                    self.assertEqual(["{%s}" % name for name in names],
                                     [part for part in path.split("/") if part.startswith("{")])
        self.assertEqual(set(document["paths"]["/ping"]), {"get", "post"})
        counted = self.server.ask("GET", "/metrics")[2].decode()
        self.assertIn('alea_http_requests_total{path="/v1/models/{model}",status="200"}', counted)

    def test_metrics_count_and_are_well_formed(self):
        before = self.server.metric("alea_generated_tokens_total")
        self.server.complete(max_tokens=7, ignore_eos=True)
        self.assertEqual(self.server.metric("alea_generated_tokens_total"), before + 7)
        vllm = self.server.ask("GET", "/metrics?names=vllm")[2].decode()
        self.assertRegex(vllm, r'(?m)^vllm:num_requests_running\{engine="0",model_name="toy"\} 0$')
        if not shutil.which("promtool"):
            self.skipTest("promtool is not installed")
        text = self.server.ask("GET", "/metrics")[2]
        done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True,
                              check=False)
        self.assertEqual((done.returncode, done.stdout + done.stderr), (0, b""))


class Keys(rig.Case):
    @classmethod
    def setUpClass(cls):
        cls.keys = os.path.join(os.environ.get("TMPDIR", "/tmp"), f"alea-keys-{os.getpid()}")
        with open(cls.keys, "w", encoding="ascii") as file:
            file.write("# ours\n\n  sk-one  \nsk-two\r\n")
        cls.options = ("--api-key-file", cls.keys)
        super().setUpClass()

    @classmethod
    def tearDownClass(cls):
        os.remove(cls.keys)
        super().tearDownClass()

    def test_a_key_is_needed_where_something_is_to_be_had(self):
        """HTTP-09."""
        ask = self.server.ask
        for key in ("sk-one", "sk-two"):
            self.assertEqual(ask("GET", "/v1/models", headers={"Authorization": "Bearer " + key})[0],
                             200)
        for value in (None, "", "Bearer", "Bearer ", "Bearer sk-on", "Bearer sk-onee", "Basic sk-one",
                      "sk-one", "Bearer sk-one sk-two", "Bearer # ours"):
            with self.subTest(value):
                headers = {"Authorization": value} if value is not None else {}
                answer = ask("GET", "/v1/models", headers=headers)
                self.assert_error(answer, 401, "invalid_api_key")
                self.assertEqual(answer[1]["WWW-Authenticate"], "Bearer")
        self.assert_error(ask("POST", "/tokenize", {"prompt": "a"}), 401, "invalid_api_key")
        for path in ("/health", "/version", "/metrics", "/openapi.json"):
            self.assertEqual(ask("GET", path)[0], 200)
        self.assertEqual(ask("OPTIONS", "/v1/models", headers={"Origin": "http://b"})[0], 204)


class Starts(rig.Case):
    @classmethod
    def setUpClass(cls):
        pass

    @classmethod
    def tearDownClass(cls):
        pass

    def refused(self, code, pattern, *options):
        done = subprocess.run([rig.PROGRAM, "serve", "--model", rig.TOY, *options], check=False,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
                              env=rig.environment())
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertRegex(done.stderr, pattern)

    def test_a_start_that_cannot_succeed_says_why(self):
        folder = self.folder()
        path = os.path.join(folder, "file")
        with open(path, "w", encoding="ascii") as file:
            file.write("# nothing\n")
        self.refused(3, "cannot read the API keys in /nowhere: ", "--api-key-file", "/nowhere")
        nul = os.path.join(folder, "nul")
        with open(nul, "wb") as file:
            file.write(b"sk-one\n\0sk-two\n")
        self.refused(3, "the API keys in .* are no text: byte 7 is NUL", "--api-key-file", nul)
        self.refused(3, "/nul is no text: byte 7 is NUL", "--chat-template", nul)
        self.refused(3, "/nul is no text: byte 7 is NUL", "--config", nul)
        self.refused(3, "there is no API key in ", "--api-key-file", path)
        template = os.path.join(folder, "template")
        with open(template, "w", encoding="ascii") as file:
            file.write("{% for x in %}")
        self.refused(3, "chat template, line 1, column 13", "--port", "0",
                     "--chat-template", template)
        self.refused(2, "the host 'no such host' is no address", "--host", "no such host")
        self.refused(2, "the path of the unix socket is 200 bytes long", "--unix", "x" * 200)
        self.refused(1, "cannot listen on /nowhere/s: no such file", "--unix", "/nowhere/s")
        self.refused(4, "no_such.gguf", "--model", "no_such.gguf", "--port", "0")
        taken = socket.create_server(("127.0.0.1", 0))
        self.refused(1, "cannot listen on 127.0.0.1 port.*choose another port", "--port", str(taken.getsockname()[1]))
        taken.close()
        with open(path, "w", encoding="ascii") as file:
            file.write("slots = 2\nbogus = 1\n")
        self.refused(2, "line 2: there is no option 'bogus'", "--config", path)

    def test_options_come_from_a_file_and_the_command_line_wins(self):
        path = os.path.join(self.folder(), "serve.conf")
        with open(path, "w", encoding="ascii") as file:
            file.write("# a comment\nserved-model-name = from-file\nslots=3\nquiet\n"
                       "ctx = 512\nvllm-compat = true\n")
        server = self.start("--config", path, "--slots", "2")
        models = json.loads(server.ask("GET", "/v1/models")[2])["data"]
        self.assertEqual([(m["id"], m["max_model_len"]) for m in models], [("from-file", 512)])
        self.assertEqual(server.metric("alea_slots"), 2)
        self.assertEqual(server.stop(), 0)

    def test_a_kept_prefix_serves_its_own_salt_alone(self):
        server = self.start("--prompt-tokens-details")

        def cached(**fields):
            usage = server.complete(prompt="a kept beginning", max_tokens=1, **fields)["usage"]
            return usage["prompt_tokens_details"]["cached_tokens"]
        for fields in ({}, {"cache_salt": "x"}, {"cache_salt": "y"}):
            self.assertEqual(cached(**fields), 0)
            self.assertGreater(cached(**fields), 0)
        self.assertEqual(server.stop(), 0)

    def test_prompt_tokens_are_counted_whether_found_or_computed(self):
        """Dashboards divide the hits by the look-ups."""
        server = self.start()
        prompt = list(range(60))
        for times in (1, 2, 3):
            server.complete(prompt=prompt, max_tokens=1)
            for name in ("alea_prompt_tokens_total", "alea_looked_up_prompt_tokens_total"):
                self.assertEqual(server.metric(name), times * len(prompt))
            self.assertEqual(server.metric("alea_cached_prompt_tokens_total"),
                             (times - 1) * (len(prompt) - 1))
        self.assertEqual(server.stop(), 0)

    def test_every_choice_that_began_is_counted_at_its_end(self):
        """Also those that end because another choice of their request fails."""
        server = self.start(model="toy:text=1,nan_at=8")

        def finished(reason):
            return server.metric(f'alea_choices_finished_total{{finished_reason="{reason}"}}')
        for stream, status in ((False, 500), (True, 200)):
            before = finished("error"), finished("abort")
            body = {"prompt": [[1] * 4] * 4, "n": 2, "max_tokens": 20, "ignore_eos": True,
                    "stream": stream}
            self.assertEqual(server.ask("POST", "/v1/completions", body)[0], status)
            self.assertEqual((finished("error") + finished("abort")) - sum(before),
                             len(body["prompt"]) * body["n"])
            self.assertGreater(finished("error"), before[0])
        self.assertEqual(server.stop(), 0)

    def test_a_unix_socket_serves_and_is_removed(self):
        path = os.path.join(self.folder(), "alea.sock")
        server = self.start("--unix", path, port=False)
        self.assertEqual(server.address, "unix:" + path)
        self.assertEqual(server.complete(max_tokens=2, ignore_eos=True)["usage"]["total_tokens"], 4)
        self.assertEqual(server.stop(), 0)
        self.assertFalse(os.path.exists(path))

    def test_the_request_to_try_that_it_shows_is_answered(self):
        folder = self.folder()
        keys, path = os.path.join(folder, "keys"), os.path.join(folder, "alea.sock")
        with open(keys, "w", encoding="ascii") as file:
            file.write("sk-one\n")
        for options, port, where in ((["--unix", path, "--host", "127.0.0.1"], True,
                                      r"http://127\.0\.0\.1:\d+ and unix:" + re.escape(path)),
                                     (["--unix", path], False, "unix:" + re.escape(path))):
            server = self.start("--api-key-file", keys, *options, port=port, wait=False, quiet=False)
            self.assertRegex(server.listens, f"^{where}$")
            shown = ""
            while not shown.endswith("\n\nanswers\n"):
                shown += server.process.stdout.readline().decode()
            command = re.search(r"^  curl .*?(?=\n\n)", shown, re.S | re.M)[0]
            self.assertIn("Bearer KEY", command)
            answer = subprocess.run(["bash", "-c", command.replace("KEY", "sk-one") + " -sS"],
                                    capture_output=True, check=True)
            self.assertEqual(json.loads(answer.stdout)["object"], "text_completion")
            self.assertEqual(server.stop(), 0)

    def test_a_service_manager_is_told(self):
        path = os.path.join(self.folder(), "notify")
        manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(manager.close)
        manager.bind(path)
        manager.settimeout(rig.WAIT_S)
        server = self.start(env=rig.environment(NOTIFY_SOCKET=path))
        said = [manager.recv(1000).decode() for _ in range(2)]
        self.assertEqual(said, ["STATUS=loading the model", "READY=1\nSTATUS=serving"])
        self.assertEqual(server.stop(), 0)
        self.assertTrue(manager.recv(1000).decode().startswith("STOPPING=1"))


if __name__ == "__main__":
    sys.exit(rig.closing.run())
