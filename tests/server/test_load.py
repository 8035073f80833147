"""Many clients, bad clients and bad days: memory per stream, departures, full queues, signals, no
descriptors, a log that cannot be written."""
import json
import os
import resource
import select
import signal
import subprocess
import sys
import time

import rig
from rig import read_until

STREAMS = 500 if rig.SANITIZED else 2000
LEAVER = """
import os, socket, sys
c = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
body = b'{"prompt":"a","max_tokens":100000,"stream":true,"ignore_eos":true}'
c.sendall(b"POST /v1/completions HTTP/1.1\\r\\nHost: a\\r\\nContent-Type: application/json\\r\\n"
          b"Content-Length: %d\\r\\n\\r\\n%s" % (len(body), body))
c.recv(100)
print("reading", flush=True)
while c.recv(100): pass
"""


def allow_descriptors(n):
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(n, most), most))
    return min(n, most) >= n


class Departures(rig.Case):
    # Slow enough that a stream does not end by itself while a test looks.
    options = ("--slots", "4", "--model", "toy:text=1,context=65536,slow_ms=2")

    def assert_free(self):
        self.server.wait_until(lambda: self.server.metric("alea_requests_running") == 0 and
                               self.server.load() == 0)
        self.assertEqual(self.server.metric("alea_requests_waiting"), 0)

    def test_a_client_that_is_killed_frees_its_slot(self):
        """HTTP-11."""
        client = subprocess.Popen([sys.executable, "-c", LEAVER, str(self.server.port)],
                                  stdout=subprocess.PIPE)
        client.stdout.readline()
        self.assertEqual(self.server.metric("alea_requests_running"), 1)
        client.kill()
        client.wait()
        client.stdout.close()
        self.assert_free()
        gone = [line for line in self.server.log_lines() if line.get("client") == "gone"]
        self.assertEqual((len(gone), gone[0]["finish"]), (1, "abort"))
        self.assertIn(gone[0]["output_tokens"],
                      range(1, int(self.server.metric("alea_generated_tokens_total")) + 1))

    def test_clients_that_leave_while_they_wait_are_forgotten(self):
        running = [self.server.open_stream() for _ in range(4)]
        waiting = [self.server.open_stream(read=False) for _ in range(6)]
        self.server.wait_until(lambda: self.server.metric("alea_requests_waiting") == 6)
        for connection in waiting:
            connection.close()
        self.server.wait_until(lambda: self.server.metric("alea_requests_waiting") == 0)
        self.assertEqual(self.server.metric("alea_requests_running"), 4)
        for connection in running:
            connection.close()
        self.assert_free()

    def test_a_client_that_leaves_during_a_long_prompt_is_forgotten(self):
        prompt = [7] * 60000
        connection = self.server.open_stream(read=False, prompt=prompt)
        self.server.wait_until(lambda: self.server.metric("alea_requests_running") == 1)
        connection.close()
        self.assert_free()

    def test_a_slow_reader_slows_nobody_else(self):
        slow = self.server.open_stream(logprobs=5)
        first = time.monotonic()
        self.server.complete(max_tokens=50, ignore_eos=True)
        alone = time.monotonic() - first
        slow.setblocking(False)
        self.assertLess(alone, 20)
        # It is still served when it reads again.
        before = len(slow.recv(1 << 20))
        self.assertGreater(before, 0)
        slow.close()
        self.assert_free()


class Queue(rig.Case):
    options = ("--slots", "1", "--max-queue", "2", "--model", "toy:text=1,context=65536,slow_ms=2")

    def test_a_full_queue_answers_429_and_when_to_try_again(self):
        streams = [self.server.open_stream()]
        streams += [self.server.open_stream(read=False) for _ in range(2)]
        self.server.wait_until(lambda: self.server.load() == 3)
        answer = self.server.ask("POST", "/v1/completions", {"prompt": "a"})
        self.assert_error(answer, 429, "rate_limit_exceeded")
        self.assertTrue(1 <= int(answer[1]["Retry-After"]) <= 60)
        self.assertEqual(self.server.metric("alea_requests_refused_total"), 1)
        for stream in streams:
            stream.close()
        self.server.wait_until(lambda: self.server.load() == 0)
        self.server.complete(max_tokens=1)


