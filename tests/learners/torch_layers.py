"""Every module of `torch.nn` inside a small network that maps (N, 1, 4, 4) images to logits.

A linear layer stands before each, so that second derivatives with respect to its input count, and one behind it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from tests.learners.small_problems import WAYS

Call = Callable[[nn.Module, Tensor], Any]
ROW, MAP1, MAP2, MAP3 = (8,), (4, 6), (4, 4, 4), (2, 4, 4, 4)


@dataclass(frozen=True)
class Case:
    """How a module is made, what shape one input has, and how it is called where not by that input alone."""

    make: Callable[[], nn.Module]
    shape: tuple[int, ...]
    call: Call = lambda layer, x: layer(x)


class Probe(nn.Module):
    """Images, a linear layer, the module in question, a linear layer, logits."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.shape, self.call = case.shape, case.call
        self.before = nn.Linear(16, torch.Size(case.shape).numel())
        self.layer = case.make()
        with torch.no_grad():
            width = self._inside(torch.zeros(2, 1, 4, 4).normal_()).shape[1]
        self.behind = nn.Linear(width, WAYS)

    def _inside(self, x: Tensor) -> Tensor:
        hidden = self.before(x.flatten(1)).unflatten(1, self.shape)
        out = self.call(self.layer, hidden)
        out = out[0] if isinstance(out, tuple) else out
        return out.expand(len(x), 1) if out.dim() == 0 else out.flatten(1)

    def forward(self, x: Tensor) -> Tensor:
        return self.behind(self._inside(x))


def _constant(x: Tensor, low: float = 0.0, high: float = 1.0) -> Tensor:
    """Numbers from low to high in the shape of x."""
    return torch.linspace(low, high, x[0].numel(), dtype=x.dtype).view(x.shape[1:]).expand(x.shape)


def _loss(kind: type[nn.Module], target: Callable[[Tensor], Tensor], **options: Any) -> Case:
    return Case(lambda: kind(**options), ROW, lambda layer, x: layer(x, target(x)))


def _classes(x: Tensor) -> Tensor:
    return torch.arange(len(x)) % x.shape[1]


def _same(kind: type[nn.Module], shape: tuple[int, ...], *args: Any, **options: Any) -> Case:
    return Case(lambda: kind(*args, **options), shape)


def _attend(layer: nn.Module, x: Tensor) -> Any:
    return layer(x, x, x)


def _unpool(layer: nn.Module, x: Tensor) -> Any:
    pool = getattr(nn.functional, f"max_pool{x.dim() - 2}d")
    return layer(*pool(x, 2, return_indices=True))


def _ctc(layer: nn.Module, x: Tensor) -> Tensor:
    count = torch.full((len(x),), 2, dtype=torch.long)
    return layer(x.log_softmax(-1).transpose(0, 1), torch.ones(len(x), 2, dtype=torch.long), 2 * count, count)


def _softmax_loss(layer: nn.Module, x: Tensor) -> Tensor:
    return layer(x, 7 - _classes(x)).loss  # some of them in the tail


POINTWISE = (
    nn.CELU, nn.ELU, nn.GELU, nn.Hardshrink, nn.Hardsigmoid, nn.Hardswish, nn.Hardtanh, nn.LeakyReLU, nn.LogSigmoid,
    nn.Mish, nn.PReLU, nn.RReLU, nn.ReLU, nn.ReLU6, nn.SELU, nn.SiLU, nn.Sigmoid, nn.Softplus, nn.Softshrink,
    nn.Softsign, nn.Tanh, nn.Tanhshrink, nn.Identity, nn.Flatten, nn.AlphaDropout, nn.Dropout,
)  # fmt: skip
CASES: dict[str, Case] = {kind.__name__: _same(kind, ROW) for kind in POINTWISE}
for _axes, _map in ((1, MAP1), (2, MAP2), (3, MAP3)):
    _name = lambda word, axes=_axes: getattr(nn, f"{word}{axes}d")  # noqa: E731
    for _word in ("AdaptiveAvgPool", "AdaptiveMaxPool", "AvgPool", "MaxPool"):
        CASES[f"{_word}{_axes}d"] = _same(_name(_word), _map, 2)
    for _word in ("CircularPad", "ReflectionPad", "ReplicationPad", "ZeroPad"):
        CASES[f"{_word}{_axes}d"] = _same(_name(_word), _map, 1)
    CASES |= {
        f"BatchNorm{_axes}d": _same(_name("BatchNorm"), _map, _map[0]),
        f"InstanceNorm{_axes}d": _same(_name("InstanceNorm"), _map, _map[0], affine=True),
        f"Conv{_axes}d": _same(_name("Conv"), _map, _map[0], 3, 2),
        f"ConvTranspose{_axes}d": _same(_name("ConvTranspose"), _map, _map[0], 3, 2),
        f"ConstantPad{_axes}d": _same(_name("ConstantPad"), _map, 1, 0.5),
        f"Dropout{_axes}d": _same(_name("Dropout"), _map),
        f"LPPool{_axes}d": _same(_name("LPPool"), _map, 2, 2),
        f"MaxUnpool{_axes}d": Case(partial(_name("MaxUnpool"), 2), _map, _unpool),
        f"LazyBatchNorm{_axes}d": _same(_name("LazyBatchNorm"), _map),
        f"LazyInstanceNorm{_axes}d": _same(_name("LazyInstanceNorm"), _map),
        f"LazyConv{_axes}d": _same(_name("LazyConv"), _map, 3, 2),
        f"LazyConvTranspose{_axes}d": _same(_name("LazyConvTranspose"), _map, 3, 2),
    }
