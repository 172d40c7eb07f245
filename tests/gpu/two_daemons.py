#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two tarnd of one user on one GPU: the second maps the prefix that the first has published,
answers with the same text, and goes on when the first is killed. Needs python3, tarnd, a model and
a GPU; nothing is installed, and every file it makes lies in a directory that it removes. Prints
what it saw; exit status 0: all of it held, 1: something did not, 2: wrong usage.

    tests/gpu/two_daemons.py --model MODEL.gguf [--tarnd build/tarnd] [--prompt FILE]
                             [--prompt-tokens N] [-- OPTIONS OF TARND]"""
import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from serve import Connection  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

# What a step has computed is published behind it, when its answer is on its way already.
SETTLE_S = 0.5


class Failure(Exception):
    pass


class Daemon:
    def __init__(self, name, args, directory, *options):
        self.name = name
        self.timeout = args.timeout
        self.socket = os.path.join(directory, name + ".sock")
        self.log_path = os.path.join(directory, name + ".log")
        # They meet here, and nobody else with them.
        env = {**os.environ, "XDG_RUNTIME_DIR": directory}
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(
                [args.tarnd, "--model", args.model, "--device", args.device,
                 "--socket", self.socket, *args.options, *options],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env)

    def log_end(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as log:
            return log.read()[-3000:]

    def wait_ready(self):
        end = time.monotonic() + self.timeout
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise Failure(f"{self.name} ended with {self.process.returncode}")
            try:
                if self.request("GET", "/health")[0] == 200:
                    return
            except OSError:
                pass
            time.sleep(0.05)
        raise Failure(f"{self.name} was not ready within {self.timeout} s")

    def request(self, method, path, body=None):
        connection = Connection(self.socket, self.timeout)
        try:
            connection.request(method, path, None if body is None else json.dumps(body))
            response = connection.getresponse()
            return response.status, json.loads(response.read() or b"{}")
        finally:
            connection.close()

    def ask(self, prompt, max_tokens):
        """Answers text, tokens of the prompt, how many of them were cached, milliseconds."""
        start = time.monotonic()
        status, answer = self.request("POST", "/v1/completions", {
            "prompt": prompt, "temperature": 0, "max_tokens": max_tokens, "ignore_eos": True})
        ms = (time.monotonic() - start) * 1000
        if status != 200:
            raise Failure(f"{self.name} answered {status}: {answer}")
        usage = answer["usage"]
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        return answer["choices"][0]["text"], usage["prompt_tokens"], cached, ms

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.kill()


def find_key(value, key):
    """The first value of @key, wherever it stands in the daemon's numbers; None: nowhere."""
    if isinstance(value, dict):
        if key in value:
            return value[key]
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            found = find_key(item, key)
            if found is not None:
                return found
    return None


def make_prompt(daemon, args, first_line):
    if args.prompt:
        with open(args.prompt, encoding="utf-8") as text:
            return first_line + text.read()
    prompt, nr, at = first_line, 0, 0
    while nr < args.prompt_tokens:
        for _ in range(20):
            at += 1
            prompt += f"Item {at} of the list weighs {at * 37 % 101} grams and costs " \
                      f"{at * 53 % 97} coins.\n"
        status, answer = daemon.request("POST", "/tokenize", {"content": prompt})
        if status != 200:
            raise Failure(f"/tokenize answered {status}: {answer}")
        nr = len(answer["tokens"])
    return prompt


def expect(is_true, what):
    print(("ok      " if is_true else "FAILED  ") + what, flush=True)
    if not is_true:
        raise Failure(what)


