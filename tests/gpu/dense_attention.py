#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An attention kernel that knows nothing of Tarn runs over KV memory of the pool as it is.

Dense [t][head][dim] buffers, addresses reserved for 64k tokens, pages made as tokens come; PyTorch
sees ordinary tensors over them and its scaled_dot_product_attention gives the bits that it gives
over memory of its own. Needs PyTorch and a GPU. Usage: dense_attention.py [LIBKVPOOL]
"""
import ctypes
import sys

import torch

KV_HEADS, HEADS, DIM, MAX_TOKENS = 8, 32, 128, 65536
ROW_BYTES = KV_HEADS * DIM * 2
CUDA_BACKEND = 3


class Options(ctypes.Structure):
    """struct kvpool_options of libkvpool.h"""
    _fields_ = [('size', ctypes.c_size_t), ('backend', ctypes.c_int), ('name', ctypes.c_char_p),
                ('limit_bytes', ctypes.c_uint64), ('spare_limit_bytes', ctypes.c_uint64),
                ('node_mask', ctypes.c_uint64), ('quota_bytes', ctypes.c_uint64),
                ('shared_quota_bytes', ctypes.c_uint64), ('mode', ctypes.c_uint32),
                ('is_shared_keys', ctypes.c_bool), ('is_small_pages', ctypes.c_bool),
                ('is_read_only', ctypes.c_bool), ('device', ctypes.c_uint32)]


class Tokens:
    """A buffer of the pool, as PyTorch takes memory of others."""

    def __init__(self, lib, pool):
        self.lib, self.buf = lib, ctypes.c_void_p()
        check(lib.kvpool_buf_create(pool, ctypes.c_uint64(MAX_TOKENS * ROW_BYTES), 0,
                                    ctypes.byref(self.buf)))
        self.__cuda_array_interface__ = {
            'shape': (MAX_TOKENS, KV_HEADS, DIM), 'typestr': '<i2', 'version': 3,
            'data': (lib.kvpool_buf_addr(self.buf), False), 'strides': None}

    def grow(self, first, end, page):
        first = first * ROW_BYTES // page * page
        end = -(-end * ROW_BYTES // page) * page
        check(self.lib.kvpool_buf_commit(self.buf, ctypes.c_uint64(first),
                                         ctypes.c_uint64(end - first)))


def check(status):
    if status:
        sys.exit('dense_attention.py: libkvpool answered %d' % status)


def attend(q, k, v, nr):
    """One query row over the first nr tokens; heads in front, as PyTorch wants them."""
    k, v = (x[:nr].transpose(0, 1).unsqueeze(0) for x in (k, v))
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)


def main():
    lib = ctypes.CDLL(sys.argv[1] if len(sys.argv) > 1 else 'build/libkvpool.so')
    lib.kvpool_buf_addr.restype = ctypes.c_void_p
    lib.kvpool_page_bytes.restype = ctypes.c_size_t
    torch.zeros(1, device='cuda')
    pool = ctypes.c_void_p()
    options = Options(size=ctypes.sizeof(Options), backend=CUDA_BACKEND, limit_bytes=1 << 30)
    check(lib.kvpool_open(ctypes.byref(options), ctypes.byref(pool)))
    page = lib.kvpool_page_bytes(pool)
    pair = [Tokens(lib, pool), Tokens(lib, pool)]
    for tokens in pair:
        tokens.grow(0, 1, page)  # by its first page PyTorch sees whose memory it is
    ours = [torch.as_tensor(t, device='cuda').view(torch.bfloat16) for t in pair]
    theirs = [torch.empty(MAX_TOKENS, KV_HEADS, DIM, dtype=torch.bfloat16, device='cuda')
              for _ in pair]
    generator = torch.Generator('cuda').manual_seed(1)
    done = nr_differ = nr_values = 0
    for nr in (1, 17, 1000, 4096, 4097, 20000, 65536):
        for tokens, a, b in zip(pair, ours, theirs):
            tokens.grow(done, nr, page)
            new = torch.randn(nr - done, KV_HEADS, DIM, dtype=torch.bfloat16, device='cuda',
                              generator=generator)
            a[done:nr] = new
            b[done:nr] = new
        done = nr
        q = torch.randn(1, HEADS, 1, DIM, dtype=torch.bfloat16, device='cuda', generator=generator)
        x, y = attend(q, *ours, nr), attend(q, *theirs, nr)
        nr_differ += int((x.view(torch.int16) != y.view(torch.int16)).sum())
        nr_values += x.numel()
        if not torch.isfinite(x).all():
            sys.exit('dense_attention.py: not finite at %d tokens' % nr)
    print('PyTorch %s over memory that grows to %d tokens: %d of %d values differ'
          % (torch.__version__, done, nr_differ, nr_values))
    sys.exit(nr_differ != 0)


if __name__ == '__main__':
    main()
