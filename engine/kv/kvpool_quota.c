/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What each uid holds of a local pool, and its limits: the pages of its live
 * and draining memories, spare ones included, in a private and a shared sum. A
 * memory counts in one of the two. Everything here runs with pool->lock held.
 */
#include <errno.h>
#include <stdlib.h>

#include "engine/kv/kvpool_local.h"

struct kvpool_owner *kvpool_owner_locked(struct kvpool_local *pool, uid_t uid)
{
	struct kvpool_owner *owner = pool->owners;

	while (owner && owner->uid != uid)
		owner = owner->next;
	if (owner)
		return owner;
	owner = kvpool_sys.calloc(1, sizeof(*owner));
	if (!owner)
		return NULL;
	owner->uid = uid;
	owner->quota_bytes = pool->quota_bytes;
	owner->shared_quota_bytes = pool->shared_quota_bytes;
	owner->next = pool->owners;
	pool->owners = owner;
	return owner;
}

void kvpool_owners_free(struct kvpool_local *pool)
{
	struct kvpool_owner *owner = pool->owners, *next;

	for (; owner; owner = next) {
		next = owner->next;
		free(owner);
	}
	pool->owners = NULL;
}

void kvpool_owner_update_locked(struct kvpool_mem *mem)
{
	struct kvpool_owner *owner = mem->account;

	if (!owner)
		return;
	if (mem->is_owner_shared)
		owner->shared_bytes -= mem->owner_bytes;
	else
		owner->private_bytes -= mem->owner_bytes;
	mem->owner_bytes = mem->is_idle || mem->is_imported ?
				   0 :
				   mem->nr_present * kvpool_page(mem);
	mem->is_owner_shared = mem->is_published || mem->is_publishing;
	if (mem->is_owner_shared)
		owner->shared_bytes += mem->owner_bytes;
	else
		owner->private_bytes += mem->owner_bytes;
}

uint64_t kvpool_owner_room_locked(const struct kvpool_mem *mem)
{
	const struct kvpool_owner *owner = mem->account;

	if (!owner || owner->quota_bytes == UINT64_MAX)
		return UINT64_MAX;
	return owner->private_bytes < owner->quota_bytes ?
		       owner->quota_bytes - owner->private_bytes :
		       0;
}

int kvpool_local_set_quota(struct kvpool *base, uid_t uid, uint64_t bytes,
			   uint64_t shared_bytes)
{
	struct kvpool_local *pool = kvpool_local(base);

	if (!(base->features & KVPOOL_F_QUOTA))
		return -EOPNOTSUPP;
	pthread_mutex_lock(&pool->lock);
	struct kvpool_owner *owner = kvpool_owner_locked(pool, uid);

	if (owner) {
		owner->quota_bytes = bytes;
		owner->shared_quota_bytes = shared_bytes;
	}
	pthread_mutex_unlock(&pool->lock);
	return owner ? 0 : -ENOMEM;
}
