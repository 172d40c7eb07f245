/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading the command line: see options.h. What --help says is in
 * options_help.c.
 */
#include "daemon/options.h"

#include <errno.h>
#include <getopt.h>
#include <grp.h>
#include <math.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/kv/libkvpool.h"

enum option_id {
	OPT_MODEL = 256,
	OPT_SOCKET,
	OPT_SOCKET_MODE,
	OPT_SOCKET_OWNER,
	OPT_THREADS,
	OPT_CTX,
	OPT_DEVICE,
	OPT_KV_BACKEND,
	OPT_KV_BYTES,
	OPT_POOL,
	OPT_POOL_QUOTA,
	OPT_PREFIX_SCOPE,
	OPT_NO_PREFIX_SHARING,
	OPT_PRECISE,
	OPT_NO_PREFIX_CACHE,
	OPT_ALLOW_UNKNOWN_PRE,
	OPT_STRICT,
	OPT_QUEUE,
	OPT_MAX_BODY,
	OPT_MAX_UNSENT,
	OPT_MAX_BATCH_TOKENS,
	OPT_TIMEOUT,
	OPT_DRAIN_TIMEOUT,
	OPT_LOG_LEVEL,
	OPT_VERSION,
	OPT_HELP,
};

static const struct option long_options[] = {
	{ "model", required_argument, NULL, OPT_MODEL },
	{ "socket", required_argument, NULL, OPT_SOCKET },
	{ "socket-mode", required_argument, NULL, OPT_SOCKET_MODE },
	{ "socket-owner", required_argument, NULL, OPT_SOCKET_OWNER },
	{ "threads", required_argument, NULL, OPT_THREADS },
	{ "ctx", required_argument, NULL, OPT_CTX },
	{ "device", required_argument, NULL, OPT_DEVICE },
	{ "kv-backend", required_argument, NULL, OPT_KV_BACKEND },
	{ "kv-bytes", required_argument, NULL, OPT_KV_BYTES },
	{ "pool", required_argument, NULL, OPT_POOL },
	{ "pool-quota", required_argument, NULL, OPT_POOL_QUOTA },
	{ "prefix-scope", required_argument, NULL, OPT_PREFIX_SCOPE },
	{ "no-prefix-sharing", no_argument, NULL, OPT_NO_PREFIX_SHARING },
	{ "precise", no_argument, NULL, OPT_PRECISE },
	{ "no-prefix-cache", no_argument, NULL, OPT_NO_PREFIX_CACHE },
	{ "allow-unknown-pre", no_argument, NULL, OPT_ALLOW_UNKNOWN_PRE },
	{ "strict", no_argument, NULL, OPT_STRICT },
	{ "queue", required_argument, NULL, OPT_QUEUE },
	{ "max-body", required_argument, NULL, OPT_MAX_BODY },
	{ "max-unsent", required_argument, NULL, OPT_MAX_UNSENT },
	{ "max-batch-tokens", required_argument, NULL, OPT_MAX_BATCH_TOKENS },
	{ "timeout", required_argument, NULL, OPT_TIMEOUT },
	{ "drain-timeout", required_argument, NULL, OPT_DRAIN_TIMEOUT },
	{ "log-level", required_argument, NULL, OPT_LOG_LEVEL },
	{ "version", no_argument, NULL, OPT_VERSION },
	{ "help", no_argument, NULL, OPT_HELP },
	{ NULL, 0, NULL, 0 },
};

static const char *option_name(int id)
{
	for (const struct option *option = long_options; option->name;
	     option++) {
		if (option->val == id)
			return option->name;
	}
	return "?";
}

int options_default_socket(char *path, size_t size)
{
	const char *named = getenv("TARN_SOCKET");
	const char *runtime = getenv("XDG_RUNTIME_DIR");
	int len;

	if (named && *named)
		len = snprintf(path, size, "%s", named);
	else if (geteuid() == 0)
		len = snprintf(path, size, "/run/tarn/tarn.sock");
	else if (runtime && *runtime)
		len = snprintf(path, size, "%s/tarn.sock", runtime);
	else
		return -ENOENT;
	return len < 0 || (size_t)len >= size ? -ENAMETOOLONG : 0;
}

