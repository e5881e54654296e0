"""A view image of Flux as the published ones are laid out, with the program that stands for Flux in it."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Final

from frameworks.flux import stand_in
from kube.images import build_debian_image

VIEW_IMAGE: Final = "trainwright.test/flux-view:1"


def build_view_image() -> Path:
    """Return the archive of the image, made where it is not in the cache. Needs a Debian mirror then."""
    return build_debian_image(VIEW_IMAGE, ("python3",), inspect.getsource(stand_in), _add_view)


def _add_view(root: Path) -> None:
    """As Spack makes a view: links into the folder where packages are."""
    package = root / "opt/software/flux-core-0.0/bin"
    stand_in.write_stand_in(package / "flux", "/usr/bin/python3")
    view = root / "opt/views/._view/abc123/bin"
    view.mkdir(parents=True)
    (view / "flux").symlink_to("/opt/software/flux-core-0.0/bin/flux")
