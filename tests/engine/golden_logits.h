/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the golden logits of tests/data (made by make_logits_golden.py, which
 * describes the format) and measures how far an engine's logits are from
 * them. For tests; all static, no state, any thread.
 *
 *	struct golden golden;
 *	struct golden_prompt prompt;
 *	struct golden_error error = { 0 };
 *
 *	golden_open("tests/data/logits_smollm2.bin", &golden);
 *	golden_prompt_at(&golden, i, &prompt);
 *	for each prompt.kept[k]:
 *		golden_error_add(&error, &golden, &prompt.kept[k], logits);
 *	golden_error_relative(&error), golden_error_top1(&error)
 */
#ifndef TARN_TESTS_ENGINE_GOLDEN_LOGITS_H
#define TARN_TESTS_ENGINE_GOLDEN_LOGITS_H

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	GOLDEN_NR_TOP = 64,
	GOLDEN_NR_SKETCH = 64,
	GOLDEN_VEC_BLOCK = 64,
};

/* The header of the file. */
struct golden_head {
	char magic[8];
	uint32_t n_vocab;
	uint32_t nr_prompts;
	uint32_t nr_top;
	uint32_t nr_sketch;
	uint32_t vec_block;
	uint32_t zero;
	uint8_t model_sha256[32];
};

/* A position of a prompt, as in the file. */
struct golden_kept {
	uint32_t position;
	uint32_t zero;
	double norm; /* Euclidean norm of all logits */
	float top[GOLDEN_NR_TOP]; /* the largest, falling */
	uint32_t ids[GOLDEN_NR_TOP]; /* and whose they are; ties by id */
	float sketch[GOLDEN_NR_SKETCH];
};

_Static_assert(sizeof(struct golden_head) == 64, "layout of the file");
_Static_assert(sizeof(struct golden_kept) == 784, "layout of the file");

struct golden {
	const struct golden_head *head;
	const uint8_t *base;
	size_t size;
};

struct golden_prompt {
	uint32_t nr_tokens;
	uint32_t nr_kept;
	uint32_t nr_whole;
	const int32_t *tokens;
	const struct golden_kept *kept; /* by rising position */
	const uint8_t *whole; /* for golden_whole() */
};

/* Return: 0, -errno, -EINVAL for a file that is no golden file. golden_close() undoes it. */
static inline int golden_open(const char *path, struct golden *out)
{
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) < 0 ||
	    st.st_size < (off_t)sizeof(struct golden_head)) {
		close(fd);
		return -EINVAL;
	}

	void *base = mmap(NULL, st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);

	close(fd);
	if (base == MAP_FAILED)
		return -ENOMEM;
	*out = (struct golden){ .head = base,
				.base = base,
				.size = st.st_size };
	if (memcmp(out->head->magic, "TARNLOG1", 8) ||
	    out->head->nr_top != GOLDEN_NR_TOP ||
	    out->head->nr_sketch != GOLDEN_NR_SKETCH ||
	    out->head->vec_block != GOLDEN_VEC_BLOCK ||
	    out->head->n_vocab % GOLDEN_VEC_BLOCK) {
		munmap(base, st.st_size);
		return -EINVAL;
	}
	return 0;
}

static inline void golden_close(struct golden *golden)
{
	munmap((void *)golden->base, golden->size);
	golden->base = NULL;
}

static inline size_t golden_whole_bytes(const struct golden *golden)
{
	size_t n_vocab = golden->head->n_vocab;

	return 8 + n_vocab / GOLDEN_VEC_BLOCK * sizeof(float) +
	       n_vocab * sizeof(int16_t);
}

/* Prompt @i. Return: 0; -ERANGE past the last; -EINVAL where the file ends too early. */
static inline int golden_prompt_at(const struct golden *golden, uint32_t i,
				   struct golden_prompt *out)
{
	size_t pos = sizeof(struct golden_head);

	if (i >= golden->head->nr_prompts)
		return -ERANGE;
	for (uint32_t n = 0; n <= i; n++) {
		uint32_t head[4];

		if (golden->size - pos < sizeof(head))
			return -EINVAL;
		memcpy(head, golden->base + pos, sizeof(head));
		out->nr_tokens = head[0];
		out->nr_kept = head[1];
		out->nr_whole = head[2];
		pos += sizeof(head);
		out->tokens = (const int32_t *)(golden->base + pos);
		pos += (out->nr_tokens + 1ul) / 2 * 8;
		out->kept = (const struct golden_kept *)(golden->base + pos);
		pos += out->nr_kept * sizeof(struct golden_kept);
		out->whole = golden->base + pos;
		pos += out->nr_whole * golden_whole_bytes(golden);
		if (pos > golden->size)
			return -EINVAL;
	}
	return 0;
}

