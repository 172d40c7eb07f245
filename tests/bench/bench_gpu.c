/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Speed of a whole model on the GPU: time to ready, prefill, decode at several
 * contexts, many sequences together from the first prompt to the last token.
 * Wall time of the engine's steps, sampling on the host included; medians. A step that
 * decodes is begun before the last one ended, or, for comparison, after it; its time is from
 * end to end.
 *
 * Usage: bench_gpu --model FILE [--batch-tokens N] [--prefill N] [--contexts N,N,...]
 *                  [--growth] [--fork CONTEXT] [--together N --in N --out N]
 *                  [--decodes N] [--one-by-one | --both]
 * --both: each decode is measured one by one and ahead in turn, on the same sequences.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine_private.h"
#include "tests/bench/times.h"

enum {
	NR_PREFILLS = 5,
	NR_DECODES = 100,
	MAX_DECODES = 4096,
	MAX_TOGETHER = 1024,
	MAX_TIMES = 1 << 16,
	NR_GROWTHS = 5,
	GROWTH_STEPS = 500,
	NR_FORKS = 50,
};

struct config {
	uint32_t prefill, together, in, out, fork, decodes;
	bool growth, both;
	const char *contexts;
};

static struct tarn_engine *engine;
static const struct tarn_engine_info *info;
static bool is_ahead = true;

static struct tarn_seq *open_seq_of(uint32_t nr_prompt, uint32_t max_new,
				    uint32_t salt, uint32_t nr_choices)
{
	int32_t *ids = malloc(nr_prompt * sizeof(*ids));
	struct tarn_seq_params p = {
		.prompt = ids,
		.nr_prompt = nr_prompt,
		.max_new_tokens = max_new,
		.nr_choices = nr_choices,
		.sampling = { .top_p = 1, .ignore_eos = true },
		.no_prefix_cache = true,
	};
	struct tarn_seq *seq;
	char err[256];

	for (uint32_t i = 0; ids && i < nr_prompt; i++)
		ids[i] = (int32_t)((i * 7919u + salt * 104729u) %
				   (info->nr_vocab - 300));
	if (!ids || tarn_seq_create(engine, &p, &seq, err, sizeof(err))) {
		fprintf(stderr, "bench_gpu: %s\n", ids ? err : "no memory");
		exit(1);
	}
	free(ids);
	return seq;
}

static struct tarn_seq *open_seq(uint32_t nr_prompt, uint32_t max_new,
				 uint32_t salt)
{
	return open_seq_of(nr_prompt, max_new, salt, 1);
}

static struct tarn_result results[MAX_TOGETHER];

static void must(int rc, uint32_t nr)
{
	for (uint32_t i = 0; i < nr && !rc; i++)
		rc = results[i].status;
	if (rc) {
		fprintf(stderr, "bench_gpu: a step failed: %s\n",
			strerror(-rc));
		exit(1);
	}
}

static double step(const struct tarn_work *work, uint32_t nr)
{
	double t = clock_s(CLOCK_MONOTONIC);

	must(tarn_step(engine, work, nr, results), nr);
	return clock_s(CLOCK_MONOTONIC) - t;
}

/* Steps of the same sequences, a token each. */
static void decode(const struct tarn_work *work, uint32_t nr, double *times,
		   uint32_t nr_steps)
{
	double last = clock_s(CLOCK_MONOTONIC), now;

	if (is_ahead)
		must(tarn_step_begin(engine, work, nr), 0);
	for (uint32_t i = 0; i < nr_steps; i++) {
		if (!is_ahead) {
			must(tarn_step(engine, work, nr, results), nr);
		} else {
			if (i + 1 < nr_steps)
				must(tarn_step_begin(engine, work, nr), 0);
			must(tarn_step_end(engine, results), nr);
		}
		now = clock_s(CLOCK_MONOTONIC);
		times[i] = now - last;
		last = now;
	}
}

static double mean(const double *times, uint32_t nr)
{
	double sum = 0;

	for (uint32_t i = 0; i < nr; i++)
		sum += times[i];
	return sum / nr;
}

static const char *way(void)
{
	return is_ahead ? "ahead" : "one by one";
}

/* The prompt in chunks of a whole batch; the last one draws a token. */
static double prefill(struct tarn_seq *seq, uint32_t nr_prompt)
{
	double t = 0;

	for (uint32_t done = 0; done < nr_prompt;) {
		uint32_t left = nr_prompt - done;
		uint32_t nr = left < info->max_batch_tokens ?
				      left :
				      info->max_batch_tokens;

		t += step(&(struct tarn_work){ seq, nr }, 1);
		done += nr;
	}
	return t;
}

