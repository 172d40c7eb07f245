/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Speed and memory of the whole engine on a real model: time to ready, prefill,
 * decode at a short and a long context, many sequences together, KV memory.
 * Every speed stands beside the peak it is a fraction of, measured in this run.
 *
 * Usage: bench_engine [--model FILE] [--threads N] [--long TOKENS] [--precise] [--cpu-time]
 *                     [--only-prefill]
 * The model defaults to $TARN_TEST_MODEL. Medians are printed. --cpu-time, with one thread, counts
 * CPU time instead of wall time, the peaks' too: what a busy machine leaves comparable.
 */
#include <getopt.h>

#include "engine/engine_private.h"
#include "tests/bench/peaks.h"

enum {
	PREFILL_TOKENS = 512,
	NR_PREFILLS = 7,
	NR_DECODES = 96,
	NR_LONG_DECODES = 32,
	NR_TOGETHER = 16,
	FAR_BYTES = 640 << 20, /* beyond any last-level cache here */
	MAX_STEPS = 256,
};

static struct tarn_engine *engine;
static double peak_gops, read_far;
static int nr_threads;
static bool use_cpu_time, only_prefill;

static double now_s(void)
{
	return clock_s(use_cpu_time ? CLOCK_PROCESS_CPUTIME_ID :
				      CLOCK_MONOTONIC);
}

static uint64_t rss_bytes(void)
{
	FILE *f = fopen("/proc/self/statm", "re");
	unsigned long long size, rss = 0;

	if (f && fscanf(f, "%llu %llu", &size, &rss) != 2)
		rss = 0;
	if (f)
		fclose(f);
	return rss * 4096;
}

/* Multiply-adds of one token's linear layers, times two; the head apart. */
static double layer_ops(void)
{
	const struct model_config *c = &engine->model.config;
	double qkvo = (double)c->n_embd * c->head_dim *
		      (2.0 * c->n_q_heads + 2.0 * c->n_kv_heads);

	return 2.0 * c->nr_layers * (qkvo + 3.0 * c->n_embd * c->n_ff);
}

static double kv_read_bytes(uint32_t len)
{
	double bytes = 0;

	for (uint32_t s = 0; s < engine->model.nr_streams; s++) {
		const struct attn_layout *l = kv_cache_layout(engine->kv, s);
		uint32_t window = engine->model.streams[s].window_tokens;

		bytes += 2.0 * l->nr_layers * l->nr_kv_heads * l->head_dim *
			 l->elem_bytes *
			 (window && window < len ? window : len);
	}
	return bytes;
}

static struct tarn_seq *open_seq(uint32_t nr_prompt, uint32_t max_new,
				 uint32_t salt)
{
	int32_t *ids = malloc(nr_prompt * sizeof(*ids));
	struct tarn_seq_params p = {
		.prompt = ids,
		.nr_prompt = nr_prompt,
		.max_new_tokens = max_new,
		.nr_choices = 1,
		.sampling = { .top_p = 1, .ignore_eos = true },
		.no_prefix_cache = true,
	};
	struct tarn_seq *seq;
	char err[256];

	for (uint32_t i = 0; i < nr_prompt; i++)
		ids[i] = (int32_t)((i * 7919u + salt * 104729u) %
					   (engine->info.nr_vocab - 300) +
				   200);
	if (tarn_seq_create(engine, &p, &seq, err, sizeof(err))) {
		fprintf(stderr, "bench_engine: %s\n", err);
		exit(1);
	}
	free(ids);
	return seq;
}

static double step(struct tarn_work *work, uint32_t nr)
{
	static struct tarn_result results[NR_TOGETHER];
	double t = now_s();

	if (tarn_step(engine, work, nr, results)) {
		fprintf(stderr, "bench_engine: a step failed\n");
		exit(1);
	}
	return now_s() - t;
}

