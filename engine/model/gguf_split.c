/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Models in several files, NAME-00001-of-00003.gguf and so on: from the opened
 * first part to one struct gguf with the tensors of all. Each part was checked
 * by itself when it was opened; here they are checked against each other.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/model/gguf_private.h"

enum {
	/* "-00001-of-00003.gguf" */
	SUFFIX_BYTES = 20,
};

/* The part at hand, for messages: "part 2 of 3 (m-00002-of-00003.gguf): " stands before each. */
struct part {
	struct gguf *gguf; /* of the first part */
	const char *path; /* of the first part */
	uint32_t no; /* from 0 */
	char *err;
	size_t errlen;
};

static void put_suffix(char suffix[SUFFIX_BYTES + 1], uint32_t no, uint32_t nr)
{
	/* Both have at most five digits: parts are at most GGUF_MAX_PARTS. */
	snprintf(suffix, SUFFIX_BYTES + 1, "-%05u-of-%05u.gguf",
		 (no + 1) % 100000, nr % 100000);
}

/* Path of a part, for the caller to free; NULL when out of memory. */
static char *part_path(const struct part *p)
{
	char suffix[SUFFIX_BYTES + 1], *path = strdup(p->path);

	put_suffix(suffix, p->no, p->gguf->split.nr_parts);
	if (path)
		memcpy(path + strlen(path) - SUFFIX_BYTES, suffix,
		       SUFFIX_BYTES);
	return path;
}

static int part_fail(const struct part *p, int code, const char *why)
{
	char *path = part_path(p), shown[GGUF_SHOWN_BYTES];
	const char *name = path ? path : p->path;
	const char *slash = strrchr(name, '/');

	name = slash ? slash + 1 : name;
	/* Of a long name the end says which part it is. */
	if (strlen(name) > GGUF_SHOWN_BYTES - 4)
		name += strlen(name) - (GGUF_SHOWN_BYTES - 4);
	gguf_fail(p->err, p->errlen, code, "part %u of %u (%s): %s", p->no + 1,
		  p->gguf->split.nr_parts,
		  gguf_show((struct gguf_str){ name, strlen(name) }, shown),
		  why);
	free(path);
	return code;
}

/* The first part: the one that was asked for, under a name that leads to the others. */
static int check_first(const struct gguf *gguf, const char *path, char *err,
		       size_t errlen)
{
	const struct gguf_split *split = &gguf->split;
	char suffix[SUFFIX_BYTES + 1];
	size_t len = strlen(path);

	if (split->has_no && split->no >= split->nr_parts)
		return gguf_fail(
			err, errlen, -EINVAL,
			"split.no is %u, there are %u parts (split.count)",
			split->no, split->nr_parts);
	put_suffix(suffix, 0, split->nr_parts);
	if (!split->has_no || split->no)
		return gguf_fail(
			err, errlen, -EINVAL,
			"this is part %u of %u (split.no): open the first, ...%s",
			split->no + 1, split->nr_parts, suffix);
	if (len < SUFFIX_BYTES || strcmp(path + len - SUFFIX_BYTES, suffix))
		return gguf_fail(
			err, errlen, -EINVAL,
			"part 1 of %u (split.count): the file's name does not end in %s,"
			" so the other parts cannot be found",
			split->nr_parts, suffix);
	if (!split->has_tensors)
		return gguf_fail(
			err, errlen, -EINVAL,
			"part 1 of %u: metadata key split.tensors.count is missing",
			split->nr_parts);
	return 0;
}

static int check_part(const struct part *p, const struct gguf *other)
{
	const struct gguf_split *first = &p->gguf->split, *own = &other->split;
	char why[160];

	if (!own->has_no || own->nr_parts < 2)
		return part_fail(p, -EINVAL,
				 "it is no part of a model (split.no, "
				 "split.count)");
	if (own->nr_parts != first->nr_parts) {
		snprintf(why, sizeof(why),
			 "split.count is %u, in the first part %u",
			 own->nr_parts, first->nr_parts);
		return part_fail(p, -EINVAL, why);
	}
	if (own->no != p->no) {
		snprintf(why, sizeof(why), "it says that it is part %llu",
			 own->no + 1ull);
		return part_fail(p, -EINVAL, why);
	}
	if (!own->has_tensors || own->nr_tensors != first->nr_tensors) {
		snprintf(why, sizeof(why),
			 "split.tensors.count is %u, in the first part %u",
			 own->nr_tensors, first->nr_tensors);
		return part_fail(p, -EINVAL, why);
	}
	return 0;
}

