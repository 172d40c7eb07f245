/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text of tarnd --help. The manual page tarnd.1 says the same at length.
 */
#include "daemon/options.h"

static const char help[] =
	"tarnd serves a language model on a Unix socket, with OpenAI's HTTP API.\n"
	"\n"
	"Usage: tarnd --model FILE [--socket PATH] [options]\n"
	"\n"
	"Model and memory\n"
	"  --model FILE            a GGUF file\n"
	"  --threads N             threads that compute (default: one per core)\n"
	"  --ctx N                 most tokens of one sequence (default: the model's)\n"
	"  --device D              auto, cpu or cuda (default: auto)\n"
	"  --kv-bytes SIZE         all KV memory: 512M, 2G, 25% of what is available\n"
	"                          (default: half of what is available)\n"
	"  --kv-backend B          auto, kernel, memfd or cuda (default: auto)\n"
	"  --precise               float32 activations and KV: slower, exact\n"
	"  --no-prefix-cache       do not keep prompts' beginnings for later requests\n"
	"  --max-batch-tokens N    most tokens computed in one step (default: 512)\n"
	"\n"
	"Socket and clients\n"
	"  --socket PATH           default: $TARN_SOCKET, else /run/tarn/tarn.sock as root, else\n"
	"                          $XDG_RUNTIME_DIR/tarn.sock\n"
	"  --socket-mode MODE      who may connect, octal (default: 0660)\n"
	"  --socket-owner U[:G]    user and group of the socket\n"
	"  --queue N               requests that may wait; more get a 503 (default: 512)\n"
	"  --max-body SIZE         largest request (default: 4M)\n"
	"  --max-unsent SIZE       cut off a stream's reader who is further behind (default: 1M)\n"
	"  --timeout SECONDS       for a request to arrive, an idle connection, a reader that\n"
	"                          stalls (default: 60)\n"
	"  --drain-timeout SECONDS how long SIGTERM waits for what runs (default: 30)\n"
	"  --strict                refuse unknown fields instead of ignoring them\n"
	"\n"
	"  --log-level LEVEL       error, warn, info or debug (default: info)\n"
	"  -V, --version           print the version and exit\n"
	"  -h, --help              print this and exit\n"
	"\n"
	"Try it\n"
	"  tarnd --model smollm2.gguf --socket /tmp/tarn.sock &\n"
	"  curl --unix-socket /tmp/tarn.sock http://tarn/health\n"
	"  curl --unix-socket /tmp/tarn.sock http://tarn/v1/chat/completions \\\n"
	"    -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Say hello.\"}]}'\n"
	"  curl -N --unix-socket /tmp/tarn.sock http://tarn/v1/completions \\\n"
	"    -d '{\"prompt\": \"Once upon a time\", \"max_tokens\": 40, \"stream\": true}'\n"
	"  curl --unix-socket /tmp/tarn.sock http://tarn/tokenize -d '{\"content\": \"Hello\"}'\n"
	"\n"
	"Paths: /v1/completions /v1/chat/completions /v1/models /tokenize /detokenize /health\n"
	"/version /stats. SIGTERM or SIGINT: refuse what waits, finish what runs; a second one:\n"
	"stop at once.\n"
	"\n"
	"Exit codes: 0 stopped as asked, 1 failure at run time, 2 wrong usage, 3 the model or\n"
	"device cannot be used, 4 another daemon has the socket, 5 the socket cannot be made.\n";

const char *options_help(void)
{
	return help;
}
