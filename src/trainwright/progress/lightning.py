"""Progress of a PyTorch Lightning `Trainer`.

    from trainwright.progress.lightning import ProgressCallback

    trainer = Trainer(..., callbacks=[ProgressCallback()])

Reports the step of all steps, the epoch, and what the module logs (`self.log`). Works with the package
`lightning` and, where that is not installed, with `pytorch_lightning`.
"""

from __future__ import annotations

try:
    from lightning.pytorch.callbacks import Callback
except ImportError:
    try:
        from pytorch_lightning.callbacks import Callback
    except ImportError as error:
        raise ImportError("trainwright.progress.lightning needs Lightning: pip install lightning") from error

from trainwright.progress import flush, report

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lightning.pytorch import LightningModule, Trainer

__all__ = ["ProgressCallback"]


class ProgressCallback(Callback):  # type: ignore[misc]
    """Reports from the first process of all; the others stay silent."""

    def on_train_start(self, trainer: Trainer, _module: LightningModule) -> None:
        """Report where the training starts: not at 0 when it goes on from a checkpoint."""
        _report(trainer)

    def on_train_batch_end(self, trainer: Trainer, _module: LightningModule, *_: Any) -> None:
        """Report the step; metrics only as often as the trainer logs: reading them waits for a GPU."""
        is_logged = (trainer.global_step % (trainer.log_every_n_steps or 1)) == 0
        _report(trainer, with_metrics=is_logged)

    def on_train_epoch_end(self, trainer: Trainer, _module: LightningModule) -> None:
        """Report the means of the epoch."""
        _report(trainer, with_metrics=True)

    def on_validation_end(self, trainer: Trainer, _module: LightningModule) -> None:
        """Report the results of a validation, but not of the trial run before the training."""
        if not trainer.sanity_checking:
            _report(trainer, with_metrics=True)

    def on_train_end(self, trainer: Trainer, _module: LightningModule) -> None:
        """Report the end at once: what follows, such as a test, may take long."""
        _report(trainer, with_metrics=True)
        flush()


def _report(trainer: Trainer, *, with_metrics: bool = False) -> None:
    if not trainer.is_global_zero:
        return
    total = trainer.estimated_stepping_batches  # infinite for a training without an end
    report(
        step=trainer.global_step,
        total=total if total > 0 else None,
        epoch=trainer.current_epoch,
        metrics=dict(trainer.callback_metrics) if with_metrics else None,
    )
