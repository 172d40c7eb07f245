#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tarn by itself: help, usage, tokenize. No daemon and no model are needed."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cli_kit import CliTest, tap, tarn  # noqa: E402
from gguf_kit import tiny_vocabulary  # noqa: E402

COMMANDS = ("run", "chat", "ps", "pool", "tokenize", "template",
            "version")
MANUAL = os.path.join(tap.ROOT, "daemon", "tarn.1")


class Help(CliTest):
    def test_help_names_every_command(self):
        for arguments in (("help",), ("--help",), ("-h",)):
            result = tarn(*arguments)
            self.ends(result, 0)
            for command in COMMANDS:
                self.assertIn(f"\n  {command}", result.stdout.decode())

    def test_each_command_teaches_by_both_spellings(self):
        for command in COMMANDS[:-1]:
            result = tarn("help", command)
            self.ends(result, 0)
            self.assertIn(f"Usage: tarn {command}", result.stdout.decode())
            self.assertIn("Try it\n", result.stdout.decode())
            self.assertEqual(tarn(command, "--help").stdout, result.stdout)

    def test_lines_of_help_fit_a_terminal(self):
        for command in COMMANDS + ("help",):
            for line in tarn("help", command).stdout.decode().splitlines():
                self.assertLessEqual(len(line), 90, line)

    def test_manual_has_every_option_of_the_help(self):
        with open(MANUAL, encoding="utf-8") as f:
            manual = f.read().replace("Fl \\-", "--")
        for command in COMMANDS:
            for option in set(re.findall(r"--[a-z-]+", tarn("help", command).stdout.decode())):
                self.assertIn(option, manual)

    def test_version(self):
        result = tarn("version")
        self.ends(result, 0)
        self.assertRegex(result.stdout.decode(), r"\Atarn \d+\.\d+\.\d+\n\Z")
        self.assertEqual(tarn("--version").stdout, result.stdout)

    def test_help_of_nothing_known(self):
        self.ends(tarn("help", "tokenise"), 2, 'did you mean "tokenize"?')


class Usage(CliTest):
    def test_without_a_command(self):
        self.ends(tarn(), 2, "Usage: tarn COMMAND", "")

    def test_unknown_command_is_guessed(self):
        self.ends(tarn("rum"), 2, 'did you mean "run"?')
        self.ends(tarn("xyzzy"), 2, 'unknown command "xyzzy". Try: tarn help')

    def test_unknown_option_is_guessed(self):
        self.ends(tarn("run", "--temprature=1", "x"), 2,
                  'unknown option "--temprature"; did you mean "--temperature"? '
                  "Try: tarn help run")
        self.ends(tarn("run", "-x", "y"), 2, 'unknown option "-x"')

    def test_option_of_another_command(self):
        self.ends(tarn("ps", "--seed", "1"), 2, 'unknown option "--seed"')
        self.ends(tarn("run", "--special", "x"), 2, 'unknown option "--special"')

    def test_values(self):
        for arguments, why in (
                (("--temperature", "nan"), "is not a number from 0 to 2"),
                (("--temperature", "2.1"), "is not a number from 0 to 2"),
                (("--top-p", "-0.1"), "is not a number from 0 to 1"),
                (("--top-k", "1e3"), "is not a number of tokens"),
                (("--max-tokens", "0"), "is not a number of tokens from 1"),
                (("--seed", "99999999999999999999"), "is not a whole number"),
                (("--ctx", "-5"), "is not a number of tokens"),
                (("--threads", ""), "is not a number of threads"),
                (("--device", "tpu"), "is not one of auto cpu cuda"),
                (("--model", ""), "is not the path of a file"),
                (("--raw=1",), "takes no value"),
                (("--model",), "needs a value")):
            with self.subTest(arguments=arguments):
                self.ends(tarn("run", *arguments, *(() if arguments == ("--model",) else ("x",))),
                          2, why)

    def test_options_of_a_daemon_need_one_to_start(self):
        for option in (("--model", "m"), ("--ctx", "9"), ("--threads", "1"), ("--device", "cpu"),
                       ("--precise",)):
            self.ends(tarn("run", "--socket", "/nowhere", *option, "x"), 2,
                      f"{option[0]} is for a daemon that tarn starts")
        self.ends(tarn("run", "--precise", "x", TARN_SOCKET="/nowhere"), 2, "names one that runs")

    def test_raw_has_no_place_for_a_system_prompt(self):
        self.ends(tarn("chat", "--raw", "--system", "x"), 2, "--system needs the chat template")

    def test_prompts_that_are_none(self):
        self.ends(tarn("run"), 2, "the prompt is empty")
        self.ends(tarn("run", "-", stdin=b"\n"), 2, "the prompt is empty")
        self.ends(tarn("run", stdin=b"a\xffb"), 2, "not valid UTF-8")
        self.ends(tarn("run", stdin=b"a\0b"), 2, "zero byte")

    def test_words_where_none_belong(self):
        self.ends(tarn("chat", "hello"), 2, "tarn run")
        self.ends(tarn("ps", "x"), 2, "ps takes no")
        self.ends(tarn("tokenize", "x"), 2, "reads standard input")


