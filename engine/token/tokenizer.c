/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Use of a built tokenizer: cutting text at special tokens, encoding what
 * lies between by the model's method, and turning ids back into bytes.
 * Everything an encoding writes is on its own stack and heap.
 */
#include "engine/token/tokenizer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/token/tokenizer_private.h"

/* One call of tokenizer_encode(). */
struct encoding {
	const struct tokenizer *tok;
	struct ids ids;
	struct bpe_scratch bpe;
	struct spm_scratch spm;
};

int spm_escape(const char *text, size_t len, bool prefix, char **out,
	       size_t *out_len)
{
	size_t nr_spaces = prefix, at = 0, i;
	char *escaped;

	for (i = 0; i < len; i++)
		nr_spaces += text[i] == ' ';
	*out_len = len + nr_spaces * (SPM_SPACE_BYTES - 1) + prefix;
	if (*out_len > INT32_MAX)
		return -EFBIG;
	escaped = malloc(*out_len + 1);
	if (!escaped)
		return -ENOMEM;
	if (prefix) {
		memcpy(escaped, spm_space, SPM_SPACE_BYTES);
		at = SPM_SPACE_BYTES;
	}
	for (i = 0; i < len; i++) {
		if (text[i] != ' ') {
			escaped[at++] = text[i];
			continue;
		}
		memcpy(escaped + at, spm_space, SPM_SPACE_BYTES);
		at += SPM_SPACE_BYTES;
	}
	*out = escaped;
	return 0;
}

/* Text without special tokens. For SPM it is escaped already. */
static int encode_raw(struct encoding *enc, const char *text, size_t len)
{
	const struct tokenizer *tok = enc->tok;
	char *spaced;
	int err;

	if (len == 0)
		return 0;
	if (tok->bpe)
		return bpe_encode(tok->bpe, &enc->bpe, text, len, &enc->ids);
	if (!tok->adds_space)
		return spm_encode(tok->spm, &enc->spm, text, len, &enc->ids);
	/* Raw text is cut at special tokens, so each piece begins the text or follows one. */
	err = spm_escape(text, len, true, &spaced, &len);
	if (err)
		return err;
	err = spm_encode(tok->spm, &enc->spm, spaced, len, &enc->ids);
	free(spaced);
	return err;
}

static int encode_text(struct encoding *enc, const char *text, size_t len,
		       bool parse_special)
{
	struct special_match match;
	size_t at = 0;
	int err;

	while (special_find(enc->tok->special, text, len, at, parse_special,
			    &match)) {
		err = encode_raw(enc, text + at, match.start - at);
		if (!err)
			err = ids_push(&enc->ids, match.id);
		if (err)
			return err;
		at = match.end;
	}
	return encode_raw(enc, text + at, len - at);
}

/*
 * As SentencePiece does: one space for a run, none in front, and neither a
 * space nor a U+2581 at the end. @out: malloc'ed.
 */
static int remove_spaces(const char *text, size_t len, char **out,
			 size_t *out_len)
{
	size_t nr = 0, i;
	char *kept = malloc(len + 1);

	if (!kept)
		return -ENOMEM;
	for (i = 0; i < len; i++) {
		if (text[i] != ' ' || (nr > 0 && kept[nr - 1] != ' '))
			kept[nr++] = text[i];
	}
	for (;;) {
		if (nr > 0 && kept[nr - 1] == ' ')
			nr--;
		else if (nr >= SPM_SPACE_BYTES &&
			 memcmp(kept + nr - SPM_SPACE_BYTES, spm_space,
				SPM_SPACE_BYTES) == 0)
			nr -= SPM_SPACE_BYTES;
		else
			break;
	}
	*out = kept;
	*out_len = nr;
	return 0;
}

/* SPM sees spaces as U+2581 from here on, in special tokens too. */
static int encode_escaped(struct encoding *enc, const char *text, size_t len,
			  bool parse_special)
{
	char *kept = NULL, *escaped = NULL;
	int err = 0;

	if (enc->tok->bpe)
		return encode_text(enc, text, len, parse_special);
	if (enc->tok->removes_spaces)
		err = remove_spaces(text, len, &kept, &len);
	if (!err)
		err = spm_escape(kept ? kept : text, len, false, &escaped,
				 &len);
	if (!err)
		err = encode_text(enc, escaped, len, parse_special);
	free(escaped);
	free(kept);
	return err;
}

