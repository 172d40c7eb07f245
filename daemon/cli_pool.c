/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tarn pool: the kernel's pools, their buffers, who owns them and what state
 * they are in, as tables or as JSON. Reads by libkvpool; changes nothing.
 */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/cli.h"
#include "daemon/cli_table.h"
#include "engine/kv/libkvpool.h"

/* ---- asking ---------------------------------------------------------------------------- */

/* In the order in which they hide one another. */
static const char *state_of(const struct kvpool_buf_stat *stat)
{
	if (stat->is_purged)
		return "purged";
	if (stat->is_volatile)
		return "volatile";
	if (stat->is_published)
		return "published";
	return stat->sealed_bytes ? "sealed" : "open";
}

static json_t *buf_json(const struct kvpool_buf_stat *stat)
{
	json_t *buf = json_pack(
		"{s:I, s:I, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:b, s:b, s:I, s:I, s:I}",
		"id", (json_int_t)stat->id, "uid", (json_int_t)stat->owner,
		"state", state_of(stat), "size_bytes",
		(json_int_t)stat->size_bytes, "resident_bytes",
		(json_int_t)stat->resident_bytes, "private_bytes",
		(json_int_t)stat->private_bytes, "charged_bytes",
		(json_int_t)stat->charged_bytes, "sealed_bytes",
		(json_int_t)stat->sealed_bytes, "huge_bytes",
		(json_int_t)stat->huge_bytes, "published", stat->is_published,
		"volatile", stat->is_volatile, "purged", stat->is_purged,
		"holders", (json_int_t)stat->nr_refs, "votes",
		(json_int_t)stat->nr_votes, "keys", (json_int_t)stat->nr_keys);

	if (stat->publisher != (uid_t)-1)
		json_object_set_new(buf, "publisher_uid",
				    json_integer((json_int_t)stat->publisher));
	return buf;
}

static json_t *limit_json(uint64_t bytes)
{
	/* JSON has no number for "none" that every reader takes. */
	return bytes > INT64_MAX ? json_null() :
				   json_integer((json_int_t)bytes);
}

/*
 * What only an open pool tells. A pool without a name cannot be opened, and one
 * may go away between two calls: both are shown without it.
 */
static int add_inside(json_t *object, const struct kvpool_pool_info *info)
{
	const struct kvpool_options options = {
		.size = sizeof(options),
		.backend = KVPOOL_BACKEND_KERNEL,
		.name = info->name,
		.is_read_only = true,
	};
	struct kvpool_buf_stat buf_stat;
	struct kvpool_stat stat;
	struct kvpool *pool;
	uint64_t id = 0;
	json_t *bufs, *inside;
	int rc;

	if (!info->name[0] || kvpool_open(&options, &pool) != 0)
		return 0;
	rc = kvpool_stat(pool, &stat);
	bufs = json_array();
	while (rc == 0 && (rc = kvpool_next_buf(pool, &id, &buf_stat)) == 0)
		rc = json_array_append_new(bufs, buf_json(&buf_stat)) == 0 ?
			     0 :
			     -ENOMEM;
	kvpool_put(pool);
	if (rc != -ENOENT) {
		json_decref(bufs);
		return rc;
	}
	inside = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o}",
			   "resident_bytes", (json_int_t)stat.resident_bytes,
			   "published_bytes", (json_int_t)stat.shared_bytes,
			   "volatile_bytes", (json_int_t)stat.volatile_bytes,
			   "draining_bytes", (json_int_t)stat.draining_bytes,
			   "reserve_bytes", (json_int_t)stat.spare_bytes,
			   "peak_bytes", (json_int_t)stat.peak_resident_bytes,
			   "nr_buffers", (json_int_t)stat.nr_buffers, "keys",
			   (json_int_t)stat.nr_keys, "purges",
			   (json_int_t)stat.purges, "buffers", bufs);
	rc = inside && json_object_update(object, inside) == 0 ? 0 : -ENOMEM;
	json_decref(inside);
	return rc;
}

static int add_pool(json_t *all, const struct kvpool_pool_info *info)
{
	char mode[8];
	json_t *object;
	int rc;

	snprintf(mode, sizeof(mode), "%04o", info->mode & 0777);
	object = json_pack("{s:I, s:s, s:I, s:s, s:o, s:I}", "id",
			   (json_int_t)info->id, "name", info->name, "uid",
			   (json_int_t)info->owner, "mode", mode, "limit_bytes",
			   limit_json(info->limit_bytes), "charged_bytes",
			   (json_int_t)info->charged_bytes);
	if (!object)
		return -ENOMEM;
	rc = add_inside(object, info);
	if (json_array_append_new(all, object) != 0)
		rc = -ENOMEM;
	return rc;
}

