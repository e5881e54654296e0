"""Objects as text."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from trainwright.cli.printing import build_list, format_documents, format_json, format_name

JOB = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainJob",
    "metadata": {"name": "digits"},
    "spec": {"trainer": {"args": ["1e3", "yes", "007", "0o7", "1.", "null", "a: b"], "env": []}},
}


def test_json_is_indented_and_ends_its_line():
    assert format_json({"a": [1]}) == '{\n  "a": [\n    1\n  ]\n}\n'


def test_documents_are_separated():
    assert format_documents([{"a": 1}, {"b": 2}]) == "a: 1\n---\nb: 2\n"


def test_a_name_tells_group_and_kind():
    assert format_name(JOB) == "trainjob.trainer.kubeflow.org/digits"
    assert format_name({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}) == "configmap/c"


def test_a_list_is_an_object():
    assert build_list([JOB]) == {"apiVersion": "v1", "kind": "List", "items": [JOB]}


# Printable text and line ends: what a Kubernetes object may hold; NUL and lone surrogates never get this far.
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]) | st.just("\n")),
    lambda children: (
        st.lists(children, max_size=3)
        | st.dictionaries(
            st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"])), children, max_size=3
        )
    ),
    max_leaves=8,
)


@given(VALUES)
def test_json_reads_back_as_it_was(value):
    assert msgspec.json.decode(format_json(value)) == value
