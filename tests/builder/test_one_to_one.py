"""No naming loses a tensor: what goes into a plan comes out of it, or the plan is refused."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings, strategies as st

from repokit.builder.naming import check_one_to_one, renamed, repaired
from repokit.errors import PlanError
from repokit.formats.safetensors import read_header

PARTS = ("module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_forward_module", "model")
NAMES = st.lists(st.sampled_from((*PARTS, "layers", "0", "1", "lm_head", "weight", "")), min_size=1, max_size=6).map(
    ".".join
)
SETS = st.lists(NAMES, min_size=1, max_size=8, unique=True)


def is_refused(names):
    try:
        check_one_to_one(names)
    except PlanError:
        return True
    return False


def collides(names):
    finals = list(names.values())
    return len(set(finals)) < len(finals) or "" in finals


@settings(deadline=None)
@given(SETS, st.booleans())
def test_two_tensors_never_get_one_name_from_a_repair(stored, in_module):
    names = repaired(stored, in_module=in_module)
    assert list(names) == stored
    assert is_refused(names) == collides(names)


@settings(deadline=None)
@given(
    SETS,
    st.lists(
        st.tuples(
            st.sampled_from((r"\d+", "module", r"^model\.", r"\.weight$", "")),
            st.sampled_from(("", "x", "0", "module")),
        )
    ),
)
def test_nor_from_rules(stored, rules):
    try:
        names = renamed({name: name for name in stored}, rules)
    except PlanError:
        return  # a rule that changes nothing
    assert list(names) == stored
    assert is_refused(names) == collides(names)


OUTSIDE = st.lists(st.sampled_from(("module", "_orig_mod", "_forward_module", "_fsdp_wrapped_module")), max_size=6)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(outside=OUTSIDE, inside=st.lists(st.sampled_from(("_orig_mod", "_checkpoint_wrapped_module")), max_size=3))
def test_a_plan_undoes_any_nesting(workshop, outside, inside):
    model = workshop.model()

    def wrapped(name):
        first, *rest = name.split(".")
        return ".".join([*outside, first, *inside, *rest])

    workshop.checkpoint({wrapped(name): found for name, found in model.items()})
    (shard,) = (operation for operation in workshop.plan().operations if operation.op == "write-shard")
    header = read_header(lambda offset, length: shard.header[offset : offset + length], shard.size, shard.path)
    assert {found.name for found in header.tensors} == set(model)
