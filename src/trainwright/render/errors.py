"""Why a TrainJob cannot be rendered."""

from __future__ import annotations

from trainwright.errors import InvalidObject


class RenderError(InvalidObject):
    """The TrainJob and its runtime give no objects to apply.

    Carries every field error of one of the two; `source` names which one it is.
    """
