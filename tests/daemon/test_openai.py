#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The official client of OpenAI's API, over the Unix socket."""

import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from kit import DaemonTest, tap  # noqa: E402

try:
    import httpx2
    import openai
except ImportError as error:
    httpx2 = openai = None
    missing = error


# The small model answers it rightly and then stops.
QUESTION = "What is 2+2?"


class OpenAi(DaemonTest):
    @classmethod
    def setUpClass(cls):
        if openai is None:
            raise unittest.SkipTest(f"{missing}; make setup installs it")
        super().setUpClass()
        transport = httpx2.HTTPTransport(uds=cls.daemon.socket)
        cls.client = openai.OpenAI(base_url="http://tarn/v1", api_key="none", max_retries=0,
                                   http_client=openai.DefaultHttpxClient(transport=transport))
        cls.model = cls.client.models.list().data[0].id

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        super().tearDownClass()

    def test_a_streamed_chat_completes(self):
        stream = self.client.chat.completions.create(
            model=self.model, temperature=0, stream=True, stream_options={"include_usage": True},
            max_tokens=200, messages=[{"role": "user", "content": QUESTION}])
        text, finish, usage = "", None, None
        for chunk in stream:
            if chunk.choices:
                text += chunk.choices[0].delta.content or ""
                finish = chunk.choices[0].finish_reason or finish
            else:
                usage = chunk.usage
        self.assertIn("4", text)
        self.assertEqual("stop", finish)
        self.assertGreater(usage.completion_tokens, 0)

    def test_a_whole_chat_with_logprobs(self):
        answer = self.client.chat.completions.create(
            model=self.model, max_tokens=5, temperature=0, logprobs=True, top_logprobs=3, n=2,
            messages=[{"role": "user", "content": "Say hello."}])
        self.assertEqual(2, len(answer.choices))
        self.assertEqual(3, len(answer.choices[0].logprobs.content[0].top_logprobs))
        self.assertEqual(answer.choices[0].message.content, answer.choices[1].message.content)
        usage = answer.usage
        self.assertLess(usage.prompt_tokens_details.cached_tokens, usage.prompt_tokens)

    def test_completions_and_vendor_fields(self):
        answer = self.client.completions.create(
            model=self.model, prompt="One, two, three,", max_tokens=6, temperature=0, stop=["six"],
            extra_body={"return_token_ids": True, "top_k": 1})
        self.assertIn("four", answer.choices[0].text)
        self.assertTrue(answer.choices[0].token_ids)

    def test_errors_are_the_clients_own(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.client.chat.completions.create(model=self.model, messages=[])
        self.assertEqual("messages", caught.exception.param)
        with self.assertRaises(openai.NotFoundError) as caught:
            self.client.chat.completions.create(model="other", messages=[
                {"role": "user", "content": "x"}])
        self.assertEqual("model_not_found", caught.exception.code)
        with self.assertRaises(openai.BadRequestError) as caught:
            self.client.completions.create(model=self.model, prompt="word " * 20000)
        self.assertEqual("context_length_exceeded", caught.exception.code)


if __name__ == "__main__":
    tap.main()
