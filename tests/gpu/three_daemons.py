#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Three tarnd with three models share a card's memory as their load moves from one to the next.

    three_daemons.py --model A.gguf --model B.gguf --model C.gguf --kv-bytes SIZE
                     [--tarnd PATH] [--requests N] [--words N] [--rounds N]

Each has a limit of its own; together they may exceed the card. In turn each gets a load of long
prompts; all the while /stats of all three is looked at: what is mapped for KV, what of it holds
tokens of sequences and cached prefixes, and whether anybody is over his limit. Needs nothing but
Python.
"""
import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from serve import Connection, wait_ready  # noqa: E402


def ask(path, method, target, body=None):
    connection = Connection(path)
    connection.request(method, target, json.dumps(body) if body else None,
                       {'Content-Type': 'application/json'})
    response = connection.getresponse()
    return response.status, json.loads(response.read())


def client(path, request, failures):
    try:
        status, answer = ask(path, 'POST', '/v1/completions', request)
        if status != 200:
            failures.append('%d: %s' % (status, str(answer)[:120]))
    except OSError as error:
        failures.append(str(error))


def load(path, args, salt, failures):
    """Starts the requests; their threads."""
    threads = []
    for i in range(args.requests):
        words = ' '.join('w%d.%d' % (salt * 1000 + i, j) for j in range(args.words))
        request = {'prompt': words, 'max_tokens': args.tokens, 'temperature': 0,
                   'ignore_eos': True}
        threads.append(threading.Thread(target=client, args=(path, request, failures)))
        threads[-1].start()
    return threads


class Watch:
    """What /stats said, over all samples."""

    def __init__(self, nr):
        self.over = 0
        self.peak = [0] * nr
        self.samples = []

    def look(self, paths):
        row = []
        for i, path in enumerate(paths):
            kv = ask(path, 'GET', '/stats')[1]['kv']
            need = kv['resident_bytes']
            mapped = need + kv['spare_bytes']
            self.over += mapped > kv['limit_bytes']
            self.peak[i] = max(self.peak[i], mapped)
            row.append((mapped, need))
        self.samples.append(row)
        return row

    def worst(self, least):
        """The largest mapped / need of all daemons together, where some memory is needed."""
        totals = [(sum(m for m, _ in row), sum(n for _, n in row)) for row in self.samples]
        return max([m / n for m, n in totals if n > least] or [0])


def run_phases(paths, args, watch, failures):
    for turn in range(args.rounds * len(paths)):
        who = turn % len(paths)
        start = time.monotonic()
        threads = load(paths[who], args, turn, failures)
        while any(thread.is_alive() for thread in threads):
            row = watch.look(paths)
            time.sleep(0.2)
        row = watch.look(paths)
        print('load on %d, %5.1f s: %s GB mapped / needed' % (
            who, time.monotonic() - start,
            '  '.join('%.1f / %.1f' % (m * 1e-9, n * 1e-9) for m, n in row)))
        sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--model', action='append', required=True)
    parser.add_argument('--kv-bytes', required=True)
    parser.add_argument('--tarnd', default='build/tarnd')
    parser.add_argument('--requests', type=int, default=24)
    parser.add_argument('--words', type=int, default=2000)
    parser.add_argument('--tokens', type=int, default=32)
    parser.add_argument('--rounds', type=int, default=2)
    args = parser.parse_args()
    failures, daemons, paths = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        for i, model in enumerate(args.model):
            paths.append(os.path.join(folder, 's%d' % i))
            with open(os.path.join(folder, 'log%d' % i), 'w') as log:
                daemons.append(subprocess.Popen(
                    [args.tarnd, '--model', model, '--socket', paths[i], '--device', 'cuda',
                     '--kv-bytes', args.kv_bytes, '--max-batch-tokens', '2048'], stderr=log))
            wait_ready(daemons[i], paths[i])
        watch = Watch(len(paths))
        try:
            run_phases(paths, args, watch, failures)
        finally:
            for daemon in daemons:
                daemon.send_signal(signal.SIGTERM)
            statuses = [daemon.wait(60) for daemon in daemons]
    print('%d requests, %d failed; over a limit in %d samples of %d; most mapped %s GB; '
          'mapped / needed at most %.3f; ended with %s'
          % (args.requests * args.rounds * len(paths), len(failures), watch.over,
             len(watch.samples), ' '.join('%.1f' % (p * 1e-9) for p in watch.peak),
             watch.worst(8 << 30), statuses))
    for failure in failures[:5]:
        print(failure)
    sys.exit(bool(failures or watch.over or any(statuses)))


if __name__ == '__main__':
    main()
