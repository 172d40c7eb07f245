/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine on a tiny model. Include after harness.h.
 */
#ifndef TARN_TESTS_TINY_ENGINE_H
#define TARN_TESTS_TINY_ENGINE_H

#include "engine/engine.h"
#include "tests/engine/tiny_model.h"

/* @options: all but the path. */
static inline struct tarn_engine *
tiny_engine_open(const struct tiny_model *model,
		 struct tarn_engine_options options)
{
	struct tarn_engine *engine = NULL;
	char err[256] = "";

	options.model_path = model->path;
	ASSERT_EQ(0, tarn_engine_create(&options, &engine, err, sizeof(err)))
	{
		TH_LOG("%s", err);
	}
	return engine;
}

#endif /* TARN_TESTS_TINY_ENGINE_H */
