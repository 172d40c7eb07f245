#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tarn with a daemon of its own and a real model: answers, ends without traces, a terminal."""

import contextlib
import os
import pty
import re
import select
import shutil
import signal
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cli_kit import TARN, WAIT_S, CliTest, Server, environment, start, tap, tarn  # noqa: E402

MODEL = os.environ.get("TARN_TEST_MODEL")
TARND = os.path.join(tap.BUILD_DIR, "tarnd")
TINY = os.path.abspath(os.path.join(os.path.dirname(__file__), "../data/tiny_llama.gguf"))
HAS_GPU = os.path.exists("/dev/nvidiactl")
SPEED = (r"prompt: \d+ tokens( \(\d+ cached\))?, [\d.]+ tok/s; answer: \d+ tokens, [\d.]+ tok/s"
         r"(, cut at the limit)?; first token after \d+\.\d{3} s\n")


def tarnds_in(folder):
    """Processes that were started with a socket in the folder."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as f:
            if folder.encode() in f.read():
                found.append(int(pid))
    return found


class OwnTest(CliTest):
    def setUp(self):
        super().setUp()
        if not os.path.exists(TARND):
            self.skipTest("tarnd is not built")
        # Sockets are made here, so that what is left behind can be seen.
        self.folder = tempfile.mkdtemp(prefix="tarn-own-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.where = {"TMPDIR": self.folder, "TARN_MODEL": MODEL or ""}

    def need_model(self):
        if not MODEL:
            self.skipTest("TARN_TEST_MODEL is not set")

    def leaves_nothing(self):
        end = time.monotonic() + WAIT_S
        while tarnds_in(self.folder) and time.monotonic() < end:
            time.sleep(0.02)
        self.assertEqual((tarnds_in(self.folder), os.listdir(self.folder)), ([], []))


class Own(OwnTest):
    def test_answer_then_speed_then_nothing_left(self):
        self.need_model()
        result = tarn("run", "--max-tokens", "8", "Why is the sky blue?", **self.where)
        self.ends(result, 0)
        self.assertRegex(result.stderr.decode(), r"\A" + SPEED + r"\Z")
        self.assertRegex(result.stdout.decode(), r"\A\S.*\w.*\n\Z")
        self.leaves_nothing()

    def test_same_question_same_answer(self):
        self.need_model()
        answers = set()
        for options in ((), (), ("--threads", "1"), ("--no-stream",), ("--ctx", "256")):
            result = tarn("run", "--max-tokens", "12", *options, "Name three fruits.", **self.where)
            self.ends(result, 0)
            answers.add(result.stdout)
        self.assertEqual(len(answers), 1, answers)

    def test_seeds_choose_the_answer(self):
        self.need_model()
        answers = [tarn("run", "--max-tokens", "12", "--temperature", "1.5", "--seed", seed,
                        "Tell me a story.", **self.where).stdout for seed in ("1", "1", "2")]
        self.assertEqual(answers[0], answers[1])
        self.assertNotEqual(answers[0], answers[2])

    def test_conversation_is_remembered_by_the_prefix_cache(self):
        self.need_model()
        result = tarn("chat", "-v", "--max-tokens", "6", stdin=b"Hello there!\nGo on.\n",
                      **self.where)
        self.ends(result, 0)
        speeds = re.findall(r"prompt: .*", result.stderr.decode())
        self.assertEqual(len(speeds), 2, result.stderr)
        self.assertNotIn("cached", speeds[0])
        self.assertIn("cached)", speeds[1])
        self.leaves_nothing()

    def test_a_line_that_is_no_text_ends_a_piped_chat(self):
        self.need_model()
        for line, why in ((b"a\0bb cc\n", "a zero byte in it"), (b"a\xffb\n", "not valid UTF-8")):
            result = tarn("chat", "-v", "--max-tokens", "2", stdin=b"Hello\n" + line + b"Hi\n",
                          **self.where)
            self.ends(result, 1, why)
            self.assertEqual(1, result.stderr.count(b"prompt:"))

    def test_prompt_longer_than_the_context(self):
        self.need_model()
        result = tarn("run", "--ctx", "16", "Why is the sky blue?", **self.where)
        self.ends(result, 1, "the context holds 16", "")

    def test_what_tarnd_says_when_it_cannot_start(self):
        self.ends(tarn("run", "--model", "/bin/sh", "x", **self.where), 3,
                  "tarn: /bin/sh: not a GGUF file", "")
        result = tarn("run", "--model", "/bin/sh", "--threads", "9999", "x", **self.where)
        self.ends(result, 2, 'tarn: --threads: "9999" is not a number from 1 to 256\n', "")
        self.leaves_nothing()

    def test_a_gpu_that_is_not_there(self):
        if HAS_GPU:
            self.skipTest("there is a GPU here")
        result = tarn("run", "--model", TINY, "--device", "cuda", "x", **self.where)
        self.ends(result, 3, f"tarn: {TINY}: device cuda: ", "")
        self.assertRegex(result.stderr, b"no NVIDIA (driver|GPU) here")
        # Who did not ask for it hears nothing of it.
        for device in (), ("--device", "auto"), ("--device", "cpu"):
            result = tarn("run", "--model", TINY, *device, "--max-tokens", "2", "x", **self.where)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertNotRegex(result.stderr, b"cuda|GPU")
        self.leaves_nothing()

    def test_signals_end_all_of_it(self):
        self.need_model()
        for signo, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)):
            with self.subTest(signo=signo):
                with start("run", "Count from 1 to 1000.", **self.where) as process:
                    self.assertTrue(os.read(process.stdout.fileno(), 1))
                    self.assertEqual(len(tarnds_in(self.folder)), 1)
                    process.send_signal(signo)
                    process.communicate(timeout=WAIT_S)
                    self.assertEqual(process.returncode, code)
                self.leaves_nothing()

    def test_signal_while_loading(self):
        self.need_model()
        with start("run", "x", **self.where) as process:
            while not tarnds_in(self.folder):
                time.sleep(0.001)
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=WAIT_S)
            self.assertEqual(process.returncode, 130)
        self.leaves_nothing()

    def test_reader_that_stops_reading(self):
        self.need_model()
        with start("run", "Count from 1 to 1000.", **self.where) as process:
            os.read(process.stdout.fileno(), 1)
            process.stdout.close()
            process.wait(timeout=WAIT_S)
            self.assertEqual(process.returncode, -signal.SIGPIPE)
        self.leaves_nothing()

    def test_daemon_that_is_killed(self):
        self.need_model()
        with start("run", "Count from 1 to 1000.", **self.where) as process:
            os.read(process.stdout.fileno(), 1)
            os.kill(tarnds_in(self.folder)[0], signal.SIGKILL)
            _, err = process.communicate(timeout=WAIT_S)
            self.assertEqual(process.returncode, 1)
            self.assertIn(b"\ntarn: tarnd was ended by signal 9", b"\n" + err)
        self.leaves_nothing()

    def test_socket_cannot_be_entered_from_outside(self):
        self.need_model()
        with start("run", "Count from 1 to 1000.", **self.where) as process:
            os.read(process.stdout.fileno(), 1)
            self.assertEqual(os.listdir(self.folder), [])
            process.terminate()
            process.communicate(timeout=WAIT_S)


class Terminal:
    """tarn on a pseudo terminal."""

    def __init__(self, *arguments, **changes):
        self.seen = ""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            changes.setdefault("TERM", "xterm")
            os.execve(TARN, [TARN, *arguments], environment(**changes))

    def type(self, text):
        os.write(self.fd, text.encode())

    def read_some(self, seconds):
        if select.select([self.fd], [], [], seconds)[0]:
            # A terminal whose last program is gone fails to be read.
            with contextlib.suppress(OSError):
                data = os.read(self.fd, 65536)
                self.seen += data.decode(errors="replace")
                return bool(data)
        return False

    def wait_for(self, pattern):
        """Reads until the pattern appears, and forgets all up to its end."""
        end = time.monotonic() + WAIT_S
        while not (found := re.search(pattern, self.seen)):
            if time.monotonic() > end or not self.read_some(1) and self.is_gone():
                raise AssertionError(f"no {pattern!r} in {self.seen!r}")
        before = self.seen[:found.start()]
        self.seen = self.seen[found.end():]
        return before

    def is_gone(self):
        with open(f"/proc/{self.pid}/stat", encoding="ascii") as f:
            return f.read().rsplit(")", 1)[1].split()[0] == "Z"

    def end(self):
        """Its exit code."""
        while self.read_some(WAIT_S):
            pass
        _, status = os.waitpid(self.pid, 0)
        os.close(self.fd)
        return os.waitstatus_to_exitcode(status)


class OnTerminal(OwnTest):
    def setUp(self):
        super().setUp()
        self.need_model()

    def test_progress_bar_then_answer(self):
        terminal = Terminal("run", "--max-tokens", "5", "Hello!", **self.where)
        terminal.wait_for(r"\[#*\.*\] +\d+% ")
        terminal.wait_for(r"\r\x1b\[K")
        terminal.wait_for(SPEED.replace(r"\n", r"\r\n"))
        self.assertEqual(terminal.end(), 0)

    def test_interrupt_stops_the_answer_and_not_the_chat(self):
        terminal = Terminal("chat", **self.where)
        terminal.wait_for(">>> ")
        terminal.type("Count from 1 to 1000.\n")
        terminal.wait_for(r"\r\n\S")
        terminal.type("\x03")
        terminal.wait_for(r"\(stopped\)\r\n")
        terminal.wait_for(">>> ")
        # The key reached the whole foreground group: the daemon must not have been in it.
        terminal.type("What is 2+2?\n")
        terminal.wait_for(r"\r\n")
        self.assertNotIn("tarn:", terminal.wait_for(">>> "))
        self.assertEqual(len(tarnds_in(self.folder)), 1)
        terminal.type("/clear\n")
        terminal.wait_for("forgotten")
        terminal.wait_for(">>> ")
        terminal.type("/bye\n")
        self.assertEqual(terminal.end(), 0)
        self.leaves_nothing()

    def test_line_is_edited_dropped_and_ended(self):
        terminal = Terminal("chat", **self.where)
        terminal.wait_for(">>> ")
        terminal.type("half a line")
        terminal.wait_for("half a line")
        terminal.type("\x03")
        terminal.wait_for(r"Ctrl-D or /bye ends")
        terminal.wait_for(">>> ")
        # A character of two bytes is one step of the cursor and one to delete; ^A: to the start.
        # Insert, page down, F5 and the ends of pasted text leave nothing behind.
        terminal.type("hü\x1b[2~\x1b[6~ll\x1b[15~\x1b[200~p\x1b[201~")
        terminal.type("\x02\x02\x02\x7fe\x06\x7f\x01/\n")
        terminal.wait_for("/clear   forget")
        terminal.wait_for(">>> ")
        terminal.type("\x04")
        self.assertEqual(terminal.end(), 0)
        self.leaves_nothing()

    def test_terminal_without_abilities(self):
        terminal = Terminal("chat", **dict(self.where, TERM="dumb"))
        terminal.wait_for(">>> ")
        terminal.type("/help\n")
        terminal.wait_for("/clear   forget")
        terminal.wait_for(">>> ")
        terminal.type("\x03")
        terminal.wait_for(r"Ctrl-D or /bye ends")
        terminal.wait_for(">>> ")
        terminal.type("\x04")
        self.assertEqual(terminal.end(), 0)


class Steering(CliTest):
    def test_answers_cannot_steer_the_terminal(self):
        def answer(request):
            if request.path != "/v1/completions":
                return None
            request.begin_stream()
            request.text("a\x1b[2Jb\u009bc\r\td")
            request.end_stream()
            return True
        server = Server(self, answer)
        terminal = Terminal("run", "--raw", "--socket", server.path, "x")
        terminal.wait_for("a\ufffd\\[2Jb\ufffdc\ufffd\\td\r\n")
        self.assertEqual(terminal.end(), 0)
        self.assertEqual(tarn("run", "--raw", "--socket", server.path, "x").stdout,
                         "a\x1b[2Jb\u009bc\r\td\n".encode())


if __name__ == "__main__":
    tap.main()
