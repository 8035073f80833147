"""rival_xllamacpp.py MODEL THREADS SLOTS CONTEXT: llama.cpp's own server, as PyPI's xllamacpp carries it,
in this process. Prints where it listens and serves until it is ended. Run by bench/serve.py."""
import os
import signal
import sys

# What the extension says of itself goes to both streams; the caller reads one line of ours.
said = os.dup(1)
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
import xllamacpp  # noqa: E402

model, threads, slots, context = sys.argv[1], *map(int, sys.argv[2:])
params = xllamacpp.CommonParams()
params.model.path = model
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
params.n_parallel, params.n_ctx = slots, context
params.hostnames, params.port = ["127.0.0.1"], 0
server = xllamacpp.Server(params)
os.write(said, f"listening on {server.listening_address}\n".encode())
signal.pause()
