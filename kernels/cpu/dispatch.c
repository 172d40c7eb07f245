/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables of kernels, one per instruction set, and the choice among them by
 * what this CPU has. It holds no kernel. Any thread; the tables are constant.
 */
#include "kernels/cpu/kernels_private.h"

#include <stdlib.h>

static const struct cpu_kernels kernels_ref = {
	.isa = "ref",
	.quantize = quantize_ref,
	.linear_q8 = linear_q8_ref,
	.linear_f32 = linear_f32_ref,
	.rms_norm = rms_norm_ref,
	.rope = rope_ref,
	.append = append_ref,
	.attend = attend_ref,
	.merge = merge_ref,
	.gate = gate_ref,
	.add = add_ref,
	.scale = scale_ref,
	.softcap = softcap_ref,
	.argmax = argmax_ref,
	.exp_sum = exp_sum_ref,
};

static const struct cpu_kernels kernels_avx2 = {
	.isa = "avx2",
	.quantize = quantize_avx2,
	.linear_q8 = linear_q8_avx2,
	.linear_f32 = linear_f32_avx2,
	.rms_norm = rms_norm_avx2,
	.rope = rope_avx2,
	.append = append_avx2,
	.attend = attend_avx2,
	.merge = merge_avx2,
	.gate = gate_avx2,
	.add = add_avx2,
	.scale = scale_avx2,
	.softcap = softcap_avx2,
	.argmax = argmax_avx2,
	.exp_sum = exp_sum_avx2,
};

static const struct cpu_kernels kernels_avx512 = {
	.isa = "avx512",
	.quantize = quantize_avx512,
	.linear_q8 = linear_q8_avx512,
	.linear_f32 = linear_f32_avx512,
	.rms_norm = rms_norm_avx512,
	.rope = rope_avx512,
	.append = append_avx512,
	.attend = attend_avx512,
	.merge = merge_avx512,
	.gate = gate_avx512,
	.add = add_avx512,
	.scale = scale_avx512,
	.softcap = softcap_avx512,
	.argmax = argmax_avx512,
	.exp_sum = exp_sum_avx512,
};

static bool has_avx2(void)
{
	return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
	       __builtin_cpu_supports("f16c");
}

static bool has_avx512(void)
{
	return has_avx2() && __builtin_cpu_supports("avx512f") &&
	       __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
	       __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vnni");
}

const struct cpu_kernels *cpu_kernels_get(enum cpu_isa isa)
{
	switch (isa) {
	case CPU_ISA_REF:
		return &kernels_ref;
	case CPU_ISA_AVX2:
		return has_avx2() ? &kernels_avx2 : NULL;
	case CPU_ISA_AVX512:
		return has_avx512() ? &kernels_avx512 : NULL;
	case CPU_NR_ISAS:
		break;
	}
	return NULL;
}

const struct cpu_kernels *cpu_kernels_best(void)
{
	static const char *const names[CPU_NR_ISAS] = { "ref", "avx2", "avx512" };
	const char *wanted = getenv("TARN_CPU_ISA");
	int isa = CPU_ISA_AVX512;

	for (int i = 0; wanted && i < CPU_NR_ISAS; i++) {
		if (strcmp(wanted, names[i]) == 0)
			isa = i;
	}
	while (!cpu_kernels_get((enum cpu_isa)isa))
		isa--;
	return cpu_kernels_get((enum cpu_isa)isa);
}
