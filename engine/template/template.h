/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chat templates: the Jinja language as public model files use it, with the
 * output that Python's jinja2 gives under the settings of Hugging Face
 * (immutable sandbox, trim_blocks, lstrip_blocks, loop controls, generation
 * tag, tojson without HTML escapes). Owns text in, text out; knows nothing of
 * tokens, models or requests. Templates and contexts may be hostile.
 */
#ifndef TARN_TEMPLATE_H
#define TARN_TEMPLATE_H

#include <stddef.h>
#include <stdint.h>

/* A compiled template; immutable, so threads may share it without a lock. */
struct template;

/*
 * Limits of one rendering. A field of 0 means its default.
 */
struct template_limits {
	/*
	 * Work: one step per evaluated node, and one per 64 bytes that are
	 * copied or scanned. Default 5,000,000, well under a second.
	 */
	uint64_t max_steps;
	/*
	 * Nesting of evaluation, macro calls and values included. One level
	 * takes under 1 KiB of the caller's stack. Default 1,000.
	 */
	uint32_t max_depth;
	/* Bytes of the result, and of each captured text. Default 64 MiB. */
	size_t max_output_bytes;
	/* Bytes of all values made while rendering. Default 256 MiB. */
	size_t max_value_bytes;
	/* strftime_now's time, in seconds since 1970; 0 asks the clock. */
	int64_t now_seconds;
};

/**
 * template_compile() - parse a template
 * @src: [in] UTF-8 text of @len bytes, no NUL needed; not kept
 * @out: [out] the template; unchanged on error. The caller owns it and frees
 *       it with template_destroy()
 * @err: [out] on error a message which names the construct and its line, as
 *       "line 3: unknown tag 'include'"; NUL-terminated if @errlen > 0
 *
 * Context: any thread; no shared state.
 * Return: 0; -EINVAL syntax error, invalid UTF-8 or unsupported construct;
 * -E2BIG nested too deeply or longer than 4 MiB; -ENOMEM.
 */
int template_compile(const char *src, size_t len, struct template **out,
		     char *err, size_t errlen);

/* Frees @t; NULL is fine. No rendering of it may be in progress. */
void template_destroy(struct template *t);

/**
 * template_render() - produce the text for one context
 * @t: [in] compiled template; only read
 * @context_json: [in] a JSON object of @len bytes; its members are the
 *       template's variables (messages, tools, add_generation_prompt,
 *       bos_token, ...). Strings may hold \u0000; integers have 64 bits
 * @limits: [in] NULL for the defaults
 * @out_text: [out] the result, NUL-terminated after @out_len bytes (it may
 *       hold further NULs); the caller frees it. Unchanged on error
 * @err: [out] on error the reason and, where it has one, its line; for
 *       raise_exception() it ends with the template's own message
 *
 * Context: any thread; several may render one template at once. Uses up to
 * about limits->max_depth KiB of stack. strftime_now() reads the time zone.
 * Return: 0; -EINVAL @context_json is not a JSON object or the template met
 * an error (wrong types, undefined used, unknown filter); -ECANCELED the
 * template called raise_exception(); -E2BIG a limit was reached; -ENOMEM.
 */
int template_render(const struct template *t, const char *context_json,
		    size_t len, const struct template_limits *limits,
		    char **out_text, size_t *out_len, char *err, size_t errlen);

#endif
