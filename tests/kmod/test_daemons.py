#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two daemons on one kernel pool, in the machine of scripts/vm-run: what one has computed the other
finds, death gives private memory back and leaves what is shared, and a pool that somebody holds
keeps prompts over a restart of both. `make vm-demo` shows it step by step.

TARN_TEST_PROMPT_TOKENS says how long the prompt is (70, because an emulated
machine takes two seconds for a token; the demonstration takes 400)."""

import contextlib
import fcntl
import json
import os
import signal
import struct
import subprocess
import sys
import unittest

# An emulated machine takes a minute for what takes a second elsewhere.
os.environ["TARN_TEST_TIME_SCALE"] = "15"
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "daemon"))
from kit import Daemon, need_model, tap, wait_for  # noqa: E402

DEVICE = "/dev/kvpool"
NAME = "demo"
NR_TOKENS = int(os.environ.get("TARN_TEST_PROMPT_TOKENS", "70"))
TILE = 64
READY_S = 600

POOL_OPEN = 0xBC << 8 | 0x02  # _IO(KVPOOL_IOC_MAGIC, 0x02)
POOL_OPEN_LAYOUT = "<II64siI"  # struct kvpool_pool_open
READ = 1


def say(text):
    tap.comment(text)


def hold_pool():
    """A descriptor of the pool, as systemd's descriptor store would hold it."""
    device = os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC)
    try:
        size = struct.calcsize(POOL_OPEN_LAYOUT)
        argument = bytearray(struct.pack(POOL_OPEN_LAYOUT, size, READ, NAME.encode(), -1, 0))
        fcntl.ioctl(device, POOL_OPEN, argument)
        return struct.unpack(POOL_OPEN_LAYOUT, argument)[3]
    finally:
        os.close(device)


def tarn_pool():
    """What `tarn pool --json` knows of the pool; None: there is none."""
    done = subprocess.run([os.path.join(tap.BUILD_DIR, "tarn"), "pool", NAME, "--json"],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    pools = json.loads(done.stdout) if done.returncode == 0 else []
    return pools[0] if pools else None


def show_pool():
    done = subprocess.run([os.path.join(tap.BUILD_DIR, "tarn"), "pool", NAME],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    say(done.stdout)


def published_bytes(pool):
    return sum(buf["resident_bytes"] for buf in pool["buffers"] if buf["published"])


class Asked:
    """One answer: its text, and how many tokens of the prompt were not computed."""

    def __init__(self, daemon, prompt, max_tokens=3):
        reply = daemon.complete(prompt, max_tokens=max_tokens, ignore_eos=True)
        self.text = reply["choices"][0]["text"]
        usage = reply["usage"]
        self.prompt_tokens = usage["prompt_tokens"]
        self.cached = usage.get("prompt_tokens_details", {}).get("cached_tokens", 0)

    def __str__(self):
        return f"{self.cached} of {self.prompt_tokens} prompt tokens found; answer {self.text!r}"


@unittest.skipUnless(os.path.exists(DEVICE), f"no {DEVICE}: the module is not loaded")
class Daemons(unittest.TestCase):
    def setUp(self):
        need_model()
        self.daemons = []
        self.addCleanup(self.stop_all)
        self.prompt = [5 + (i * 7919) % 20000 for i in range(NR_TOKENS)]

    def stop_all(self):
        for daemon in self.daemons:
            with contextlib.suppress(ProcessLookupError):
                daemon.stop()
        self.daemons = []

    def start(self):
        daemon = Daemon("--kv-backend", "kernel", "--pool", NAME, "--ctx", "1024",
                        "--threads", "2", "--kv-bytes", "256M", wait=False)
        self.daemons.append(daemon)
        wait_for(lambda: daemon.process.poll() is not None or "ready:" in daemon.log, "ready",
                 READY_S)
        self.assertIsNone(daemon.process.poll(), daemon.log)
        self.assertIn("kernel", daemon.log)
        return daemon

    def ask(self, daemon, who):
        asked = Asked(daemon, self.prompt)
        say(f"{who}: {asked}")
        return asked

    def test_prefix_is_shared_survives_death_and_restart(self):
        # The last tile is never whole for both: what is found ends at a border.
        whole = (NR_TOKENS - 1) // TILE * TILE
        a, b = self.start(), self.start()
        say("two daemons with one model on the pool:")
        first = self.ask(a, "first daemon ")
        self.assertEqual(0, first.cached)
        a.wait_idle()
        before = tarn_pool()
        second = self.ask(b, "second daemon")
        self.assertEqual(first.text, second.text)
        self.assertGreaterEqual(second.cached, whole)
        after = tarn_pool()
        show_pool()
        # One copy: what came is the second one's own tail.
        self.assertLessEqual(after["resident_bytes"], before["resident_bytes"] + 4 * (2 << 20))
        published = published_bytes(after)
        self.assertGreater(published, 0)

        say("kill -9 of the first daemon:")
        a.process.send_signal(signal.SIGKILL)
        a.process.wait()
        wait_for(lambda: all(buf["published"] or buf["holders"] for buf in tarn_pool()["buffers"]),
                 "its private buffers gone")
        third = self.ask(b, "second daemon")
        self.assertEqual(first.text, third.text)
        self.assertGreaterEqual(third.cached, whole)
        self.assertEqual(published, published_bytes(tarn_pool()))

        say("both gone, a descriptor of the pool held:")
        held = hold_pool()
        self.addCleanup(lambda: os.close(held))
        self.stop_all()
        pool = tarn_pool()
        self.assertEqual(pool["resident_bytes"], published_bytes(pool))
        show_pool()
        fresh = self.start()
        fourth = self.ask(fresh, "a new daemon ")
        self.assertEqual(first.text, fourth.text)
        self.assertGreaterEqual(fourth.cached, whole)


if __name__ == "__main__":
    tap.main()
