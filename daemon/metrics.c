/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counting, and how what was counted is written: see metrics.h. The text format
 * is a few lines, and the C libraries for it are not kept up; Prometheus' own
 * parser reads it in a test.
 */
#include "daemon/metrics.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* Bounds in seconds, or as numbers; 0 ends the list. */
struct histogram {
	const char *name, *help;
	bool is_time;
	double bounds[METRICS_MAX_BUCKETS];
};

/* vLLM's, with finer ones below: a small model's step takes a millisecond. */
#define SHORT_TIMES                                                          \
	.0001, .00025, .0005, .001, .002, .003, .005, .0075, .01, .025, .05, \
		.075, .1, .15, .2, .3, .5, .75, 1, 2.5, 5, 10, 40, 80
#define TTFT_TIMES                                                            \
	.001, .0025, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, \
		5, 7.5, 10, 20, 40, 80, 160, 640, 2560
#define REQUEST_TIMES                                                        \
	.001, .005, .01, .05, .1, .3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, \
		30, 40, 50, 60, 120, 480, 1920, 7680
#define TOKENS                                                                \
	1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, \
		32768, 65536, 131072, 262144, 524288, 1048576

static const struct histogram histograms[METRICS_NR_HISTOGRAMS] = {
	[METRICS_TTFT] = { "time_to_first_token_seconds",
			   "From a request's arrival to its first token.",
			   true,
			   { TTFT_TIMES } },
	[METRICS_INTER_TOKEN] = { "inter_token_latency_seconds",
				  "Between two tokens of one choice.",
				  true,
				  { SHORT_TIMES } },
	[METRICS_TIME_PER_TOKEN] = { "request_time_per_output_token_seconds",
				     "Time per token behind the first, by request.",
				     true,
				     { SHORT_TIMES } },
	[METRICS_E2E] = { "e2e_request_latency_seconds",
			  "From a request's arrival until its reply is out.",
			  true,
			  { REQUEST_TIMES } },
	[METRICS_QUEUE] = { "request_queue_time_seconds",
			    "From a request's arrival until it runs.",
			    true,
			    { REQUEST_TIMES } },
	[METRICS_PREFILL] = { "request_prefill_time_seconds",
			      "From when a request runs to its first token.",
			      true,
			      { REQUEST_TIMES } },
	[METRICS_DECODE] = { "request_decode_time_seconds",
			     "From a request's first token to its last.",
			     true,
			     { REQUEST_TIMES } },
	[METRICS_INFERENCE] = { "request_inference_time_seconds",
				"From when a request runs to its last token.",
				true,
				{ REQUEST_TIMES } },
	[METRICS_CANCEL] = { "cancel_latency_seconds",
			     "From a client's going to the end of its work.",
			     true,
			     { SHORT_TIMES } },
	[METRICS_STEP] = { "step_time_seconds",
			   "Steps of the engine.",
			   true,
			   { SHORT_TIMES } },
	[METRICS_STEP_TOKENS] = { "iteration_tokens_total",
				  "Tokens computed in one step.",
				  false,
				  { TOKENS } },
	[METRICS_PROMPT_TOKENS] = { "request_prompt_tokens",
				    "Tokens of a request's prompt.",
				    false,
				    { TOKENS } },
	[METRICS_GENERATED_TOKENS] = { "request_generation_tokens",
				       "Tokens drawn for a request.",
				       false,
				       { TOKENS } },
	[METRICS_CHOICES] = { "request_params_n",
			      "The field n of requests.",
			      false,
			      { 1, 2, 5, 10, 20 } },
	[METRICS_MAX_TOKENS] = { "request_params_max_tokens",
				 "The field max_tokens of requests.",
				 false,
				 { TOKENS } },
};

/* ---- counting ----------------------------------------------------------------- */

static void add(_Atomic uint64_t *counter, uint64_t value)
{
	atomic_fetch_add_explicit(counter, value, memory_order_relaxed);
}

static uint64_t get(const _Atomic uint64_t *counter)
{
	return atomic_load_explicit(counter, memory_order_relaxed);
}

void metrics_observe(struct metrics *metrics, enum metrics_histogram which,
		     uint64_t value)
{
	const struct histogram *h = &histograms[which];
	const double scaled = h->is_time ? (double)value / 1e9 : (double)value;
	uint32_t i = 0;

	if (!metrics)
		return;
	while (i < METRICS_MAX_BUCKETS && h->bounds[i] > 0 &&
	       scaled > h->bounds[i])
		i++;
	/* Beyond the last bound there is one place, however many bounds there are. */
	if (i < METRICS_MAX_BUCKETS && h->bounds[i] <= 0)
		i = METRICS_MAX_BUCKETS;
	add(&metrics->histograms[which].buckets[i], 1);
	add(&metrics->histograms[which].sum, value);
}

