#!/usr/bin/env python3
"""`alea bench ops` beside numpy and torch: the same cases on the same machine, in one run.

Runs the program and the Python peers in turn, round after round, and prints one table, or with
--json one object a line: the program's own, with what Python needed added to `peers`.

A peer does what is usually written in its library for the case, in float32, on as many threads as
the program. What it finds is held against float64 first: the time of other work says nothing. Then
each is called once for the caches, and timed. torch takes part where it is there.
"""
import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time

WIDTH = len(os.sched_getaffinity(0))
for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, str(WIDTH))

import numpy as np  # noqa: E402

try:
    import torch
except ImportError:
    torch = None

V, ROWS, WINDOW, TOP, BEST, DRAFTS = 128256, 64, 65536, 20, 50, 4
INF = np.float32(np.inf)
random = np.random.default_rng(1)


# ---- data, of the same distributions as the program's ----

def like_a_model(shape):
    """Logits that fall with the logarithm of their rank, shuffled."""
    ranks = np.arange(shape[-1], dtype=np.float32)
    x = 18 - 1.6 * np.log1p(ranks) + 0.3 * random.standard_normal(shape, dtype=np.float32)
    return np.ascontiguousarray(random.permuted(x.astype(np.float32), axis=-1))


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def likely(x):
    return int(np.abs(x - (x.max() - 3.5)).argmin())


row = like_a_model((1, V))
flat = 3 * random.standard_normal((1, V), dtype=np.float32)
rows = like_a_model((ROWS, V))
scores = random.standard_normal((ROWS, WINDOW), dtype=np.float32)
probs = softmax(row)[0]
targets = softmax(rows[:DRAFTS + 1])
drafts = softmax(rows[DRAFTS + 1:2 * DRAFTS + 1])
draft_tokens = np.array([likely(d) for d in drafts])
half = row.astype(np.float16)


# ---- numpy ----

def np_logprobs(x):
    tokens = [likely(r) for r in x]

    def run():
        top = x.max(axis=1, keepdims=True)
        lse = top + np.log(np.exp(x - top).sum(axis=1, keepdims=True))
        best = np.argpartition(x, V - TOP, axis=1)[:, V - TOP:]
        values = np.take_along_axis(x, best, axis=1)
        order = np.argsort(-values, axis=1)
        own = x[np.arange(len(x)), tokens][:, None]
        rank = 1 + (x > own).sum(axis=1)
        return np.take_along_axis(values, order, axis=1) - lse, own - lse, rank
    return run


def np_select(x, k):
    return lambda: np.argpartition(x, x.shape[1] - k, axis=1)[:, x.shape[1] - k:]


def np_topk(x):
    def run():
        cut = np.partition(x, V - BEST, axis=1)[:, V - BEST:V - BEST + 1]
        return np.where(x < cut, x.dtype.type(-np.inf), x)
    return run


def np_minp():
    return np.where(row < row.max() + np.float32(math.log(0.05)), -INF, row)


def np_nucleus(x, p, k=None):
    """Sort, sum, cut; with k, of the best k alone."""
    def run():
        order = np.argsort(-x[0]) if k is None else np.argpartition(x[0], V - k)[V - k:]
        if k is not None:
            order = order[np.argsort(-x[0][order])]
        weights = np.exp(x[0][order] - x[0][order[0]])
        sums = np.cumsum(weights)
        kept = order[:int(np.searchsorted(sums, p * sums[-1])) + 1]
        out = np.full_like(x[0], -INF)
        out[kept] = x[0][kept]
        return out
    return run


def np_sample(p):
    sums = np.cumsum(p)
    return int(np.searchsorted(sums, random.random() * sums[-1], side="right"))


def np_chain():
    accepted = random.random(DRAFTS) * drafts[np.arange(DRAFTS), draft_tokens] \
        < targets[np.arange(DRAFTS), draft_tokens]
    n = int(np.argmin(np.append(accepted, False)))
    return np_sample(np.maximum(targets[n] - drafts[n], 0) if n < DRAFTS else targets[n])


