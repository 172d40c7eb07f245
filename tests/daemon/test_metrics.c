/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is counted for /metrics: in which bucket a value falls, what of a request
 * is observed when it ends in each way, and the text that is made of it.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/metrics.h"
#include "tests/harness.h"

#define MS(n) ((uint64_t)(n)*1000000u)

FIXTURE(metrics)
{
	struct metrics metrics;
	struct request request;
};

FIXTURE_SETUP(metrics)
{
	self->request.arrive_ns = MS(1000);
	self->request.scheduled_ns = MS(1100);
	self->request.first_token_ns = MS(1400);
	self->request.last_token_ns = MS(2400);
	self->request.nr_prompt_seen = 7;
	self->request.nr_generated_seen = 11;
	self->request.params.nr_choices = 1;
	self->request.params.nr_answers = 1;
	self->request.params.max_tokens = 20;
}

FIXTURE_TEARDOWN(metrics)
{
	(void)self;
}

/* Whether the page has this line. */
static bool has(const struct metrics *metrics, const char *line)
{
	const struct metrics_now now = { .model = "m" };
	char *text = metrics_text(metrics, &now);
	const size_t len = strlen(line);
	bool is_there = false;

	ASSERT_TRUE(text != NULL);
	for (const char *at = text; at && *at && !is_there;) {
		is_there = strncmp(at, line, len) == 0 && at[len] == '\n';
		at = strchr(at, '\n');
		at = at ? at + 1 : NULL;
	}
	if (!is_there)
		TH_LOG("not there: %s", line);
	free(text);
	return is_there;
}

#define TTFT(le, n)                                                         \
	"tarn:time_to_first_token_seconds_bucket{model_name=\"m\",le=\"" le \
	"\"} " n

TEST_F(metrics, a_bound_belongs_to_its_bucket)
{
	struct metrics *m = &self->metrics;

	metrics_observe(m, METRICS_TTFT, MS(1));
	metrics_observe(m, METRICS_TTFT, MS(1) + 1);
	metrics_observe(m, METRICS_TTFT, 0);
	metrics_observe(m, METRICS_TTFT, MS(2560001));
	EXPECT_TRUE(has(m, TTFT("0.001", "2")));
	EXPECT_TRUE(has(m, TTFT("0.0025", "3")));
	EXPECT_TRUE(has(m, TTFT("2560", "3")));
	EXPECT_TRUE(has(m, TTFT("+Inf", "4")));
	EXPECT_TRUE(has(m, "tarn:time_to_first_token_seconds_count{"
			   "model_name=\"m\"} 4"));
	EXPECT_TRUE(has(m, "tarn:time_to_first_token_seconds_sum{"
			   "model_name=\"m\"} 2560.003"));
	/* Few bounds, and as many as there can be: beyond the last is one place in both. */
	metrics_observe(m, METRICS_CHOICES, 21);
	metrics_observe(m, METRICS_STEP, MS(80001));
	EXPECT_TRUE(has(m, "tarn:request_params_n_bucket{model_name=\"m\",le="
			   "\"20\"} 0"));
	EXPECT_TRUE(has(m, "tarn:request_params_n_count{model_name=\"m\"} 1"));
	EXPECT_TRUE(has(m, "tarn:step_time_seconds_bucket{model_name=\"m\",le="
			   "\"80\"} 0"));
	EXPECT_TRUE(has(m, "tarn:step_time_seconds_count{model_name=\"m\"} 1"));
	metrics_observe(NULL, METRICS_STEP, 1);
}

#define SUM(name, value) "tarn:" name "_sum{model_name=\"m\"} " value
#define COUNT(name, value) "tarn:" name "_count{model_name=\"m\"} " value
#define ENDS(reason, n)                                                         \
	"tarn:request_success_total{model_name=\"m\",finished_reason=\"" reason \
	"\"} " n

