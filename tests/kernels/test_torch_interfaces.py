"""The interfaces of torch that are not public and that the kernels rely on: each test names what breaks without it."""

import ast
import re
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.autograd import Function
from torch.fx import Graph
from torch.fx.node import map_aggregate

PACKAGE = Path(__file__).parents[2] / "arelu_meta"
PRIVATE = re.compile(r"torch(\.\w+)*\._[A-Za-z]\w*")


def private_uses(path: Path) -> list[str]:
    """Private names of torch that a file imports or reaches from `torch`."""
    uses = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "torch":
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.Attribute):
            names = [ast.unparse(node)]
        else:
            continue
        uses += [name for name in names if PRIVATE.match(name)]
    return sorted(set(uses))


def test_private_interfaces_are_used_in_the_kernels_only():
    uses = {str(path.relative_to(PACKAGE)): private_uses(path) for path in PACKAGE.rglob("*.py")}
    assert {name: found for name, found in uses.items() if found} == {
        "kernels/episode_operations.py": ["torch._weight_norm"],
        "kernels/recorded_step.py": [
            "torch.nn.modules.module._has_any_global_hook",
            "torch.utils._python_dispatch.TorchDispatchMode",
        ],
        "kernels/two_slopes.py": ["torch._C", "torch._C._are_functorch_transforms_active"],
    }


def test_attributes_that_torch_keeps_to_itself_are_used_in_the_kernels_only():
    """Dictionaries of hooks, children and parameters of a module, and what `torch.compile` holds."""
    private = {name for name in vars(nn.Module()) if name.startswith("_")} | {"_orig_mod"}
    uses = []
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "value", None)
            if isinstance(name, str) and name in private and path.parent.name != "kernels":
                uses.append(f"{path.relative_to(PACKAGE)}: {name}")
    assert uses == []


def test_dispatch_modes_see_operations_below_autograd_and_vmap():
    """`kernels/recorded_step.py` records nothing, or the wrong operations, without this."""
    from torch.utils._python_dispatch import TorchDispatchMode

    names = []

    class Seen(TorchDispatchMode):
        def __torch_dispatch__(self, operation, _types, args=(), kwargs=None):
            names.append(str(operation))
            return operation(*args, **(kwargs or {}))

    weight = torch.ones(3, requires_grad=True)
    with Seen():
        torch.autograd.grad(torch.vmap(lambda x: (x * weight).sum())(torch.ones(2, 3)).sum(), weight)
    assert "aten.mul.Tensor" in names  # of the forward and of the backward pass
    assert all(name.startswith("aten.") for name in names)


@pytest.mark.parametrize(
    ("operation", "tag"),
    [
        (torch.ops.aten._local_scalar_dense.default, torch.Tag.data_dependent_output),
        (torch.ops.aten.nonzero.default, torch.Tag.dynamic_output_shape),
        (torch.ops.aten.rand.default, torch.Tag.nondeterministic_seeded),
        (torch.ops.aten.bernoulli_.float, torch.Tag.nondeterministic_seeded),
    ],
    ids=str,
)
def test_operations_carry_the_tags_that_forbid_a_recording(operation, tag):
    """`kernels/recorded_step.py` would replay a decision or a random number as it was first, without this."""
    assert tag in operation.tags


def test_constants_written_in_python_are_lifted():
    """`kernels/recorded_step.py` takes `torch.tensor(...)` inside a step for a tensor from outside, without this."""
    assert torch.ops.aten.lift_fresh.default(torch.ones(1)).tolist() == [1.0]


def test_fx_maps_over_nested_arguments():
    """`kernels/recorded_step.py` leaves tensors in its graph, without this."""
    seen = []
    map_aggregate(((1, [2]), {"a": slice(3, None)}), lambda leaf: seen.append(leaf) or leaf)
    assert seen == [1, 2, 3, None, None]
    assert hasattr(Graph, "call_function")
    assert hasattr(Graph, "get_attr")


def test_global_hooks_are_known():
    """`kernels/recorded_step.py` replays steps that a global hook should see, without this."""
    from torch.nn.modules.module import _has_any_global_hook, register_module_forward_hook

    assert not _has_any_global_hook()
    handle = register_module_forward_hook(lambda *_: None)
    assert _has_any_global_hook()
    handle.remove()
    assert not _has_any_global_hook()


def test_hooks_of_modules_and_parameters_are_known():
    """`kernels/recorded_step.py` replays steps that a hook should see, without these attributes."""
    from arelu_meta.kernels.recorded_step import HOOKS

    layer = nn.Linear(2, 2)
    assert not any(getattr(layer, hooks) for hooks in HOOKS)
    layer.register_forward_hook(lambda *_: None)
    layer.register_forward_pre_hook(lambda *_: None)
    layer.register_full_backward_hook(lambda *_: None)
    layer.register_full_backward_pre_hook(lambda *_: None)
    assert all(getattr(layer, hooks) for hooks in HOOKS)
    weight, bias = layer.parameters()
    assert not weight._backward_hooks
    assert not bias._post_accumulate_grad_hooks
    weight.register_hook(lambda gradient: gradient)
    bias.register_post_accumulate_grad_hook(lambda _: None)
    assert weight._backward_hooks
    assert bias._post_accumulate_grad_hooks


def test_active_transforms_are_known():
    """`kernels/two_slopes.py` reads one slope for all episodes, without this."""
    active = torch._C._are_functorch_transforms_active
    seen = []
    torch.vmap(lambda x: seen.append(active()) or x)(torch.ones(2))
    torch.func.grad(lambda x: seen.append(active()) or x)(torch.ones(()))
    assert (active(), seen) == (False, [True, True])


def test_kernels_of_torch_keep_their_signatures():
    """`kernels/convolution.py`, `pooling.py` and `two_slopes.py` call these by position."""
    wanted = {
        torch.ops.aten.convolution_backward.default: "grad_output input weight bias_sizes stride padding dilation "
        "transposed output_padding groups output_mask",
        torch.ops.aten.max_pool2d_with_indices.default: "self kernel_size stride padding dilation ceil_mode",
        torch.ops.aten.max_pool2d_with_indices_backward.default: "grad_output self kernel_size stride padding dilation "
        "ceil_mode indices",
        torch.ops.aten.leaky_relu.out: "self negative_slope out",
        torch.ops.aten.threshold_backward.grad_input: "grad_output self threshold grad_input",
    }
    for operation, names in wanted.items():
        assert " ".join(argument.name for argument in operation._schema.arguments) == names, operation


def test_autograd_functions_have_rules_for_vmap():
    """All kernels for many episodes rely on `vmap` as a static method of autograd functions."""

    class Double(Function):
        @staticmethod
        def forward(x):
            return 2 * x

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def vmap(info, in_dims, x):
            return Double.apply(x.movedim(in_dims[0], 0)) + info.batch_size, 0

    assert torch.vmap(Double.apply)(torch.ones(3)).tolist() == [5.0, 5.0, 5.0]
