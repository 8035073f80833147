"""aiperf, NVIDIA's load generator for inference servers, unchanged and without a network. No request
may fail, every answer must have as many tokens as were asked for, and the server's count of a
prompt's tokens must be the one of Hugging Face's tokenizer.

Run by tests/load/run, which says where aiperf is (ALEA_AIPERF)."""
import argparse
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "eval"))
import eval_server
import hf_tokenizer

MODEL = os.path.join(eval_server.ROOT, ".deps", "models", "SmolLM2-135M-Instruct.Q4_1.gguf")
TOKENIZER, REVISION = "alea/default", "0" * 40
CONCURRENCY, OUTPUT = 4, 16


def check(truth, what):
    if not truth:
        raise SystemExit(f"check-load: error: {what}")


def keep_tokenizer(home):
    """In the cache of Hugging Face's hub, as if it had been fetched: offline nothing else is read."""
    repository = os.path.join(home, "hub", "models--" + TOKENIZER.replace("/", "--"))
    os.makedirs(os.path.join(repository, "refs"))
    with open(os.path.join(repository, "refs", "main"), "w", encoding="ascii") as file:
        file.write(REVISION)
    hf_tokenizer.write(MODEL, os.path.join(repository, "snapshots", REVISION))


def profile(server, folder, endpoint, seconds):
    """aiperf's records, one a request."""
    out = os.path.join(folder, endpoint)
    command = [os.environ["ALEA_AIPERF"], "profile", "--model", "default", "--url", server.root,
               "--endpoint-type", endpoint, "--streaming", "--tokenizer", TOKENIZER,
               "--concurrency", str(CONCURRENCY), "--benchmark-duration", str(seconds),
               "--benchmark-grace-period", "300",
               "--isl", "48", "--isl-stddev", "16", "--osl", str(OUTPUT), "--osl-stddev", "0",
               "--extra-inputs", "ignore_eos:true", "--random-seed", "1", "--ui", "none",
               "--artifact-dir", out, "--no-gpu-telemetry", "--no-server-metrics"]
    offline = {"HF_HOME": os.path.join(folder, "home"), "HF_HUB_OFFLINE": "1",
               "TRANSFORMERS_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    done = subprocess.run(command, env={**os.environ, **offline}, stdout=subprocess.PIPE, text=True,
                          stderr=subprocess.STDOUT, timeout=seconds + 600, check=False)
    records = os.path.join(out, "profile_export.jsonl")
    check(done.returncode == 0 and os.path.exists(records), f"aiperf failed:\n{done.stdout[-4000:]}")
    with open(records, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def check_records(endpoint, records):
    check(records, f"{endpoint}: no request was made")
    failed = [record["error"] for record in records if record.get("error")]
    check(not failed, f"{endpoint}: {len(failed)} of {len(records)} requests failed: {failed[:3]}")
    for record in records:
        value = {name: metric["value"] for name, metric in record["metrics"].items()}
        check(value["usage_completion_tokens"] == OUTPUT, f"{endpoint}: {value}")
        if endpoint == "completions":  # a chat has its template's tokens too
            check(value["usage_prompt_tokens"] == value["input_sequence_length"], f"{endpoint}: {value}")


def check_log(server):
    server.log.seek(0)
    lines = [json.loads(line) for line in server.log.read().splitlines()]
    refused = [line for line in lines if line["event"] == "request" and line["status"] != 200
               and line["path"] != "/health"]  # 503 while the model was loading
    check(not refused, f"the server refused {refused[:3]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=60)
    settings = parser.parse_args()
    server = eval_server.Server("--model", MODEL, "--served-model-name", "default")
    try:
        with tempfile.TemporaryDirectory() as folder:
            keep_tokenizer(os.path.join(folder, "home"))
            for endpoint in ("chat", "completions"):
                records = profile(server, folder, endpoint, (settings.seconds + 1) // 2)
                check_records(endpoint, records)
                print(f"aiperf: {endpoint}: {len(records)} requests, none failed", flush=True)
        check_log(server)
    finally:
        server.close()


if __name__ == "__main__":
    main()