int options_parse_size(const char *text, uint64_t of, uint64_t *out_bytes)
{
	static const char units[] = "KMGT";
	const char *unit;
	double number;
	char *end;

	/* strtod would also take "nan", "inf", hexadecimal and a sign. */
	if (*text < '0' || *text > '9' || text[1] == 'x' || text[1] == 'X')
		return -EINVAL;
	number = strtod(text, &end);
	if (!isfinite(number))
		return -EINVAL;
	if (*end == '%') {
		if (!of || end[1] || number > 100)
			return -EINVAL;
		*out_bytes = (uint64_t)((double)of * number / 100);
		return 0;
	}
	if (*end && (unit = strchr(units, *end >= 'a' ? *end - 'a' + 'A' :
							*end)) != NULL) {
		number = ldexp(number, 10 * (int)(unit - units + 1));
		end++;
		if (*end == 'i' && (end[1] == 'B' || end[1] == 'b'))
			end++;
	}
	if (*end == 'B' || *end == 'b')
		end++;
	if (*end || number >= 0x1p63)
		return -EINVAL;
	*out_bytes = (uint64_t)number;
	return 0;
}

static uint64_t available_bytes(void)
{
	unsigned long long kib = 0;
	char line[128];
	FILE *file = fopen("/proc/meminfo", "re");

	while (file && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
			break;
	}
	if (file)
		fclose(file);
	return kib * 1024;
}

/* ---- single values: false with @err filled ------------------------------------ */

static bool wrong(char *err, size_t errlen, int id, const char *text,
		  const char *wanted)
{
	snprintf(err, errlen, "--%s: \"%s\" is not %s", option_name(id), text,
		 wanted);
	return false;
}

static bool read_number(int id, const char *text, uint32_t min, uint32_t max,
			uint32_t *value, char *err, size_t errlen)
{
	char wanted[64];
	unsigned long long number;
	char *end;

	errno = 0;
	number = strtoull(text, &end, 10);
	if (*text < '0' || *text > '9' || *end || errno || number < min ||
	    number > max) {
		snprintf(wanted, sizeof(wanted), "a number from %u to %u", min,
			 max);
		return wrong(err, errlen, id, text, wanted);
	}
	*value = (uint32_t)number;
	return true;
}

static bool read_choice(int id, const char *text, const char *const *names,
			int *value, char *err, size_t errlen)
{
	char wanted[96] = "one of";

	for (int i = 0; names[i]; i++) {
		if (strcmp(text, names[i]) == 0) {
			*value = i;
			return true;
		}
		snprintf(wanted + strlen(wanted),
			 sizeof(wanted) - strlen(wanted), " %s", names[i]);
	}
	return wrong(err, errlen, id, text, wanted);
}

static bool read_mode(const char *text, mode_t *value, char *err, size_t errlen)
{
	char *end;
	unsigned long mode = strtoul(text, &end, 8);

	if (*text < '0' || *text > '7' || *end || mode > 0777)
		return wrong(err, errlen, OPT_SOCKET_MODE, text,
			     "an octal mode such as 0660");
	*value = (mode_t)mode;
	return true;
}

/* USER, USER:GROUP or :GROUP, by name or number. */
static bool read_owner(const char *text, struct options *options, char *err,
		       size_t errlen)
{
	const char *colon = strchr(text, ':');
	size_t len = colon ? (size_t)(colon - text) : strlen(text);
	const struct passwd *user;
	const struct group *group;
	char name[128];
	uint32_t number;
	char ignored[1];

	if (len >= sizeof(name) || (len == 0 && (!colon || !colon[1])))
		return wrong(err, errlen, OPT_SOCKET_OWNER, text,
			     "USER, USER:GROUP or :GROUP");
	if (len) {
		snprintf(name, sizeof(name), "%.*s", (int)len, text);
		user = getpwnam(name);
		if (user)
			options->socket_uid = user->pw_uid;
		else if (read_number(OPT_SOCKET_OWNER, name, 0, INT32_MAX,
				     &number, ignored, 1))
			options->socket_uid = (uid_t)number;
		else
			return wrong(err, errlen, OPT_SOCKET_OWNER, name,
				     "a known user");
	}
	if (colon && colon[1]) {
		group = getgrnam(colon + 1);
		if (group)
			options->socket_gid = group->gr_gid;
		else if (read_number(OPT_SOCKET_OWNER, colon + 1, 0, INT32_MAX,
				     &number, ignored, 1))
			options->socket_gid = (gid_t)number;
		else
			return wrong(err, errlen, OPT_SOCKET_OWNER, colon + 1,
				     "a known group");
	}
	return true;
}