def np_sample_logits():
    best = np.argpartition(row[0], V - BEST)[V - BEST:]
    best = best[np.argsort(-row[0][best])]
    weights = np.exp((row[0][best] - row[0][best[0]]) / np.float32(0.8))
    sums = np.cumsum(weights)
    n = int(np.searchsorted(sums, 0.95 * sums[-1])) + 1
    return best[np.searchsorted(sums[:n], random.random() * sums[n - 1], side="right")]


# ---- torch ----

def torch_peers():
    if torch is None:
        return {}
    t = {name: torch.from_numpy(x) for name, x in
         {"row": row, "flat": flat, "rows": rows, "scores": scores, "half": half,
          "probs": probs[None], "targets": targets, "drafts": drafts}.items()}

    def logprobs(x):
        tokens = torch.tensor([[likely(r.float().numpy())] for r in x])

        def run():
            found = torch.log_softmax(x.float(), dim=-1)
            own = found.gather(1, tokens)
            return torch.topk(found, TOP, dim=-1), own, 1 + (found > own).sum(dim=1)
        return run

    def topk(x):
        def run():
            cut = torch.topk(x, BEST, dim=-1).values[:, -1:]
            return x.masked_fill(x < cut, -math.inf)
        return run

    def minp():
        return t["row"].masked_fill(t["row"] < t["row"].max() + math.log(0.05), -math.inf)

    def nucleus(x, p, k=None):
        """The filter by a sort of the whole row that serving engines use on the CPU."""
        def run():
            values, order = x.sort(dim=-1, descending=False)
            if k is not None:
                values = values.masked_fill(values < values[:, -k:-k + 1], -math.inf)
            sums = values.softmax(dim=-1).cumsum(dim=-1)
            dropped = sums <= 1 - p
            dropped[:, -1] = False
            values = values.masked_fill(dropped, -math.inf)
            return torch.empty_like(values).scatter_(-1, order, values)
        return run

    def chain():
        at = torch.arange(DRAFTS), torch.from_numpy(draft_tokens)
        accepted = torch.rand(DRAFTS) * t["drafts"][at] < t["targets"][at][:DRAFTS]
        n = int(accepted.int().cumprod(0).sum())
        left = t["targets"][n]
        if n < DRAFTS:
            left = (left - t["drafts"][n]).clamp(min=0)
        return torch.multinomial(left, 1)

    def sample_logits():
        return torch.multinomial(nucleus(t["row"] / 0.8, 0.95, BEST)().softmax(dim=-1), 1)

    one = f"1x{V} f32"
    return {
        f"logprobs top 20 {one}": logprobs(t["row"]),
        f"logprobs top 20 {one} normal": logprobs(t["flat"]),
        f"logprobs top 20 1x{V} bf16": logprobs(t["row"].bfloat16()),
        f"logprobs top 20 {ROWS}x{V} f32": logprobs(t["rows"]),
        f"logprobs top 20 {ROWS}x{V} f32 wide": logprobs(t["rows"]),
        f"topk_select k=20 {one}": lambda: torch.topk(t["row"], TOP, sorted=False),
        f"topk_select k=2048 {ROWS}x{WINDOW} f32":
            lambda: torch.topk(t["scores"], 2048, sorted=False),
        f"topk_mask k=50 {one}": topk(t["row"]),
        f"topk_mask k=50 1x{V} f16": topk(t["half"]),
        f"minp_mask 0.05 {one}": minp,
        f"topp_mask 0.9 {one}": nucleus(t["row"], 0.9),
        f"topp_mask 0.9 {one} normal": nucleus(t["flat"], 0.9),
        f"topk_topp_mask k=50 0.9 {one}": nucleus(t["row"], 0.9, BEST),
        f"sample_probs {one}": lambda: torch.multinomial(t["probs"], 1),
        f"chain_sample N=4 {one}": chain,
        f"sample_logits k=50 0.95 {one}": sample_logits,
        f"copy {one}": t["row"].clone,
    }


