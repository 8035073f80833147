#!/usr/bin/env python3
"""`alea bench ops --device cuda` beside torch and, where it is there, FlashInfer: one machine, one run.

The program is measured first and last, the peers in between, each as a CUDA graph of calls on
rotating copies of its data (over 300 MB, so that no cache holds them), replayed and divided. A peer
that cannot be captured is timed call by call on the stream, which is said. A peer does what is
usually written for the case in its library. Usage: cuda_peers.py PROGRAM
"""
import json
import statistics
import subprocess
import sys

import torch

try:
    import flashinfer.sampling as fi
except Exception as error:  # it compiles for the device when first used; any failure is "not here"
    print(f"flashinfer: {error}", file=sys.stderr)
    fi = None

ROUNDS, COLD_BYTES = 11, 300 << 20
torch.manual_seed(1)


def like_a_model(rows, vocab, dtype):
    ranks = torch.arange(vocab, device="cuda", dtype=torch.float32)
    row = 18 - 1.6 * torch.log1p(ranks) + 0.3 * torch.randn(vocab, device="cuda")
    out = torch.empty(rows, vocab, device="cuda", dtype=dtype)
    for i in range(rows):
        out[i] = row[torch.randperm(vocab, device="cuda")].to(dtype)
    return out


def normal(rows, vocab, dtype):
    return (3 * torch.randn(rows, vocab, device="cuda")).to(dtype)


def timed(call, copies):
    calls = max(len(copies), 8)

    def all_calls():
        for i in range(calls):
            call(copies[i % len(copies)])

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        call(copies[0])
        call(copies[0])
        stream.synchronize()
        captured = True
        try:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                all_calls()
            run = graph.replay
        except Exception:
            torch.cuda.synchronize()
            captured, run = False, all_calls
        run()
        samples = []
        for _ in range(ROUNDS):
            before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            before.record()
            run()
            after.record()
            after.synchronize()
            samples.append(before.elapsed_time(after) * 1e3 / calls)
    return statistics.median(samples), captured


def logprobs(x):
    lp = torch.log_softmax(x, dim=-1, dtype=torch.float32)
    chosen = lp[:, 17:18]
    return torch.topk(lp, 20), (lp > chosen).sum(-1)


def keep_top_p(x, p, k=None):
    values, ids = torch.sort(x.float(), dim=-1, descending=True)
    mass = torch.cumsum(torch.softmax(values, -1), -1)
    drop = mass - torch.softmax(values, -1) >= p
    if k:
        drop[:, k:] = True
    return torch.empty_like(x).scatter_(-1, ids, values.masked_fill(drop, -torch.inf).to(x.dtype))


def draw(probs):
    return (probs / torch.empty_like(probs).exponential_()).argmax(-1)


def keep_top_k(x, k):
    return x.masked_fill(x < torch.topk(x, k)[0][:, -1:], -torch.inf)


def keep_min_p(x, p):
    return x.masked_fill(x < x.amax(-1, keepdim=True) + torch.tensor(p).log().item(), -torch.inf)


def softmax(x):
    return torch.softmax(x, -1, dtype=torch.float32)


F32, BF16 = torch.float32, torch.bfloat16
TORCH = [
    ("logprobs k=20 1x128256 float32", like_a_model, 1, 128256, F32, logprobs),
    ("logprobs k=20 64x128256 float32", like_a_model, 64, 128256, F32, logprobs),
    ("logprobs k=20 512x151936 float32", like_a_model, 512, 151936, F32, logprobs),
    ("logprobs k=20 64x128256 bfloat16", like_a_model, 64, 128256, BF16, logprobs),
    ("logprobs k=20 512x151936 bfloat16", like_a_model, 512, 151936, BF16, logprobs),
    ("sample_logits k=50 p=0.95 64x128256 float32", like_a_model, 64, 128256, F32,
     lambda x: draw(softmax(keep_top_p(x, 0.95, 50)))),
    ("sample_logits p=0.9 64x128256 float32", like_a_model, 64, 128256, F32,
     lambda x: draw(softmax(keep_top_p(x, 0.9)))),
    ("sample_logits p=1 64x128256 float32", like_a_model, 64, 128256, F32,
     lambda x: draw(softmax(x))),
    ("topk_mask k=50 64x128256 bfloat16", like_a_model, 64, 128256, BF16,
     lambda x: keep_top_k(x, 50)),
    ("minp_mask p=0.05 64x128256 bfloat16", like_a_model, 64, 128256, BF16,
     lambda x: keep_min_p(x, 0.05)),
    ("topp_mask p=0.9 64x128256 bfloat16", like_a_model, 64, 128256, BF16,
     lambda x: keep_top_p(x, 0.9)),
    ("topk_topp_mask k=50 p=0.9 64x128256 bfloat16", like_a_model, 64, 128256, BF16,
     lambda x: keep_top_p(x, 0.9, 50)),
    ("topk_topp_mask k=50 p=0.9 1x128256 bfloat16", like_a_model, 1, 128256, BF16,
     lambda x: keep_top_p(x, 0.9, 50)),
    ("sample_probs 1x128256 float32", "probs", 1, 128256, F32, draw),
    ("sample_probs 64x128256 float32", "probs", 64, 128256, F32, draw),
    ("topk_select k=2048 1x131072 float32", normal, 1, 131072, F32, lambda x: torch.topk(x, 2048)),
    ("topk_select k=256 64x131072 float32", normal, 64, 131072, F32, lambda x: torch.topk(x, 256)),
    ("topk_select k=2048 64x65536 float32", normal, 64, 65536, F32, lambda x: torch.topk(x, 2048)),
]


