#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch on the shapes of gpu_probe.cu (attention: flash and cuDNN backends) and gpu_linear.cu.

Same method: launches in a CUDA graph, 256 MiB read before each replay so that
L2 is cold, events around the replay, median of 50; linear: one launch for each
of several weights. Run by hand on a GPU: gpu_probe_peer.py [attention|linear|large|quick];
quick: only what scripts/bench-gpu compares with.
"""
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

HQ, HKV, D = 32, 8, 128
flush = torch.ones(64 << 20, dtype=torch.int32, device="cuda")


def median_us(*calls):
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            calls[0]()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    times = []
    for i in range(53):
        flush.max()
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in "ab")
        start.record()
        graph.replay()
        stop.record()
        torch.cuda.synchronize()
        if i >= 3:
            times.append(start.elapsed_time(stop) * 1e3)
    return sorted(times)[len(times) // 2] / len(calls)


def linear(shapes=((14336, 4096), (4096, 14336), (28672, 4096), (6144, 4096), (4096, 4096),
                   (1024, 4096)), nr_tokens=(1, 8, 16, 32, 64)):
    for n, k in shapes:
        nr = max(8, -(-300_000_000 // (n * k * 2)))
        weights = [torch.randn(n, k, dtype=torch.bfloat16, device="cuda") for _ in range(nr)]
        for m in nr_tokens:
            x = torch.randn(m, k, dtype=torch.bfloat16, device="cuda")
            us = median_us(*[lambda w=w: F.linear(x, w) for w in weights])
            print(f"peer cuBLAS bf16 {n} x {k} M {m}: {us:.2f} us {n * k * 2 / us * 1e-6:.3f} TB/s")


def large():
    for n, k in ((14336, 4096), (4096, 14336), (6144, 4096), (4096, 4096), (28672, 4096),
                 (8192, 8192)):
        w = torch.randn(n, k, dtype=torch.bfloat16, device="cuda")
        times = []
        for m in (512, 2048, 8192):
            x = torch.randn(m, k, dtype=torch.bfloat16, device="cuda")
            us = median_us(lambda: F.linear(x, w))
            times.append(f"M {m} {us:.1f} us ({2 * m * n * k / us * 1e-6:.0f})")
        print(f"peer cuBLAS bf16 {n} x {k}, TFLOP/s:", ", ".join(times))


def attend(batch, nr_q, nr_kv, causal):
    q = torch.randn(batch, HQ, nr_q, D, dtype=torch.bfloat16, device="cuda")
    k = torch.randn(batch, HKV, nr_kv, D, dtype=torch.bfloat16, device="cuda")
    v = torch.randn_like(k)
    return lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)


def timed(backend, batch, nr_q, nr_kv):
    with sdpa_kernel(backend):
        return median_us(attend(batch, nr_q, nr_kv, nr_q > 1))


BACKENDS = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}


def attention(prefills=(2048, 8192, 16384),
              decodes=((32, 8192), (256, 2048), (1, 32768), (64, 1024))):
    for name, backend in BACKENDS.items():
        for nr in prefills:
            flops = 2 * D * HQ * nr * (nr + 1)
            us = timed(backend, 1, nr, nr)
            print(f"peer {name} prefill {nr}: {us:.1f} us {flops / us * 1e-6:.1f} TFLOP/s")
        for batch, nr in decodes:
            nr_bytes = batch * nr * HKV * D * 4
            us = timed(backend, batch, 1, nr)
            print(f"peer {name} decode {batch} x {nr}: {us:.1f} us {nr_bytes / us * 1e-6:.3f} TB/s")


def gemm():
    a = torch.randn(8192, 8192, dtype=torch.bfloat16, device="cuda")
    b = torch.randn_like(a)
    us = median_us(lambda: a @ b)
    print(f"peer bf16 GEMM 8192^3: {2 * 8192**3 / us * 1e-6:.0f} TFLOP/s")


def main():
    print("torch", torch.__version__, torch.cuda.get_device_name())
    if sys.argv[1:] == ["linear"]:
        linear()
    elif sys.argv[1:] == ["large"]:
        large()
    elif sys.argv[1:] == ["quick"]:
        linear(((14336, 4096),), (1, 16))
        attention((8192,), ((32, 8192), (1, 32768)))
    else:
        gemm()
        attention()


if __name__ == "__main__":
    main()
