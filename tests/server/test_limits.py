"""What requests may hold and how long they may take: bytes, templates, and clients that have left."""
import json
import sys
import time

import rig
from rig import events

SLOW = "toy:text=1,context=4096,slow_ms=5"
MIB = 1 << 20
# Some hundred characters that would run for hours.
ENDLESS = "{% for i in range(2000) %}{% for j in range(2000) %}{% for k in range(2000) %}{% endfor %}" \
          "{% endfor %}{% endfor %}"


def post(path, body):
    data = json.dumps(body).encode()
    return (b"POST %s HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%s" % (path.encode(), len(data), data))


class Memory(rig.Case):
    @classmethod
    def setUpClass(cls):
        pass

    @classmethod
    def tearDownClass(cls):
        pass

    def test_a_thousand_prompts_cost_little_before_their_turn(self):
        server = self.start("--slots", "1", model=SLOW)
        body = post("/v1/completions", {"prompt": [[1]] * 1000, "n": 128, "max_tokens": 2})
        server.complete(max_tokens=1)
        before, n = server.resident_bytes(), 30
        connections = [server.connect() for _ in range(n)]
        for connection in connections:
            connection.sendall(body)
        server.wait_until(lambda: server.load() == n)
        each = (server.resident_bytes() - before) / n
        counted = server.metric("alea_request_memory_bytes") / n
        print(f"a body of {len(body)} bytes, 1000 prompts x 128: {each / 1024:.0f} KiB resident, "
              f"{counted / 1024:.0f} KiB counted")
        self.assertGreater(counted, 1000 * 8)
        if not rig.SANITIZED:
            self.assertLess(each, MIB / 2)
        for connection in connections:
            connection.close()
        server.wait_until(lambda: server.load() == 0)
        server.wait_until(lambda: server.metric("alea_request_memory_bytes") < 10000)
        self.assertEqual(server.stop(), 0)

    def test_a_stream_of_a_thousand_prompts_holds_those_in_flight(self):
        server = self.start("--slots", "64", model="toy:text=1")
        server.complete(max_tokens=1)
        choices = 4 if rig.SANITIZED else 16
        asked = {"prompt": [[i % 200] for i in range(1000)], "n": choices, "max_tokens": 2,
                 "ignore_eos": True, "stream": True, "logprobs": 1, "seed": 1}
        before = server.resident_bytes()
        most = most_counted = n = 0
        with server.connect() as connection:
            connection.sendall(post("/v1/completions", asked))
            tail, ends = b"", 0
            while not tail.endswith(b"0\r\n\r\n"):
                part = connection.recv(1 << 16)
                self.assertTrue(part)
                ends += (tail[-30:] + part).count(b'"finish_reason":"length"') - \
                    tail[-30:].count(b'"finish_reason":"length"')
                tail = tail[-100:] + part
                n += 1
                if n % 64 == 0:
                    most = max(most, server.resident_bytes() - before)
                    most_counted = max(most_counted, server.metric("alea_request_memory_bytes"))
        print(f"{1000 * choices} choices streamed: {most / MIB:.1f} MiB resident at most, "
              f"{most_counted / MIB:.1f} MiB counted")
        self.assertEqual(ends, 1000 * choices)
        self.assertLess(most_counted, 2 * MIB)
        if not rig.SANITIZED:
            self.assertLess(most, 8 * MIB)
        self.assertEqual(server.stop(), 0)

    def test_a_request_that_needs_more_than_there_is_is_told_so(self):
        server = self.start("--slots", "4", "--request-memory", "16", model="toy:text=1")
        greedy = {"prompt": [[1]], "n": 128, "logprobs": 1, "logprob_token_ids": list(range(128)),
                  "max_tokens": 2000}
        error = self.assert_error(server.ask("POST", "/v1/completions", greedy), 503,
                                  "service_unavailable")
        self.assertIn("memory", error["message"])
        self.assertEqual(server.metric("alea_requests_starved_total"), 1)
        # It grows as it is answered, and so it fails late; streamed it is no burden.
        whole = {"prompt": [[1]] * 100, "max_tokens": 4000, "logprobs": 20, "ignore_eos": True}
        status, headers, body = server.ask("POST", "/v1/completions", whole)
        self.assertEqual((status, headers["Retry-After"]), (503, "1"), body[:300])
        small = {**whole, "prompt": [[1]] * 4, "stream": True}
        self.assertEqual(len({event["choices"][0]["index"] for event in
                              events(server.ask("POST", "/v1/completions", small)[2])}), 4)
        server.wait_until(lambda: server.metric("alea_request_memory_bytes") < 10000)
        self.assertEqual(server.stop(), 0)

    def test_what_a_stream_has_not_sent_counts_as_well(self):
        """Each of its choices begins with the prompt's arrays: a hundred bytes ask for a megabyte."""
        server = self.start("--slots", "64", "--request-memory", "8", model="toy:text=1")
        body = {"prompt": [[7] * 3000] * 4, "n": 16, "echo": True, "logprobs": 20, "max_tokens": 4,
                "stream": True, "ignore_eos": True}
        unread = [server.connect(receive_bytes=4096) for _ in range(4)]
        for connection in unread:
            connection.sendall(post("/v1/completions", body))
        server.wait_until(lambda: server.metric("alea_requests_starved_total") > 0)
        most = 0
        for _ in range(20):
            server.complete(max_tokens=10)
            most = max(most, server.metric("alea_request_memory_bytes"))
        print(f"4 streams of 64 long beginnings, unread: {most / MIB:.1f} MiB counted at most")
        self.assertLess(most, 16 * MIB)
        for connection in unread:
            connection.close()
        server.wait_until(lambda: server.metric("alea_request_memory_bytes") < 10000)
        self.assertEqual(server.stop(), 0)

    def test_the_small_are_served_beside_the_greedy(self):
        server = self.start("--slots", "16", "--request-memory", "16", model="toy:text=1")
        large = {"prompt": [[1]] * 10, "max_tokens": 2500, "logprobs": 20, "ignore_eos": True}
        statuses, most = [], [0]

        def ask_large():
            statuses.append(server.ask("POST", "/v1/completions", large)[0])

        def ask_small():
            while len(statuses) < 12:
                server.complete(max_tokens=20, logprobs=2)
                most[0] = max(most[0], server.metric("alea_request_memory_bytes"))
        rig.in_parallel([ask_large] * 12 + [ask_small] * 2)
        print(f"12 answers of 6 MB beside each other: {sorted(statuses)}, "
              f"{most[0] / MIB:.1f} MiB counted at most")
        self.assertEqual(set(statuses), {200, 503})
        self.assertLess(most[0], 32 * MIB)
        self.assertEqual(server.stop(), 0)