static void bench_prefill(uint32_t nr)
{
	double times[NR_PREFILLS], t;

	for (int i = 0; i < NR_PREFILLS; i++) {
		struct tarn_seq *seq = open_seq(nr, 1, (uint32_t)i);

		times[i] = prefill(seq, nr);
		tarn_seq_destroy(seq);
	}
	t = quantile(times, NR_PREFILLS, 0.5);
	printf("prefill %6u tokens        %9.0f tok/s  %9.2f ms\n", nr, nr / t,
	       t * 1e3);
}

static void bench_decode(const struct config *c, uint32_t context)
{
	uint32_t nr_ways = c->both ? 4 : 1, nr = c->decodes;
	struct tarn_seq *seq = open_seq(context, nr * nr_ways + 1, 77);
	struct tarn_work work = { seq, 1 };
	static double times[MAX_DECODES];

	prefill(seq, context);
	for (uint32_t i = 0; i < nr_ways; i++) {
		if (c->both)
			is_ahead = i % 2;
		decode(&work, 1, times, nr);
		printf("decode at %6u  %-10s %9.1f tok/s  %9.3f ms  mean %.3f  p99 %.3f\n",
		       context, way(), 1 / quantile(times, nr, 0.5),
		       quantile(times, nr, 0.5) * 1e3, mean(times, nr) * 1e3,
		       quantile(times, nr, 0.99) * 1e3);
		fflush(stdout);
	}
	tarn_seq_destroy(seq);
}

/* Steps of one sequence whose memory is made as it grows, or was there before. */
static void growth_run(uint32_t context, double *times, int nr)
{
	struct tarn_seq *seq = open_seq(context, (uint32_t)nr + 1, 5);
	struct tarn_work work = { seq, 1 };

	prefill(seq, context);
	decode(&work, 1, times, (uint32_t)nr);
	tarn_seq_destroy(seq);
}

/*
 * What growing costs on the decode path: fresh runs, before each of which no spare page is left,
 * in turn with runs over the pages of the one before, still mapped.
 */
static void bench_growth(uint32_t context)
{
	static double fresh[NR_GROWTHS * GROWTH_STEPS],
		warm[NR_GROWTHS * GROWTH_STEPS];
	int nr = NR_GROWTHS * GROWTH_STEPS;
	uint64_t dropped = 0;

	for (int i = 0; i < NR_GROWTHS; i++) {
		dropped += kvpool_trim(engine->pool, UINT64_MAX);
		growth_run(context, fresh + i * GROWTH_STEPS, GROWTH_STEPS);
		growth_run(context, warm + i * GROWTH_STEPS, GROWTH_STEPS);
	}
	printf("decode of %d tokens behind %u, %s, memory made on the way / there before: "
	       "median %.3f / %.3f ms, p99 %.3f / %.3f, p999 %.3f / %.3f; "
	       "%.1f MiB were given back between\n",
	       GROWTH_STEPS, context, way(),
	       quantile(fresh, (size_t)nr, 0.5) * 1e3,
	       quantile(warm, (size_t)nr, 0.5) * 1e3,
	       quantile(fresh, (size_t)nr, 0.99) * 1e3,
	       quantile(warm, (size_t)nr, 0.99) * 1e3,
	       quantile(fresh, (size_t)nr, 0.999) * 1e3,
	       quantile(warm, (size_t)nr, 0.999) * 1e3,
	       (double)dropped / (1 << 20));
}

static void bench_fork(uint32_t context)
{
	struct tarn_seq *parent =
		open_seq_of(context, NR_FORKS + 2, 9, NR_FORKS + 1);
	struct tarn_seq *children[NR_FORKS];
	double times[NR_FORKS];
	struct tarn_engine_stat before, after;

	/* All but the last token, whose logits the choices draw from. */
	prefill(parent, context - 1);
	tarn_engine_stat(engine, &before);
	for (uint32_t i = 0; i < NR_FORKS; i++) {
		double t = clock_s(CLOCK_MONOTONIC);
		int rc = tarn_seq_fork(parent, i + 1, &children[i]);

		times[i] = clock_s(CLOCK_MONOTONIC) - t;
		if (rc) {
			fprintf(stderr, "bench_gpu: fork: %s\n", strerror(-rc));
			exit(1);
		}
	}
	tarn_engine_stat(engine, &after);
	printf("fork at %u tokens: median %.3f ms, p99 %.3f; %.2f MiB of new memory each\n",
	       context, quantile(times, NR_FORKS, 0.5) * 1e3,
	       quantile(times, NR_FORKS, 0.99) * 1e3,
	       ((double)after.kv_used_bytes - (double)before.kv_used_bytes) /
		       NR_FORKS / (1 << 20));
	for (uint32_t i = 0; i < NR_FORKS; i++)
		tarn_seq_destroy(children[i]);
	tarn_seq_destroy(parent);
}