CASES |= {
    "ChannelShuffle": _same(nn.ChannelShuffle, MAP2, 2),
    "CrossMapLRN2d": _same(nn.CrossMapLRN2d, MAP2, 3),
    "FeatureAlphaDropout": _same(nn.FeatureAlphaDropout, MAP2),
    "FractionalMaxPool2d": _same(nn.FractionalMaxPool2d, MAP2, 2, output_size=2),
    "FractionalMaxPool3d": _same(nn.FractionalMaxPool3d, MAP3, 2, output_size=2),
    "GLU": _same(nn.GLU, ROW),
    "GroupNorm": _same(nn.GroupNorm, MAP2, 2, 4),
    "LayerNorm": _same(nn.LayerNorm, MAP1, 6),
    "LinearCrossEntropyLoss": Case(lambda: nn.LinearCrossEntropyLoss(8, 5), ROW, lambda m, x: m(x, _classes(x) % 5)),
    "LocalResponseNorm": _same(nn.LocalResponseNorm, MAP2, 3),
    "LogSoftmax": _same(nn.LogSoftmax, ROW, 1),
    "RMSNorm": _same(nn.RMSNorm, MAP1, 6),
    "Softmax": _same(nn.Softmax, ROW, 1),
    "Softmax2d": _same(nn.Softmax2d, MAP2),
    "Softmin": _same(nn.Softmin, ROW, 1),
    "SyncBatchNorm": _same(nn.SyncBatchNorm, MAP2, 4),
    "Threshold": _same(nn.Threshold, ROW, 0.1, 0.2),
    "Linear": _same(nn.Linear, ROW, 8, 5),
    "LazyLinear": _same(nn.LazyLinear, ROW, 5),
    "Bilinear": Case(lambda: nn.Bilinear(8, 8, 5), ROW, lambda layer, x: layer(x, x.tanh())),
    "Embedding": Case(lambda: nn.Embedding(4, 5), ROW, lambda layer, x: layer((x > 0).long()).mean(1) * x[:, :5]),
    "EmbeddingBag": Case(lambda: nn.EmbeddingBag(4, 5), ROW, lambda layer, x: layer((x > 0).long()) * x[:, :5]),
    "CosineSimilarity": Case(nn.CosineSimilarity, MAP1, lambda layer, x: layer(x, _constant(x))),
    "PairwiseDistance": Case(nn.PairwiseDistance, MAP1, lambda layer, x: layer(x, _constant(x))),
    "Fold": _same(nn.Fold, (8, 9), (4, 4), 2),
    "Unfold": _same(nn.Unfold, MAP2, 2),
    "Unflatten": _same(nn.Unflatten, ROW, 1, (2, 4)),
    "PixelShuffle": _same(nn.PixelShuffle, MAP2, 2),
    "PixelUnshuffle": _same(nn.PixelUnshuffle, MAP2, 2),
    "Upsample": _same(nn.Upsample, MAP2, scale_factor=2, mode="bicubic"),
    "UpsamplingBilinear2d": _same(nn.UpsamplingBilinear2d, MAP2, scale_factor=2),
    "UpsamplingNearest2d": _same(nn.UpsamplingNearest2d, MAP2, scale_factor=2),
    "RNN": _same(nn.RNN, MAP1, 6, 3, batch_first=True),
    "LSTM": _same(nn.LSTM, MAP1, 6, 3, batch_first=True),
    "GRU": _same(nn.GRU, MAP1, 6, 3, batch_first=True),
    "RNNCell": _same(nn.RNNCell, ROW, 8, 3),
    "LSTMCell": _same(nn.LSTMCell, ROW, 8, 3),
    "GRUCell": _same(nn.GRUCell, ROW, 8, 3),
    "MultiheadAttention": Case(lambda: nn.MultiheadAttention(6, 2, batch_first=True), MAP1, _attend),
    "TransformerEncoderLayer": _same(nn.TransformerEncoderLayer, MAP1, 6, 2, 8, dropout=0.0, batch_first=True),
    "TransformerDecoderLayer": Case(
        lambda: nn.TransformerDecoderLayer(6, 2, 8, dropout=0.0, batch_first=True), MAP1, lambda m, x: m(x, x.tanh())
    ),
    "TransformerEncoder": Case(
        lambda: nn.TransformerEncoder(
            nn.TransformerEncoderLayer(6, 2, 8, dropout=0.0, batch_first=True), 2, enable_nested_tensor=False
        ),
        MAP1,
    ),
    "TransformerDecoder": Case(
        lambda: nn.TransformerDecoder(nn.TransformerDecoderLayer(6, 2, 8, dropout=0.0, batch_first=True), 2),
        MAP1,
        lambda layer, x: layer(x, x.tanh()),
    ),
    "Transformer": Case(
        lambda: nn.Transformer(6, 2, 1, 1, 8, dropout=0.0, batch_first=True), MAP1, lambda m, x: m(x, x.tanh())
    ),
    "Sequential": _same(nn.Sequential, ROW, nn.Tanh()),
    "ModuleList": Case(lambda: nn.ModuleList([nn.Tanh()]), ROW, lambda layer, x: layer[0](x)),
    "ModuleDict": Case(lambda: nn.ModuleDict({"one": nn.Tanh()}), ROW, lambda layer, x: layer["one"](x)),
    "ParameterList": Case(lambda: nn.ParameterList([torch.ones(8)]), ROW, lambda layer, x: x.tanh() * layer[0]),
    "ParameterDict": Case(
        lambda: nn.ParameterDict({"one": torch.ones(8)}), ROW, lambda layer, x: x.tanh() * layer["one"]
    ),
    "DataParallel": _same(nn.DataParallel, ROW, nn.Tanh()),
    # Losses, as a layer of the network: a number that depends on the input.
    "AdaptiveLogSoftmaxWithLoss": Case(lambda: nn.AdaptiveLogSoftmaxWithLoss(8, 8, [4]), ROW, _softmax_loss),
    "BCELoss": Case(nn.BCELoss, ROW, lambda layer, x: layer(x.sigmoid(), _constant(x))),
    "BCEWithLogitsLoss": _loss(nn.BCEWithLogitsLoss, _constant),
    "CTCLoss": Case(nn.CTCLoss, MAP1, _ctc),
    "CosineEmbeddingLoss": Case(
        nn.CosineEmbeddingLoss, ROW, lambda m, x: m(x, _constant(x), torch.ones(len(x), dtype=x.dtype))
    ),
    "CrossEntropyLoss": _loss(nn.CrossEntropyLoss, _classes),
    "GaussianNLLLoss": Case(nn.GaussianNLLLoss, ROW, lambda layer, x: layer(x, _constant(x), x.exp())),
    "HingeEmbeddingLoss": _loss(nn.HingeEmbeddingLoss, lambda x: torch.ones_like(x)),
    "HuberLoss": _loss(nn.HuberLoss, _constant),
    "KLDivLoss": Case(
        lambda: nn.KLDivLoss(reduction="batchmean"), ROW, lambda m, x: m(x.log_softmax(1), _constant(x).softmax(1))
    ),
    "L1Loss": _loss(nn.L1Loss, _constant),
    "MSELoss": _loss(nn.MSELoss, _constant),
    "MarginRankingLoss": Case(nn.MarginRankingLoss, ROW, lambda m, x: m(x, _constant(x), torch.ones_like(x))),
    "MultiLabelMarginLoss": _loss(nn.MultiLabelMarginLoss, lambda x: torch.tensor([[0, -1] + [0] * 6] * len(x))),
    "MultiLabelSoftMarginLoss": _loss(nn.MultiLabelSoftMarginLoss, _constant),
    "MultiMarginLoss": _loss(nn.MultiMarginLoss, _classes),
    "NLLLoss": Case(nn.NLLLoss, ROW, lambda layer, x: layer(x.log_softmax(1), _classes(x))),
    "NLLLoss2d": Case(
        lambda: nn.NLLLoss(), MAP2, lambda m, x: m(x.log_softmax(1), torch.zeros(len(x), 4, 4, dtype=torch.long))
    ),
    "PoissonNLLLoss": _loss(nn.PoissonNLLLoss, _constant),
    "SmoothL1Loss": _loss(nn.SmoothL1Loss, _constant),
    "SoftMarginLoss": _loss(nn.SoftMarginLoss, lambda x: torch.ones_like(x)),
    "TripletMarginLoss": Case(nn.TripletMarginLoss, ROW, lambda layer, x: layer(x, x.tanh(), _constant(x))),
    "TripletMarginWithDistanceLoss": Case(
        nn.TripletMarginWithDistanceLoss, ROW, lambda layer, x: layer(x, x.tanh(), _constant(x))
    ),
}
NO_LAYERS = ("Module", "Container", "RNNBase", "RNNCellBase")  # bases of others, without a forward pass


def names() -> list[str]:
    """Every module of `torch.nn` by name."""
    return [name for name, kind in vars(nn).items() if isinstance(kind, type) and issubclass(kind, nn.Module)]


def probe(name: str) -> Probe:
    """The network around a module, in float64, with weights that are drawn anew from one seed."""
    torch.manual_seed(0)
    network = Probe(CASES[name]).double()
    with torch.no_grad():
        for parameter in network.layer.parameters():  # ones and zeros would hide wrong gradients
            parameter.add_(0.3 * torch.randn_like(parameter))
    return network
