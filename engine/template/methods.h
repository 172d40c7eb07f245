/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of str's methods share. Not for use outside engine/template/.
 */
#ifndef TARN_TEMPLATE_METHODS_H
#define TARN_TEMPLATE_METHODS_H

#include "engine/template/internal.h"

#define METHOD(id)                                        \
	int tmpl_str_##id##_method(struct tmpl_render *r, \
				   const struct tv *self, \
				   const struct tmpl_args *a, struct tv *out)

/* An argument that must be a string. */
int tmpl_need_str(struct tmpl_render *r, const struct tv *v);
/* One that must be an integer; @dflt where it is missing or none. */
int tmpl_need_int(struct tmpl_render *r, const struct tv *v, int64_t dflt,
		  int64_t *out);

/* methods_find.c */
tmpl_fn tmpl_str_split_method, tmpl_str_rsplit_method,
	tmpl_str_splitlines_method, tmpl_str_partition_method,
	tmpl_str_rpartition_method, tmpl_str_find_method, tmpl_str_rfind_method,
	tmpl_str_index_method, tmpl_str_rindex_method, tmpl_str_count_method,
	tmpl_str_startswith_method, tmpl_str_endswith_method,
	tmpl_str_removeprefix_method, tmpl_str_removesuffix_method;

/* methods_is.c */
tmpl_fn tmpl_str_isdigit_method, tmpl_str_isalpha_method,
	tmpl_str_isalnum_method, tmpl_str_isspace_method,
	tmpl_str_isascii_method, tmpl_str_isupper_method,
	tmpl_str_islower_method, tmpl_str_isdecimal_method,
	tmpl_str_isprintable_method;

#endif /* TARN_TEMPLATE_METHODS_H */
