"""Real clients, unchanged: openai, langchain-openai, and schemathesis over /openapi.json. They live in
an environment of their own, which tools/setup test makes and ALEA_CLIENTS names."""
import os
import subprocess
import sys

CLIENTS = os.environ.get("ALEA_CLIENTS", "")
if os.path.exists(CLIENTS) and sys.executable != CLIENTS:
    os.execv(CLIENTS, [CLIENTS, "-B", *sys.argv])
try:
    import langchain_openai
    import openai
except ImportError as missing:
    print(f"SKIP server_clients: {missing}; tools/setup test fetches the clients")
    sys.exit(77)

import rig

EXAMPLES = 5 if rig.SANITIZED else 15


class OpenAI(rig.Case):
    options = ("--slots", "4")

    def setUp(self):
        self.client = openai.OpenAI(base_url=f"{self.server.address}/v1", api_key="none",
                                    max_retries=0)
        self.addCleanup(self.client.close)

    def test_models(self):
        self.assertEqual([model.id for model in self.client.models.list()], ["toy"])
        self.assertEqual(self.client.models.retrieve("toy").id, "toy")

    def test_completions_with_logprobs(self):
        """API-32."""
        answer = self.client.completions.create(model="toy", prompt=["ab", "cd"], n=2, max_tokens=5,
                                                logprobs=3, seed=1, extra_body={"ignore_eos": True})
        self.assertEqual([choice.index for choice in answer.choices], [0, 1, 2, 3])
        self.assertEqual(answer.usage.completion_tokens, 20)
        for choice in answer.choices:
            self.assertEqual(choice.finish_reason, "length")
            self.assertEqual("".join(choice.logprobs.tokens), choice.text)
            self.assertEqual(len(choice.logprobs.top_logprobs), 5)

    def test_streamed_completions_equal_whole_ones(self):
        asked = {"model": "toy", "prompt": "ab", "max_tokens": 30, "seed": 7, "logprobs": 1}
        whole = self.client.completions.create(**asked)
        text, numbers, usage = "", [], None
        for chunk in self.client.completions.create(**asked, stream=True,
                                                    stream_options={"include_usage": True}):
            usage = chunk.usage or usage
            for choice in chunk.choices:
                text += choice.text
                if choice.logprobs:
                    numbers += choice.logprobs.token_logprobs
        self.assertEqual(text, whole.choices[0].text)
        self.assertEqual(numbers, whole.choices[0].logprobs.token_logprobs)
        self.assertEqual(usage.total_tokens, whole.usage.total_tokens)

    def test_chats_with_logprobs(self):
        messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
        asked = {"model": "toy", "messages": messages, "max_tokens": 12, "seed": 2,
                 "logprobs": True, "top_logprobs": 4}
        whole = self.client.chat.completions.create(**asked)
        content = whole.choices[0].logprobs.content
        self.assertEqual(b"".join(bytes(entry.bytes) for entry in content).decode(errors="replace"),
                         whole.choices[0].message.content)
        for entry in content:
            self.assertEqual(len(entry.top_logprobs), 4)
            values = [top.logprob for top in entry.top_logprobs]
            self.assertEqual(values, sorted(values, reverse=True))
        text, role = "", None
        for chunk in self.client.chat.completions.create(**asked, stream=True):
            role = chunk.choices[0].delta.role or role
            text += chunk.choices[0].delta.content or ""
        self.assertEqual((role, text), ("assistant", whole.choices[0].message.content))

    def test_errors_are_the_clients_own_classes(self):
        create = self.client.completions.create
        with self.assertRaises(openai.BadRequestError) as caught:
            create(model="toy", prompt="a", temperature=-1)
        self.assertEqual(caught.exception.param, "temperature")
        with self.assertRaises(openai.BadRequestError) as caught:
            create(model="toy", prompt=[7] * 5000)
        self.assertEqual(caught.exception.code, "context_length_exceeded")
        with self.assertRaises(openai.NotFoundError) as caught:
            create(model="another", prompt="a")
        self.assertEqual(caught.exception.code, "model_not_found")
        with self.assertRaises(openai.NotFoundError):
            self.client.files.list()

    def test_a_client_may_leave_a_stream(self):
        with self.client.completions.create(model="toy", prompt="a", max_tokens=4000, stream=True,
                                            extra_body={"ignore_eos": True}) as stream:
            next(iter(stream))
        self.server.wait_until(lambda: self.server.load() == 0)


class Busy(rig.Case):
    options = ("--slots", "1", "--max-queue", "0", "--model", "toy:text=1,context=65536,slow_ms=2")

    def test_a_refused_client_tries_again_and_succeeds(self):
        stream = self.server.open_stream()
        client = openai.OpenAI(base_url=f"{self.server.address}/v1", api_key="none", max_retries=0)
        with self.assertRaises(openai.RateLimitError):
            client.completions.create(model="toy", prompt="a", max_tokens=1)
        stream.close()
        patient = client.with_options(max_retries=5)
        self.assertEqual(patient.completions.create(model="toy", prompt="a", max_tokens=1)
                         .usage.completion_tokens, 1)
        client.close()


class LangChain(rig.Case):
    def test_chat_model(self):
        """API-32."""
        chat = langchain_openai.ChatOpenAI(base_url=f"{self.server.address}/v1", api_key="none",
                                           model="toy", max_tokens=10, seed=1, logprobs=True,
                                           top_logprobs=2)
        whole = chat.invoke("Hello")
        self.assertEqual(len(whole.response_metadata["logprobs"]["content"]),
                         whole.usage_metadata["output_tokens"])
        streamed = None
        for chunk in chat.stream("Hello"):
            streamed = chunk if streamed is None else streamed + chunk
        self.assertEqual(streamed.content, whole.content)

    def test_completion_model(self):
        model = langchain_openai.OpenAI(base_url=f"{self.server.address}/v1", api_key="none",
                                        model="toy", max_tokens=10, seed=1)
        self.assertEqual("".join(model.stream("Hello")), model.invoke("Hello"))


class Schema(rig.Case):
    options = ("--ctx", "128", "--max-queue", "64")

    def test_no_request_that_the_schema_allows_or_forbids_ends_in_a_500(self):
        done = subprocess.run(
            [sys.executable, "-m", "schemathesis.cli", "run", f"{self.server.address}/openapi.json",
             "--checks", "not_a_server_error", "--max-examples", str(EXAMPLES), "--seed", "1",
             "--request-timeout", "30", "--phases", "examples,coverage,fuzzing", "--no-color",
             "--suppress-health-check", "all"],
            capture_output=True, text=True, check=False, timeout=400)
        print("\n".join(line for line in done.stdout.splitlines() if "passed" in line or "cases" in line))
        self.assertEqual(done.returncode, 0, done.stdout[-5000:] + done.stderr[-2000:])
        statuses = {line["status"] for line in self.server.log_lines()
                    if line["path"] != "/health"}  # 503 while the model was loading
        self.assertEqual({status for status in statuses if status >= 500}, set())
        self.assertIn(200, statuses)
        self.assertIn(400, statuses)


if __name__ == "__main__":
    sys.exit(rig.closing.run())
