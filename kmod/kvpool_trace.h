/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Tracepoints kvpool:*. Names and fields are ABI: tools read them. Ids are
 * those of the ABI, sizes are bytes, times nanoseconds, rc 0 or -errno.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM kvpool

#if !defined(_KVPOOL_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define _KVPOOL_TRACE_H

#include <linux/tracepoint.h>

#include "kvpool_private.h"

/* Laid out as in include/trace/events. */
/* clang-format off */

DECLARE_EVENT_CLASS(kvpool_pool_class,
	TP_PROTO(struct kvpool_pool *pool),
	TP_ARGS(pool),
	TP_STRUCT__entry(
		__field(u32, pool)
		__field(u32, uid)
		__field(u64, limit)
		__string(name, pool->name)
	),
	TP_fast_assign(
		__entry->pool = pool->id;
		__entry->uid = from_kuid(&init_user_ns, pool->uid);
		__entry->limit = pool->limit;
		__assign_str(name, pool->name);
	),
	TP_printk("pool=%u uid=%u limit=%llu name=%s", __entry->pool,
		  __entry->uid, __entry->limit, __get_str(name))
);

DEFINE_EVENT(kvpool_pool_class, kvpool_pool_create,
	TP_PROTO(struct kvpool_pool *pool), TP_ARGS(pool));
DEFINE_EVENT(kvpool_pool_class, kvpool_pool_free,
	TP_PROTO(struct kvpool_pool *pool), TP_ARGS(pool));

DECLARE_EVENT_CLASS(kvpool_buf_class,
	TP_PROTO(struct kvpool_buf *buf),
	TP_ARGS(buf),
	TP_STRUCT__entry(
		__field(u32, pool)
		__field(u32, buf)
		__field(u32, uid)
		__field(u64, bytes)
	),
	TP_fast_assign(
		__entry->pool = buf->pool->id;
		__entry->buf = buf->id;
		__entry->uid = from_kuid(&init_user_ns, buf->owner->uid);
		__entry->bytes = buf->bytes;
	),
	TP_printk("pool=%u buf=%u uid=%u bytes=%llu", __entry->pool,
		  __entry->buf, __entry->uid, __entry->bytes)
);

DEFINE_EVENT(kvpool_buf_class, kvpool_buf_create,
	TP_PROTO(struct kvpool_buf *buf), TP_ARGS(buf));
DEFINE_EVENT(kvpool_buf_class, kvpool_buf_free,
	TP_PROTO(struct kvpool_buf *buf), TP_ARGS(buf));

TRACE_EVENT(kvpool_fault,
	TP_PROTO(struct kvpool_buf *buf, pgoff_t page, bool is_write,
		 bool is_filled, unsigned int ret, u64 ns),
	TP_ARGS(buf, page, is_write, is_filled, ret, ns),
	TP_STRUCT__entry(
		__field(u32, pool)
		__field(u32, buf)
		__field(u64, page)
		__field(u64, ns)
		__field(u32, ret)
		__field(u8, is_write)
		__field(u8, is_filled)
	),
	TP_fast_assign(
		__entry->pool = buf->pool->id;
		__entry->buf = buf->id;
		__entry->page = page;
		__entry->ns = ns;
		__entry->ret = ret;
		__entry->is_write = is_write;
		__entry->is_filled = is_filled;
	),
	TP_printk("pool=%u buf=%u page=%llu write=%u filled=%u ret=%#x ns=%llu",
		  __entry->pool, __entry->buf, __entry->page,
		  __entry->is_write, __entry->is_filled, __entry->ret,
		  __entry->ns)
);

TRACE_EVENT(kvpool_commit,
	TP_PROTO(struct kvpool_buf *buf, u64 offset, u64 len, int rc, u64 ns),
	TP_ARGS(buf, offset, len, rc, ns),
	TP_STRUCT__entry(
		__field(u32, pool)
		__field(u32, buf)
		__field(u64, offset)
		__field(u64, len)
		__field(u64, ns)
		__field(s32, rc)
	),
	TP_fast_assign(
		__entry->pool = buf->pool->id;
		__entry->buf = buf->id;
		__entry->offset = offset;
		__entry->len = len;
		__entry->ns = ns;
		__entry->rc = rc;
	),
	TP_printk("pool=%u buf=%u offset=%llu len=%llu rc=%d ns=%llu",
		  __entry->pool, __entry->buf, __entry->offset, __entry->len,
		  __entry->rc, __entry->ns)
);

TRACE_EVENT(kvpool_release,
	TP_PROTO(struct kvpool_buf *buf, u64 offset, u64 len, u64 done),
	TP_ARGS(buf, offset, len, done),
	TP_STRUCT__entry(
		__field(u32, pool)
		__field(u32, buf)
		__field(u64, offset)
		__field(u64, len)
		__field(u64, done)
	),
	TP_fast_assign(
		__entry->pool = buf->pool->id;
		__entry->buf = buf->id;
		__entry->offset = offset;
		__entry->len = len;
		__entry->done = done;
	),
	TP_printk("pool=%u buf=%u offset=%llu len=%llu done=%llu",
		  __entry->pool, __entry->buf, __entry->offset, __entry->len,
		  __entry->done)
);