/* BOS in front and EOS behind, unless the text has brought its own. */
static int add_special(struct encoding *enc)
{
	const struct tokenizer *tok = enc->tok;
	struct ids *ids = &enc->ids;
	int err = 0;

	if (tok->adds_bos && tok->bos != TOKEN_NONE &&
	    (!ids->nr || ids->ids[0] != tok->bos)) {
		err = ids_push(ids, tok->bos);
		if (err)
			return err;
		memmove(ids->ids + 1, ids->ids,
			(ids->nr - 1) * sizeof(*ids->ids));
		ids->ids[0] = tok->bos;
	}
	if (tok->adds_eos && tok->eos != TOKEN_NONE &&
	    (!ids->nr || ids->ids[ids->nr - 1] != tok->eos))
		err = ids_push(ids, tok->eos);
	return err;
}

int tokenizer_encode(const struct tokenizer *tok, const char *text, size_t len,
		     unsigned int flags, int32_t **out_ids, size_t *out_nr)
{
	struct encoding enc = { .tok = tok };
	int err = 0;

	*out_ids = NULL;
	*out_nr = 0;
	if (len > INT32_MAX)
		return -EFBIG;
	if (tok->bpe)
		err = bpe_scratch_init(&enc.bpe, tok->bpe);
	if (err)
		return err;
	err = encode_escaped(&enc, text, len, flags & TOKENIZE_PARSE_SPECIAL);
	if (!err && flags & TOKENIZE_ADD_SPECIAL)
		err = add_special(&enc);
	bpe_scratch_deinit(&enc.bpe);
	spm_scratch_deinit(&enc.spm);
	if (err || enc.ids.nr == 0) {
		free(enc.ids.ids);
		return err;
	}
	*out_ids = enc.ids.ids;
	*out_nr = enc.ids.nr;
	return 0;
}

static bool is_id(const struct tokenizer *tok, int32_t id)
{
	return id >= 0 && (uint32_t)id < tok->vocab.nr;
}

const char *tokenizer_piece(const struct tokenizer *tok, int32_t id,
			    bool special, size_t *out_len)
{
	uint8_t type;

	*out_len = 0;
	if (!is_id(tok, id))
		return "";
	type = tok->vocab.types[id];
	if (!special && (type == TOKEN_CONTROL || type == TOKEN_UNKNOWN))
		return "";
	*out_len = tok->pieces.off[id + 1] - tok->pieces.off[id];
	return tok->pieces.text + tok->pieces.off[id];
}

int tokenizer_decode(const struct tokenizer *tok, const int32_t *ids, size_t nr,
		     bool special, char **out_text, size_t *out_len)
{
	size_t total = 0, len, i;
	const char *piece;
	char *text;

	*out_text = NULL;
	*out_len = 0;
	for (i = 0; i < nr; i++) {
		if (!is_id(tok, ids[i]))
			return -EINVAL;
		tokenizer_piece(tok, ids[i], special, &len);
		if (__builtin_add_overflow(total, len, &total) ||
		    total == SIZE_MAX)
			return -ENOMEM;
	}
	text = malloc(total + 1);
	if (!text)
		return -ENOMEM;
	total = 0;
	for (i = 0; i < nr; i++) {
		piece = tokenizer_piece(tok, ids[i], special, &len);
		memcpy(text + total, piece, len);
		total += len;
	}
	text[total] = '\0';
	*out_text = text;
	*out_len = total;
	return 0;
}

uint32_t tokenizer_nr_tokens(const struct tokenizer *tok)
{
	return tok->vocab.nr;
}

enum token_type tokenizer_type(const struct tokenizer *tok, int32_t id)
{
	return is_id(tok, id) ? tok->vocab.types[id] : TOKEN_UNKNOWN;
}

int32_t tokenizer_bos(const struct tokenizer *tok)
{
	return tok->bos;
}

int32_t tokenizer_eos(const struct tokenizer *tok)
{
	return tok->eos;
}

bool tokenizer_adds_bos(const struct tokenizer *tok)
{
	return tok->adds_bos;
}

bool tokenizer_adds_space(const struct tokenizer *tok)
{
	return tok->adds_space;
}

bool tokenizer_is_end(const struct tokenizer *tok, int32_t id)
{
	return ends_has(&tok->ends, id);
}

int32_t tokenizer_find(const struct tokenizer *tok, const char *text,
		       size_t len)
{
	return vocab_find(&tok->vocab, text, len);
}

void tokenizer_destroy(struct tokenizer *tok)
{
	if (!tok)
		return;
	bpe_destroy(tok->bpe);
	pretok_destroy(tok->pretok);
	spm_destroy(tok->spm);
	special_destroy(tok->special);
	free(tok->pieces.text);
	free(tok->pieces.off);
	vocab_deinit(&tok->vocab);
	free(tok);
}