void metrics_refuse(struct metrics *metrics, int status)
{
	const int i = status - METRICS_FIRST_STATUS;

	if (metrics && i >= 0 && i < METRICS_NR_STATUS)
		add(&metrics->refusals[i], 1);
}

static enum metrics_end end_of(enum finish_reason finish)
{
	switch (finish) {
	case FINISH_STOP:
		return METRICS_END_STOP;
	case FINISH_LENGTH:
		return METRICS_END_LENGTH;
	case FINISH_ERROR:
		return METRICS_END_ERROR;
	case FINISH_NONE:
		break;
	}
	return METRICS_END_ABORT;
}

/* Only where both ends were reached, in this order. */
static void observe_span(struct metrics *metrics, enum metrics_histogram which,
			 uint64_t from_ns, uint64_t to_ns)
{
	if (from_ns && to_ns >= from_ns)
		metrics_observe(metrics, which, to_ns - from_ns);
}

void metrics_end(struct metrics *metrics, const struct request *request,
		 enum finish_reason finish, uint64_t now_ns)
{
	const uint64_t scheduled_ns = get(&request->scheduled_ns),
		       first_ns = get(&request->first_token_ns),
		       last_ns = get(&request->last_token_ns);
	const uint32_t nr_generated = atomic_load(&request->nr_generated_seen);
	const uint32_t nr_choices = request->params.nr_choices;

	if (!metrics)
		return;
	add(&metrics->ends[end_of(finish)], 1);
	if (finish == FINISH_NONE)
		return;
	observe_span(metrics, METRICS_QUEUE, request->arrive_ns, scheduled_ns);
	observe_span(metrics, METRICS_TTFT, request->arrive_ns, first_ns);
	observe_span(metrics, METRICS_PREFILL, scheduled_ns, first_ns);
	observe_span(metrics, METRICS_DECODE, first_ns, last_ns);
	observe_span(metrics, METRICS_INFERENCE, scheduled_ns, last_ns);
	observe_span(metrics, METRICS_E2E, request->arrive_ns, now_ns);
	if (nr_choices && nr_generated > nr_choices && last_ns >= first_ns)
		metrics_observe(metrics, METRICS_TIME_PER_TOKEN,
				(last_ns - first_ns) /
					((nr_generated - 1) / nr_choices));
	metrics_observe(metrics, METRICS_PROMPT_TOKENS,
			atomic_load(&request->nr_prompt_seen));
	metrics_observe(metrics, METRICS_GENERATED_TOKENS, nr_generated);
	metrics_observe(metrics, METRICS_CHOICES, request->params.nr_answers);
	metrics_observe(metrics, METRICS_MAX_TOKENS,
			request->params.max_tokens);
}

/* ---- the text ------------------------------------------------------------------ */

/* Where it is written to, and the label that stands in the braces of every sample. */
struct page {
	FILE *out;
	char *label;
};

static void write_escaped(FILE *out, const char *text)
{
	for (; *text; text++) {
		if (*text == '\n')
			fputs("\\n", out);
		else if (*text == '\\' || *text == '"')
			fprintf(out, "\\%c", *text);
		else
			fputc(*text, out);
	}
}

static char *label_of(const char *model)
{
	char *label = NULL;
	size_t len;
	FILE *out = open_memstream(&label, &len);

	if (!out)
		return NULL;
	fputs("model_name=\"", out);
	write_escaped(out, model ? model : "");
	fputs("\"", out);
	return fclose(out) == 0 ? label : NULL;
}

static void head(const struct page *page, const char *name, const char *help,
		 const char *type)
{
	fprintf(page->out, "# HELP tarn:%s %s\n# TYPE tarn:%s %s\n", name, help,
		name, type);
}

static void write_histogram(const struct page *page, const struct histogram *h,
			    const struct metrics_counts *counts)
{
	const double unit = h->is_time ? 1e9 : 1;
	uint64_t nr = 0;

	head(page, h->name, h->help, "histogram");
	for (uint32_t i = 0; i < METRICS_MAX_BUCKETS && h->bounds[i] > 0; i++) {
		nr += get(&counts->buckets[i]);
		fprintf(page->out,
			"tarn:%s_bucket{%s,le=\"%.10g\"} %" PRIu64 "\n",
			h->name, page->label, h->bounds[i], nr);
	}
	nr += get(&counts->buckets[METRICS_MAX_BUCKETS]);
	fprintf(page->out,
		"tarn:%s_bucket{%s,le=\"+Inf\"} %" PRIu64
		"\ntarn:%s_sum{%s} %.9g\ntarn:%s_count{%s} %" PRIu64 "\n",
		h->name, page->label, nr, h->name, page->label,
		(double)get(&counts->sum) / unit, h->name, page->label, nr);
}