def numpy_peers():
    one = f"1x{V} f32"
    return {
        f"logprobs top 20 {one}": np_logprobs(row),
        f"logprobs top 20 {one} normal": np_logprobs(flat),
        f"logprobs top 20 {ROWS}x{V} f32": np_logprobs(rows),
        f"topk_select k=20 {one}": np_select(row, TOP),
        f"topk_select k=2048 {ROWS}x{WINDOW} f32": np_select(scores, 2048),
        f"topk_mask k=50 {one}": np_topk(row),
        f"topk_mask k=50 1x{V} f16": np_topk(half),
        f"minp_mask 0.05 {one}": np_minp,
        f"topp_mask 0.9 {one}": np_nucleus(row, 0.9),
        f"topp_mask 0.9 {one} normal": np_nucleus(flat, 0.9),
        f"topk_topp_mask k=50 0.9 {one}": np_nucleus(row, 0.9, BEST),
        f"sample_probs {one}": lambda: np_sample(probs),
        f"chain_sample N=4 {one}": np_chain,
        f"sample_logits k=50 0.95 {one}": np_sample_logits,
        f"copy {one}": row.copy,
    }


# ---- checking ----

def log_softmax(x):
    x = x.astype(np.float64)
    top = x.max(axis=1, keepdims=True)
    return x - top - np.log(np.exp(x - top).sum(axis=1, keepdims=True))


def logprobs_agree(x, found, slack=5e-3):
    best, own, rank = found
    best = np.asarray(getattr(best, "values", best))
    right = log_softmax(x)
    asked = np.take_along_axis(right, np.array([[likely(r)] for r in x]), axis=1)
    return (np.allclose(best, -np.sort(-right, axis=1)[:, :TOP], atol=slack)
            and np.allclose(np.asarray(own), asked, atol=slack)
            and np.array_equal(np.asarray(rank).reshape(-1) - 1, (right > asked).sum(axis=1)))


def slots_agree(x, k, found):
    found = np.asarray(getattr(found, "indices", found))
    return np.array_equal(np.sort(np.take_along_axis(x, found, axis=1), axis=1),
                          np.sort(x, axis=1)[:, x.shape[1] - k:])


def nucleus_size(x, p, k=V):
    weights = np.sort(np.exp(log_softmax(x))[0])[::-1][:k]
    return int(np.searchsorted(np.cumsum(weights), p * weights.sum())) + 1


def mask_agrees(x, size, found):
    """Kept entries are the input's and the largest; sums in float32 move the edge a little."""
    found = np.asarray(found).reshape(x.shape)
    kept = np.isfinite(found)
    return (abs(int(kept.sum()) - size) <= 1 + size / 100 and np.array_equal(found[kept], x[kept])
            and x[kept].min() >= x[~kept].max())


def draws_agree(weights, run, draws=50):
    """As often as it should the likeliest, and nothing without weight."""
    p = weights.astype(np.float64) / weights.sum(dtype=np.float64)
    found = np.array([int(np.asarray(run()).reshape(-1)[0]) for _ in range(draws)])
    best = int(p.argmax())
    spread = 6 * math.sqrt(draws * p[best] * (1 - p[best])) + 5
    return (p[found] > 0).all() and abs((found == best).sum() - draws * p[best]) <= spread


