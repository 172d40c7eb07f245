/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text to token ids and back, as the model's file prescribes: byte-level BPE
 * ("gpt2") with a pre-tokenizer, and SPM ("llama").
 *
 * Built from a GGUF's metadata, which may be closed afterwards. Immutable
 * once built: any thread may call, at the same time.
 */
#ifndef TARN_ENGINE_TOKEN_TOKENIZER_H
#define TARN_ENGINE_TOKEN_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gguf;
struct tokenizer;

enum token_type {
	TOKEN_NORMAL = 1,
	TOKEN_UNKNOWN = 2,
	TOKEN_CONTROL = 3,
	TOKEN_USER_DEFINED = 4,
	TOKEN_UNUSED = 5,
	TOKEN_BYTE = 6,
};

enum {
	TOKEN_NONE = -1,
};

enum tokenizer_flags {
	/* Control tokens written out in the text become their ids (templates). */
	TOKENIZE_PARSE_SPECIAL = 1u << 0,
	/*
	 * Put BOS before and EOS behind, where the file asks for them and the
	 * text's own ids do not begin or end with them already.
	 */
	TOKENIZE_ADD_SPECIAL = 1u << 1,
};

enum tokenizer_create_flags {
	/* A pre-tokenizer of unknown name is taken as "default", with a warning. */
	TOKENIZER_ALLOW_UNKNOWN_PRE = 1u << 0,
};

/**
 * tokenizer_create - build the tokenizer a model file describes
 * @gguf: metadata (tokenizer.ggml.*); not needed after the call.
 * @flags: enum tokenizer_create_flags.
 * @out: [out] tokenizer_destroy() frees it.
 * @err, @errlen: [out] names the offence when the call fails; when it succeeds, a
 *	warning worth showing (a missing or unknown pre-tokenizer taken as
 *	"default") or "".
 *
 * Return: 0; -EINVAL for missing or broken vocabulary; -ENOTSUP for an unknown
 * model or pre-tokenizer, named; -ENOMEM.
 */
int tokenizer_create(const struct gguf *gguf, unsigned int flags,
		     struct tokenizer **out, char *err, size_t errlen);
void tokenizer_destroy(struct tokenizer *tok); /* NULL is fine */

/**
 * tokenizer_encode - token ids of a text
 * @text, @len: bytes; need not be valid UTF-8, may hold NUL.
 * @flags: enum tokenizer_flags.
 * @out_ids: [out] malloc'ed, the caller frees; NULL when there are none.
 * @out_nr: [out] how many.
 *
 * User-defined tokens are found in any text, control tokens only with
 * TOKENIZE_PARSE_SPECIAL: the longest at each place, from left to right. Text
 * never becomes a control token otherwise. Bytes that are not UTF-8: see bpe.h
 * and spm.h; byte-level BPE drops bytes its vocabulary has no token for.
 *
 * Some tokenizers change the text first: characters and their marks are
 * composed (PRETOK_NFC in pretok.h), or runs of spaces made one.
 *
 * Linear in @len but for a logarithm. Return: 0, -ENOMEM, or -EFBIG beyond
 * 2^31 - 1 bytes, for SPM counted with each space as three.
 */
int tokenizer_encode(const struct tokenizer *tok, const char *text, size_t len,
		     unsigned int flags, int32_t **out_ids, size_t *out_nr);

/**
 * tokenizer_piece - the bytes one token stands for in running text
 * @id: a token id; out of range gives an empty piece.
 * @special: whether control tokens and the unknown token give their text (else
 *	they are empty).
 * @out_len: [out] bytes, which need not be whole UTF-8 characters.
 *
 * Return: a pointer into the tokenizer. The leading space that SPM adds is the
 * caller's to strip, where tokenizer_adds_space() says so and the token is the
 * first.
 */
const char *tokenizer_piece(const struct tokenizer *tok, int32_t id,
			    bool special, size_t *out_len);

/**
 * tokenizer_decode - text of a run of tokens
 * @out_text: [out] their pieces in a row, malloc'ed; a NUL follows @out_len bytes.
 *
 * Return: 0, -ENOMEM, -EINVAL for an id out of range.
 */
int tokenizer_decode(const struct tokenizer *tok, const int32_t *ids, size_t nr,
		     bool special, char **out_text, size_t *out_len);

uint32_t tokenizer_nr_tokens(const struct tokenizer *tok);
/* TOKEN_UNKNOWN for an id out of range. */
enum token_type tokenizer_type(const struct tokenizer *tok, int32_t id);
/* TOKEN_NONE when there is none. */
int32_t tokenizer_bos(const struct tokenizer *tok);
int32_t tokenizer_eos(const struct tokenizer *tok);
bool tokenizer_adds_bos(const struct tokenizer *tok);
bool tokenizer_adds_space(const struct tokenizer *tok);
/* End of generation: eos, eot, eom and their like, by id and by text. */
bool tokenizer_is_end(const struct tokenizer *tok, int32_t id);
/* Id of the token whose text is exactly @text (as in the file), or TOKEN_NONE. */
int32_t tokenizer_find(const struct tokenizer *tok, const char *text,
		       size_t len);

#endif /* TARN_ENGINE_TOKEN_TOKENIZER_H */
