"""Train a small text classifier with Hugging Face's Trainer, from nothing and without a download.

The task is made on the spot: is a sentence about the weather or about food? The model is a BERT of two
layers with random weights, and words are numbered as they come. For a real task put a pretrained model, its
tokenizer and a data set in their places; the rest stays as it is.

    trainwright run train.py --nproc-per-node 2
"""

import argparse
import itertools
import random
import time
from pathlib import Path

import numpy as np
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed
from transformers.trainer_utils import get_last_checkpoint

try:
    from trainwright.progress.huggingface import ProgressCallback

    callbacks = [ProgressCallback()]
except ImportError:  # without trainwright: train all the same
    callbacks = []

TOPICS = (
    ("weather", ["rain", "snow", "wind", "sunshine", "fog"], ["falls", "comes", "passes", "lasts"]),
    ("food", ["bread", "soup", "rice", "cheese", "cake"], ["tastes good", "is hot", "smells", "is eaten"]),
)
PLACES = ["in town", "at sea", "in the hills", "at home", "near the lake", "by the road", "up north"]


class Sentences(torch.utils.data.Dataset):
    """Sentences as token ids, with their topic as label."""

    def __init__(self, examples, vocabulary):
        self.examples = examples
        self.vocabulary = vocabulary

    def __len__(self):
        return len(self.examples)

    def __getitem__(self, index):
        text, label = self.examples[index]
        ids = [self.vocabulary.get(word, 1) for word in text.split()][:8]
        padding = [0] * (8 - len(ids))
        return {"input_ids": ids + padding, "attention_mask": [1] * len(ids) + padding, "labels": label}


def main():
    options = parse_options()
    set_seed(options.seed)
    train, test = build_examples(options.seed)
    words = sorted({word for text, _ in train for word in text.split()})
    vocabulary = {word: number for number, word in enumerate(words, start=2)}  # 0 pads, 1 is unknown

    config = BertConfig(
        vocab_size=len(vocabulary) + 2,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=8,
        id2label={number: name for number, (name, _, _) in enumerate(TOPICS)},
    )
    trainer = Trainer(
        model=BertForSequenceClassification(config),
        args=TrainingArguments(
            output_dir=options.output_dir,
            num_train_epochs=options.epochs,
            learning_rate=2e-3,
            per_device_train_batch_size=16,
            logging_steps=5,
            eval_strategy="epoch",
            save_strategy="epoch",
            save_total_limit=1,
            report_to="none",
            seed=options.seed,
            # Said plainly: on a machine without GPUs the ranks would otherwise train each for itself.
            use_cpu=not torch.cuda.is_available(),
        ),
        train_dataset=Sentences(train, vocabulary),
        eval_dataset=Sentences(test, vocabulary),
        compute_metrics=compute_accuracy,
        callbacks=callbacks,
    )
    # A job that was stopped goes on from its last checkpoint.
    last = get_last_checkpoint(options.output_dir) if Path(options.output_dir).is_dir() else None
    trainer.train(resume_from_checkpoint=last)
    accuracy = trainer.evaluate()["eval_accuracy"]
    if trainer.is_world_process_zero():
        print(f"test accuracy {accuracy:.4f}, checkpoint in {options.output_dir}")
    time.sleep(0.3)  # gloo's threads let go of their last tensors; a Python that ends before them may abort


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output-dir", default="checkpoints")
    return parser.parse_args()


def build_examples(seed):
    """Return training and test sentences. No sentence is in both."""
    examples = [
        (f"{subject} {verb} {place}", label)
        for label, (_, subjects, verbs) in enumerate(TOPICS)
        for subject, verb, place in itertools.product(subjects, verbs, PLACES)
    ]
    random.Random(seed).shuffle(examples)
    return examples[60:], examples[:60]


def compute_accuracy(prediction):
    return {"accuracy": float((np.argmax(prediction.predictions, axis=1) == prediction.label_ids).mean())}


if __name__ == "__main__":
    main()