/* All pools, or those of the name; a complaint where the device says no. */
static int collect(json_t *all, const char *name)
{
	struct kvpool_pool_info info;
	uint64_t id = 0;
	int rc;

	while ((rc = kvpool_next_pool(&id, &info)) == 0) {
		if (name && strcmp(name, info.name) != 0)
			continue;
		rc = add_pool(all, &info);
		if (rc != 0)
			break;
	}
	if (rc == -ENOENT)
		return CLI_OK;
	if (rc == -ENODEV)
		cli_complain(
			"no kernel pools: /dev/kvpool is not there (the module is not loaded)");
	else if (rc == -EACCES)
		cli_complain("no kernel pools: /dev/kvpool may not be opened "
			     "(members of the group kvpool may)");
	else if (rc == -EOPNOTSUPP)
		cli_complain(
			"no kernel pools: the module speaks another version of the ABI");
	else
		cli_complain("cannot list the pools: %s", strerror(-rc));
	return rc == -ENODEV || rc == -EACCES || rc == -EOPNOTSUPP ?
		       CLI_UNAVAILABLE :
		       CLI_FAILURE;
}

/* ---- tables ---------------------------------------------------------------------------- */

static void add_bytes(struct cli_table *table, const json_t *object,
		      const char *name)
{
	const json_t *value = json_object_get(object, name);

	if (json_is_integer(value))
		cli_table_add_bytes(table, json_number_value(value));
	else
		cli_table_add(table, value ? "unlimited" : "-");
}

static void add_number(struct cli_table *table, const json_t *object,
		       const char *name)
{
	const json_t *value = json_object_get(object, name);

	if (value)
		cli_table_add(table, "%lld",
			      (long long)json_integer_value(value));
	else
		cli_table_add(table, "-");
}

static long long number(const json_t *object, const char *name)
{
	return json_integer_value(json_object_get(object, name));
}

/* A pool without a name has its id in parentheses, which no name may have. */
static void add_name(struct cli_table *table, const json_t *pool)
{
	const char *name = json_string_value(json_object_get(pool, "name"));

	if (name && *name)
		cli_table_add(table, "%s", name);
	else
		cli_table_add(table, "(%lld)", number(pool, "id"));
}

static void add_pool_row(struct cli_table *table, const json_t *pool)
{
	add_name(table, pool);
	cli_table_add_user(table, number(pool, "uid"));
	cli_table_add(table, "%s",
		      json_string_value(json_object_get(pool, "mode")));
	add_bytes(table, pool, "limit_bytes");
	add_bytes(table, pool, "charged_bytes");
	add_bytes(table, pool, "resident_bytes");
	add_bytes(table, pool, "published_bytes");
	add_bytes(table, pool, "volatile_bytes");
	add_number(table, pool, "nr_buffers");
	add_number(table, pool, "keys");
}

static void add_buf_row(struct cli_table *table, const json_t *pool,
			const json_t *buf)
{
	add_name(table, pool);
	add_number(table, buf, "id");
	cli_table_add_user(table, number(buf, "uid"));
	cli_table_add(table, "%s",
		      json_string_value(json_object_get(buf, "state")));
	add_bytes(table, buf, "size_bytes");
	add_bytes(table, buf, "resident_bytes");
	add_bytes(table, buf, "private_bytes");
	add_bytes(table, buf, "sealed_bytes");
	add_number(table, buf, "holders");
	add_number(table, buf, "votes");
	add_number(table, buf, "keys");
}

static int print_tables(const json_t *all)
{
	static const struct cli_column pools[] = {
		{ "POOL", false },     { "OWNER", false },
		{ "MODE", false },     { "LIMIT", true },
		{ "CHARGED", true },   { "RESIDENT", true },
		{ "PUBLISHED", true }, { "VOLATILE", true },
		{ "BUFFERS", true },   { "KEYS", true },
	};
	static const struct cli_column bufs[] = {
		{ "POOL", false },   { "BUFFER", true }, { "OWNER", false },
		{ "STATE", false },  { "SIZE", true },	 { "RESIDENT", true },
		{ "PRIVATE", true }, { "SEALED", true }, { "HELD", true },
		{ "VOTES", true },   { "KEYS", true },
	};
	struct cli_table top = { .columns = pools, .nr_columns = 10 };
	struct cli_table bottom = { .columns = bufs, .nr_columns = 11 };
	const json_t *pool, *buf;
	size_t i, j;

	json_array_foreach((json_t *)all, i, pool)
	{
		const json_t *list = json_object_get(pool, "buffers");

		add_pool_row(&top, pool);
		json_array_foreach((json_t *)list, j, buf)
			add_buf_row(&bottom, pool, buf);
	}
	return cli_table_print_pair(&top, &bottom) == 0 ? CLI_OK : CLI_FAILURE;
}

int cli_pool(const struct cli_options *options)
{
	const char *name = options->nr_words ? options->words[0] : NULL;
	json_t *all;
	int exit_code;

	if (options->nr_words > 1) {
		cli_complain(
			"pool takes one name, not \"%s\" too. Try: tarn help pool",
			options->words[1]);
		return CLI_USAGE;
	}
	if (name && (!*name || strlen(name) >= KVPOOL_NAME_BYTES)) {
		cli_complain("\"%s\" is no name of a pool. Try: tarn help pool",
			     name);
		return CLI_USAGE;
	}
	all = json_array();
	if (!all)
		return CLI_FAILURE;
	exit_code = collect(all, name);
	if (exit_code == CLI_OK && name && json_array_size(all) == 0) {
		cli_complain("no pool \"%s\" that you may read", name);
		exit_code = CLI_UNAVAILABLE;
	}
	if (exit_code == CLI_OK)
		exit_code = options->is_json ? cli_print_json(all) :
					       print_tables(all);
	json_decref(all);
	return exit_code;
}
