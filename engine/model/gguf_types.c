/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables of the GGUF format: value types of the metadata, and tensor
 * types with their block sizes. Constant data; any thread may call.
 */
#include <errno.h>
#include <stdio.h>

#include "engine/model/gguf_private.h"

struct value_type {
	const char *name;
	size_t bytes;
};

static const struct value_type value_types[] = {
	[GGUF_U8] = { "u8", 1 },	 [GGUF_I8] = { "i8", 1 },
	[GGUF_U16] = { "u16", 2 },	 [GGUF_I16] = { "i16", 2 },
	[GGUF_U32] = { "u32", 4 },	 [GGUF_I32] = { "i32", 4 },
	[GGUF_F32] = { "f32", 4 },	 [GGUF_BOOL] = { "bool", 1 },
	[GGUF_STRING] = { "string", 0 }, [GGUF_ARRAY] = { "array", 0 },
	[GGUF_U64] = { "u64", 8 },	 [GGUF_I64] = { "i64", 8 },
	[GGUF_F64] = { "f64", 8 },
};

static const uint32_t nr_value_types =
	sizeof(value_types) / sizeof(value_types[0]);

size_t gguf_scalar_bytes(uint32_t value_type)
{
	return value_type < nr_value_types ? value_types[value_type].bytes : 0;
}

const char *gguf_value_type_name(uint32_t value_type)
{
	return value_type < nr_value_types ? value_types[value_type].name :
					     "unknown";
}

/*
 * Names and blocks of the tensor types. Types without a block size were
 * retired from the format: they have a name for the message only.
 */
struct tensor_type {
	const char *name;
	uint16_t elems;
	uint16_t bytes;
};

static const struct tensor_type tensor_types[] = {
	[0] = { "F32", 1, 4 },	       [1] = { "F16", 1, 2 },
	[2] = { "Q4_0", 32, 18 },      [3] = { "Q4_1", 32, 20 },
	[4] = { "Q4_2", 0, 0 },	       [5] = { "Q4_3", 0, 0 },
	[6] = { "Q5_0", 32, 22 },      [7] = { "Q5_1", 32, 24 },
	[8] = { "Q8_0", 32, 34 },      [9] = { "Q8_1", 32, 36 },
	[10] = { "Q2_K", 256, 84 },    [11] = { "Q3_K", 256, 110 },
	[12] = { "Q4_K", 256, 144 },   [13] = { "Q5_K", 256, 176 },
	[14] = { "Q6_K", 256, 210 },   [15] = { "Q8_K", 256, 292 },
	[16] = { "IQ2_XXS", 256, 66 }, [17] = { "IQ2_XS", 256, 74 },
	[18] = { "IQ3_XXS", 256, 98 }, [19] = { "IQ1_S", 256, 50 },
	[20] = { "IQ4_NL", 32, 18 },   [21] = { "IQ3_S", 256, 110 },
	[22] = { "IQ2_S", 256, 82 },   [23] = { "IQ4_XS", 256, 136 },
	[24] = { "I8", 1, 1 },	       [25] = { "I16", 1, 2 },
	[26] = { "I32", 1, 4 },	       [27] = { "I64", 1, 8 },
	[28] = { "F64", 1, 8 },	       [29] = { "IQ1_M", 256, 56 },
	[30] = { "BF16", 1, 2 },       [31] = { "Q4_0_4_4", 0, 0 },
	[32] = { "Q4_0_4_8", 0, 0 },   [33] = { "Q4_0_8_8", 0, 0 },
	[34] = { "TQ1_0", 256, 54 },   [35] = { "TQ2_0", 256, 66 },
	[36] = { "IQ4_NL_4_4", 0, 0 }, [37] = { "IQ4_NL_4_8", 0, 0 },
	[38] = { "IQ4_NL_8_8", 0, 0 }, [39] = { "MXFP4", 32, 17 },
	[40] = { "NVFP4", 64, 36 },    [41] = { "Q1_0", 128, 18 },
	[42] = { "Q2_0", 64, 18 },
};

static const uint32_t nr_tensor_types =
	sizeof(tensor_types) / sizeof(tensor_types[0]);

const char *gguf_type_name(uint32_t type, char *buf, size_t len)
{
	if (type < nr_tensor_types)
		return tensor_types[type].name;
	snprintf(buf, len, "type %u", type);
	return buf;
}

int gguf_type_block(uint32_t type, uint32_t *out_elems, uint32_t *out_bytes)
{
	if (type >= nr_tensor_types || !tensor_types[type].elems)
		return -ENOTSUP;
	*out_elems = tensor_types[type].elems;
	*out_bytes = tensor_types[type].bytes;
	return 0;
}

bool gguf_type_supported(uint32_t type)
{
	switch (type) {
	case GGUF_TYPE_F32:
	case GGUF_TYPE_F16:
	case GGUF_TYPE_BF16:
	case GGUF_TYPE_Q4_0:
	case GGUF_TYPE_Q4_1:
	case GGUF_TYPE_Q5_0:
	case GGUF_TYPE_Q5_1:
	case GGUF_TYPE_Q8_0:
	case GGUF_TYPE_Q2_K:
	case GGUF_TYPE_Q3_K:
	case GGUF_TYPE_Q4_K:
	case GGUF_TYPE_Q5_K:
	case GGUF_TYPE_Q6_K:
	case GGUF_TYPE_IQ4_NL:
	case GGUF_TYPE_IQ4_XS:
	case GGUF_TYPE_MXFP4:
		return true;
	default:
		return false;
	}
}
