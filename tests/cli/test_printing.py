"""Objects as text."""

import msgspec
import yaml
from hypothesis import given
from hypothesis import strategies as st

from trainwright.cli.printing import build_list, format_documents, format_json, format_name, format_yaml

JOB = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainJob",
    "metadata": {"name": "digits"},
    "spec": {"trainer": {"args": ["1e3", "yes", "007", "0o7", "1.", "null", "a: b"], "env": []}},
}


def test_yaml_keeps_order_and_quotes_what_any_reader_might_take_for_something_else():
    assert format_yaml(JOB) == (
        "apiVersion: trainer.kubeflow.org/v1alpha1\n"
        "kind: TrainJob\n"
        "metadata:\n"
        "  name: digits\n"
        "spec:\n"
        "  trainer:\n"
        "    args:\n"
        "    - '1e3'\n"
        "    - 'yes'\n"
        "    - '007'\n"
        "    - '0o7'\n"
        "    - '1.'\n"
        "    - 'null'\n"
        "    - 'a: b'\n"
        "    env: []\n"
    )


def test_texts_of_several_lines_are_blocks():
    assert format_yaml({"run": "a\nb\n"}) == "run: |\n  a\n  b\n"


def test_equal_parts_are_written_out_and_not_as_aliases():
    part = ["x"]
    assert format_yaml({"a": part, "b": part}) == "a:\n- x\nb:\n- x\n"


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
def test_yaml_reads_back_as_it_was(value):
    assert yaml.safe_load(format_yaml(value)) == value


@given(VALUES)
def test_json_reads_back_as_it_was(value):
    assert msgspec.json.decode(format_json(value)) == value
