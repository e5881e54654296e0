"""Progress of a Hugging Face `Trainer`.

    from trainwright.progress.huggingface import ProgressCallback

    trainer = Trainer(..., callbacks=[ProgressCallback()])

Reports the step of `max_steps`, the epoch, and the numbers that the trainer logs, evaluations included. Newer
versions of transformers bring a callback of their own that speaks the same protocol, and a Trainer adds it by
itself inside a TrainJob. The two get along; `DISABLE_KUBEFLOW_INTEGRATION=TRUE` in the environment turns
that one off.
"""

from __future__ import annotations

try:
    from transformers import TrainerCallback
except ImportError as error:
    raise ImportError(
        "trainwright.progress.huggingface needs transformers: pip install transformers"
    ) from error

from trainwright.progress import flush, report

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from transformers import TrainerControl, TrainerState, TrainingArguments

__all__ = ["ProgressCallback"]


class ProgressCallback(TrainerCallback):  # type: ignore[misc]
    """Reports from the first process of all; the others stay silent."""

    def on_train_begin(
        self, _args: TrainingArguments, state: TrainerState, _control: TrainerControl, **_: Any
    ) -> None:
        """Report where the training starts: not at 0 when it goes on from a checkpoint."""
        _report(state)

    def on_step_end(
        self, _args: TrainingArguments, state: TrainerState, _control: TrainerControl, **_: Any
    ) -> None:
        """Report the step."""
        _report(state)

    def on_log(
        self,
        _args: TrainingArguments,
        state: TrainerState,
        _control: TrainerControl,
        logs: Mapping[str, object] | None = None,
        **_: Any,
    ) -> None:
        """Report what was logged: losses, learning rate, results of an evaluation, run times at the end."""
        # The epoch is in the logs as well, rounded; `state` has it exactly.
        _report(state, {name: value for name, value in (logs or {}).items() if name != "epoch"})

    def on_train_end(
        self, _args: TrainingArguments, state: TrainerState, _control: TrainerControl, **_: Any
    ) -> None:
        """Report the end at once: what follows, such as an upload, may take long."""
        _report(state)
        flush()


def _report(state: TrainerState, metrics: Mapping[str, object] | None = None) -> None:
    if state.is_world_process_zero:
        report(step=state.global_step, total=state.max_steps, epoch=state.epoch, metrics=metrics)
