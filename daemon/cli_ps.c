/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tarn ps: what the daemons do, as tables or as JSON.
 */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/cli.h"
#include "daemon/cli_http.h"
#include "daemon/cli_reply.h"
#include "daemon/cli_session.h"
#include "daemon/cli_table.h"

enum {
	MAX_DAEMONS = 3,
	TIMEOUT_MS = 5000,
};

/* Where daemons are by default. @paths: of 108 bytes each. Return: how many. */
static int places(const struct cli_options *options, char paths[][108])
{
	const char *runtime = getenv("XDG_RUNTIME_DIR");
	int nr = 0;

	if (options->socket_path) {
		snprintf(paths[nr++], 108, "%s", options->socket_path);
		return nr;
	}
	if (runtime && *runtime)
		snprintf(paths[nr++], 108, "%s/tarn.sock", runtime);
	snprintf(paths[nr++], 108, "/run/tarn/tarn.sock");
	return nr;
}

/* What one daemon tells of itself, its socket added; NULL after a complaint. */
static json_t *ask_stats(const char *path, bool is_named, int *out_exit)
{
	struct cli_session session = { .socket_path = path };
	struct cli_http_call call = { .path = "/stats",
				      .timeout_ms = TIMEOUT_MS };
	char err[256] = "";
	json_t *root = NULL;
	int rc = cli_http_create(path, &session.http);

	if (rc == 0)
		rc = cli_http_perform(session.http, &call, err, sizeof(err));
	else
		snprintf(err, sizeof(err), "%s", strerror(-rc));
	if (rc == 0 && call.status == 200) {
		root = cli_reply_json(&call);
		if (root)
			json_object_set_new(root, "socket", json_string(path));
		else
			*out_exit = cli_session_complain(
				&session, &call, -EBADMSG, "no JSON object");
	} else if (is_named || rc != -ECONNREFUSED) {
		*out_exit = cli_session_complain(&session, &call, rc, err);
	}
	text_deinit(&call.reply);
	cli_http_destroy(session.http);
	return root;
}

/* ---- tables -------------------------------------------------------------------------- */

static const char *word(const json_t *object, const char *name)
{
	const char *value = json_string_value(json_object_get(object, name));

	return value && *value ? value : "-";
}

static long long number(const json_t *object, const char *name)
{
	return json_integer_value(json_object_get(object, name));
}

static void show_time(char *text, size_t size, double seconds)
{
	const long long s = (long long)seconds;

	if (seconds < 60)
		snprintf(text, size, "%.1fs", seconds);
	else if (s < 3600)
		snprintf(text, size, "%lldm%02llds", s / 60, s % 60);
	else if (s < 86400)
		snprintf(text, size, "%lldh%02lldm", s / 3600, s / 60 % 60);
	else
		snprintf(text, size, "%lldd%02lldh", s / 86400, s / 3600 % 24);
}

static void add_daemon(struct cli_table *table, const json_t *stats)
{
	const json_t *kv = json_object_get(stats, "kv");
	static const char *const sizes[] = { "used_bytes", "cached_bytes",
					     "limit_bytes" };
	char uptime[32];

	show_time(uptime, sizeof(uptime),
		  json_number_value(json_object_get(stats, "uptime_s")));
	cli_table_add(table, "%s", word(stats, "model"));
	cli_table_add(table, "%lld", number(stats, "pid"));
	cli_table_add(table, "%s", word(stats, "status"));
	cli_table_add(table, "%s", uptime);
	cli_table_add(table, "%s", word(stats, "device"));
	cli_table_add(table, "%zu",
		      json_array_size(json_object_get(stats, "running")));
	cli_table_add(table, "%zu",
		      json_array_size(json_object_get(stats, "waiting")));
	for (int i = 0; i < 3; i++) {
		if (kv)
			cli_table_add_bytes(
				table, json_number_value(
					       json_object_get(kv, sizes[i])));
		else
			cli_table_add(table, "-");
	}
	cli_table_add(table, "%s", word(stats, "socket"));
}

static void add_request(struct cli_table *table, const json_t *stats,
			const json_t *request)
{
	const json_t *kv = json_object_get(stats, "kv");
	const long long nr_tokens = number(request, "prompt_tokens") +
				    number(request, "completion_tokens");
	const char *state = word(request, "state");
	char age[32];

	show_time(age, sizeof(age),
		  json_number_value(json_object_get(request, "age_s")));
	cli_table_add(table, "%s", word(request, "id"));
	cli_table_add_user(table, number(request, "uid"));
	cli_table_add(table, "%lld", number(request, "pid"));
	cli_table_add(table, "%s", state);
	cli_table_add(table, "%lld", number(request, "prompt_tokens"));
	cli_table_add(table, "%lld", number(request, "cached_tokens"));
	cli_table_add(table, "%lld", number(request, "completion_tokens"));
	cli_table_add(table, "%s", age);
	/* One that waits has none yet. */
	if (strcmp(state, "waiting") == 0)
		cli_table_add(table, "-");
	else
		cli_table_add_bytes(
			table, (double)nr_tokens *
				       (double)number(kv, "bytes_per_token"));
}

static int print_tables(const json_t *all)
{
	static const struct cli_column daemons[] = {
		{ "MODEL", false },    { "PID", true },
		{ "STATUS", false },   { "UPTIME", true },
		{ "DEVICE", false },   { "RUNNING", true },
		{ "WAITING", true },   { "KV USED", true },
		{ "KV CACHED", true }, { "KV LIMIT", true },
		{ "SOCKET", false },
	};
	static const struct cli_column requests[] = {
		{ "REQUEST", false }, { "UID", false },	  { "PID", true },
		{ "STATE", false },   { "PROMPT", true }, { "CACHED", true },
		{ "TOKENS", true },   { "AGE", true },	  { "KV", true },
	};
	static const char *const lists[] = { "running", "waiting" };
	struct cli_table top = { .columns = daemons, .nr_columns = 11 };
	struct cli_table bottom = { .columns = requests, .nr_columns = 9 };
	const json_t *stats, *request;
	size_t i, j;

	json_array_foreach((json_t *)all, i, stats)
	{
		add_daemon(&top, stats);
		for (int k = 0; k < 2; k++) {
			const json_t *list = json_object_get(stats, lists[k]);

			json_array_foreach((json_t *)list, j, request)
				add_request(&bottom, stats, request);
		}
	}
	return cli_table_print_pair(&top, &bottom) == 0 ? CLI_OK : CLI_FAILURE;
}

int cli_ps(const struct cli_options *options)
{
	char paths[MAX_DAEMONS][108];
	const int nr_places = places(options, paths);
	json_t *all = json_array(), *stats;
	int exit_code = CLI_OK;

	if (options->nr_words) {
		cli_complain("ps takes no \"%s\". Try: tarn help ps",
			     options->words[0]);
		json_decref(all);
		return CLI_USAGE;
	}
	for (int i = 0; i < nr_places; i++) {
		stats = ask_stats(paths[i], options->socket_path != NULL,
				  &exit_code);
		if (stats)
			json_array_append_new(all, stats);
	}
	if (json_array_size(all) == 0) {
		if (exit_code == CLI_OK) {
			cli_complain(
				"no daemon answers at %s%s%s; name one by --socket PATH",
				paths[0], nr_places > 1 ? " or " : "",
				nr_places > 1 ? paths[1] : "");
			exit_code = CLI_UNAVAILABLE;
		}
	} else {
		const int printed = options->is_json ? cli_print_json(all) :
						       print_tables(all);

		exit_code = exit_code == CLI_OK ? printed : exit_code;
	}
	json_decref(all);
	return exit_code;
}