/* The record of @position, or NULL where it was not kept. */
static inline const struct golden_kept *
golden_find(const struct golden_prompt *prompt, uint32_t position)
{
	for (uint32_t k = 0; k < prompt->nr_kept; k++) {
		if (prompt->kept[k].position == position)
			return &prompt->kept[k];
	}
	return NULL;
}

/*
 * All logits of a position kept whole, number @i of the prompt: fills
 * out[0..n_vocab), each within 1/65534 of the largest in its block of 64.
 */
static inline uint32_t golden_whole(const struct golden *golden,
				    const struct golden_prompt *prompt,
				    uint32_t i, float *out)
{
	const uint8_t *p = prompt->whole + i * golden_whole_bytes(golden);
	uint32_t position, n_vocab = golden->head->n_vocab;
	const float *scales = (const float *)(p + 8);
	const int16_t *values =
		(const int16_t *)(scales + n_vocab / GOLDEN_VEC_BLOCK);

	memcpy(&position, p, sizeof(position));
	for (uint32_t v = 0; v < n_vocab; v++)
		out[v] = scales[v / GOLDEN_VEC_BLOCK] * (float)values[v];
	return position;
}

static inline uint64_t golden_hash(uint64_t i)
{
	uint64_t z = i + 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

/* The count sketch: signed sums whose differences estimate |x - y|. */
static inline void golden_sketch(const float *logits, uint32_t n_vocab,
				 double out[GOLDEN_NR_SKETCH])
{
	memset(out, 0, GOLDEN_NR_SKETCH * sizeof(out[0]));
	for (uint32_t i = 0; i < n_vocab; i++) {
		uint64_t hash = golden_hash(i);

		out[hash >> 58] += hash & 1 ? -(double)logits[i] :
					      (double)logits[i];
	}
}

/* Index of the largest; the lowest of equals. */
static inline uint32_t golden_argmax(const float *logits, uint32_t n)
{
	uint32_t best = 0;

	for (uint32_t i = 1; i < n; i++) {
		if (logits[i] > logits[best])
			best = i;
	}
	return best;
}

/* Errors pooled over positions. Begins as all zeros. */
struct golden_error {
	double diff_square; /* of all logits, estimated by the sketches */
	double norm_square; /* of the golden logits */
	double top_diff_square; /* of the 64 largest, exact */
	double top_square;
	double worst_diff; /* largest absolute error among the 64 largest */
	double worst_gap; /* golden top 1 - golden logit of another choice; INFINITY: below 64 */
	uint32_t nr_positions;
	uint32_t nr_top1_equal;
	bool has_nan;
};

static inline void golden_error_add(struct golden_error *error,
				    const struct golden *golden,
				    const struct golden_kept *kept,
				    const float *logits)
{
	uint32_t n_vocab = golden->head->n_vocab;
	double sketch[GOLDEN_NR_SKETCH];

	golden_sketch(logits, n_vocab, sketch);
	for (int i = 0; i < GOLDEN_NR_SKETCH; i++) {
		double diff = sketch[i] - (double)kept->sketch[i];

		error->diff_square += diff * diff;
		error->has_nan |= !isfinite(sketch[i]);
	}
	error->norm_square += kept->norm * kept->norm;

	uint32_t choice = golden_argmax(logits, n_vocab);
	double gap = INFINITY;

	for (int i = 0; i < GOLDEN_NR_TOP; i++) {
		double diff =
			(double)logits[kept->ids[i]] - (double)kept->top[i];

		error->top_diff_square += diff * diff;
		error->top_square +=
			(double)kept->top[i] * (double)kept->top[i];
		error->worst_diff = fmax(error->worst_diff, fabs(diff));
		if (kept->ids[i] == choice)
			gap = (double)kept->top[0] - (double)kept->top[i];
	}
	error->nr_positions++;
	if (choice == kept->ids[0])
		error->nr_top1_equal++;
	else
		error->worst_gap = fmax(error->worst_gap, gap);
}

/* |logits - golden| / |golden|, pooled over all positions added; NAN where a logit was. */
static inline double golden_error_relative(const struct golden_error *error)
{
	return error->has_nan ? NAN :
				sqrt(error->diff_square / error->norm_square);
}

/* Share of positions whose largest logit is the golden one's. */
static inline double golden_error_top1(const struct golden_error *error)
{
	return error->nr_positions ?
		       (double)error->nr_top1_equal / error->nr_positions :
		       0;
}

#endif /* TARN_TESTS_ENGINE_GOLDEN_LOGITS_H */
