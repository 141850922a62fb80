"""A device that is not the host, on a machine without a GPU: what mixes tensors of both fails on it, as on a GPU.

    ARELU_META_TEST_DEVICE=emulated python -m pytest tests/test_cuda.py

Its kernels are the CPU's (`emulated_device.cpp`), built once by the C++ compiler, which with ninja it needs. Streams,
pinned memory, number formats and compiled kernels are CUDA's own, and not emulated.
"""

import types
import warnings
from pathlib import Path
from typing import Any

import torch

NAME = "emulated"


def load() -> None:
    """Build the device and make it known to torch under its name, once in a process.

    Raises:
        RuntimeError: there is no compiler, or torch's interfaces for devices have changed.
    """
    if hasattr(torch, NAME):
        return
    from torch.utils.cpp_extension import load as build

    with warnings.catch_warnings():  # of compilers, and of CUDA's absence
        warnings.simplefilter("ignore")
        built: Any = build("emulated_device", [str(Path(__file__).with_suffix(".cpp"))], extra_cflags=["-O1", "-w"])
    torch.utils.rename_privateuse1_backend(NAME)
    built.register_hooks()
    torch._register_device_module(NAME, _module())
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)


def _module() -> types.ModuleType:
    """What `torch.cuda` is for CUDA."""
    module: Any = types.ModuleType(f"torch.{NAME}")
    module.is_available = module.is_initialized = lambda: True
    module.device_count, module.current_device = lambda: 1, lambda: 0
    module._is_in_bad_fork = lambda: False
    module.manual_seed_all = lambda _seed: None  # random numbers are drawn by the host's generator
    module.get_rng_state, module.set_rng_state = lambda _device=None: torch.get_rng_state(), lambda *_: None
    module.get_amp_supported_dtype = lambda: [torch.bfloat16, torch.float16]
    return module
