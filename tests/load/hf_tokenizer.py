"""The tokenizer of a GGUF model in the files that Hugging Face's libraries read, for clients that count
tokens themselves: byte-level BPE of the kind that the default model has. Only the standard library."""
import json
import os
import struct

CONTROL = 3
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9


def metadata(path):
    """The key-value pairs in front of a GGUF file's tensors."""
    with open(path, "rb") as file:
        def take(form):
            return struct.unpack("<" + form, file.read(struct.calcsize("<" + form)))[0]

        def value(kind):
            if kind == STRING:
                return file.read(take("Q")).decode()
            if kind == ARRAY:
                inner, n = take("I"), take("Q")
                return [value(inner) for _ in range(n)]
            return take(SCALARS[kind])

        if file.read(4) != b"GGUF":
            raise SystemExit(f"hf_tokenizer: {path} is no GGUF file")
        take("I"), take("Q")
        return {value(STRING): value(take("I")) for _ in range(take("Q"))}


def tokenizer(facts):
    tokens, kinds = facts["tokenizer.ggml.tokens"], facts["tokenizer.ggml.token_type"]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                  "use_regex": True}
    return {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None,
        "added_tokens": [{"id": i, "content": token, "single_word": False, "lstrip": False,
                          "rstrip": False, "normalized": False, "special": True}
                         for i, (token, kind) in enumerate(zip(tokens, kinds)) if kind == CONTROL],
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Digits", "individual_digits": True}, byte_level]},
        "post_processor": None, "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None,
                  "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False,
                  "byte_fallback": False, "vocab": {token: i for i, token in enumerate(tokens)},
                  "merges": facts["tokenizer.ggml.merges"]},
    }


def write(model, folder):
    facts = metadata(model)
    tokens = facts["tokenizer.ggml.tokens"]
    config = {"tokenizer_class": "PreTrainedTokenizerFast",
              "eos_token": tokens[facts["tokenizer.ggml.eos_token_id"]],
              "bos_token": tokens[facts["tokenizer.ggml.bos_token_id"]],
              "model_max_length": facts["llama.context_length"],
              "chat_template": facts.get("tokenizer.chat_template")}
    os.makedirs(folder, exist_ok=True)
    for name, content in (("tokenizer.json", tokenizer(facts)), ("tokenizer_config.json", config)):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            json.dump(content, file)