static void write_ends(const struct page *page, const struct metrics *metrics)
{
	static const char *const names[METRICS_NR_ENDS] = {
		[METRICS_END_STOP] = "stop",
		[METRICS_END_LENGTH] = "length",
		[METRICS_END_ERROR] = "error",
		[METRICS_END_ABORT] = "abort",
	};

	head(page, "request_success_total",
	     "Requests that ran and ended, by the reason of the first choice.",
	     "counter");
	for (int i = 0; i < METRICS_NR_ENDS; i++)
		fprintf(page->out,
			"tarn:request_success_total{%s,finished_reason=\"%s\"} "
			"%" PRIu64 "\n",
			page->label, names[i], get(&metrics->ends[i]));
	head(page, "request_errors_total",
	     "Requests for text that were answered with an error, by status.",
	     "counter");
	for (int i = 0; i < METRICS_NR_STATUS; i++)
		if (get(&metrics->refusals[i]))
			fprintf(page->out,
				"tarn:request_errors_total{%s,code=\"%d\"} "
				"%" PRIu64 "\n",
				page->label, METRICS_FIRST_STATUS + i,
				get(&metrics->refusals[i]));
}

static void write_value(const struct page *page, const char *name,
			const char *help, const char *type, double value)
{
	head(page, name, help, type);
	fprintf(page->out, "tarn:%s{%s} %.17g\n", name, page->label, value);
}

static void write_kv(const struct page *page, const struct metrics_now *now)
{
	const struct tarn_engine_stat *stat = now->stat;
	const struct {
		const char *state;
		uint64_t bytes;
	} states[] = {
		{ "used", stat->kv_used_bytes },
		{ "reserved", stat->kv_reserved_bytes },
		{ "cached", stat->kv_cached_bytes },
		{ "spare", stat->kv_spare_bytes },
		{ "resident", stat->kv_resident_bytes },
		{ "limit", now->kv_limit_bytes },
	};
	const uint64_t held = stat->kv_used_bytes + stat->kv_reserved_bytes;

	write_value(
		page, "kv_cache_usage_perc",
		"KV memory held by and promised to sequences, 0 to 1 of the limit.",
		"gauge",
		now->kv_limit_bytes ?
			(double)held / (double)now->kv_limit_bytes :
			0);
	head(page, "kv_bytes", "KV memory by state.", "gauge");
	for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++)
		fprintf(page->out,
			"tarn:kv_bytes{%s,state=\"%s\"} %" PRIu64 "\n",
			page->label, states[i].state, states[i].bytes);
}

static void write_engine(const struct page *page, const struct metrics_now *now)
{
	const struct tarn_engine_stat *stat = now->stat;
	const struct {
		const char *name, *help;
		uint64_t value;
	} counters[] = {
		{ "prompt_tokens_total", "Prompt tokens computed.",
		  stat->prompt_tokens },
		{ "generation_tokens_total", "Tokens drawn.",
		  stat->generated_tokens },
		{ "prefix_cache_queries_total",
		  "Prompt tokens that were looked for in the prefix cache.",
		  stat->prefix_query_tokens },
		{ "prefix_cache_hits_total",
		  "Prompt tokens that were found there.",
		  stat->prefix_hit_tokens },
		{ "prefix_cache_shared_hits_total",
		  "Of these, tokens that another process had computed.",
		  stat->prefix_shared_tokens },
		{ "steps_total", "Steps of the engine.", stat->nr_steps },
	};

	for (size_t i = 0; i < sizeof(counters) / sizeof(counters[0]); i++)
		write_value(page, counters[i].name, counters[i].help, "counter",
			    (double)counters[i].value);
	write_value(page, "sequences", "Sequences that hold KV memory.",
		    "gauge", (double)stat->nr_seqs);
	write_kv(page, now);
}

char *metrics_text(const struct metrics *metrics, const struct metrics_now *now)
{
	char *text = NULL;
	size_t len;
	struct page page = {
		.out = open_memstream(&text, &len),
		.label = label_of(now->model),
	};
	bool is_bad;

	if (page.out) {
		write_value(&page, "num_requests_running", "Requests that run.",
			    "gauge", now->nr_running);
		write_value(&page, "num_requests_waiting",
			    "Requests that wait for memory or their turn.",
			    "gauge", now->nr_waiting);
		if (now->stat)
			write_engine(&page, now);
		write_ends(&page, metrics);
		for (int i = 0; i < METRICS_NR_HISTOGRAMS; i++)
			write_histogram(&page, &histograms[i],
					&metrics->histograms[i]);
	}
	is_bad = !page.label || !page.out || ferror(page.out);
	if (page.out && fclose(page.out) != 0)
		is_bad = true;
	free(page.label);
	if (!is_bad)
		return text;
	free(text);
	return NULL;
}
