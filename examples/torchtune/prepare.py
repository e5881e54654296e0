"""Make what a fine-tuning begins with: a tokenizer, a small Llama with random weights, and sums to learn.

    python prepare.py FOLDER

It stands for the initializers that download a model and a data set on a cluster, and downloads nothing.
"""

import base64
import itertools
import json
import sys
from pathlib import Path

from transformers import LlamaConfig, LlamaForCausalLM, set_seed


def main():
    folder = Path(sys.argv[1])
    make_tokenizer(folder / "model" / "original" / "tokenizer.model")
    make_model(folder / "model")
    make_dataset(folder / "dataset" / "sums.json")


def make_tokenizer(path):
    """Write a tokenizer for which every byte is a token. Those that mark turns have their usual numbers."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{base64.b64encode(bytes([n])).decode()} {n}\n" for n in range(256)))


def make_model(folder):
    set_seed(0)
    config = LlamaConfig(
        vocab_size=128_256,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=True,
    )
    LlamaForCausalLM(config).save_pretrained(folder)


def make_dataset(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    pairs = itertools.product(range(10), repeat=2)
    path.write_text(json.dumps([{"input": f"{a} + {b} =", "output": str(a + b)} for a, b in pairs]))


if __name__ == "__main__":
    main()