class Templates(rig.Case):
    options = ("--trust-request-chat-template", "--max-queue", "1000")

    def chat(self, **fields):
        return post("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}],
                                             "max_tokens": 1, **fields})

    def test_a_slow_template_ends_and_holds_up_nobody(self):
        slow = self.server.connect()
        begun, used = time.monotonic(), self.server.metric("process_cpu_seconds_total")
        slow.sendall(self.chat(chat_template=ENDLESS))
        worst = 0
        for _ in range(10):
            first = time.monotonic()
            for path, body in (("/v1/chat/completions", self.chat()),
                               ("/tokenize", post("/tokenize", {"prompt": "wombat " * 10000})),
                               ("/health", b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")):
                with self.subTest(path), self.server.connect() as connection:
                    connection.sendall(body)
                    self.assertIn(b"200 OK", rig.read_until(connection, b"\r\n"))
            worst = max(worst, time.monotonic() - first)
        answer = rig.read_until(slow, b"}}")
        taken = time.monotonic() - begun
        used = self.server.metric("process_cpu_seconds_total") - used
        slow.close()
        print(f"a template without end: {taken:.2f} s, {used:.2f} s of the processor; three requests "
              f"beside it: {worst:.3f} s at most")
        self.assertIn(b"HTTP/1.1 400 ", answer)
        self.assertIn(b"it takes more", answer)
        self.assertLess(used, 10 if rig.SANITIZED else 2)  # half a second is the template's

    def test_a_deep_template_ends_as_well(self):
        """It is rendered on the stack of the thread that reads bodies."""
        deep = 5000 if rig.THREADS_WATCHED else 50000
        for template in ("{{ " + "(" * deep + "1" + ")" * deep + " }}",
                         "{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}",
                         "{{ " + "[" * 300 + "]" * 300 + " }}"):
            body = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1,
                    "chat_template": template}
            status, _, answer = self.server.ask("POST", "/v1/chat/completions", body)
            self.assertIn(status, (200, 400), answer)
            if status == 400:
                self.assertRegex(json.loads(answer)["error"]["message"],
                                 "nested too deeply|more memory|no tokens")

    def test_work_for_clients_that_have_left_is_not_done(self):
        n = 60
        leavers = [self.server.connect() for _ in range(n)]
        for connection in leavers:
            connection.sendall(self.chat(chat_template=ENDLESS))
        self.server.wait_until(lambda: self.server.load() > n // 2)
        first, used = time.monotonic(), self.server.metric("process_cpu_seconds_total")
        for connection in leavers:
            connection.close()
        self.server.wait_until(lambda: self.server.load() == 0)
        with self.server.connect() as connection:
            connection.sendall(self.chat())
            self.assertIn(b"200 OK", rig.read_until(connection, b"\r\n"))
        taken = time.monotonic() - first
        used = self.server.metric("process_cpu_seconds_total") - used
        print(f"{n} slow chats left behind: the next was answered after {taken:.2f} s, "
              f"{used:.2f} s of the processor")
        self.assertLess(used, n // 2 / 4)  # half of what all would take; three were begun


if __name__ == "__main__":
    sys.exit(rig.closing.run())
