#!/usr/bin/env python3
"""PyTorch's float32 forward (values only) beside the certified reference, in one run:

  apt install python3-torch && ninja -C build bench_signoff
  python3 diff/bench_pytorch.py build/bench_signoff

MobileNetV4-Conv-M in training mode, 8 images of 224x224, 2 threads, minimum of five rounds
before the certified reference and five after it.
"""
import pathlib
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "fixtures"))

try:
    import torch
    import torch.nn.functional as functional
except ImportError:
    sys.exit("bench_pytorch.py: no torch here; apt-get install python3-torch")

from make_expected_logits import ROWS

THREADS = 2


class Network:
    """Makes each parameter where it is first used, and keeps it."""

    def __init__(self):
        self.parameters = {}

    def parameter(self, name, shape):
        if name not in self.parameters:
            self.parameters[name] = torch.randn(shape) / (shape[-1] * shape[-2]) ** 0.5
        return self.parameters[name]

    def site(self, x, site, out, kernel=1, stride=1, relu=True, groups=1):
        weight = self.parameter(site, (out, x.shape[1] // groups, kernel, kernel))
        y = functional.conv2d(x, weight, None, stride, (kernel - 1) // 2, groups=groups)
        gamma, beta = self.parameter(site + "g", (1, out))[0], self.parameter(site + "b", (1, out))[0]
        y = functional.batch_norm(y, None, None, gamma, beta, True)
        return functional.relu(y) if relu else y

    def forward(self, x):
        x = self.site(x, "s", 32, 3, 2)
        x = self.site(x, "f0c", 128, 3, 2)
        x = self.site(x, "f0p", 48, relu=False)
        for number, (inputs, out, expand, before, after, stride) in enumerate(ROWS, 1):
            row, y = "u%d" % number, x
            if before:
                y = self.site(y, row + "q", inputs, before, relu=False, groups=inputs)
            y = self.site(y, row + "e", inputs * expand)
            if after:
                y = self.site(y, row + "d", inputs * expand, after, stride, groups=inputs * expand)
            y = self.site(y, row + "p", out, relu=False)
            x = y if stride == 2 else y + x
        x = self.site(x, "h1", 960).mean(dim=(2, 3), keepdim=True)
        x = self.site(x, "h", 1280)
        return x.flatten(1) @ self.parameter("Wd", (1280, 1000))


def forward_seconds(network, images):
    best = float("inf")
    with torch.no_grad():
        for _ in range(5):
            start = time.perf_counter()
            network.forward(images)
            best = min(best, time.perf_counter() - start)
    return best


torch.set_num_threads(THREADS)
network, images = Network(), torch.randn(8, 3, 224, 224)
before = forward_seconds(network, images)
output = subprocess.run([sys.argv[1], str(THREADS)], check=True, capture_output=True, text=True).stdout
best = min(before, forward_seconds(network, images))
certified = float(next(line for line in output.splitlines() if line.startswith("certified")).split()[4])
print(output, end="")
print("PyTorch %s, float32, values only  %8.3f s" % (torch.__version__, best))
print("certified reference / PyTorch         %8.2f" % (certified / best))
