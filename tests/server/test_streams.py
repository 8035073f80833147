"""2,000 open streams: what each costs, how evenly their tokens come, and what the bad ones among
them cost the good ones."""
import os
import re
import select
import socket
import struct
import sys
import time

import rig
from test_load import allow_descriptors

STREAMS = int(os.environ.get("ALEA_STREAMS", "200" if rig.SANITIZED else "2000"))
TOKENS = int(os.environ.get("ALEA_STREAM_TOKENS", "30"))
ROUND_MS = 200  # and what 2,000 rows take: every stream has a token in every round


def at(values, share):
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def open_unread(server):
    return server.open_stream(max_tokens=400, read=False, receive_bytes=4096, logprobs=1,
                              logprob_token_ids=list(range(128)))


class Watch:
    """Reads many streams and notes when their events come; some are not read, some are cut."""

    def __init__(self, server, n, slow=0, abrupt=0):
        self.server = server
        # What is not read is long, so that the kernel's buffers are soon full.
        self.slow = [open_unread(server) for _ in range(slow)]
        self.streams = [server.open_stream(max_tokens=TOKENS, read=False, seed=1)
                        for _ in range(n - slow)]
        self.abrupt = self.streams[:abrupt]
        self.gaps, self.turns = [], []  # seconds; tokens of all for each stream, meanwhile
        self.tokens = self.whole = self.peak = 0

    def run(self):
        poll, last, by_number = select.epoll(), {}, {}
        for stream in self.streams:
            poll.register(stream.fileno(), select.EPOLLIN)
            by_number[stream.fileno()] = stream
        tails = dict.fromkeys(by_number, b"")
        looked = time.monotonic()
        while by_number:
            for number, _ in poll.poll(rig.WAIT_S) or self.fail():
                part = by_number[number].recv(1 << 16)
                now = time.monotonic()
                n = (tails[number][-6:] + part).count(b"data: {")
                self.tokens += n
                if n and number in last:
                    before, then, open_then = last[number]
                    self.gaps += [(now - then) / n] * n
                    self.turns += [(self.tokens - before) / n / open_then] * n
                if n:
                    last[number] = self.tokens, now, len(by_number)
                tails[number] = tails[number][-8:] + part
                if not part or tails[number].endswith(b"0\r\n\r\n"):
                    self.whole += bool(part)
                    poll.unregister(number)
                    del by_number[number]
            if time.monotonic() - looked > ROUND_MS / 1000:
                looked = time.monotonic()
                self.peak = max(self.peak, self.server.resident_bytes())
                for stream in self.abrupt[:len(self.abrupt) // 4 + 1]:  # a few at a time
                    self.abrupt.remove(stream)
                    if stream.fileno() not in by_number:
                        continue
                    poll.unregister(stream.fileno())
                    del by_number[stream.fileno()]
                    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    stream.close()
        return self

    @staticmethod
    def fail():
        raise AssertionError("the streams have stopped")

    def close(self):
        for stream in self.slow + self.streams:
            stream.close()


class Streams(rig.Case):
    @classmethod
    def setUpClass(cls):
        if not allow_descriptors(STREAMS + 200):
            raise rig.unittest.SkipTest("the machine allows too few descriptors")
        cls.options = ("--slots", str(STREAMS), "--max-queue", str(STREAMS), "--context", "128",
                       "--model", f"toy:text=1,slow_ms={ROUND_MS}")
        super().setUpClass()

    def free(self):
        self.server.wait_until(lambda: self.server.load() == 0)
        self.server.wait_until(lambda: self.server.metric("alea_requests_running") == 0)

    def test_bad_streams_do_not_change_the_pace_of_the_good(self):
        self.server.complete(max_tokens=2, ignore_eos=True)
        before = self.server.resident_bytes()
        good = Watch(self.server, STREAMS).run()
        good.close()
        self.free()
        bad = Watch(self.server, STREAMS, slow=STREAMS // 10, abrupt=STREAMS // 10).run()
        bad.close()
        self.free()
        each = (good.peak - before) / STREAMS
        print(f"{STREAMS} streams: {each / 1024:.1f} KiB each")
        for name, watch in (("all good", good), ("a fifth bad", bad)):
            print(f"{name}: {len(watch.gaps)} gaps, p50 {1000 * at(watch.gaps, 0.5):.0f} ms, "
                  f"p99 {1000 * at(watch.gaps, 0.99):.0f} ms, longest {1000 * max(watch.gaps):.0f} ms; "
                  f"in turns p50 {at(watch.turns, 0.5):.2f}, p99 {at(watch.turns, 0.99):.2f}")
        self.assertEqual(good.whole, STREAMS)
        self.assertEqual(good.tokens, STREAMS * (TOKENS + 1))
        self.assertEqual(bad.whole, STREAMS - STREAMS // 10 - STREAMS // 10)
        # A turn is what all streams get in a round. Seconds are the machine's too; a stream that is
        # passed over waits two turns, and what is bad changes nothing for the good.
        self.assertLess(at(good.turns, 0.99), 2.5)
        self.assertLess(at(bad.turns, 0.99), 2.5)
        if not rig.SANITIZED:
            self.assertLess(each, 16 * 1024)

    def test_who_hangs_up_frees_the_slot_within_a_round(self):
        """Of rounds that take long, so that what is seen meanwhile is seen in time."""
        server = self.start("--slots", "64", "--context", "512", model="toy:text=1,slow_ms=500")

        def look():
            """Rounds that have ended, and choices that hold a slot: of one moment."""
            text = server.ask("GET", "/metrics")[2].decode()
            return [float(re.search(rf"^{name} (\S+)$", text, re.M).group(1))
                    for name in ("alea_rounds_total", "alea_requests_running")]
        streams = [server.open_stream(max_tokens=400, read=False) for _ in range(64)]
        server.wait_until(lambda: look()[1] == 64)
        before = look()[0]
        server.wait_until(lambda: look()[0] > before)  # a round has just begun
        before, cut = look()[0], streams[:32]
        for i, stream in enumerate(cut):
            if i % 2:
                stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            stream.close()
        begun, running = time.monotonic(), 64
        while running > 32 and time.monotonic() < begun + rig.WAIT_S:
            rounds, running = look()
        print(f"32 of 64 streams cut: their slots were free {time.monotonic() - begun:.3f} s and "
              f"{rounds - before:.0f} rounds of 0.5 s later")
        # The round that ran then; the next, without them, beside which their last tokens are taken
        # from their slots; and the one that tells that these are free.
        self.assertLessEqual(rounds - before, 3)
        for stream in streams:
            stream.close()
        self.assertEqual(server.stop(), 0)

    def test_a_stream_that_is_not_read_pauses_alone(self):
        """It asks for events of kilobytes, which the kernel's buffers do not hold."""
        slow = [open_unread(self.server) for _ in range(8)]
        self.server.wait_until(lambda: self.server.metric("alea_requests_running") == len(slow))
        usage = self.server.complete(max_tokens=10, ignore_eos=True)["usage"]
        self.assertEqual(usage["completion_tokens"], 10)
        for stream in slow:
            stream.close()
        self.free()


if __name__ == "__main__":
    sys.exit(rig.closing.run())
