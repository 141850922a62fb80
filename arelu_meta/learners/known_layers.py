"""Layers whose meta-gradient under `vmap` is known to be exact, so that a network made of them needs no check.

`tests/learners/test_known_layers.py` holds every module of `torch.nn` against finite differences: those here, those
that are computed episode by episode, and those that nothing can be meta-learned with. docs/meta_learning.md has the
table.
"""

from torch import nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear  # inside torch's attention

from arelu_meta.kernels.module_internals import has_call_hooks

# With `kernels.episode_operations` in the place of torch's functions, which are wrong under vmap, or have no second
# derivative.
EXACT_BY_KERNELS: frozenset[type[nn.Module]] = frozenset((
    nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.Hardsigmoid, nn.InstanceNorm1d, nn.InstanceNorm2d,
    nn.InstanceNorm3d, nn.LayerNorm, nn.MultiheadAttention, nn.SyncBatchNorm, nn.Transformer, nn.TransformerDecoder,
    nn.TransformerDecoderLayer, nn.TransformerEncoder, nn.TransformerEncoderLayer, NonDynamicallyQuantizableLinear,
))  # fmt: skip
EXACT: frozenset[type[nn.Module]] = EXACT_BY_KERNELS | frozenset((
    nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d, nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d,
    nn.AdaptiveMaxPool3d, nn.AlphaDropout, nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d, nn.CELU,
    nn.ChannelShuffle, nn.CircularPad1d, nn.CircularPad2d, nn.CircularPad3d, nn.ConstantPad1d, nn.ConstantPad2d,
    nn.ConstantPad3d, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d,
    nn.CosineSimilarity, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.ELU,
    nn.FeatureAlphaDropout, nn.Flatten, nn.Fold, nn.GELU, nn.GLU,
    nn.GroupNorm, nn.Hardshrink, nn.Hardswish, nn.Hardtanh, nn.Identity, nn.LPPool1d, nn.LPPool2d, nn.LPPool3d,
    nn.LeakyReLU, nn.Linear, nn.LocalResponseNorm, nn.LogSigmoid, nn.LogSoftmax, nn.MaxPool1d, nn.MaxPool2d,
    nn.MaxPool3d, nn.Mish, nn.ModuleDict, nn.ModuleList, nn.PReLU,
    nn.PairwiseDistance, nn.ParameterDict, nn.ParameterList, nn.PixelShuffle, nn.PixelUnshuffle, nn.RMSNorm,
    nn.ReLU, nn.ReLU6, nn.ReflectionPad1d, nn.ReflectionPad2d, nn.ReflectionPad3d, nn.ReplicationPad1d,
    nn.ReplicationPad2d, nn.ReplicationPad3d, nn.SELU, nn.Sequential, nn.SiLU, nn.Sigmoid, nn.Softmax, nn.Softmax2d,
    nn.Softmin, nn.Softplus, nn.Softshrink, nn.Softsign, nn.Tanh, nn.Tanhshrink, nn.Threshold, nn.Unflatten,
    nn.Unfold, nn.Upsample, nn.UpsamplingBilinear2d, nn.UpsamplingNearest2d, nn.ZeroPad1d, nn.ZeroPad2d,
    nn.ZeroPad3d,
))  # fmt: skip


def is_known(module: nn.Module) -> bool:
    """Tell whether a module is one of ours or one of torch's that are exact; what is inside it is judged by itself.

    A hook, or a `forward` of the instance's own, may do anything; torch's pruning and its earlier weight norm are such.
    """
    ours = type(module).__module__.startswith("arelu_meta.")
    return (ours or type(module) in EXACT) and "forward" not in vars(module) and not has_call_hooks(module)
