/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an engine's results and its cached prefixes are known by: the numerics
 * id, its short form for users, the salt of each uid. Driver thread.
 */
#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>

#include "engine/engine_private.h"
#include "engine/model/gguf.h"

/* Counts up whenever the engine itself changes the bits of a result. */
enum { CONTRACT_VERSION = 1 };

static int sha256_parts(const void *const *parts, const size_t *lens, size_t nr,
			uint8_t out[BACKEND_DIGEST_BYTES])
{
	EVP_MD_CTX *md = EVP_MD_CTX_new();
	int ok = md && EVP_DigestInit_ex(md, EVP_sha256(), NULL) == 1;

	for (size_t i = 0; ok && i < nr; i++)
		ok = EVP_DigestUpdate(md, parts[i], lens[i]) == 1;
	ok = ok && EVP_DigestFinal_ex(md, out, NULL) == 1;
	EVP_MD_CTX_free(md);
	return ok ? 0 : -ENOMEM;
}

static const char *const kv_names[] = { "f16", "f32", "bf16" };

int engine_identity_init(struct tarn_engine *e, const struct gguf *gguf,
			 const uint8_t weights[BACKEND_DIGEST_BYTES],
			 struct kvpool_key *out_root)
{
	char text[160];
	size_t header_len;
	const void *header = gguf_header(gguf, &header_len);
	int n = snprintf(
		text, sizeof(text), "tarn/%d/%s/kv-%s/T%u", CONTRACT_VERSION,
		e->backend->numerics, kv_names[e->backend->kv_elem],
		kv_tile_tokens(e->model.streams, e->model.nr_streams,
			       e->backend->kv_elem == ATTN_F32 ? 4 : 2));
	const void *parts[] = { text, weights, header };
	size_t lens[] = { (size_t)n, BACKEND_DIGEST_BYTES, header_len };
	int rc = sha256_parts(parts, lens, 3, out_root->bytes);

	if (rc)
		return rc;
	if (asprintf(&e->fingerprint, "tarn-%02x%02x%02x%02x%02x%02x",
		     out_root->bytes[0], out_root->bytes[1], out_root->bytes[2],
		     out_root->bytes[3], out_root->bytes[4],
		     out_root->bytes[5]) < 0) {
		e->fingerprint = NULL;
		return -ENOMEM;
	}
	return 0;
}

int engine_salt(const struct tarn_engine *e, uid_t uid,
		struct kvpool_key *out_salt)
{
	const void *parts[] = { e->salt_secret.bytes, &uid };
	size_t lens[] = { KVPOOL_KEY_BYTES,
			  e->prefix_scope == TARN_PREFIX_OF_ALL ? 0 :
								  sizeof(uid) };

	return sha256_parts(parts, lens, 2, out_salt->bytes);
}
