/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: the template engine gives what jinja2 gives, construct by
 * construct and for whole chat templates of public families.
 */
#include "tests/engine/template_kit.h"
#include "tests/harness.h"

static char *merged_context(json_t *base, json_t *extra)
{
	json_t *all = json_copy(base);
	char *text;

	if (extra)
		json_object_update(all, extra);
	text = json_dumps(all, 0);
	json_decref(all);
	return text;
}

TEST(constructs_equal_jinja2)
{
	json_t *golden = golden_load("template_golden.json");
	json_t *base = json_object_get(golden, "context");
	json_t *c;
	size_t i, nr_bad = 0;

	ASSERT_LT(150U, json_array_size(json_object_get(golden, "cases")));
	json_array_foreach(json_object_get(golden, "cases"), i, c)
	{
		const char *src =
			json_string_value(json_object_get(c, "template"));
		char *context =
			merged_context(base, json_object_get(c, "context"));
		struct rendered r = render(src, context);

		nr_bad += !golden_matches(&r, c, src);
		free(r.text);
		free(context);
	}
	EXPECT_EQ(0U, nr_bad);
	json_decref(golden);
}

TEST(families_equal_jinja2)
{
	json_t *golden = golden_load("template_families.json");
	json_t *requests = json_object_get(golden, "requests");
	json_t *f;
	size_t i, k, nr_bad = 0, nr = 0;

	ASSERT_LT(4U, json_array_size(json_object_get(golden, "families")));
	json_array_foreach(json_object_get(golden, "families"), i, f)
	{
		const char *src =
			json_string_value(json_object_get(f, "template"));
		json_t *results = json_object_get(f, "results"), *want;

		json_array_foreach(results, k, want)
		{
			char *context =
				json_dumps(json_array_get(requests, k), 0);
			struct rendered r = render(src, context);
			char what[128];

			snprintf(what, sizeof(what), "%s, request %zu",
				 json_string_value(json_object_get(f, "name")),
				 k);
			nr_bad += !golden_matches(&r, want, what);
			nr++;
			free(r.text);
			free(context);
		}
	}
	EXPECT_EQ(0U, nr_bad);
	EXPECT_LT(70U, nr);
	json_decref(golden);
}

TEST_HARNESS_MAIN