def flashinfer_cases():
    k50, p = torch.full((64,), 50, device="cuda", dtype=torch.int32), torch.full((64,), 0.95,
                                                                               device="cuda")
    p9 = torch.full((64,), 0.9, device="cuda")
    rows = (64, 128256, F32)
    yield ("sample_logits k=50 p=0.95 64x128256 float32", like_a_model, *rows,
           lambda x: fi.top_k_top_p_sampling_from_probs(softmax(x), k50, p,
                                                        filter_apply_order="joint"))
    yield ("sample_logits p=0.9 64x128256 float32", like_a_model, *rows,
           lambda x: fi.top_p_sampling_from_probs(softmax(x), p9))
    yield ("sample_logits p=0.9 64x128256 float32 flat", normal, *rows,
           lambda x: fi.top_p_sampling_from_probs(softmax(x), p9))
    yield ("sample_logits p=1 64x128256 float32", like_a_model, *rows,
           lambda x: fi.sampling_from_logits(x))
    yield ("topk_mask k=50 64x128256 float32", like_a_model, *rows,
           lambda x: fi.top_k_mask_logits(x, k50))
    yield ("sample_probs 64x128256 float32", "probs", *rows, lambda x: fi.sampling_from_probs(x))
    yield ("sample_probs 1x128256 float32", "probs", 1, 128256, F32,
           lambda x: fi.sampling_from_probs(x))


def run_peers(name, cases, results):
    for case, fill, rows, vocab, dtype, call in cases:
        try:
            data = softmax(like_a_model(rows, vocab, F32)) if fill == "probs" else fill(rows, vocab,
                                                                                       dtype)
            one = data.numel() * data.element_size()
            copies = [data] + [data.clone() for _ in range(max(2, -(-COLD_BYTES // one) - 1))]
            us, captured = timed(call, copies)
            results.setdefault(case, {})[name if captured else f"{name} (eager)"] = us
            del copies, data
            torch.cuda.empty_cache()
        except Exception as error:
            print(f"{name}: {case}: {str(error)[:200]}", file=sys.stderr)


def run_program(program):
    lines = subprocess.run([program, "bench", "ops", "--device", "cuda", "--json"], check=True,
                           capture_output=True, text=True).stdout.splitlines()
    return [json.loads(line) for line in lines]


def main():
    program, results = sys.argv[1], {}
    first = run_program(program)
    run_peers("torch", TORCH, results)
    if fi:
        run_peers("flashinfer", flashinfer_cases(), results)
    last = {line["case"]: line for line in run_program(program)}
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    for line in first:
        again = last[line["case"]]["median_us"]
        if "floor_us" not in line:
            print(f"{line['case']:<52} {line['median_us']:9.2f} {again:9.2f}")
            continue
        peers = "  ".join(f"{name} {us:.1f} ({us / line['median_us']:.1f}x)"
                          for name, us in results.get(line["case"], {}).items())
        print(f"{line['case']:<52} {line['median_us']:9.2f} {again:9.2f} hot {line['hot_us']:8.2f} "
              f"floor {line['floor_us']:8.2f} {line['median_us'] / line['floor_us']:6.2f}x  {peers}")


main()