class Memory(rig.Case):
    @classmethod
    def setUpClass(cls):
        pass

    @classmethod
    def tearDownClass(cls):
        pass

    def test_thousands_of_streams_take_little_memory_each(self):
        if not allow_descriptors(STREAMS + 200):
            self.skipTest("the machine allows too few descriptors")
        # Slow enough that what is not read is the machine's doing: all run at once.
        server = self.start("--slots", str(STREAMS), "--max-queue", str(STREAMS), "--context", "64",
                            model="toy:text=1,slow_ms=50")
        server.complete(max_tokens=8, ignore_eos=True)
        before = server.resident_bytes()
        streams = [server.open_stream(max_tokens=50, read=False, seed=1) for _ in range(STREAMS)]
        open_now = int(server.metric("alea_http_connections"))
        peak = server.resident_bytes()
        received = {stream.fileno(): b"" for stream in streams}
        poll = select.epoll()
        for stream in streams:
            poll.register(stream.fileno(), select.EPOLLIN)
        by_number = {stream.fileno(): stream for stream in streams}
        left = STREAMS
        while left:
            for number, _ in poll.poll(rig.WAIT_S) or self.fail("the streams have stopped"):
                part = by_number[number].recv(1 << 16)
                received[number] += part
                if received[number].endswith(b"0\r\n\r\n"):
                    poll.unregister(number)
                    left -= 1
            peak = max(peak, server.resident_bytes())
        each = (peak - before) / STREAMS
        print(f"{STREAMS} streams, {open_now} connections at once: {each:.0f} bytes each")
        self.assertGreaterEqual(open_now, STREAMS)
        if not rig.SANITIZED:
            self.assertLess(each, 16 * 1024)
        bodies = {data.partition(b"\r\n\r\n")[2].count(b"data: ") for data in received.values()}
        self.assertEqual(bodies, {52})
        for stream in streams:
            stream.close()
        server.wait_until(lambda: server.load() == 0)
        self.assertEqual(server.stop(), 0)

    def test_a_server_without_descriptors_lives_on(self):
        server = self.start(prefix=("bash", "-c", 'ulimit -n 80; exec "$@"', "bash"))
        early = server.connect()
        connections = []
        for _ in range(150):
            try:
                connections.append(server.connect())
            except OSError:
                break
        time.sleep(0.2)
        self.assertGreater(len(os.listdir(f"/proc/{server.process.pid}/fd")), 75)
        early.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
        self.assertIn(b"200 OK", read_until(early, b"\r\n\r\n"))
        early.close()
        for connection in connections:
            connection.close()
        server.wait_until(lambda: server.ask("GET", "/health")[0] == 200)
        server.complete(max_tokens=1)
        self.assertEqual(server.stop(), 0)

    def test_a_log_that_cannot_be_written_costs_lines_alone(self):
        with open("/dev/full", "wb") as full:
            server = self.start(stderr=full)
        server.complete(max_tokens=2)
        self.assertGreater(server.metric("alea_log_lines_lost_total"), 0)
        self.assertEqual(server.stop(), 0)
        read_end, write_end = os.pipe()  # nobody reads it: it fills, and must not hold the loop
        server = self.start(stderr=write_end)
        os.close(write_end)
        for _ in range(400):
            server.ask("GET", "/health")
        self.assertGreater(server.metric("alea_log_lines_lost_total"), 0)
        self.assertEqual(server.stop(), 0)
        os.close(read_end)


