/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Splitting by PCRE2, compiled to machine code where the system allows it.
 * Passes are nested, not stored: a piece of one pass goes straight to the
 * next, so memory does not grow with the text.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "engine/token/pretok.h"

#include <errno.h>
#include <pcre2.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/model/gguf.h"
#include "engine/token/pretok_table.h"
#include "engine/token/utf8.h"

struct pretok {
	unsigned int flags;
	unsigned int nr_passes;
	pcre2_code *passes[PRETOK_MAX_PASSES];
};

struct pretok_scratch {
	pcre2_match_data *match;
	pcre2_match_context *context;
};

/* What the nested passes of one split share. */
struct split {
	const struct pretok *pretok;
	struct pretok_scratch *scratch;
	int (*emit)(void *owner, const char *piece, size_t len);
	void *owner;
};

static int compile(const char *pattern, bool of_bytes, pcre2_code **out,
		   char *err, size_t errlen)
{
	PCRE2_UCHAR why[128];
	PCRE2_SIZE at;
	int code;

	*out = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
			     of_bytes ? 0 : PCRE2_UTF | PCRE2_UCP, &code, &at,
			     NULL);
	if (!*out) {
		if (code == PCRE2_ERROR_NOMEMORY)
			return -ENOMEM;
		pcre2_get_error_message(code, why, sizeof(why));
		snprintf(err, errlen, "pre-tokenizer pattern, offset %zu: %s",
			 (size_t)at, (const char *)why);
		return -ENOTSUP;
	}
	/* Where no executable memory is to be had, matching is slower but the same. */
	pcre2_jit_compile(*out, PCRE2_JIT_COMPLETE);
	return 0;
}

static int compile_row(struct pretok *pretok, const struct pretok_row *row,
		       char *err, size_t errlen)
{
	unsigned int nr = 0, i;
	int ret;

	while (nr < PRETOK_MAX_PASSES && row->passes[nr])
		nr++;
	for (i = 0; i < nr; i++) {
		ret = compile(row->passes[i], nr - i <= row->nr_byte_passes,
			      &pretok->passes[i], err, errlen);
		if (ret)
			return ret;
		pretok->nr_passes++;
	}
	return 0;
}

int pretok_create(const char *name, size_t len, struct pretok **out, char *err,
		  size_t errlen)
{
	const struct pretok_row *row = pretok_row_find(name, len);
	struct pretok *pretok;
	int ret;

	*out = NULL;
	if (!row) {
		char shown[GGUF_SHOWN_BYTES];

		snprintf(err, errlen, "pre-tokenizer \"%s\" is not supported",
			 gguf_show((struct gguf_str){ name, len }, shown));
		return -ENOTSUP;
	}
	pretok = calloc(1, sizeof(*pretok));
	if (!pretok)
		return -ENOMEM;
	pretok->flags = row->flags;
	ret = compile_row(pretok, row, err, errlen);
	if (ret) {
		pretok_destroy(pretok);
		return ret;
	}
	*out = pretok;
	return 0;
}

bool pretok_is_known(const char *name, size_t len)
{
	return pretok_row_find(name, len) != NULL;
}

void pretok_destroy(struct pretok *pretok)
{
	unsigned int i;

	if (!pretok)
		return;
	for (i = 0; i < pretok->nr_passes; i++)
		pcre2_code_free(pretok->passes[i]);
	free(pretok);
}

unsigned int pretok_flags(const struct pretok *pretok)
{
	return pretok->flags;
}

struct pretok_scratch *pretok_scratch_create(void)
{
	struct pretok_scratch *scratch = calloc(1, sizeof(*scratch));

	if (!scratch)
		return NULL;
	scratch->match = pcre2_match_data_create(1, NULL);
	scratch->context = pcre2_match_context_create(NULL);
	if (!scratch->match || !scratch->context) {
		pretok_scratch_destroy(scratch);
		return NULL;
	}
	/*
	 * The limits guard against patterns that backtrack without end. Ours step
	 * back through one run of spaces at most, which may be megabytes long.
	 */
	pcre2_set_match_limit(scratch->context, UINT32_MAX);
	pcre2_set_depth_limit(scratch->context, UINT32_MAX);
	return scratch;
}

void pretok_scratch_destroy(struct pretok_scratch *scratch)
{
	if (!scratch)
		return;
	pcre2_match_data_free(scratch->match);
	pcre2_match_context_free(scratch->context);
	free(scratch);
}

/*
 * The next match in @text from @from on. Return: 1 with its bounds, 0 for no
 * match, -ENOMEM.
 */
static int next_match(const struct split *split, unsigned int pass,
		      const char *text, size_t len, size_t from,
		      size_t *out_start, size_t *out_end)
{
	struct pretok_scratch *scratch = split->scratch;
	const PCRE2_SIZE *bounds;
	int nr;

	nr = pcre2_match(split->pretok->passes[pass], (PCRE2_SPTR)text, len,
			 from, PCRE2_NO_UTF_CHECK, scratch->match,
			 scratch->context);
	/* The stack of compiled code is small; the interpreter's is the heap. */
	if (nr == PCRE2_ERROR_JIT_STACKLIMIT)
		nr = pcre2_match(split->pretok->passes[pass], (PCRE2_SPTR)text,
				 len, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
				 scratch->match, scratch->context);
	if (nr == PCRE2_ERROR_NOMATCH)
		return 0;
	if (nr < 0)
		return -ENOMEM;
	bounds = pcre2_get_ovector_pointer(scratch->match);
	*out_start = bounds[0];
	*out_end = bounds[1];
	return 1;
}

/* A piece is a text of its own to the next pass: nothing around it is seen. */
static int run_pass(const struct split *split, unsigned int pass,
		    const char *text, size_t len)
{
	size_t at = 0, start, end;
	int ret;

	if (len == 0)
		return 0;
	if (pass == split->pretok->nr_passes)
		return split->emit(split->owner, text, len);
	while (at < len) {
		ret = next_match(split, pass, text, len, at, &start, &end);
		if (ret < 0)
			return ret;
		if (ret == 0)
			break;
		/* No pattern of the table matches the empty string; move on if one did. */
		if (end == start)
			end += utf8_char_len(text + end, len - end);
		ret = run_pass(split, pass + 1, text + at, start - at);
		if (!ret)
			ret = run_pass(split, pass + 1, text + start,
				       end - start);
		if (ret)
			return ret;
		at = end;
	}
	return run_pass(split, pass + 1, text + at, len - at);
}

int pretok_split(const struct pretok *pretok, struct pretok_scratch *scratch,
		 const char *text, size_t len,
		 int (*emit)(void *owner, const char *piece, size_t len),
		 void *owner)
{
	const struct split split = {
		.pretok = pretok,
		.scratch = scratch,
		.emit = emit,
		.owner = owner,
	};

	return run_pass(&split, 0, text, len);
}
