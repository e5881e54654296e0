"""Why a TrainJob cannot be rendered."""

from __future__ import annotations

from trainwright.errors import InvalidObject
from trainwright.field_errors import FieldError, Rule


class RenderError(InvalidObject):
    """The TrainJob and its runtime give no objects to apply.

    Carries every field error of one of the two; `source` names which one it is.
    """


class AuthorityUnknown(RenderError):
    """Nobody knows the certificates by which the job's pods would trust the progress server.

    `secret` is where they are looked for, in words, and `key` under which name.
    """

    def __init__(self, secret: str, key: str) -> None:
        detail = "required by the feature gate TrainJobStatus: pods trust the progress server by it"
        super().__init__([FieldError(path=f"data[{key}]", rule=Rule.REQUIRED, detail=detail)], secret)
