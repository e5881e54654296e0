"""Which target a command uses."""

from pathlib import Path

import pytest

from trainwright.cli.config import build_config_path, choose_target
from trainwright.cli.target_names import TargetName
from trainwright.errors import UsageError


@pytest.fixture
def write_config(tmp_path):
    def write(text: str) -> dict[str, str]:
        environment = {"XDG_CONFIG_HOME": str(tmp_path)}
        path = build_config_path(environment, Path("/nowhere"))
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return environment

    return write


def test_an_option_wins_over_everything(write_config):
    environment = {**write_config('on = "slurm"'), "TRAINWRIGHT_ON": "podman"}
    assert choose_target(TargetName.LOCAL, environment, Path("/nowhere")) is TargetName.LOCAL


def test_the_environment_wins_over_the_config_file(write_config):
    environment = {**write_config('on = "slurm"'), "TRAINWRIGHT_ON": "podman"}
    assert choose_target(None, environment, Path("/nowhere")) is TargetName.PODMAN


def test_the_config_file_is_used_where_nothing_else_says(write_config):
    assert choose_target(None, write_config('on = "slurm"'), Path("/nowhere")) is TargetName.SLURM


def test_an_empty_variable_counts_as_unset(tmp_path):
    assert choose_target(None, {"TRAINWRIGHT_ON": ""}, tmp_path) is TargetName.LOCAL


def test_without_any_setting_jobs_run_on_this_machine(tmp_path):
    assert choose_target(None, {}, tmp_path) is TargetName.LOCAL


def test_the_config_file_lies_below_the_home_directory_by_default(tmp_path):
    assert build_config_path({}, tmp_path) == tmp_path / ".config/trainwright/config.toml"


MISTAKES = {
    "no TOML": ("on = ", "not valid TOML"),
    "unknown setting": ('target = "local"', "unknown setting 'target'; known: on"),
    "wrong type": ("on = 3", "on must be a string, not 3"),
    "unknown target": (
        'on = "moon"',
        "'moon' is not a target; use one of local, docker, podman, slurm, kubernetes",
    ),
}


@pytest.mark.parametrize(("text", "message"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_in_the_config_file_names_the_file_and_the_remedy(write_config, text, message):
    environment = write_config(text)
    with pytest.raises(UsageError) as caught:
        choose_target(None, environment, Path("/nowhere"))
    assert message in str(caught.value)
    assert "config.toml" in str(caught.value)


def test_a_config_file_that_is_no_text_is_refused(write_config, tmp_path):
    environment = write_config("")
    (tmp_path / "trainwright/config.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="cannot be read"):
        choose_target(None, environment, Path("/nowhere"))


def test_a_wrong_variable_is_named():
    with pytest.raises(UsageError, match="environment variable TRAINWRIGHT_ON: 'moon' is not a target"):
        choose_target(None, {"TRAINWRIGHT_ON": "moon"}, Path("/nowhere"))
