"""The caller's settings: which target the verbs use when `--on` does not say.

Order: `--on`, then the variable TRAINWRIGHT_ON, then `on = "..."` in the config file
(`$XDG_CONFIG_HOME/trainwright/config.toml`, else `~/.config/trainwright/config.toml`), else the local
machine. Source: design section 6.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from trainwright.cli.target_names import TargetName
from trainwright.errors import UsageError

TARGET_VARIABLE = "TRAINWRIGHT_ON"
_KEYS = ("on",)


def choose_target(chosen: TargetName | None, environment: Mapping[str, str], home: Path) -> TargetName:
    """Return the target for this command. Raises UsageError where a setting names no target."""
    if chosen is not None:
        return chosen
    if named := environment.get(TARGET_VARIABLE):
        return _parse_target(named, f"the environment variable {TARGET_VARIABLE}")
    path = build_config_path(environment, home)
    named = _read_config(path).get("on")
    return TargetName.LOCAL if named is None else _parse_target(named, str(path))


def build_config_path(environment: Mapping[str, str], home: Path) -> Path:
    """Return where the config file lies, whether or not it exists."""
    base = environment.get("XDG_CONFIG_HOME")
    return (Path(base) if base else home / ".config") / "trainwright" / "config.toml"


def _read_config(path: Path) -> dict[str, str]:
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: the config file cannot be read: {error}") from error
    import tomllib

    try:
        settings = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: not valid TOML: {error}") from error
    for key, value in settings.items():
        if key not in _KEYS:
            raise UsageError(f"{path}: unknown setting {key!r}; known: {', '.join(_KEYS)}")
        if not isinstance(value, str):
            raise UsageError(f"{path}: {key} must be a string, not {value!r}")
    return settings


def _parse_target(text: str, source: str) -> TargetName:
    try:
        return TargetName(text)
    except ValueError:
        raise UsageError(f"{source}: {text!r} is not a target; use one of {', '.join(TargetName)}") from None
