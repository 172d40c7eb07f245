#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the two hashes of tests/engine/test_nfc.c, from Python's own unicodedata: that of
Unicode 14 (Python 3.11), as scripts/make-nfc-table has it.

Both are FNV-1a, 64 bits, over texts in normal form C with a byte ff behind each: of each character
by itself, and of random runs of characters that change.
"""
import unicodedata

SPANS = [(0x41, 0x7a), (0x300, 0x36f), (0x300, 0x36f), (0x1100, 0x11ff), (0xac00, 0xac40),
         (0x900, 0xdff), (0x1e00, 0x1fff), (0x591, 0x5ea), (0x3040, 0x30ff), (0xf900, 0xfaff),
         (0x1d158, 0x1d1c0), (0x11080, 0x119ff), (0xfb1d, 0xfb4f), (0xc0, 0x17f)]
NR_RUNS = 50000


class Hash:
    def __init__(self):
        self.value = 0xcbf29ce484222325

    def add(self, text):
        for byte in unicodedata.normalize('NFC', text).encode() + b'\xff':
            self.value = (self.value ^ byte) * 0x100000001b3 & 0xffffffffffffffff


def main():
    single, runs = Hash(), Hash()
    for c in range(0x110000):
        if not 0xd800 <= c < 0xe000:
            single.add(chr(c))
    state = 1

    def draw(nr):
        nonlocal state
        state = (state * 6364136223846793005 + 1442695040888963407) & 0xffffffffffffffff
        return (state >> 33) % nr

    for _ in range(NR_RUNS):
        text = ''
        for _ in range(1 + draw(12)):
            first, last = SPANS[draw(len(SPANS))]
            text += chr(first + draw(last - first + 1))
        runs.add(text)
    print(f'Unicode {unicodedata.unidata_version}: {single.value:#x} {runs.value:#x}')


if __name__ == '__main__':
    main()