static bool read_size(int id, const char *text, uint64_t of, uint64_t *value,
		      char *err, size_t errlen)
{
	if (options_parse_size(text, of, value) == 0 && *value > 0)
		return true;
	return wrong(err, errlen, id, text,
		     of ? "a size such as 512M, 2G or 25%" :
			  "a size such as 512K or 4M");
}

static bool read_socket(const char *text, struct options *options, char *err,
			size_t errlen)
{
	int len = snprintf(options->socket_path, sizeof(options->socket_path),
			   "%s", text);

	if (len > 0 && (size_t)len < sizeof(options->socket_path))
		return true;
	return wrong(err, errlen, OPT_SOCKET, text, "a path of 1 to 107 bytes");
}

/* As the kernel takes it: the rest is for the pool to say. */
static bool read_pool(const char *text, struct options *options, char *err,
		      size_t errlen)
{
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyz"
				      "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
				      "0123456789._-";

	if (!*text || *text == '.' || strlen(text) >= KVPOOL_NAME_BYTES ||
	    text[strspn(text, allowed)])
		return wrong(err, errlen, OPT_POOL, text,
			     "a name of up to 63 letters, digits and ._-");
	options->pool_name = text;
	return true;
}

/* ---- the whole --------------------------------------------------------------------- */

static bool read_engine_option(int id, const char *text,
			       struct options *options, char *err,
			       size_t errlen)
{
	/* In the order of the engine's enums. */
	static const char *const devices[] = { "auto", "cpu", "cuda", NULL };
	static const char *const backends[] = { "auto", "kernel", "memfd",
						"cuda", NULL };
	static const char *const scopes[] = { "user", "all", NULL };
	int choice;

	switch (id) {
	case OPT_THREADS:
		return read_number(id, text, 1, TARN_MAX_THREADS,
				   &options->nr_threads, err, errlen);
	case OPT_CTX:
		return read_number(id, text, 1, INT32_MAX, &options->ctx_tokens,
				   err, errlen);
	case OPT_MAX_BATCH_TOKENS:
		return read_number(id, text, 1, 65536,
				   &options->max_batch_tokens, err, errlen);
	case OPT_KV_BYTES:
		return read_size(id, text, available_bytes(),
				 &options->kv_bytes, err, errlen);
	case OPT_DEVICE:
		if (!read_choice(id, text, devices, &choice, err, errlen))
			return false;
		options->device = (enum tarn_device)choice;
		return true;
	case OPT_KV_BACKEND:
		if (!read_choice(id, text, backends, &choice, err, errlen))
			return false;
		options->kv_backend = (enum tarn_kv_backend)choice;
		return true;
	case OPT_POOL:
		return read_pool(text, options, err, errlen);
	case OPT_POOL_QUOTA:
		return read_size(id, text, available_bytes(),
				 &options->pool_quota_bytes, err, errlen);
	case OPT_PREFIX_SCOPE:
		if (!read_choice(id, text, scopes, &choice, err, errlen))
			return false;
		options->prefix_scope = (enum tarn_prefix_scope)choice;
		return true;
	case OPT_NO_PREFIX_SHARING:
		options->no_prefix_sharing = true;
		return true;
	case OPT_PRECISE:
		options->is_precise = true;
		return true;
	case OPT_ALLOW_UNKNOWN_PRE:
		options->allow_unknown_pre = true;
		return true;
	default:
		options->no_prefix_cache = true;
		return true;
	}
}

