"""A name that does not exist."""

import pytest

from trainwright.cli.finding import build_hint, find_near_names


def jobs(**namespaces):
    return [
        {"metadata": {"name": name, "namespace": namespace}}
        for namespace, names in namespaces.items()
        for name in names
    ]


CASES = {
    "a slip": (jobs(default=["digits", "other"]), "did you mean digits?"),
    "random letters left out": (
        jobs(default=["digit-x7k2p", "digit-abcde"]),
        "did you mean digit-x7k2p or digit-abcde?",
    ),
    "elsewhere": (jobs(default=["a"], team=["digit"]), "there is one in namespace 'team': add `-n team`"),
    "nothing here": (jobs(team=["digits"]), "there are no TrainJobs in namespace 'default'"),
    "nothing like it": (jobs(default=["zzz"]), "see `trainwright list`"),
}


@pytest.mark.parametrize(("known", "hint"), CASES.values(), ids=CASES)
def test_the_hint_names_what_was_probably_meant(known, hint):
    assert build_hint("default", "digit", known) == hint


def test_at_most_three_names_are_offered():
    assert len(find_near_names("train", [f"train-{number}" for number in range(9)])) == 3


def test_names_that_share_an_ending_are_not_offered_beside_one_that_is_nearly_the_same():
    known = ["jax-distributed", "mpi-distributed", "torch-distributed", "torch-distributed-2"]
    assert find_near_names("torch-distribute", known) == ["torch-distributed", "torch-distributed-2"]
    assert find_near_names("torch", known[:2]) == []
    assert find_near_names("tax-distribution", known[:2]) == ["jax-distributed", "mpi-distributed"]
