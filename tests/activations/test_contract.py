"""What every registered activation must do. A new one is tested by being registered."""

import pickle

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, stack_module_state

from arelu_meta import activations

ENTRIES = {entry.name: entry for entry in activations.entries()}
every_activation = pytest.mark.parametrize("name", activations.names())


def points(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Distinct numbers of both signs, at least 0.02 from the kinks at 0, 0.5 (APL) and 6 (ReLU6) and from each other.

    Up to 60 numbers: a grid of step 0.05 on [-1.48, -0.03] and [0.07, 1.52], shuffled; 0.47 and 0.52 are the nearest
    to 0.5, 0.03 to the left and 0.02 to the right of it.
    """
    grid = torch.cat([-0.03 - 0.05 * torch.arange(30), 0.07 + 0.05 * torch.arange(30)]).double()
    count = int(torch.tensor(shape).prod())
    order = torch.randperm(60, generator=torch.Generator().manual_seed(0))[:count]
    return grid[order].reshape(shape).to(dtype)


def made(name: str, *, dtype: torch.dtype = torch.float64) -> nn.Module:
    """The activation for four channels in evaluation mode, where RReLU is a function of its input."""
    channels = {"channels": 4} if ENTRIES[name].per_channel else {}
    return activations.build(name, **channels).to(dtype).eval()


def moved(module: nn.Module) -> nn.Module:
    """Move the parameters away from their start a little, to tell a copied state from a fresh one."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.linspace(0.01, 0.05, parameter.numel()).to(parameter).reshape(parameter.shape))
    return module


def output_shape(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Maxout gives one channel for two, all others keep the shape."""
    return (shape[0], shape[1] // 2, *shape[2:]) if name == "maxout" else shape


def as_function(module: nn.Module):
    """The module as a function of the input and all parameters."""
    names = [name for name, _ in module.named_parameters()]

    def function(x: Tensor, *parameters: Tensor) -> Tensor:
        torch.manual_seed(0)  # the slopes of RReLU in training mode, the same at every call
        return functional_call(module, dict(zip(names, parameters, strict=True)), (x,))

    return function


def leaves(module: nn.Module, *shape: int) -> tuple[Tensor, ...]:
    """Input and parameters as gradient leaves."""
    return tuple(t.detach().clone().requires_grad_() for t in (points(*shape), *module.parameters()))


@every_activation
def test_shape_and_type(name: str):
    for shape in ((3, 4), (2, 4, 3), (1, 4, 3, 2)):
        out = made(name, dtype=torch.float32)(points(*shape, dtype=torch.float32))
        assert out.shape == output_shape(name, shape)
        assert out.dtype == torch.float32
        assert made(name)(points(*shape)).dtype == torch.float64


@every_activation
def test_gradients_equal_finite_differences(name: str):
    module = made(name)
    assert torch.autograd.gradcheck(as_function(module), leaves(module, 3, 4))


@every_activation
def test_second_gradients_equal_finite_differences(name: str):
    module = made(name)
    assert torch.autograd.gradgradcheck(as_function(module), leaves(module, 3, 4))


def test_gradients_of_rrelu_in_training_mode():
    module = made("rrelu").train()
    function, inputs = as_function(module), leaves(module, 3, 4)
    assert torch.autograd.gradcheck(function, inputs)
    assert torch.autograd.gradgradcheck(function, inputs)


@every_activation
def test_grad_of_grad(name: str):
    """The second derivative by `torch.func` is the central difference of the first; both are element by element."""
    module, x, step = made(name), points(3, 4), 1e-4

    def slope(x: Tensor) -> Tensor:
        return grad(lambda x: module(x).sum())(x)

    second = grad(lambda x: slope(x).sum())(x)
    assert torch.allclose(second, (slope(x + step) - slope(x - step)) / (2 * step), atol=1e-6)


@every_activation
def test_vmap_with_parameters_per_task_equals_a_loop(name: str):
    tasks = [made(name), moved(made(name)), moved(moved(made(name)))]
    parameters, buffers = stack_module_state(tasks)
    x = points(3, 2, 4)
    together = torch.vmap(lambda state, x: functional_call(tasks[0], state, (x,)))(({**parameters, **buffers}), x)
    alone = torch.stack([task(x[number]) for number, task in enumerate(tasks)])
    assert torch.allclose(together, alone, rtol=1e-12, atol=1e-14)
    if parameters:
        assert not torch.allclose(tasks[0](x[1]), tasks[1](x[1]))


@every_activation
def test_gradients_under_vmap_equal_a_loop(name: str):
    tasks = [made(name), moved(made(name))]
    state = {**stack_module_state(tasks)[0], "x": points(2, 3, 4)}
    buffers = dict(tasks[0].named_buffers())

    def loss(state: dict[str, Tensor]) -> Tensor:
        parameters = {key: value for key, value in state.items() if key != "x"}
        return functional_call(tasks[0], {**parameters, **buffers}, (state["x"],)).square().sum()

    together = torch.vmap(grad(loss))(state)
    for number in range(2):
        alone = grad(loss)({key: value[number] for key, value in state.items()})
        for key, gradient in alone.items():
            assert torch.allclose(together[key][number], gradient, rtol=1e-10)


@every_activation
def test_compiled_without_graph_breaks(name: str):
    torch._dynamo.reset()
    module = made(name)
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    x, again = (points(3, 4).requires_grad_() for _ in range(2))
    out, expected = compiled(x), module(again)
    assert torch.allclose(out, expected, rtol=1e-12, atol=1e-14)
    inputs = list(module.parameters())
    gradients = torch.autograd.grad(out.square().sum(), [x, *inputs])
    for gradient, wanted in zip(gradients, torch.autograd.grad(expected.square().sum(), [again, *inputs]), strict=True):
        assert torch.allclose(gradient, wanted, rtol=1e-10)


@every_activation
def test_bfloat16_autocast(name: str):
    """Behind a linear layer under autocast the map is bfloat16, stays it, and is right to bfloat16's 8 bits."""
    module, linear = made(name, dtype=torch.float32), nn.Linear(4, 4)
    x = points(5, 4, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        before = linear(x)
        out = module(before)
    assert before.dtype == torch.bfloat16
    assert out.dtype == torch.bfloat16
    assert out.isfinite().all()
    assert torch.allclose(out.float(), module(before.float()), rtol=2**-5, atol=2**-6)


@every_activation
def test_bfloat16_gradients_under_autocast_are_finite(name: str):
    module = made(name, dtype=torch.float32)
    x = points(5, 4, dtype=torch.float32).bfloat16().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = module(x).float().square().mean()
    loss.backward()
    assert x.grad.dtype == torch.bfloat16
    for tensor in (x, *module.parameters()):
        assert tensor.grad.isfinite().all()


@every_activation
def test_state_dict_round_trip(name: str):
    changed, fresh, x = moved(made(name)), made(name), points(3, 4)
    if ENTRIES[name].parameters:
        assert not torch.equal(changed(x), fresh(x))
    fresh.load_state_dict(changed.state_dict())
    assert torch.equal(changed(x), fresh(x))


@every_activation
def test_pickle_round_trip(name: str):
    changed, x = moved(made(name)), points(3, 4)
    copy = pickle.loads(pickle.dumps(changed))
    assert torch.equal(changed(x), copy(x))
    assert copy.activation_name == name


@every_activation
@pytest.mark.parametrize("shape", [(0, 4), (0, 4, 3, 3), (2, 4, 0, 3)])
def test_empty_input(name: str, shape: tuple[int, ...]):
    module = made(name)
    x = torch.empty(shape, dtype=torch.float64, requires_grad=True)
    out = module(x)
    assert out.shape == output_shape(name, shape)
    torch.autograd.grad(out.sum(), [x, *module.parameters()])


@every_activation
def test_non_contiguous_input(name: str):
    module, x = made(name), points(1, 4, 3, 5)
    every_second = points(3, 8)[:, ::2]
    for view in (x.transpose(2, 3), x.contiguous(memory_format=torch.channels_last), every_second):
        assert not view.is_contiguous()
        # The exponential of torch's vectorised path differs in the last bit from that of the strided one.
        assert torch.allclose(module(view), module(view.contiguous()), rtol=1e-14, atol=1e-15)


@every_activation
def test_input_is_left_alone(name: str):
    x = points(3, 4)
    made(name)(x)
    assert torch.equal(x, points(3, 4))


@every_activation
def test_nan_passes_through(name: str):
    """NaN at element (1, 0) comes out at (1, 0), of Maxout too, whose first output is made of channels 0 and 1.

    Those that look at the whole image before they answer give NaN for all of image 1.
    """
    x = points(3, 4)
    x[1, 0] = torch.nan
    out = made(name)(x)
    whole = name in ("meta_acon", "dynamic_relu")
    assert out.isnan().nonzero().tolist() == [[1, column] for column in range(4 if whole else 1)]


@every_activation
def test_meta_device(name: str):
    with torch.device("meta"):
        built_there = activations.build(name)
    for module in (built_there, activations.build(name).to("meta")):
        assert all(tensor.is_meta for tensor in (*module.parameters(), *module.buffers()))
        out = module(torch.empty(3, 4, device="meta"))
        assert out.is_meta
        assert out.shape == output_shape(name, (3, 4))


@every_activation
def test_documented_parameter_count(name: str):
    assert sum(parameter.numel() for parameter in activations.build(name).parameters()) == ENTRIES[name].parameters


@every_activation
def test_modules_of_a_factory_share_nothing(name: str):
    factory = activations.factory(name)
    first, second = factory(), factory()
    assert not {id(tensor) for tensor in first.parameters()} & {id(tensor) for tensor in second.parameters()}


@every_activation
def test_export(name: str):
    """The tracked model is an exported graph, for any batch size."""
    module, x = made(name), points(3, 4)
    batch = torch.export.Dim("batch", min=2)
    exported = torch.export.export(module, (x,), dynamic_shapes=({0: batch},)).module()
    assert torch.equal(exported(points(5, 4)), module(points(5, 4)))


class Wrapped(nn.Module):
    """A network of others, which a tracer enters."""

    def __init__(self, activation: nn.Module) -> None:
        super().__init__()
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(x) * 2


@every_activation
def test_torch_fx_traces_it_with_its_own_tracer(name: str):
    """As torchvision's `create_feature_extractor` does; values and gradients are those of the layer."""
    module = moved(made(name))
    traced = torch.fx.symbolic_trace(Wrapped(module))
    x, again = (points(3, 4).requires_grad_() for _ in range(2))
    out, expected = traced(x), module(again) * 2
    assert torch.equal(out, expected)
    inputs = list(module.parameters())
    gradients = torch.autograd.grad(out.square().sum(), [x, *traced.parameters()])
    for gradient, wanted in zip(gradients, torch.autograd.grad(expected.square().sum(), [again, *inputs]), strict=True):
        assert torch.equal(gradient, wanted)
    assert torch.equal(pickle.loads(pickle.dumps(traced))(x), out)


@every_activation
@pytest.mark.filterwarnings("ignore:.torch.jit.:FutureWarning")
def test_torchscript_compiles_it(name: str):
    module = moved(made(name))
    scripted = torch.jit.script(Wrapped(module))
    for x in (points(3, 4), points(1, 4, 5, 3)):
        assert torch.allclose(scripted(x), module(x) * 2, rtol=1e-14, atol=0)
    x = points(3, 4).requires_grad_()
    gradients = torch.autograd.grad(scripted(x).sum(), [x, *scripted.parameters()])
    wanted = torch.autograd.grad((module(x) * 2).sum(), [x, *module.parameters()])
    assert all(torch.allclose(*pair, rtol=1e-12) for pair in zip(gradients, wanted, strict=True))


@every_activation
@pytest.mark.filterwarnings("ignore:.torch.jit.:FutureWarning", "ignore::torch.jit.TracerWarning")
def test_what_torchscript_traced_is_differentiated(name: str):
    """On a feature map that is large enough to be worked on block by block, where it is eager."""
    module = made(name)
    random = torch.Generator().manual_seed(0)
    x, other = (torch.randn(16, 4, 32, 32, generator=random, dtype=torch.float64) for _ in range(2))
    traced = torch.jit.trace(module, (x,))
    other.requires_grad_()
    out, expected = traced(other), module(other)
    assert torch.allclose(out, expected, rtol=1e-14, atol=0)
    gradients = torch.autograd.grad(out.square().sum(), [other, *traced.parameters()])
    wanted = torch.autograd.grad(expected.square().sum(), [other, *module.parameters()])
    assert all(torch.allclose(*pair, rtol=1e-9) for pair in zip(gradients, wanted, strict=True))
