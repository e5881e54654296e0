"""TrainJob + runtime -> the objects to apply. Pure, and deterministic to the byte."""

from trainwright.render.errors import AuthorityUnknown, RenderError
from trainwright.render.objects import render, render_authority, render_job_set
from trainwright.render.progress import ProgressServer
from trainwright.render.template_hash import build_template_hash, may_keep

__all__ = [
    "AuthorityUnknown",
    "ProgressServer",
    "RenderError",
    "build_template_hash",
    "may_keep",
    "render",
    "render_authority",
    "render_job_set",
]