def check_shared(first, second, prompt, args):
    text, nr, cached, cold_ms = first.ask(prompt, 1)
    print(f"first:  {nr} tokens of prompt, {cached} cached, {cold_ms:.1f} ms to one token")
    expect(cached == 0, "the first has computed the prompt itself")
    time.sleep(SETTLE_S)
    # What a daemon's first request of all costs is not the prefix's.
    second.ask("Good morning.", 2)
    got, nr, cached, ms = second.ask(prompt, 1)
    print(f"second: {nr} tokens of prompt, {cached} cached, {ms:.1f} ms to one token")
    expect(cached > 0, f"the second found {cached} of {nr} tokens with the first")
    expect(nr - cached <= args.most_computed,
           f"it computed no more than {args.most_computed} of them")
    expect(got == text, "the first token is the same")
    stats = second.request("GET", "/stats")[1]
    shared = find_key(stats, "prefix_shared_tokens")
    # What all prompts begin with it has from its own.
    expect(cached - 1 <= shared <= cached,
           f"its own count of shared tokens says so too: {shared}")
    attach = find_key(stats, "prefix_attach_seconds")
    if attach is not None:
        print(f"        attaching took {attach * 1000:.2f} ms")
    # Mapped a second time it is known already: what is left is tail and token.
    _, _, _, warm_ms = second.ask(prompt, 1)
    print(f"        asked again: {warm_ms:.1f} ms, so looking and mapping took about "
          f"{max(ms - warm_ms, 0):.1f} ms")
    text = first.ask(prompt, args.max_tokens)[0]
    got = second.ask(prompt, args.max_tokens)[0]
    expect(got == text, f"{args.max_tokens} tokens of the answer are the same")
    return text


def check_after_death(first, second, prompt, text, args):
    first.kill()
    got, nr, cached, ms = second.ask(prompt, args.max_tokens)
    print(f"second: the first was killed; {cached} of {nr} tokens cached, {ms:.1f} ms")
    expect(got == text, "its answer is the same")
    expect(cached > 0, "what it had mapped is still there")
    other = make_prompt(second, args, "Another list.\n")
    _, nr, cached, ms = second.ask(other, 1)
    print(f"second: another prompt; {cached} of {nr} tokens cached, {ms:.1f} ms")
    return other


def check_alone(args, directory, prompt, text):
    alone = Daemon("alone", args, directory, "--no-prefix-sharing")
    try:
        alone.wait_ready()
        got, nr, cached, _ = alone.ask(prompt, args.max_tokens)
        expect(cached == 0, "one with --no-prefix-sharing found nothing")
        expect(got == text, f"and computed the same answer from all {nr} tokens")
    finally:
        alone.stop()


def run(args, directory):
    first = Daemon("first", args, directory)
    daemons = [first]
    try:
        first.wait_ready()
        second = Daemon("second", args, directory)
        daemons.append(second)
        second.wait_ready()
        for daemon in daemons:
            expect(find_key(daemon.request("GET", "/stats")[1], "shares_prefixes") is True,
                   f"{daemon.name} shares prefixes")
        prompt = make_prompt(first, args, "")
        text = check_shared(first, second, prompt, args)
        other = check_after_death(first, second, prompt, text, args)
        # The other way round: the third finds what the second, which lives, computed last.
        third = Daemon("third", args, directory)
        daemons.append(third)
        third.wait_ready()
        _, nr, cached, ms = third.ask(other, 1)
        print(f"third:  {nr} tokens of prompt, {cached} cached, {ms:.1f} ms to one token")
        expect(cached > 0, "one that starts later finds what the second has computed")
        third.stop()
        if not args.no_alone:
            check_alone(args, directory, prompt, text)
    except (Failure, OSError) as error:
        print(f"two_daemons: {error}", file=sys.stderr)
        for daemon in daemons:
            print(f"--- end of the log of {daemon.name}\n{daemon.log_end()}", file=sys.stderr)
        return 1
    finally:
        for daemon in daemons:
            daemon.stop()
    print("two_daemons: all held")
    return 0


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--tarnd", default=os.path.join(ROOT, "build", "tarnd"))
    parser.add_argument("--model", default=os.environ.get("TARN_TEST_MODEL"))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--prompt", help="a text file; default: one is made")
    parser.add_argument("--prompt-tokens", type=int, default=3000)
    parser.add_argument("--max-tokens", type=int, default=64)
    # Less than a tile is left, and what stands behind the last border.
    parser.add_argument("--most-computed", type=int, default=128)
    parser.add_argument("--timeout", type=float, default=300)
    parser.add_argument("--no-alone", action="store_true", help="no third daemon as reference")
    parser.add_argument("options", nargs="*")
    args = parser.parse_args()
    if not args.model:
        parser.error("no model: name one by --model")
    directory = tempfile.mkdtemp(prefix="tarn-two-")
    try:
        return run(args, directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
