/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The chat templates of a model file, with what they read of its tokenizer.
 * Made once, then only read: any thread. The daemon sees it by engine.h.
 */
#ifndef TARN_CHAT_TEMPLATE_H
#define TARN_CHAT_TEMPLATE_H

#include <stddef.h>

#include "engine/engine.h"

struct gguf;
struct tokenizer;

/*
 * The templates that @gguf holds, with BOS and EOS of @tok, or as the file has them where @tok is
 * NULL; a file without any gives none: *out_template is NULL. One that
 * cannot be compiled is kept with the reason, which every rendering answers; @err gets it too, as
 * a warning.
 * Return: 0, -ENOMEM.
 */
int chat_template_create(const struct gguf *gguf, const struct tokenizer *tok,
			 struct tarn_template **out_template, char *err,
			 size_t errlen);

#endif /* TARN_CHAT_TEMPLATE_H */