def checks():
    """By case, one of each kind: whether a peer's call, made here, finds what is right."""
    one = f"1x{V} f32"
    hot = softmax(np.where(row < np.sort(row)[0, V - BEST], -INF, row) / np.float32(0.8))[0]
    cut = np.sort(hot)[::-1][nucleus_size(np.log(hot + np.float32(1e-30))[None], 0.95) - 1]
    return {
        f"logprobs top 20 {one}": lambda run: logprobs_agree(row, run()),
        f"logprobs top 20 {one} normal": lambda run: logprobs_agree(flat, run()),
        f"topk_select k=20 {one}": lambda run: slots_agree(row, TOP, run()),
        f"topk_mask k=50 {one}": lambda run: mask_agrees(row, BEST, run()),
        f"minp_mask 0.05 {one}":
            lambda run: mask_agrees(row, int((row >= row.max() + math.log(0.05)).sum()), run()),
        f"topp_mask 0.9 {one}": lambda run: mask_agrees(row, nucleus_size(row, 0.9), run()),
        f"topp_mask 0.9 {one} normal":
            lambda run: mask_agrees(flat, nucleus_size(flat, 0.9), run()),
        f"topk_topp_mask k=50 0.9 {one}":
            lambda run: mask_agrees(row, nucleus_size(row, 0.9, BEST), run()),
        f"sample_probs {one}": lambda run: draws_agree(probs, run),
        f"sample_logits k=50 0.95 {one}":
            lambda run: draws_agree(np.where(hot < cut, 0, hot), run),
    }


def check_peers(libraries):
    for case, check in checks().items():
        for library, cases in libraries.items():
            if case in cases and not check(cases[case]):
                sys.exit(f"peers: {library} does not find what {case} should")


# ---- measuring ----

def time_us(run):
    """The median of some calls, after one for the caches."""
    run()
    times = []
    while len(times) < 3 or (sum(times) < 20e3 and len(times) < 25):
        start = time.perf_counter_ns()
        run()
        times.append((time.perf_counter_ns() - start) / 1e3)
    return statistics.median(times)


def ask_program(program, threads):
    done = subprocess.run([program, "bench", "ops", "--json", "--threads", str(threads)],
                          check=True, capture_output=True, text=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def measure(program, threads, rounds):
    """Lines of the program with medians over the rounds, peers among them."""
    libraries = {"numpy": numpy_peers(), "torch": torch_peers()}
    check_peers(libraries)
    seen = {}
    for _ in range(rounds):
        for line in ask_program(program, threads):
            seen.setdefault(line["case"], []).append(line)
            for library, cases in libraries.items():
                if line["case"] in cases:
                    if torch is not None:
                        torch.set_num_threads(line["threads"])
                    line["peers"][library] = time_us(cases[line["case"]])
    lines = []
    for found in seen.values():
        line = dict(found[0])
        for key in ("median_us", "floor_us"):
            line[key] = statistics.median(f[key] for f in found)
        line["min_us"] = min(f["min_us"] for f in found)
        line["peers"] = {peer: statistics.median(f["peers"][peer] for f in found)
                         for peer in found[0]["peers"]}
        lines.append(line)
    return lines


def print_table(lines, versions):
    print(f"{lines[0]['target']}; {versions}; wide: {lines[0]['wide']} threads, all else 1")
    print(f"{'operator':38} {'us':>9} {'GB/s':>7} {'x scan':>6}  peers")
    for line in lines:
        us = line["median_us"]
        peers = "  ".join(f"{name} {theirs:.0f} us ({theirs / us:.1f}x)"
                          for name, theirs in line["peers"].items())
        print(f"{line['case']:38} {us:9.1f} {line['bytes'] / us / 1e3:7.1f} "
              f"{us / line['floor_us']:6.2f}  {peers}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--alea", default="build/alea", help="the program to run")
    parser.add_argument("--threads", type=int, default=WIDTH, help="of the wide cases")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    lines = measure(options.alea, options.threads, options.rounds)
    versions = f"numpy {np.__version__}"
    versions += f", torch {torch.__version__}" if torch else ", no torch (make bench-peers)"
    if options.json:
        for line in lines:
            print(json.dumps(line))
        return 0
    lines[0]["wide"] = options.threads
    print_table(lines, versions)
    return 0


if __name__ == "__main__":
    sys.exit(main())
