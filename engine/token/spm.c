/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SPM. A whole text is one run of symbols to SentencePiece; here it is cut
 * where no piece of the vocabulary has the two bytes on either side of the
 * cut next to each other, since nothing can merge across such a place. With
 * real vocabularies that cuts at nearly every space, so heaps stay small.
 */
#include "engine/token/spm.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "engine/token/utf8.h"

struct spm {
	const struct vocab *vocab;
	int32_t unknown;
	bool has_unused; /* the vocabulary has pieces that must be taken apart again */
	uint32_t max_len; /* bytes of the longest piece that text may become */
	int32_t byte_ids[256];
	/* Whether some piece has byte b, ending a character, before byte c. */
	bool meets[256][256];
};

struct spm_part {
	uint32_t start, len;
	int32_t id;
	uint32_t note;
};

/* The two halves that an unused piece was merged from. */
struct spm_note {
	struct spm_part left, right;
};

/* One run of symbols. */
struct spm_job {
	const struct spm *spm;
	struct spm_scratch *scratch;
	const char *text;
	struct ids *out;
	bool after_unknown; /* the last id is an unknown that covers a run */
};

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return -1;
}

int spm_byte_of(const char *text, size_t len)
{
	int high, low;

	if (len != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>')
		return -1;
	high = hex_digit(text[3]);
	low = hex_digit(text[4]);
	return high < 0 || low < 0 ? -1 : high << 4 | low;
}

static void note_neighbours(struct spm *spm, const char *text, size_t len)
{
	size_t i;

	for (i = 1; i < len; i++)
		spm->meets[(uint8_t)text[i - 1]][(uint8_t)text[i]] = true;
}

int spm_create(const struct vocab *vocab, int32_t unknown, struct spm **out)
{
	struct spm *spm = calloc(1, sizeof(*spm));
	unsigned int byte;
	uint32_t id;

	*out = NULL;
	if (!spm)
		return -ENOMEM;
	spm->vocab = vocab;
	spm->unknown = unknown;
	for (byte = 0; byte < 256; byte++) {
		char text[8];

		snprintf(text, sizeof(text), "<0x%02X>", byte);
		spm->byte_ids[byte] = vocab_find(vocab, text, 6);
	}
	for (id = 0; id < vocab->nr; id++) {
		size_t len;
		const char *text = vocab_text(vocab, id, &len);

		if (!token_type_is_plain(vocab->types[id]))
			continue;
		note_neighbours(spm, text, len);
		if (len > spm->max_len)
			spm->max_len = (uint32_t)len;
		if (vocab->types[id] == TOKEN_UNUSED)
			spm->has_unused = true;
	}
	*out = spm;
	return 0;
}

void spm_destroy(struct spm *spm)
{
	free(spm);
}

void spm_scratch_deinit(struct spm_scratch *scratch)
{
	merge_work_deinit(&scratch->work);
	free(scratch->notes);
	free(scratch->stack);
	*scratch = (struct spm_scratch){ 0 };
}

/* The higher the score, the lower the rank; never MERGE_NONE, as scores are numbers. */
static uint32_t rank_of_score(float score)
{
	uint32_t bits;

	score += 0.0f; /* -0 and 0 are equal */
	memcpy(&bits, &score, sizeof(bits));
	return bits & 0x80000000u ? bits : ~(bits | 0x80000000u);
}

static void look_pair(void *owner, struct merge_sym *left,
		      const struct merge_sym *right)
{
	const struct spm_job *job = owner;
	const struct vocab *vocab = job->spm->vocab;
	uint32_t len = left->len + right->len;
	int32_t id;

	if (len > job->spm->max_len)
		return;
	id = vocab_find_plain(vocab, job->text + left->start, len);
	if (id == TOKEN_NONE)
		return;
	left->joined = id;
	left->rank = rank_of_score(vocab->scores[id]);
}

static struct spm_part part_of(const struct merge_sym *sym)
{
	return (struct spm_part){
		.start = sym->start,
		.len = sym->len,
		.id = sym->id,
		.note = sym->note,
	};
}

static int grow(void **array, size_t *room, size_t elem_bytes)
{
	size_t new_room = *room ? 2 * *room : 64;
	void *grown = realloc(*array, new_room * elem_bytes);

	if (!grown)
		return -ENOMEM;
	*array = grown;
	*room = new_room;
	return 0;
}

/* Keep the halves of a piece that may not be put out. */
static int note_unused(void *owner, struct merge_sym *left,
		       const struct merge_sym *right)
{
	struct spm_job *job = owner;
	struct spm_scratch *scratch = job->scratch;
	struct spm_note note = { part_of(left), part_of(right) };
	int err;

	left->note = MERGE_NONE;
	if (job->spm->vocab->types[left->joined] != TOKEN_UNUSED)
		return 0;
	if (scratch->nr_notes == scratch->notes_room) {
		err = grow((void **)&scratch->notes, &scratch->notes_room,
			   sizeof(note));
		if (err)
			return err;
	}
	left->note = (uint32_t)scratch->nr_notes;
	scratch->notes[scratch->nr_notes++] = note;
	return 0;
}

static int put_unknown(struct spm_job *job)
{
	if (job->after_unknown || job->spm->unknown == TOKEN_NONE)
		return 0;
	job->after_unknown = true;
	return ids_push(job->out, job->spm->unknown);
}

static int put_part(struct spm_job *job, const struct spm_part *part)
{
	uint32_t i;
	int err = 0;

	if (part->id != TOKEN_NONE) {
		job->after_unknown = false;
		return ids_push(job->out, part->id);
	}
	for (i = 0; i < part->len && !err; i++) {
		int32_t id =
			job->spm->byte_ids[(uint8_t)job->text[part->start + i]];

		if (id == TOKEN_NONE) {
			err = put_unknown(job);
		} else {
			job->after_unknown = false;
			err = ids_push(job->out, id);
		}
	}
	return err;
}

/* Put out a symbol; an unused one is taken apart, leftmost part first. */
static int put_symbol(struct spm_job *job, const struct merge_sym *sym)
{
	struct spm_scratch *scratch = job->scratch;
	struct spm_part part = part_of(sym);
	size_t depth = 0;
	int err;

	for (;;) {
		while (part.note != MERGE_NONE) {
			if (depth == scratch->stack_room) {
				err = grow((void **)&scratch->stack,
					   &scratch->stack_room, sizeof(part));
				if (err)
					return err;
			}
			scratch->stack[depth++] =
				scratch->notes[part.note].right;
			part = scratch->notes[part.note].left;
		}
		err = put_part(job, &part);
		if (err || depth == 0)
			return err;
		part = scratch->stack[--depth];
	}
}

/* Bytes of the first run: up to a place where nothing can merge. */
static size_t run_len(const struct spm *spm, const char *text, size_t len,
		      size_t *out_nr)
{
	size_t at = 0;

	*out_nr = 0;
	while (at < len) {
		unsigned int char_len = utf8_char_len(text + at, len - at);

		if (at > 0 &&
		    !spm->meets[(uint8_t)text[at - 1]][(uint8_t)text[at]])
			break;
		at += char_len ? char_len : 1;
		(*out_nr)++;
	}
	return at;
}

static int encode_run(struct spm_job *job, size_t len, size_t nr_chars)
{
	const struct merge_rules rules = {
		.look = look_pair,
		.join = job->spm->has_unused ? note_unused : NULL,
		.owner = job,
	};
	struct merge_work *work = &job->scratch->work;
	size_t start = 0;
	uint32_t at;
	int err;

	if (len > INT32_MAX)
		return -EFBIG;
	err = merge_reset(work, nr_chars);
	if (err)
		return err;
	job->scratch->nr_notes = 0;
	while (start < len) {
		unsigned int char_len =
			utf8_char_len(job->text + start, len - start);
		int32_t id = TOKEN_NONE;

		if (char_len)
			id = vocab_find_plain(job->spm->vocab,
					      job->text + start, char_len);
		else
			char_len = 1;
		merge_push(work, (uint32_t)start, char_len, id);
		start += char_len;
	}
	err = merge_run(work, &rules);
	for (at = 0; at != MERGE_NONE && !err; at = work->syms[at].next)
		err = put_symbol(job, &work->syms[at]);
	return err;
}

int spm_encode(const struct spm *spm, struct spm_scratch *scratch,
	       const char *text, size_t len, struct ids *out)
{
	struct spm_job job = {
		.spm = spm,
		.scratch = scratch,
		.text = text,
		.out = out,
	};
	int err = 0;

	while (len > 0 && !err) {
		size_t nr_chars;
		size_t run = run_len(spm, job.text, len, &nr_chars);

		err = encode_run(&job, run, nr_chars);
		job.text += run;
		len -= run;
	}
	return err;
}