class Missing(CliTest):
    def test_no_model_says_how_to_get_one(self):
        for arguments in (("run", "x"), ("chat",), ("tokenize",)):
            result = tarn(*arguments, HOME="/nowhere")
            self.ends(result, 3, "/nowhere/.cache/tarn/SmolLM2-135M-Instruct.Q4_1.gguf")
            self.assertIn("fetch-model", result.stderr.decode())

    def test_cache_folder_follows_the_environment(self):
        self.ends(tarn("run", "x", TARN_CACHE="/a", XDG_CACHE_HOME="/b"), 3, "/a/SmolLM2")
        self.ends(tarn("run", "x", XDG_CACHE_HOME="/b"), 3, "/b/tarn/SmolLM2")

    def test_named_model_is_not_there(self):
        self.ends(tarn("run", "--model", "/nowhere/m.gguf", "x"), 3, "/nowhere/m.gguf (--model)")
        self.ends(tarn("run", "x", TARN_MODEL="/nowhere/m.gguf"), 3, "(TARN_MODEL)")

    def test_no_daemon(self):
        for arguments in (("run", "x"), ("chat",), ("ps",)):
            self.ends(tarn(*arguments, "--socket", "/nowhere/s"), 3,
                      "no daemon answers at /nowhere/s: No such file or directory", "")
        self.ends(tarn("ps", XDG_RUNTIME_DIR="/nowhere"), 3, "/nowhere/tarn.sock")
        self.ends(tarn("run", "x", "--socket", "/" + "s" * 120), 1, "File name too long")


class Tokenize(CliTest):
    def setUp(self):
        super().setUp()
        folder = tempfile.mkdtemp(prefix="tarn-tokenize-")
        self.addCleanup(shutil.rmtree, folder)
        self.model = os.path.join(folder, "vocabulary.gguf")
        with open(self.model, "wb") as f:
            f.write(tiny_vocabulary())

    def ids(self, text, *options):
        result = tarn("tokenize", "--model", self.model, *options, stdin=text)
        self.ends(result, 0, "")
        self.assertRegex(result.stdout.decode(), r"\A\[.*\]\n\Z")
        return json.loads(result.stdout)

    def test_a_file_without_tensors_will_do(self):
        self.assertEqual(self.ids(b"hey\n"), [256, ord("y"), 10])

    def test_every_byte_counts(self):
        self.assertEqual(self.ids(b""), [])
        self.assertEqual(self.ids(b"\0\xff"), [0, 255])

    def test_control_tokens_are_text_unless_special(self):
        self.assertEqual(self.ids(b"a<|end|>", "--special"), [ord("a"), 257])
        self.assertEqual(self.ids(b"a<|end|>"), [ord(c) for c in "a<|end|>"])

    def test_bos_only_if_asked(self):
        self.assertEqual(self.ids(b"a", "--special"), [ord("a")])
        self.assertEqual(self.ids(b"a", "--bos"), [257, ord("a")])

    def test_model_by_the_environment(self):
        result = tarn("tokenize", stdin=b"he", TARN_MODEL=self.model)
        self.ends(result, 0, "", "[256]\n")

    def test_a_file_that_is_no_model(self):
        self.ends(tarn("tokenize", "--model", "/bin/sh", stdin=b"x"), 3,
                  "/bin/sh: not a GGUF file", "")

    def test_an_unknown_pre_tokenizer_only_if_allowed(self):
        with open(self.model, "wb") as f:
            f.write(tiny_vocabulary(pre="gpt-9\x1b"))
        command = ("tokenize", "--model", self.model)
        self.ends(tarn(*command, stdin=b"hey"), 3,
                  'pre-tokenizer "gpt-9?" is not supported', "")
        self.ends(tarn(*command, "--allow-unknown-pre", stdin=b"hey"), 0,
                  'pre-tokenizer "gpt-9?" is not known: taken as "default"', "[256, 121]\n")
        with open(self.model, "wb") as f:
            f.write(tiny_vocabulary(pre="qwen2"))
        self.ends(tarn(*command, "--allow-unknown-pre", stdin=b"hey"), 0, "", "[256, 121]\n")

    def test_a_full_disk_is_told(self):
        with open("/dev/full", "wb") as full:
            result = subprocess.run([os.path.join(tap.BUILD_DIR, "tarn"), "tokenize", "--model",
                                     self.model], input=b"x", stdout=full, check=False,
                                    stderr=subprocess.PIPE)
        self.ends(result, 1, "No space left on device")

    def test_closed_descriptors_are_told(self):
        # Their numbers must not be given to what tarn itself opens.
        def run(*closed):
            return subprocess.run([os.path.join(tap.BUILD_DIR, "tarn"), "tokenize", "--model",
                                   self.model], check=False, stderr=subprocess.PIPE,
                                  preexec_fn=lambda: [os.close(fd) for fd in closed])

        self.ends(run(0), 1, "cannot read the text: Bad file descriptor")
        self.ends(run(0, 1), 1, "cannot read the text: Bad file descriptor")
        with tempfile.TemporaryFile() as text:
            text.write(b"x")
            text.seek(0)
            result = subprocess.run([os.path.join(tap.BUILD_DIR, "tarn"), "tokenize", "--model",
                                     self.model], check=False, stdin=text,
                                    stderr=subprocess.PIPE, preexec_fn=lambda: os.close(1))
        self.ends(result, 1, "cannot write: Bad file descriptor")


if __name__ == "__main__":
    tap.main()