static double prefill(struct tarn_seq *seq)
{
	double t = 0;

	while (tarn_seq_pending(seq)) {
		uint32_t pending = tarn_seq_pending(seq);
		uint32_t limit = engine->info.max_batch_tokens;
		struct tarn_work work = { seq,
					  pending < limit ? pending : limit };
		bool is_last = work.nr_tokens == pending;

		t += step(&work, 1);
		if (is_last)
			break; /* what is pending now is the first drawn token */
	}
	return t;
}

static void bench_prefill(void)
{
	double times[NR_PREFILLS], t, ops = layer_ops() * PREFILL_TOKENS;

	for (int i = 0; i < NR_PREFILLS; i++) {
		struct tarn_seq *seq = open_seq(PREFILL_TOKENS, 1, (uint32_t)i);

		times[i] = prefill(seq);
		tarn_seq_destroy(seq);
	}
	t = quantile(times, NR_PREFILLS, 0.5);
	printf("prefill %d tokens      %8.1f tok/s   %7.1f ms   "
	       "linear layers alone %5.1f %% of the VNNI peak\n",
	       PREFILL_TOKENS, PREFILL_TOKENS / t, t * 1e3,
	       100 * ops / t / peak_gops);
}

static clockid_t peak_clock(void)
{
	return use_cpu_time ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
}

/* Bytes a second of reading @bytes again and again: what of them a cache holds counts. */
static double read_peak(size_t bytes)
{
	uint8_t *p = map_bytes(bytes);
	double rate;

	memset(p, 1, bytes);
	rate = read_rate(p, bytes, nr_threads, peak_clock());
	munmap(p, bytes);
	return rate;
}

static void print_decode(const char *what, double t, uint32_t nr, uint32_t len)
{
	double bytes =
		(double)engine->info.weight_bytes + nr * kv_read_bytes(len);
	double read_same = read_peak((size_t)bytes & ~(size_t)4095);

	printf("%-24s%8.1f tok/s   %7.3f ms   %6.1f GB/s = %3.0f %% of %.1f of a step's %.0f MB, "
	       "%3.0f %% of %.1f (beyond cache)\n",
	       what, nr / t, t * 1e3, bytes / t * 1e-9,
	       100 * bytes / t / read_same, read_same * 1e-9, bytes * 1e-6,
	       100 * bytes / t / read_far, read_far * 1e-9);
}

static void bench_decode(uint32_t context, int nr_steps, const char *what)
{
	struct tarn_seq *seq = open_seq(context, (uint32_t)nr_steps + 1, 77);
	struct tarn_work work = { seq, 1 };
	double times[MAX_STEPS], t = prefill(seq);

	if (context > PREFILL_TOKENS)
		printf("prefill %u tokens     %8.1f tok/s   %7.1f ms\n",
		       context, context / t, t * 1e3);
	for (int i = 0; i < nr_steps; i++)
		times[i] = step(&work, 1);
	print_decode(what, quantile(times, nr_steps, 0.5), 1,
		     context + (uint32_t)nr_steps / 2);
	tarn_seq_destroy(seq);
}

static void bench_together(void)
{
	struct tarn_work work[NR_TOGETHER];
	double times[NR_DECODES];
	struct tarn_engine_stat stat;
	uint64_t want = 0;

	for (uint32_t i = 0; i < NR_TOGETHER; i++) {
		work[i] = (struct tarn_work){
			open_seq(100 + 9 * i, NR_DECODES + 1, i), 1
		};
		prefill(work[i].seq);
	}
	for (int i = 0; i < NR_DECODES; i++)
		times[i] = step(work, NR_TOGETHER);
	print_decode("16 sequences together", quantile(times, NR_DECODES, 0.5),
		     NR_TOGETHER, 200);
	tarn_engine_stat(engine, &stat);
	for (uint32_t i = 0; i < NR_TOGETHER; i++)
		want += (uint64_t)tarn_seq_len(work[i].seq) *
			engine->info.kv_bytes_per_token;
	printf("KV memory of %d sequences: %.1f MiB for %.1f MiB of tokens (%.2f tiles each over), "
	       "spare %.1f MiB\n",
	       NR_TOGETHER, (double)stat.kv_used_bytes / (1 << 20),
	       (double)want / (1 << 20),
	       ((double)stat.kv_used_bytes - (double)want) / NR_TOGETHER /
		       ((double)engine->info.kv_bytes_per_token *
			kv_cache_layout(engine->kv, 0)->tile_tokens),
	       (double)stat.kv_spare_bytes / (1 << 20));
	for (uint32_t i = 0; i < NR_TOGETHER; i++)
		tarn_seq_destroy(work[i].seq);
}