static bool read_daemon_option(int id, const char *text,
			       struct options *options, char *err,
			       size_t errlen)
{
	switch (id) {
	case OPT_MODEL:
		if (options->model_path) {
			snprintf(
				err, errlen,
				"--model is there twice: one daemon serves one model");
			return false;
		}
		options->model_path = text;
		return true;
	case OPT_SOCKET:
		return read_socket(text, options, err, errlen);
	case OPT_SOCKET_MODE:
		return read_mode(text, &options->socket_mode, err, errlen);
	case OPT_SOCKET_OWNER:
		return read_owner(text, options, err, errlen);
	case OPT_STRICT:
		options->is_strict = true;
		return true;
	case OPT_QUEUE:
		return read_number(id, text, 1, 1000000, &options->max_queue,
				   err, errlen);
	case OPT_MAX_BODY:
		return read_size(id, text, 0, &options->max_body_bytes, err,
				 errlen);
	case OPT_MAX_UNSENT:
		return read_size(id, text, 0, &options->max_unsent_bytes, err,
				 errlen);
	case OPT_TIMEOUT:
		return read_number(id, text, 1, 86400, &options->timeout_s, err,
				   errlen);
	case OPT_DRAIN_TIMEOUT:
		return read_number(id, text, 0, 86400,
				   &options->drain_timeout_s, err, errlen);
	case OPT_LOG_LEVEL:
		if (log_level_parse(text, &options->log_level) == 0)
			return true;
		return wrong(err, errlen, id, text,
			     "one of error warn info debug");
	default:
		return read_engine_option(id, text, options, err, errlen);
	}
}

static const struct options defaults = {
	.socket_mode = 0660,
	.socket_uid = (uid_t)-1,
	.socket_gid = (gid_t)-1,
	.max_queue = 512,
	.max_body_bytes = 4 << 20,
	.max_unsent_bytes = 1 << 20,
	.timeout_s = 60,
	.drain_timeout_s = 30,
	.log_level = LOG_LEVEL_INFO,
};

static bool finish_options(int argc, char **argv, struct options *options,
			   char *err, size_t errlen)
{
	if (optind < argc) {
		snprintf(err, errlen, "unexpected argument \"%s\"",
			 argv[optind]);
		return false;
	}
	if (!options->model_path || !*options->model_path) {
		snprintf(err, errlen, "--model FILE is missing");
		return false;
	}
	if (options->socket_path[0])
		return true;
	switch (options_default_socket(options->socket_path,
				       sizeof(options->socket_path))) {
	case 0:
		return true;
	case -ENAMETOOLONG:
		snprintf(
			err, errlen,
			"the default socket's path is too long; use --socket PATH");
		return false;
	default:
		snprintf(
			err, errlen,
			"--socket PATH is missing, and neither TARN_SOCKET nor "
			"XDG_RUNTIME_DIR is set");
		return false;
	}
}

enum options_result options_parse(int argc, char **argv,
				  struct options *options, char *err,
				  size_t errlen)
{
	int id;

	*options = defaults;
	optind = 0;
	opterr = 0;
	/* ":" tells a missing argument from an unknown option. */
	while ((id = getopt_long(argc, argv, ":hV", long_options, NULL)) !=
	       -1) {
		switch (id) {
		case 'h':
		case OPT_HELP:
			return OPTIONS_HELP;
		case 'V':
		case OPT_VERSION:
			return OPTIONS_VERSION;
		case ':':
			snprintf(err, errlen, "%s needs a value",
				 argv[optind - 1]);
			return OPTIONS_WRONG;
		case '?':
			snprintf(err, errlen, "unknown option \"%s\"",
				 argv[optind - 1]);
			return OPTIONS_WRONG;
		default:
			if (!read_daemon_option(id, optarg, options, err,
						errlen))
				return OPTIONS_WRONG;
		}
	}
	return finish_options(argc, argv, options, err, errlen) ? OPTIONS_RUN :
								  OPTIONS_WRONG;
}
