#!/usr/bin/env python3
"""What cephalo writes, read by the packages that people use, and PyTorch's strict loading.

Needs torch, numpy and safetensors, and a built cephalo (make test-torch does it all).
"""

import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch
from torch import nn
from safetensors.torch import load_file

import ladder_torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
FILES = ROOT / "tests/golden/files"
CEPHALO = ROOT / "build/release/cli/cephalo"


def cephalo(*arguments):
    subprocess.run([str(CEPHALO), *map(str, arguments)], check=True, capture_output=True)


class BookMultiHeadAttention(ladder_torch.MultiHeadAttention):
    """With the mask as the buffer that strict loading asks for."""

    def __init__(self, *arguments, **more):
        super().__init__(*arguments, **more)
        self.register_buffer("mask", torch.zeros(self.context_length, self.context_length))


def main():
    with tempfile.TemporaryDirectory() as folder:
        at = lambda name: pathlib.Path(folder) / name
        x, y = (np.load(FILES / f"separate.{n}.npy") for n in "xy")

        # Every form that PyTorch classes have, converted by us, loaded strictly, run by PyTorch.
        separate = FILES / "separate.safetensors"
        modules = {
            "separate": (BookMultiHeadAttention(24, 24, 16, 0.0, 3, qkv_bias=True), ["--with-mask"]),
            "linear": (ladder_torch.EasyMultiHeadAttention(24, 3), []),
            "fused": (ladder_torch.FastMultiHeadAttention(24, 3), []),
            "torch": (nn.MultiheadAttention(24, 3, batch_first=True), []),
        }
        future = torch.triu(torch.ones(7, 7), diagonal=1).bool()
        for form, (module, flags) in modules.items():
            cephalo("convert", separate, at(form), "--to", form, "--num-heads", 3, *flags)
            module.load_state_dict(load_file(at(form)), strict=True)
            t = torch.tensor(x)
            with torch.no_grad():
                if form == "torch":
                    result = module(t, t, t, attn_mask=future)[0]
                elif form == "fused":
                    result = module(t, mask=~future)
                elif form == "linear":
                    continue  # hides nothing: only its loading can be compared
                else:
                    result = module(t)
            difference = np.abs(result.numpy() - y).max()
            print(f"{form}: strict loading, difference {difference:.1e}")
            assert difference <= 1e-6

        # Arrays: NumPy reads what we write.
        cephalo("run", separate, FILES / "separate.x.npy", "-o", at("y.npy"), "--num-heads", 3,
                "--weights", at("w.npy"))
        ours = np.load(at("y.npy"))
        assert ours.dtype == np.float32 and np.abs(ours - y).max() <= 1e-6
        assert np.allclose(np.load(at("w.npy")).sum(-1), 1.0, atol=1e-6)
        print("arrays: NumPy reads ours")
    return 0


if __name__ == "__main__":
    sys.exit(main())