TEST_F(metrics, a_request_that_ends_is_observed_whole)
{
	struct metrics *m = &self->metrics;

	metrics_end(m, &self->request, FINISH_LENGTH, MS(3000));
	EXPECT_TRUE(has(m, SUM("request_queue_time_seconds", "0.1")));
	EXPECT_TRUE(has(m, SUM("time_to_first_token_seconds", "0.4")));
	EXPECT_TRUE(has(m, SUM("request_prefill_time_seconds", "0.3")));
	EXPECT_TRUE(has(m, SUM("request_decode_time_seconds", "1")));
	EXPECT_TRUE(has(m, SUM("request_inference_time_seconds", "1.3")));
	EXPECT_TRUE(has(m, SUM("e2e_request_latency_seconds", "2")));
	EXPECT_TRUE(
		has(m, SUM("request_time_per_output_token_seconds", "0.1")));
	EXPECT_TRUE(has(m, SUM("request_prompt_tokens", "7")));
	EXPECT_TRUE(has(m, SUM("request_generation_tokens", "11")));
	EXPECT_TRUE(has(m, SUM("request_params_max_tokens", "20")));
	EXPECT_TRUE(has(m, ENDS("length", "1")));
	/* One token: nothing was waited for between two. */
	self->request.nr_generated_seen = 1;
	metrics_end(m, &self->request, FINISH_STOP, MS(3000));
	metrics_end(m, &self->request, FINISH_ERROR, MS(3000));
	EXPECT_TRUE(
		has(m, COUNT("request_time_per_output_token_seconds", "1")));
	EXPECT_TRUE(has(m, ENDS("stop", "1")));
	EXPECT_TRUE(has(m, ENDS("error", "1")));
	EXPECT_TRUE(has(m, ENDS("abort", "0")));
}

TEST_F(metrics, what_did_not_come_to_its_end_has_no_times)
{
	struct metrics *m = &self->metrics;

	metrics_end(m, &self->request, FINISH_NONE, MS(3000));
	EXPECT_TRUE(has(m, ENDS("abort", "1")));
	EXPECT_TRUE(has(m, COUNT("e2e_request_latency_seconds", "0")));
	/* Never let in. */
	self->request.scheduled_ns = 0;
	self->request.first_token_ns = 0;
	metrics_end(m, &self->request, FINISH_STOP, MS(3000));
	EXPECT_TRUE(has(m, COUNT("time_to_first_token_seconds", "0")));
	EXPECT_TRUE(has(m, COUNT("request_queue_time_seconds", "0")));
	EXPECT_TRUE(has(m, COUNT("request_prefill_time_seconds", "0")));
	EXPECT_TRUE(has(m, COUNT("e2e_request_latency_seconds", "1")));
}

TEST_F(metrics, errors_are_counted_by_status)
{
	struct metrics *m = &self->metrics;

	metrics_refuse(m, 400);
	metrics_refuse(m, 503);
	metrics_refuse(m, 503);
	metrics_refuse(m, 599);
	metrics_refuse(m, 600);
	metrics_refuse(m, 399);
	EXPECT_TRUE(has(m, "tarn:request_errors_total{model_name=\"m\",code="
			   "\"400\"} 1"));
	EXPECT_TRUE(has(m, "tarn:request_errors_total{model_name=\"m\",code="
			   "\"503\"} 2"));
	EXPECT_TRUE(has(m, "tarn:request_errors_total{model_name=\"m\",code="
			   "\"599\"} 1"));
	EXPECT_FALSE(has(m, "tarn:request_errors_total{model_name=\"m\",code="
			    "\"600\"} 1"));
}

TEST_F(metrics, the_moment_is_written_beside)
{
	const struct tarn_engine_stat stat = {
		.kv_used_bytes = 30,
		.kv_reserved_bytes = 20,
		.kv_cached_bytes = 7,
		.prompt_tokens = 1ull << 53,
	};
	const struct metrics_now now = {
		.model = "a\"b\\c\nd",
		.nr_running = 3,
		.nr_waiting = 4,
		.stat = &stat,
		.kv_limit_bytes = 200,
	};
	static const char *const parts[] = {
		"tarn:num_requests_running{model_name=\"a\\\"b\\\\c\\nd\"} 3\n",
		"tarn:num_requests_waiting{model_name=\"a\\\"b\\\\c\\nd\"} 4\n",
		"tarn:kv_cache_usage_perc{model_name=\"a\\\"b\\\\c\\nd\"} 0.25\n",
		"state=\"cached\"} 7\n",
		"state=\"limit\"} 200\n",
		"tarn:prompt_tokens_total{model_name=\"a\\\"b\\\\c\\nd\"} "
		"9007199254740992\n",
		"# TYPE tarn:iteration_tokens_total histogram\n",
	};
	char *text = metrics_text(&self->metrics, &now);

	ASSERT_TRUE(text != NULL);
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		EXPECT_TRUE(strstr(text, parts[i]) != NULL)
		{
			TH_LOG("not there: %s", parts[i]);
		}
	free(text);
}

TEST_HARNESS_MAIN
