"""A tiny real training with Lightning: a linear model that validates after every epoch."""

import sys

import torch
from lightning.pytorch import Callback, LightningModule, Trainer, seed_everything
from torch.utils.data import DataLoader, TensorDataset

from trainwright.progress import flush
from trainwright.progress.lightning import ProgressCallback


class Patience(Callback):
    """Waits until what was reported has arrived, so that each logged value is seen on a busy machine."""

    def on_train_batch_end(self, *_):
        flush(60.0)

    def on_validation_end(self, *_):
        flush(60.0)


class Line(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def loss(self, batch):
        x, y = batch
        return torch.nn.functional.mse_loss(self.layer(x), y)

    def training_step(self, batch, _):
        loss = self.loss(batch)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, _):
        self.log("val_loss", self.loss(batch))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.2)


seed_everything(0)
x = torch.linspace(-1, 1, 32).unsqueeze(1)
loader = DataLoader(TensorDataset(x, 3 * x + 2), batch_size=8, shuffle=True)
trainer = Trainer(
    max_epochs=3,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    log_every_n_steps=2,
    default_root_dir=sys.argv[1],
    callbacks=[ProgressCallback(), Patience()],
)
trainer.fit(Line(), loader, loader)