static void print_machine(void)
{
	char model[256];

	cpu_model(model, sizeof(model));
	printf("CPU %s\n", model);
	printf("%d threads, %s\n", nr_threads, engine->info.device);
}

static void measure_peaks(void)
{
	peak_gops = peak_ops(nr_threads,
			     strstr(engine->info.device, "avx512") != NULL,
			     peak_clock());
	read_far = read_peak(FAR_BYTES);
	printf("peaks in this run: %.0f GOP/s (8 bit), read %.1f GB/s (%d MB)\n",
	       peak_gops * 1e-9, read_far * 1e-9, FAR_BYTES / 1000000);
}

static void parse(int argc, char **argv, struct tarn_engine_options *o,
		  uint32_t *out_long)
{
	static const struct option options[] = {
		{ "model", required_argument, NULL, 'm' },
		{ "threads", required_argument, NULL, 't' },
		{ "long", required_argument, NULL, 'l' },
		{ "precise", no_argument, NULL, 'p' },
		{ "cpu-time", no_argument, NULL, 'c' },
		{ "only-prefill", no_argument, NULL, 'o' },
		{ 0 },
	};
	int c;

	o->model_path = getenv("TARN_TEST_MODEL");
	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (c) {
		case 'm':
			o->model_path = optarg;
			break;
		case 't':
			o->nr_threads = (uint32_t)atoi(optarg);
			break;
		case 'l':
			*out_long = (uint32_t)atoi(optarg);
			break;
		case 'p':
			o->precise = true;
			break;
		case 'c':
			use_cpu_time = true;
			break;
		case 'o':
			only_prefill = true;
			break;
		default:
			exit(2);
		}
	}
	if (!o->model_path) {
		printf("bench_engine: no model: give --model or set TARN_TEST_MODEL\n");
		exit(4);
	}
}

int main(int argc, char **argv)
{
	struct tarn_engine_options o = { .kv_bytes = 2ull << 30 };
	uint32_t long_context = 7900;
	char err[256];
	double t;

	parse(argc, argv, &o, &long_context);
	if (o.nr_threads > MAX_THREADS) {
		fprintf(stderr, "bench_engine: at most %d threads\n",
			MAX_THREADS);
		return 2;
	}
	t = clock_s(CLOCK_MONOTONIC);
	if (tarn_engine_create(&o, &engine, err, sizeof(err))) {
		fprintf(stderr, "bench_engine: %s\n", err);
		return 1;
	}
	t = clock_s(CLOCK_MONOTONIC) - t;
	nr_threads = (int)engine->info.nr_threads;
	print_machine();
	printf("%s, %s: ready in %.0f ms, resident %.1f MiB (packed weights %.1f)\n",
	       engine->info.model_name, engine->info.quant, t * 1e3,
	       (double)rss_bytes() / (1 << 20),
	       (double)engine->info.weight_bytes / (1 << 20));
	measure_peaks();
	bench_prefill();
	if (only_prefill)
		return 0;
	bench_decode(128, NR_DECODES, "decode at 128");
	if (long_context + NR_LONG_DECODES < engine->info.ctx_tokens)
		bench_decode(long_context, NR_LONG_DECODES,
			     "decode at long context");
	bench_together();
	printf("resident at the end %.1f MiB\n",
	       (double)rss_bytes() / (1 << 20));
	tarn_engine_destroy(engine);
	return 0;
}
