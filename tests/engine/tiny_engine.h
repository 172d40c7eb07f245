/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine on a tiny model, on the CPU where a test asks for no device: what it computes is known
 * to the bit. Include after harness.h.
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
	if (options.device == TARN_DEVICE_AUTO)
		options.device = TARN_DEVICE_CPU;
	ASSERT_EQ(0, tarn_engine_create(&options, &engine, err, sizeof(err)))
	{
		TH_LOG("%s", err);
	}
	return engine;
}

#endif /* TARN_TESTS_TINY_ENGINE_H */