TRACE_EVENT(kvpool_seal,
	TP_PROTO(struct kvpool_buf *buf, u64 n, int rc, u64 ns),
	TP_ARGS(buf, n, rc, ns),
	TP_STRUCT__entry(
		__field(u32, pool)
		__field(u32, buf)
		__field(u64, n)
		__field(u64, ns)
		__field(s32, rc)
	),
	TP_fast_assign(
		__entry->pool = buf->pool->id;
		__entry->buf = buf->id;
		__entry->n = n;
		__entry->ns = ns;
		__entry->rc = rc;
	),
	TP_printk("pool=%u buf=%u n=%llu rc=%d ns=%llu", __entry->pool,
		  __entry->buf, __entry->n, __entry->rc, __entry->ns)
);

TRACE_EVENT(kvpool_clone,
	TP_PROTO(struct kvpool_buf *from, struct kvpool_buf *to, u64 n,
		 u64 shared, u64 copied),
	TP_ARGS(from, to, n, shared, copied),
	TP_STRUCT__entry(
		__field(u32, pool)
		__field(u32, from)
		__field(u32, to)
		__field(u64, n)
		__field(u64, shared)
		__field(u64, copied)
	),
	TP_fast_assign(
		__entry->pool = from->pool->id;
		__entry->from = from->id;
		__entry->to = to->id;
		__entry->n = n;
		__entry->shared = shared;
		__entry->copied = copied;
	),
	TP_printk("pool=%u from=%u to=%u n=%llu shared=%llu copied=%llu",
		  __entry->pool, __entry->from, __entry->to, __entry->n,
		  __entry->shared, __entry->copied)
);

TRACE_EVENT(kvpool_publish,
	TP_PROTO(struct kvpool_buf *buf, u32 nr_keys, int rc),
	TP_ARGS(buf, nr_keys, rc),
	TP_STRUCT__entry(
		__field(u32, pool)
		__field(u32, buf)
		__field(u32, nr_keys)
		__field(s32, rc)
	),
	TP_fast_assign(
		__entry->pool = buf->pool->id;
		__entry->buf = buf->id;
		__entry->nr_keys = nr_keys;
		__entry->rc = rc;
	),
	TP_printk("pool=%u buf=%u keys=%u rc=%d", __entry->pool, __entry->buf,
		  __entry->nr_keys, __entry->rc)
);

TRACE_EVENT(kvpool_lookup,
	TP_PROTO(struct kvpool_pool *pool, u64 buf, u64 n, int rc),
	TP_ARGS(pool, buf, n, rc),
	TP_STRUCT__entry(
		__field(u32, pool)
		__field(u32, buf)
		__field(u64, n)
		__field(s32, rc)
	),
	TP_fast_assign(
		__entry->pool = pool->id;
		__entry->buf = buf;
		__entry->n = n;
		__entry->rc = rc;
	),
	TP_printk("pool=%u buf=%u n=%llu rc=%d", __entry->pool, __entry->buf,
		  __entry->n, __entry->rc)
);

TRACE_EVENT(kvpool_purge,
	TP_PROTO(struct kvpool_buf *buf, u64 freed),
	TP_ARGS(buf, freed),
	TP_STRUCT__entry(
		__field(u32, pool)
		__field(u32, buf)
		__field(u64, freed)
	),
	TP_fast_assign(
		__entry->pool = buf->pool->id;
		__entry->buf = buf->id;
		__entry->freed = freed;
	),
	TP_printk("pool=%u buf=%u freed=%llu", __entry->pool, __entry->buf,
		  __entry->freed)
);

TRACE_EVENT(kvpool_drain,
	TP_PROTO(struct kvpool_pool *pool, u64 bytes, u64 draining),
	TP_ARGS(pool, bytes, draining),
	TP_STRUCT__entry(
		__field(u32, pool)
		__field(u64, bytes)
		__field(u64, draining)
	),
	TP_fast_assign(
		__entry->pool = pool->id;
		__entry->bytes = bytes;
		__entry->draining = draining;
	),
	TP_printk("pool=%u bytes=%llu draining=%llu", __entry->pool,
		  __entry->bytes, __entry->draining)
);

TRACE_EVENT(kvpool_limit,
	TP_PROTO(struct kvpool_buf *buf, u64 wanted, int rc),
	TP_ARGS(buf, wanted, rc),
	TP_STRUCT__entry(
		__field(u32, pool)
		__field(u32, buf)
		__field(u32, uid)
		__field(u64, wanted)
		__field(s32, rc)
	),
	TP_fast_assign(
		__entry->pool = buf->pool->id;
		__entry->buf = buf->id;
		__entry->uid = from_kuid(&init_user_ns, buf->owner->uid);
		__entry->wanted = wanted;
		__entry->rc = rc;
	),
	TP_printk("pool=%u buf=%u uid=%u wanted=%llu rc=%d", __entry->pool,
		  __entry->buf, __entry->uid, __entry->wanted, __entry->rc)
);

TRACE_EVENT(kvpool_revoke,
	TP_PROTO(struct kvpool_buf *buf, u32 nr),
	TP_ARGS(buf, nr),
	TP_STRUCT__entry(
		__field(u32, pool)
		__field(u32, buf)
		__field(u32, nr)
	),
	TP_fast_assign(
		__entry->pool = buf->pool->id;
		__entry->buf = buf->id;
		__entry->nr = nr;
	),
	TP_printk("pool=%u buf=%u nr=%u", __entry->pool, __entry->buf,
		  __entry->nr)
);

#endif /* _KVPOOL_TRACE_H */

#undef TRACE_INCLUDE_PATH
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_PATH .
#define TRACE_INCLUDE_FILE kvpool_trace
#include <trace/define_trace.h>
