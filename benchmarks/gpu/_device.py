"""What differs between torch and CuPy in a benchmark: making arrays, waiting, timing."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np


class Torch:
    """Arrays of torch on the current CUDA device (on the CPU for a trial run)."""

    def __init__(self, device: str = "cuda") -> None:
        import torch

        self.xp, self.device, self.float64 = torch, device, torch.float64
        self.version = torch.__version__

    def name(self) -> str:
        return "cpu" if self.device == "cpu" else str(self.xp.cuda.get_device_name())

    def put(self, array: np.ndarray) -> Any:
        return self.xp.asarray(array, device=self.device)

    def normal(self, *shape: int) -> Any:
        generator = self.xp.Generator(self.device).manual_seed(0)
        options = {"generator": generator, "device": self.device}
        return self.xp.randn(*shape, dtype=self.float64, **options)

    def wait(self) -> None:
        if self.device != "cpu":
            self.xp.cuda.synchronize()

    def peak(self) -> int:
        return 0 if self.device == "cpu" else int(self.xp.cuda.max_memory_allocated())

    def release(self) -> None:
        if self.device != "cpu":
            self.xp.cuda.empty_cache()
            self.xp.cuda.reset_peak_memory_stats()


class CuPy:
    """Arrays of CuPy on the current CUDA device."""

    def __init__(self) -> None:
        import cupy

        self.xp, self.float64, self.version = cupy, cupy.float64, cupy.__version__

    def name(self) -> str:
        return str(self.xp.cuda.runtime.getDeviceProperties(0)["name"].decode())

    def put(self, array: np.ndarray) -> Any:
        return self.xp.asarray(array)

    def normal(self, *shape: int) -> Any:
        return self.xp.random.default_rng(0).standard_normal(shape)

    def wait(self) -> None:
        self.xp.cuda.get_current_stream().synchronize()

    def peak(self) -> int:
        return int(self.xp.get_default_memory_pool().total_bytes())

    def release(self) -> None:
        self.xp.get_default_memory_pool().free_all_blocks()


def seconds(device: Any, function: Callable[[], Any], rounds: int = 3) -> list[float]:
    """Time a call, warm, with the device idle before and after."""
    function()
    found = []
    for _ in range(rounds):
        device.wait()
        start = time.perf_counter()
        function()
        device.wait()
        found.append(time.perf_counter() - start)
    return found
