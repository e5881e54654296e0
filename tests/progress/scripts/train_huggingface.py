"""A tiny real training with transformers.Trainer: a random GPT-2 of 2 layers, made from its configuration."""

import sys

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

from trainwright.progress import flush
from trainwright.progress.huggingface import ProgressCallback


class Patience(TrainerCallback):
    """Waits until what was reported has arrived, so that each logged value is seen on a busy machine."""

    def on_log(self, *_args, **_keywords):
        flush(60.0)


torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(vocab_size=16, n_positions=16, n_embd=16, n_layer=2, n_head=2))
tokens = [torch.arange(start, start + 8) % 16 for start in range(32)]
data = [{"input_ids": row, "labels": row} for row in tokens]
arguments = TrainingArguments(
    output_dir=sys.argv[1],
    num_train_epochs=2,
    per_device_train_batch_size=8,
    logging_steps=2,
    eval_strategy="epoch",
    save_strategy="no",
    report_to=[],
    use_cpu=True,
    disable_tqdm=True,
)
callbacks = [ProgressCallback(), Patience()] if "ours" in sys.argv else []
Trainer(model, arguments, train_dataset=data, eval_dataset=data[:8], callbacks=callbacks).train()
