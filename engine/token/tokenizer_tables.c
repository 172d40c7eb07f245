/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two tables that a tokenizer derives from its vocabulary: what each
 * token stands for in running text, and where special tokens are found.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/token/tokenizer_private.h"

static size_t decode_piece(const struct tokenizer *tok, uint32_t id, char *out)
{
	size_t len, nr = 0, at = 0;
	const char *text = vocab_text(&tok->vocab, id, &len);
	uint8_t type = tok->vocab.types[id];
	int byte = type == TOKEN_BYTE ? spm_byte_of(text, len) : -1;

	if (byte >= 0) {
		out[0] = (char)byte;
		return 1;
	}
	if (tok->pretok && (type == TOKEN_NORMAL || type == TOKEN_UNUSED))
		return bpe_decode_text(text, len, out);
	if (tok->pretok || !token_type_is_plain(type)) {
		memcpy(out, text, len);
		return len;
	}
	while (at < len) {
		if (text[at] == spm_space[0] && len - at >= SPM_SPACE_BYTES &&
		    memcmp(text + at, spm_space, SPM_SPACE_BYTES) == 0) {
			out[nr++] = ' ';
			at += SPM_SPACE_BYTES;
		} else {
			out[nr++] = text[at++];
		}
	}
	return nr;
}

int tokenizer_build_pieces(struct tokenizer *tok)
{
	uint32_t nr = tok->vocab.nr, id, at = 0;

	/* No piece is longer than its token's text. */
	tok->pieces.text = malloc((size_t)tok->vocab.texts.off[nr] + 1);
	tok->pieces.off = malloc(((size_t)nr + 1) * sizeof(*tok->pieces.off));
	if (!tok->pieces.text || !tok->pieces.off)
		return -ENOMEM;
	for (id = 0; id < nr; id++) {
		tok->pieces.off[id] = at;
		at += (uint32_t)decode_piece(tok, id, tok->pieces.text + at);
	}
	tok->pieces.off[nr] = at;
	return 0;
}

static bool is_special(uint8_t type)
{
	return type == TOKEN_CONTROL || type == TOKEN_UNKNOWN ||
	       type == TOKEN_USER_DEFINED;
}

/* @texts: room for all special tokens; @arena: for their escaped texts. */
static int fill_special(struct tokenizer *tok, struct special_text *texts,
			char *arena)
{
	const struct vocab *vocab = &tok->vocab;
	size_t nr = 0;
	uint32_t id;
	int err;

	for (id = 0; id < vocab->nr; id++) {
		size_t len;
		const char *text = vocab_text(vocab, id, &len);
		char *escaped;

		if (!is_special(vocab->types[id]))
			continue;
		if (!tok->pretok) {
			err = spm_escape(text, len, false, &escaped, &len);
			if (err)
				return err;
			text = memcpy(arena, escaped, len);
			arena += len;
			free(escaped);
		}
		texts[nr++] = (struct special_text){
			.text = text,
			.len = (uint32_t)len,
			.id = (int32_t)id,
			.is_control = vocab->types[id] != TOKEN_USER_DEFINED,
		};
	}
	return special_create(texts, nr, &tok->special);
}

int tokenizer_build_special(struct tokenizer *tok)
{
	const struct vocab *vocab = &tok->vocab;
	struct special_text *texts;
	size_t nr = 0, total = 0;
	char *arena;
	uint32_t id;
	int err = -ENOMEM;

	for (id = 0; id < vocab->nr; id++) {
		size_t len;

		vocab_text(vocab, id, &len);
		if (is_special(vocab->types[id])) {
			nr++;
			total += len * SPM_SPACE_BYTES;
		}
	}
	texts = malloc((nr + 1) * sizeof(*texts));
	arena = malloc(total + 1);
	if (texts && arena)
		err = fill_special(tok, texts, arena);
	free(texts);
	free(arena);
	return err;
}