class Signals(rig.Case):
    @classmethod
    def setUpClass(cls):
        pass

    @classmethod
    def tearDownClass(cls):
        pass

    def test_a_drain_finishes_what_runs_and_takes_nothing_new(self):
        server = self.start("--slots", "4", model="toy:text=1,slow_ms=5")
        streams = [server.open_stream(max_tokens=100, seed=1) for _ in range(4)]
        whole = server.open_stream(max_tokens=100, read=False, stream=False)
        idle = server.connect()
        idle.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
        read_until(idle, b"\r\n\r\n")
        server.wait_until(lambda: server.load() == 5)
        server.process.send_signal(signal.SIGTERM)
        server.wait_until(lambda: server.metric("alea_requests_in_flight") and
                          server.ask("GET", "/health")[0] == 503, 5)
        for stream in streams:
            data = b""
            while part := stream.recv(65536):
                data += part
            self.assertTrue(data.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n"), data[-100:])
            stream.close()
        data = b""
        while part := whole.recv(65536):
            data += part
        self.assertTrue(data.startswith(b"HTTP/1.1 200 OK"))
        self.assertIn(b"Connection: close", data)
        self.assertEqual(server.process.wait(rig.WAIT_S), 0)
        whole.close()
        idle.close()
        self.assertEqual({line["status"] for line in server.log_lines()}, {200, 503})

    def test_under_load_no_request_is_lost(self):
        """Each client asks again and again on new connections; after the signal an answer is whole,
        or it is 503, or nobody listens any more."""
        server = self.start("--slots", "8", "--max-queue", "1000", model="toy:text=1,slow_ms=2")
        answers, told = [], []

        def ask(number):
            fields = {"prompt": "a", "max_tokens": 30, "ignore_eos": True, "stream": number % 2 == 0}
            body = json.dumps(fields).encode()
            while True:
                connected = time.monotonic()
                try:
                    connection = server.connect()
                except (ConnectionRefusedError, ConnectionResetError):
                    return
                data = b""
                try:
                    connection.sendall(
                        b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
                        b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
                        % (len(body), body))
                    while part := connection.recv(65536):
                        data += part
                except OSError:
                    pass
                connection.close()
                answers.append((connected, fields["stream"], data))

        def tell():
            server.wait_until(lambda: len(answers) > 100)
            told.append(time.monotonic())
            server.process.send_signal(signal.SIGTERM)
        rig.in_parallel([tell] + [lambda i=i: ask(i) for i in range(32)])
        self.assertEqual(server.process.wait(rig.WAIT_S), 0)
        whole = refused = late = 0
        for connected, streamed, data in answers:
            end = b"data: [DONE]\n\n\r\n0\r\n\r\n" if streamed else b"}"
            if data.startswith(b"HTTP/1.1 200 ") and data.endswith(end):
                whole += 1
            elif data.startswith(b"HTTP/1.1 503 ") and data.endswith(b"}}"):
                refused += 1
            else:
                # The kernel took the connection as the listener closed: nobody accepted it.
                self.assertEqual(data, b"")
                self.assertGreater(connected, told[0] + 0.2)
                late += 1
        after = sum(connected > told[0] for connected, _, _ in answers)
        print(f"{whole} whole, {refused} refused, {late} never accepted; {after} asked after the signal")
        self.assertGreater(whole, 100)
        self.assertLessEqual(late, 32)

    def test_the_end_of_a_drain_tells_clients_what_happened(self):
        server = self.start("--slots", "1", "--drain", "1", model="toy:text=1,context=65536,slow_ms=5")
        stream = server.open_stream()
        waiting = server.open_stream(read=False, stream=False)
        server.wait_until(lambda: server.load() == 2)
        server.process.send_signal(signal.SIGTERM)
        data = b""
        while part := stream.recv(65536):
            data += part
        self.assertTrue(data.endswith(b"0\r\n\r\n"))
        self.assertIn(b'data: {"error":{"message":"the server has shut down', data)
        self.assertIn(b"data: [DONE]\n\n", data)
        data = b""
        while part := waiting.recv(65536):
            data += part
        self.assertTrue(data.startswith(b"HTTP/1.1 503 "))
        stream.close()
        waiting.close()
        self.assertEqual(server.process.wait(rig.WAIT_S), 0)

    def test_a_second_signal_ends_at_once(self):
        server = self.start(model="toy:text=1,context=65536,slow_ms=5")
        stream = server.open_stream()
        server.process.send_signal(signal.SIGINT)
        server.wait_until(lambda: server.ask("GET", "/health")[0] == 503, 5)
        server.process.send_signal(signal.SIGINT)
        self.assertEqual(server.process.wait(10), 0)
        stream.close()


if __name__ == "__main__":
    sys.exit(rig.closing.run())