static void bench_together(const struct config *c)
{
	static struct tarn_work work[MAX_TOGETHER];
	static double times[MAX_TIMES];
	double in = 0, out;
	uint32_t nr_steps = c->out - 1 < MAX_TIMES ? c->out - 1 : MAX_TIMES;

	for (uint32_t i = 0; i < c->together; i++) {
		work[i] = (struct tarn_work){ open_seq(c->in, c->out, i), 1 };
		in += prefill(work[i].seq, c->in);
	}
	out = clock_s(CLOCK_MONOTONIC);
	decode(work, c->together, times, nr_steps);
	out = clock_s(CLOCK_MONOTONIC) - out;
	printf("%u x (%u in, %u out) %s  %9.0f tok/s out of all time  (in %.2f s = %.0f tok/s, "
	       "out %.2f s = %.0f tok/s; a step %.2f ms, p99 %.2f)\n",
	       c->together, c->in, nr_steps + 1, way(),
	       c->together * (nr_steps + 1.0) / (in + out), in,
	       (double)c->together * c->in / in, out,
	       (double)c->together * nr_steps / out,
	       quantile(times, (int)nr_steps, 0.5) * 1e3,
	       quantile(times, (int)nr_steps, 0.99) * 1e3);
	for (uint32_t i = 0; i < c->together; i++)
		tarn_seq_destroy(work[i].seq);
}

static void parse(int argc, char **argv, struct tarn_engine_options *o,
		  struct config *c)
{
	static const struct option options[] = {
		{ "model", required_argument, NULL, 'm' },
		{ "batch-tokens", required_argument, NULL, 'b' },
		{ "prefill", required_argument, NULL, 'p' },
		{ "contexts", required_argument, NULL, 'c' },
		{ "together", required_argument, NULL, 't' },
		{ "in", required_argument, NULL, 'i' },
		{ "out", required_argument, NULL, 'o' },
		{ "fork", required_argument, NULL, 'f' },
		{ "growth", no_argument, NULL, 'g' },
		{ "decodes", required_argument, NULL, 'd' },
		{ "one-by-one", no_argument, NULL, '1' },
		{ "both", no_argument, NULL, '2' },
		{ 0 },
	};
	int opt;

	o->model_path = getenv("TARN_TEST_MODEL");
	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		uint32_t n = optarg ? (uint32_t)atoi(optarg) : 0;

		switch (opt) {
		case 'm':
			o->model_path = optarg;
			break;
		case 'b':
			o->max_batch_tokens = n;
			break;
		case 'p':
			c->prefill = n;
			break;
		case 'c':
			c->contexts = optarg;
			break;
		case 't':
			c->together = n < MAX_TOGETHER ? n : MAX_TOGETHER;
			break;
		case 'i':
			c->in = n;
			break;
		case 'o':
			c->out = n;
			break;
		case 'f':
			c->fork = n;
			break;
		case 'g':
			c->growth = true;
			break;
		case 'd':
			c->decodes = n < MAX_DECODES ? n : MAX_DECODES;
			break;
		case '1':
			is_ahead = false;
			break;
		case '2':
			c->both = true;
			break;
		default:
			exit(2);
		}
	}
}

int main(int argc, char **argv)
{
	struct tarn_engine_options o = { .device = TARN_DEVICE_CUDA,
					 .max_batch_tokens = 2048 };
	struct config c = {
		.prefill = 8192,
		.contexts = "128,8192",
		.in = 1000,
		.out = 1000,
		.decodes = NR_DECODES,
	};
	char err[256];
	double t;

	parse(argc, argv, &o, &c);
	if (!o.model_path) {
		printf("bench_gpu: no model: give --model or set TARN_TEST_MODEL\n");
		return 4;
	}
	t = clock_s(CLOCK_MONOTONIC);
	if (tarn_engine_create(&o, &engine, err, sizeof(err))) {
		fprintf(stderr, "bench_gpu: %s\n", err);
		return 1;
	}
	info = tarn_engine_info(engine);
	printf("%s, %s on %s: ready in %.2f s, weights %.2f GB, KV limit %.1f GB\n",
	       info->model_name, info->quant, info->device,
	       clock_s(CLOCK_MONOTONIC) - t, (double)info->weight_bytes * 1e-9,
	       (double)info->kv_limit_bytes * 1e-9);
	fflush(stdout);
	if (c.prefill)
		bench_prefill(c.prefill);
	for (const char *at = c.contexts; *at;) {
		bench_decode(&c, (uint32_t)strtoul(at, (char **)&at, 10));
		at += *at == ',';
	}
	for (int i = 0; i < (c.both ? 2 : 1); i++) {
		if (c.both)
			is_ahead = i;
		/* By an eighth at a time: often while it is short, seldom later. */
		if (c.growth) {
			bench_growth(128);
			bench_growth(2048);
		}
		if (c.together)
			bench_together(&c);
	}
	if (c.fork)
		bench_fork(c.fork);
	tarn_engine_destroy(engine);
	return 0;
}
