#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""GET /metrics as Prometheus reads it: its own parser takes the page, and the figures are those of
the answers that were given."""

import contextlib
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from kit import DaemonTest, run_together, tap, wait_for  # noqa: E402

try:
    from prometheus_client.parser import text_string_to_metric_families
except ImportError as error:
    text_string_to_metric_families = None
    missing = error

# What dashboards made for vLLM look for, by type.
EXPECTED = {
    "gauge": ["num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"],
    "counter": ["prompt_tokens", "generation_tokens", "prefix_cache_queries", "prefix_cache_hits",
                "request_success"],
    "histogram": ["time_to_first_token_seconds", "inter_token_latency_seconds",
                  "request_time_per_output_token_seconds", "e2e_request_latency_seconds",
                  "request_queue_time_seconds", "request_inference_time_seconds",
                  "request_prefill_time_seconds", "request_decode_time_seconds",
                  "request_prompt_tokens", "request_generation_tokens", "request_params_n",
                  "request_params_max_tokens", "iteration_tokens_total"],
}
TIMES = ["time_to_first_token_seconds", "e2e_request_latency_seconds", "request_queue_time_seconds",
         "request_prefill_time_seconds", "request_inference_time_seconds"]


class Metrics(DaemonTest):
    @classmethod
    def setUpClass(cls):
        if text_string_to_metric_families is None:
            raise unittest.SkipTest(f"{missing}; make setup installs it")
        super().setUpClass()

    def page(self):
        reply = self.daemon.get("/metrics")
        self.assertEqual(200, reply.status)
        self.assertEqual("text/plain; version=0.0.4; charset=utf-8", reply.headers["Content-Type"])
        return list(text_string_to_metric_families(reply.body.decode()))

    def values(self):
        """{(name, the labels beside the model's): value} of all samples."""
        return {(sample.name[len("tarn:"):],
                 *(value for key, value in sorted(sample.labels.items()) if key != "model_name")):
                sample.value for family in self.page() for sample in family.samples}

    def complete(self, status=200, **fields):
        reply = self.daemon.post("/v1/completions", {
            "prompt": "One, two", "max_tokens": 6, "ignore_eos": True, **fields})
        self.assertEqual(status, reply.status, reply.body)
        return reply.json

    def test_the_parser_takes_it_and_finds_what_dashboards_ask_for(self):
        self.complete()
        families = {family.name: family for family in self.page()}
        for kind, names in EXPECTED.items():
            for name in names:
                self.assertEqual(kind, families["tarn:" + name].type, name)
        for family in families.values():
            self.assertTrue(family.documentation.endswith("."), family.name)
            self.assertNotEqual("unknown", family.type, family.name)
            for sample in family.samples:
                self.assertTrue(sample.labels["model_name"], sample)
            if family.type != "histogram":
                continue
            values = {sample.labels.get("le", sample.name): sample.value
                      for sample in family.samples}
            buckets = [sample.value for sample in family.samples if "le" in sample.labels]
            self.assertEqual(sorted(buckets), buckets, family.name)
            self.assertEqual(values[family.name + "_count"], values["+Inf"], family.name)

    def test_figures_are_those_of_the_answers(self):
        before = self.values()
        bodies = [{"n": 2, "max_tokens": 9}, {"stream": True}, {}, {"max_tokens": 1}]
        run_together([lambda body=body: self.daemon.post("/v1/completions", {
            "prompt": "One, two", "max_tokens": 6, "ignore_eos": True, **body})
            for body in bodies])
        usage = self.complete(max_tokens=4)["usage"]
        self.complete(400, max_tokens=-1)
        # The reply is out before the request is counted.
        wait_for(lambda: self.values()["request_params_n_count",]
                 == before["request_params_n_count",] + 5, "counted")
        after = self.values()
        grown = {key: value - before.get(key, 0) for key, value in after.items()}
        nr_generated = 2 * 9 + 6 + 6 + 1 + 4
        self.assertEqual(nr_generated, grown["generation_tokens_total",])
        self.assertEqual(nr_generated, grown["request_generation_tokens_sum",])
        self.assertEqual(5 * usage["prompt_tokens"], grown["request_prompt_tokens_sum",])
        self.assertEqual(nr_generated - 6, grown["inter_token_latency_seconds_count",])
        self.assertEqual(4, grown["request_time_per_output_token_seconds_count",])
        self.assertEqual(6, grown["request_params_n_sum",])
        self.assertEqual(9 + 6 + 6 + 1 + 4, grown["request_params_max_tokens_sum",])
        self.assertEqual(5, grown["request_success_total", "length"])
        self.assertEqual(1, grown["request_errors_total", "400"])
        self.assertEqual(grown["steps_total",], grown["step_time_seconds_count",])
        self.assertEqual(grown["iteration_tokens_total_count",], grown["steps_total",])
        # Each drawn token but a choice's last one is computed, and the prompt.
        self.assertEqual(grown["prompt_tokens_total",] + nr_generated - 6,
                         grown["iteration_tokens_total_sum",])
        for name in TIMES:
            self.assertEqual(5, grown[name + "_count",], name)
        self.assertLessEqual(grown["request_inference_time_seconds_sum",]
                             + grown["request_queue_time_seconds_sum",],
                             grown["e2e_request_latency_seconds_sum",])
        self.assertEqual(0, after["num_requests_running",])

    def test_a_client_that_goes_is_an_abort_and_its_work_ends_soon(self):
        before = self.values()
        connection = self.daemon.connect()
        connection.request("POST", "/v1/completions", body=(
            b'{"prompt": "a", "max_tokens": 4000, "ignore_eos": true, "stream": true}'))
        connection.getresponse().read(10)
        running = self.values()
        self.assertEqual(1, running["num_requests_running",])
        self.assertGreater(running["kv_bytes", "used"], 0)
        self.assertGreater(running["kv_cache_usage_perc",], 0)
        connection.close()
        wait_for(lambda: self.values()["cancel_latency_seconds_count",]
                 > before["cancel_latency_seconds_count",], "cancelled")
        after = self.values()
        self.assertEqual(1, after["request_success_total", "abort"]
                         - before["request_success_total", "abort"])
        self.assertEqual(before["e2e_request_latency_seconds_count",],
                         after["e2e_request_latency_seconds_count",])

    def test_head_has_no_body_and_post_is_refused(self):
        with contextlib.closing(self.daemon.connect()) as connection:
            connection.request("HEAD", "/metrics")
            reply = connection.getresponse()
            self.assertEqual((200, b""), (reply.status, reply.read()))
            self.assertGreater(int(reply.headers["Content-Length"]), 1000)
            connection.request("POST", "/metrics", body=b"{}")
            self.assertEqual(405, connection.getresponse().status)


if __name__ == "__main__":
    tap.main()
