/* SPDX-License-Identifier: Apache-2.0 */
/*
 * USDT probes of the daemon, provider "tarn": a nop each while nobody looks.
 * Names, arguments and units are an interface; a test compares this list with
 * the notes in the binary. Try: bpftrace -e 'usdt:./tarnd:tarn:step_end
 * { @us = hist(arg4 / 1000); }'
 *
 * Probes (serial: number of the request in this process, from 1):
 *
 *	request_arrive(serial, uid, pid, body_bytes)	a body was read whole
 *	request_schedule(serial, prompt_tokens, cached_tokens, choices)	memory is kept, it runs
 *	request_first_token(serial, ns)			since arrival
 *	request_finish(serial, prompt_tokens, completion_tokens, ns)	all choices have ended
 *	request_cancel(serial, completion_tokens, ns)	the client went, or was cut off
 *	step_begin(step, sequences, tokens)		a batch goes to the engine
 *	step_end(step, tokens, decodes, prompts, ns)	sequences that decoded, that read prompts
 *	load_begin(path)				a C string
 *	load_end(errno, ns)				0 when the model is there
 *
 * A step may begin before the last one ended; the ns of its end count from there then.
 */
#ifndef TARN_DAEMON_PROBES_H
#define TARN_DAEMON_PROBES_H

#include <sys/sdt.h>

#define PROBE_REQUEST_ARRIVE(serial, uid, pid, body_bytes) \
	DTRACE_PROBE4(tarn, request_arrive, serial, uid, pid, body_bytes)
#define PROBE_REQUEST_SCHEDULE(serial, prompt_tokens, cached_tokens, choices) \
	DTRACE_PROBE4(tarn, request_schedule, serial, prompt_tokens,          \
		      cached_tokens, choices)
#define PROBE_REQUEST_FIRST_TOKEN(serial, ns) \
	DTRACE_PROBE2(tarn, request_first_token, serial, ns)
#define PROBE_REQUEST_FINISH(serial, prompt_tokens, completion_tokens, ns) \
	DTRACE_PROBE4(tarn, request_finish, serial, prompt_tokens,         \
		      completion_tokens, ns)
#define PROBE_REQUEST_CANCEL(serial, completion_tokens, ns) \
	DTRACE_PROBE3(tarn, request_cancel, serial, completion_tokens, ns)
#define PROBE_STEP_BEGIN(step, sequences, tokens) \
	DTRACE_PROBE3(tarn, step_begin, step, sequences, tokens)
#define PROBE_STEP_END(step, tokens, decodes, prompts, ns) \
	DTRACE_PROBE5(tarn, step_end, step, tokens, decodes, prompts, ns)
#define PROBE_LOAD_BEGIN(path) DTRACE_PROBE1(tarn, load_begin, path)
#define PROBE_LOAD_END(error, ns) DTRACE_PROBE2(tarn, load_end, error, ns)

#endif /* TARN_DAEMON_PROBES_H */
