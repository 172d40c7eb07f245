#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Serves a model from the GPU to several clients at once: every answer is what it is alone.

    serve.py --tarnd PATH --model FILE [--clients N] [--tokens N]

Needs nothing but Python. Exits 1 where an answer differs or fails.
"""
import argparse
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time


class Connection(http.client.HTTPConnection):
    def __init__(self, path, timeout=None):
        super().__init__('tarn', timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def complete(path, request):
    """Text of a streamed completion, and the seconds to its first and last piece."""
    connection = Connection(path)
    start = time.monotonic()
    connection.request('POST', '/v1/completions', json.dumps(dict(request, stream=True)),
                       {'Content-Type': 'application/json'})
    response = connection.getresponse()
    text, first = '', None
    if response.status != 200:
        return 'HTTP %d: %s' % (response.status, response.read().decode()), 0, 0
    for line in response:
        if line.startswith(b'data: {'):
            first = first or time.monotonic() - start
            for choice in json.loads(line[6:]).get('choices', []):
                text += choice.get('text', '')
    return text, first, time.monotonic() - start


def requests(nr, nr_tokens):
    for i in range(nr):
        words = ' '.join('item %d of list %d,' % (j, i) for j in range(5 + 23 * i % 400))
        yield {'prompt': 'Here is a story. ' + words, 'max_tokens': nr_tokens, 'seed': i,
               'temperature': [0, 0.8, 1.0][i % 3], 'top_k': [0, 0, 40][i % 3],
               'ignore_eos': True}


def wait_ready(daemon, path):
    for _ in range(1200):
        if daemon.poll() is not None:
            sys.exit('serve.py: tarnd ended with %d' % daemon.returncode)
        try:
            connection = Connection(path)
            connection.request('GET', '/health')
            if connection.getresponse().status == 200:
                return
        except OSError:
            pass
        time.sleep(0.05)
    sys.exit('serve.py: tarnd is not ready')


def together(path, wanted):
    answers = [None] * len(wanted)

    def client(i):
        answers[i] = complete(path, wanted[i])

    threads = [threading.Thread(target=client, args=(i,)) for i in range(len(wanted))]
    start = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers, time.monotonic() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--tarnd', default='build/tarnd')
    parser.add_argument('--model', default=os.environ.get('TARN_TEST_MODEL'), required=False)
    parser.add_argument('--clients', type=int, default=16)
    parser.add_argument('--tokens', type=int, default=64)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, 's')
        daemon = subprocess.Popen([args.tarnd, '--model', args.model, '--socket', path,
                                   '--device', 'cuda'])
        try:
            wait_ready(daemon, path)
            wanted = list(requests(args.clients, args.tokens))
            alone = [complete(path, request)[0] for request in wanted]
            answers, seconds = together(path, wanted)
        finally:
            daemon.send_signal(signal.SIGTERM)
            status = daemon.wait(30)
    differ = sum(text != answer[0] for text, answer in zip(alone, answers))
    firsts = sorted(answer[1] or 0 for answer in answers)
    print('%d clients, %d tokens each: %.0f tok/s together, first token after %.0f ms (median); '
          '%d answers differ from those alone; tarnd ended with %d'
          % (args.clients, args.tokens, args.clients * args.tokens / seconds,
             1e3 * firsts[len(firsts) // 2], differ, status))
    if differ or any(text.startswith('HTTP ') or not text for text in alone) or status:
        print(alone[0][:300])
        sys.exit(1)


if __name__ == '__main__':
    main()
