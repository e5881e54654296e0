"""The syntax of Kubernetes names, each with a remedy."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from trainwright.api import names

GOOD: dict[Callable[[str], str | None], list[str]] = {
    names.explain_label: ["a", "1", "a-b", "a" * 63],
    names.explain_strict_label: ["a", "a-1", "a" * 63],
    names.explain_subdomain: ["a", "1.b-c.d", "a" * 253],
    names.explain_domain_path: ["kueue.x-k8s.io/manager", "a/b/c", "example.com/A_b~!$&'()*+,;=:%-."],
    names.explain_config_key: ["a", "train.py", "A_b-c.d", ".hidden"],
    names.explain_label_key: ["a", "app.kubernetes.io/name", "A_b.c-d", "a" * 63, "a.b/" + "c" * 63],
    names.explain_label_value: ["", "a", "A_b.c-d", "1", "a" * 63],
}
BAD: dict[Callable[[str], str | None], list[str]] = {
    names.explain_label: ["", "A", "-a", "a-", "a.b", "a_b", "a" * 64, "a\n", "ä"],
    names.explain_strict_label: ["", "1a", "A", "-a", "a-", "a.b", "a" * 64, "a\n"],
    names.explain_subdomain: ["", "A", "a..b", ".a", "a.", "a.-b", "a" * 254, "a_b"],
    names.explain_domain_path: [
        "",
        "acme",
        "/a",
        "a.b/",
        "Example.com/a",
        "example.com/a b",
        "a_b/c",
        "a.b/\n",
    ],
    names.explain_config_key: ["", "a/b", "a b", "..", ".", "..data", "a" * 254],
    names.explain_label_key: ["", "a b", "/a", "a/", "A.b/c", "-a", "a-", "a" * 64, "a/b/c", "a\n"],
    names.explain_label_value: ["a b", "-a", "a.", "a" * 64, "ä", "a\n"],
}


@pytest.mark.parametrize(("explain", "name"), [(f, n) for f, good in GOOD.items() for n in good])
def test_a_good_name_has_nothing_wrong(explain: Callable[[str], str | None], name: str) -> None:
    assert explain(name) is None


@pytest.mark.parametrize(("explain", "name"), [(f, n) for f, bad in BAD.items() for n in bad])
def test_a_bad_name_is_explained(explain: Callable[[str], str | None], name: str) -> None:
    assert explain(name)


@pytest.mark.parametrize(
    ("name", "better"),
    [("My_Job", "my-job"), ("bert.v2", "bert-v2"), ("2nd-try", "job-2nd-try"), ("a--", "a")],
)
def test_a_name_that_can_be_put_right_is(name: str, better: str) -> None:
    assert f"for example {better}" in str(names.explain_strict_label(name))


def test_a_name_beyond_repair_gets_no_example() -> None:
    assert "for example" not in str(names.explain_strict_label("___"))
