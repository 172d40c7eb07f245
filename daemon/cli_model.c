/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finding the model file: see cli_model.h. The cache's place and the file's
 * name are those of scripts/fetch-model.
 */
#include "daemon/cli_model.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_FILE "SmolLM2-135M-Instruct.Q4_1.gguf"

static const char *set_variable(const char *name)
{
	const char *value = getenv(name);

	return value && *value ? value : NULL;
}

int cli_own_folder(char *folder, size_t size)
{
	ssize_t len = readlink("/proc/self/exe", folder, size - 1);
	char *slash;

	if (len < 0)
		return -errno;
	folder[len] = '\0';
	slash = strrchr(folder, '/');
	if (!slash)
		return -ENOENT;
	*(slash == folder ? slash + 1 : slash) = '\0';
	return 0;
}

/* Return: the length of the path, or below 0. */
static int default_path(char **out_path)
{
	const char *cache = set_variable("TARN_CACHE");
	const char *base = set_variable("XDG_CACHE_HOME");
	const char *home = set_variable("HOME");

	if (cache)
		return asprintf(out_path, "%s/" DEFAULT_FILE, cache);
	if (base)
		return asprintf(out_path, "%s/tarn/" DEFAULT_FILE, base);
	return asprintf(out_path, "%s/.cache/tarn/" DEFAULT_FILE,
			home ? home : "");
}

/* The command that fetches the default model: beside the sources, or as installed. */
static void fetch_command(char *command, size_t size)
{
	static const char *const places[] = {
		"../libexec/tarn/fetch-model", /* bin/ of an installation */
		"../scripts/fetch-model", /* build/ */
		"../../scripts/fetch-model", /* build/san-.../ */
	};
	char folder[PATH_MAX], path[PATH_MAX + 64], whole[PATH_MAX];

	snprintf(command, size, "scripts/fetch-model");
	if (cli_own_folder(folder, sizeof(folder)) != 0)
		return;
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s", folder, places[i]);
		if (access(path, X_OK) == 0 && realpath(path, whole)) {
			snprintf(command, size, "%s", whole);
			return;
		}
	}
}

int cli_model_path(const char *named, char **out_path, char *err, size_t errlen)
{
	const char *given = named ? named : set_variable("TARN_MODEL");
	char command[PATH_MAX];
	char *path = NULL;
	int rc;

	if (given)
		path = strdup(given);
	else if (default_path(&path) < 0)
		path = NULL;
	if (!path) {
		snprintf(err, errlen, "out of memory");
		return -ENOMEM;
	}
	if (access(path, R_OK) == 0) {
		*out_path = path;
		return 0;
	}
	rc = -errno;
	if (given) {
		snprintf(err, errlen, "the model %s (%s): %s", path,
			 named ? "--model" : "TARN_MODEL", strerror(-rc));
	} else {
		fetch_command(command, sizeof(command));
		snprintf(
			err, errlen,
			"no model: %s: %s. Run %s, which fetches it, or name a GGUF file by "
			"--model FILE",
			path, strerror(-rc), command);
	}
	free(path);
	return rc;
}