/* Opens part p->no; it is closed with the first one. */
static int open_part(const struct part *p)
{
	struct gguf **slot = &p->gguf->parts[p->no - 1];
	char *path = part_path(p), why[256] = "";
	int rc;

	if (!path)
		return part_fail(p, -ENOMEM, "out of memory");
	rc = gguf_open_part(path, p->gguf->flags, slot, why, sizeof(why));
	free(path);
	if (rc)
		return part_fail(p, rc, why);
	return check_part(p, *slot);
}

/* Directories and headers of all parts, one after the other. */
static int concatenate(struct gguf *gguf, uint64_t nr_tensors)
{
	struct gguf_tensor *tensors =
		reallocarray(gguf->tensors, nr_tensors, sizeof(*tensors));
	size_t bytes = gguf->header_bytes;

	if (!tensors)
		return -ENOMEM;
	gguf->tensors = tensors;
	for (uint32_t i = 1; i < gguf->split.nr_parts; i++)
		bytes += gguf->parts[i - 1]->header_bytes;
	gguf->headers = malloc(bytes);
	if (!gguf->headers)
		return -ENOMEM;
	memcpy(gguf->headers, gguf->base, gguf->header_bytes);
	gguf->headers_bytes = gguf->header_bytes;
	for (uint32_t i = 1; i < gguf->split.nr_parts; i++) {
		struct gguf *part = gguf->parts[i - 1];

		memcpy(gguf->headers + gguf->headers_bytes, part->base,
		       part->header_bytes);
		gguf->headers_bytes += part->header_bytes;
		if (part->nr_tensors)
			memcpy(tensors + gguf->nr_tensors, part->tensors,
			       part->nr_tensors * sizeof(*tensors));
		gguf->nr_tensors += part->nr_tensors;
	}
	return 0;
}

/* One index over all names; a name that occurs in two parts is an error that names the later. */
static int index_all(struct part *p)
{
	struct gguf *gguf = p->gguf;
	char shown[GGUF_SHOWN_BYTES], why[128];
	size_t dup = 0, end = gguf->nr_tensors;
	int rc;

	gguf_index_deinit(&gguf->tensor_index);
	rc = gguf_index_init(&gguf->tensor_index, gguf->tensors,
			     sizeof(gguf->tensors[0]), gguf->nr_tensors, &dup);
	if (rc != -EEXIST)
		return rc ? gguf_fail(p->err, p->errlen, rc,
				      "out of memory for %zu names",
				      gguf->nr_tensors) :
			    0;
	p->no = gguf->split.nr_parts;
	do {
		p->no--;
		end -= p->no ? gguf->parts[p->no - 1]->nr_tensors : 0;
	} while (p->no && dup < end);
	snprintf(why, sizeof(why), "tensor %s is in an earlier part too",
		 gguf_show(gguf->tensors[dup].name, shown));
	return part_fail(p, -EINVAL, why);
}

int gguf_join_parts(struct gguf *gguf, const char *path, char *err,
		    size_t errlen)
{
	const struct gguf_split *split = &gguf->split;
	struct part p = { gguf, path, 0, err, errlen };
	uint64_t nr_tensors = gguf->nr_tensors;
	int rc = check_first(gguf, path, err, errlen);

	if (rc)
		return rc;
	gguf->parts = calloc(split->nr_parts - 1, sizeof(*gguf->parts));
	if (!gguf->parts)
		return gguf_fail(err, errlen, -ENOMEM, "out of memory");
	for (p.no = 1; p.no < split->nr_parts; p.no++) {
		rc = open_part(&p);
		if (rc)
			return rc;
		nr_tensors += gguf->parts[p.no - 1]->nr_tensors;
	}
	if (nr_tensors != split->nr_tensors)
		return gguf_fail(
			err, errlen, -EINVAL,
			"the %u parts have %llu tensors, split.tensors.count says %u",
			split->nr_parts, (unsigned long long)nr_tensors,
			split->nr_tensors);
	if (!nr_tensors)
		return 0;
	rc = concatenate(gguf, nr_tensors);
	if (rc)
		return gguf_fail(err, errlen, rc,
				 "out of memory for %llu tensors",
				 (unsigned long long)nr_tensors);
	return index_all(&p);
}
