// SPDX-License-Identifier: GPL-2.0
/*
 * Who pays: the pool's limit and the quotas of uids, exact to the byte. Every
 * page is charged before it is allocated and uncharged after its last
 * reference is gone. A published page moves between the accounts, never out of
 * the pool's sum. Callers from any context that may take a spin lock.
 */
#include <linux/capability.h>
#include <linux/slab.h>

#include "kvpool_private.h"
#include "kvpool_trace.h"

/* The account of @uid; NULL: he never had one. Context: acct_lock. */
struct kvpool_account *kvpool_account_find(struct kvpool_pool *pool, kuid_t uid)
{
	struct kvpool_account *account;
	const u32 bucket = __kuid_val(uid) % KVPOOL_ACCOUNT_BUCKETS;

	lockdep_assert_held(&pool->acct_lock);
	hlist_for_each_entry(account, &pool->accounts[bucket], node)
		if (uid_eq(account->uid, uid))
			return account;
	return NULL;
}

/*
 * The account of @uid, made where there is none yet. It stays until the pool
 * goes. Return: NULL without memory. May sleep.
 */
struct kvpool_account *kvpool_account_get(struct kvpool_pool *pool, kuid_t uid)
{
	const u32 bucket = __kuid_val(uid) % KVPOOL_ACCOUNT_BUCKETS;
	struct kvpool_account *account, *fresh;

	spin_lock(&pool->acct_lock);
	account = kvpool_account_find(pool, uid);
	spin_unlock(&pool->acct_lock);
	if (account)
		return account;
	fresh = kzalloc(sizeof(*fresh), KVPOOL_RECORD_GFP);
	if (!fresh)
		return NULL;
	fresh->uid = uid;
	spin_lock(&pool->acct_lock);
	account = kvpool_account_find(pool, uid);
	if (!account) {
		account = fresh;
		hlist_add_head(&account->node, &pool->accounts[bucket]);
		fresh = NULL;
	}
	spin_unlock(&pool->acct_lock);
	kfree(fresh);
	return account;
}

/* One more of what the pool counts. */
void kvpool_count(struct kvpool_pool *pool, u64 *counter)
{
	spin_lock(&pool->acct_lock);
	++*counter;
	spin_unlock(&pool->acct_lock);
}

void kvpool_accounts_free(struct kvpool_pool *pool)
{
	struct kvpool_account *account;
	struct hlist_node *next;
	int i;

	for (i = 0; i < KVPOOL_ACCOUNT_BUCKETS; i++) {
		hlist_for_each_entry_safe(account, next, &pool->accounts[i],
					  node) {
			WARN_ON_ONCE(account->private || account->shared);
			kfree(account);
		}
	}
}

/* Whether the caller may move limits and quotas. */
bool kvpool_may_manage(const struct kvpool_pool *pool)
{
	return uid_eq(current_euid(), pool->uid) || capable(CAP_SYS_RESOURCE);
}

static u64 quota_of(const struct kvpool_pool *pool,
		    const struct kvpool_account *account)
{
	return account->has_quota ? account->quota : pool->quota;
}

static bool fits(u64 held, u64 bytes, u64 limit)
{
	return held <= limit && bytes <= limit - held;
}

/* Whether the uid's quota has room. Context: acct_lock. */
bool kvpool_account_fits(const struct kvpool_pool *pool,
			 const struct kvpool_account *account, u64 bytes)
{
	return fits(account->private, bytes, quota_of(pool, account));
}

/* After charged has changed. Return: it has come near the limit just now. */
bool kvpool_note_pressure(struct kvpool_pool *pool)
{
	const bool is_pressed = pool->charged > pool->limit - pool->limit / 8;
	const bool is_new = is_pressed && !pool->is_pressed;

	pool->is_pressed = is_pressed;
	pool->peak = max(pool->peak, pool->charged);
	return is_new;
}

/*
 * Charge @bytes to @account, or to the pool's reserve where it is NULL.
 * Return: 0; -ENOSPC (the pool's limit); -EDQUOT (the uid's quota).
 */
int kvpool_charge(struct kvpool_pool *pool, struct kvpool_account *account,
		  u64 bytes)
{
	bool is_new = false;
	u64 charged;
	int rc = 0;

	spin_lock(&pool->acct_lock);
	if (!fits(pool->charged, bytes, pool->limit)) {
		rc = -ENOSPC;
	} else if (account && !kvpool_account_fits(pool, account, bytes)) {
		rc = -EDQUOT;
	} else {
		pool->charged += bytes;
		if (account)
			account->private += bytes;
		else
			pool->reserve += bytes;
		is_new = kvpool_note_pressure(pool);
	}
	charged = pool->charged;
	spin_unlock(&pool->acct_lock);
	if (is_new)
		kvpool_event_send(pool, KVPOOL_EVENT_PRESSURE, 0, charged,
				  INVALID_UID);
	return rc;
}

void kvpool_uncharge(struct kvpool_pool *pool, struct kvpool_account *account,
		     u64 bytes)
{
	spin_lock(&pool->acct_lock);
	pool->charged -= bytes;
	if (account)
		account->private -= bytes;
	else
		pool->reserve -= bytes;
	kvpool_note_pressure(pool);
	spin_unlock(&pool->acct_lock);
}

/*
 * Room in the publisher's shared account, for pages that another account of
 * the same pool stops paying for. Return: 0; -EDQUOT.
 */
int kvpool_charge_shared(struct kvpool_pool *pool,
			 struct kvpool_account *publisher, u64 bytes)
{
	u64 quota;
	int rc = 0;

	spin_lock(&pool->acct_lock);
	quota = publisher->has_quota ? publisher->shared_quota :
				       pool->shared_quota;
	if (fits(publisher->shared, bytes, quota))
		publisher->shared += bytes;
	else
		rc = -EDQUOT;
	spin_unlock(&pool->acct_lock);
	return rc;
}

void kvpool_uncharge_shared(struct kvpool_pool *pool,
			    struct kvpool_account *publisher, u64 bytes)
{
	spin_lock(&pool->acct_lock);
	publisher->shared -= bytes;
	spin_unlock(&pool->acct_lock);
}
