/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The texts of tarn help. The manual page tarn.1 says the same at length.
 */
#include <string.h>

#include "daemon/cli_options.h"

static const char general[] =
	"tarn asks language models that tarnd serves, and starts a tarnd where none is named.\n"
	"\n"
	"Usage: tarn COMMAND [options]\n"
	"\n"
	"  run \"PROMPT\"     ask one question\n"
	"  chat             hold a conversation\n"
	"  ps               what the daemons are doing\n"
	"  pool [NAME]      the kernel's pools of KV memory\n"
	"  tokenize         text to token ids\n"
	"  inspect FILE     what is in a model file, and what it takes to serve it\n"
	"  template         a chat request to the prompt's text\n"
	"  version          print the version\n"
	"  help [COMMAND]   this, or all about a command\n"
	"\n"
	"Try it\n"
	"  tarn run \"Why is the sky blue?\"\n"
	"  tarn run --system \"Answer in French.\" \"Good morning!\"\n"
	"  tarn run \"Summarise this:\" - < notes.txt\n"
	"  tarn chat --model gemma.gguf\n"
	"\n"
	"With a daemon that stays, every call is answered at once:\n"
	"  tarnd --model smollm2.gguf --socket /tmp/tarn.sock &\n"
	"  export TARN_SOCKET=/tmp/tarn.sock\n"
	"  tarn run \"Hello\"\n"
	"  tarn ps\n"
	"\n"
	"Exit codes: 0 done, 1 failure, 2 wrong usage, 3 no daemon, no model or no\n"
	"kernel pools, 130 interrupted (128 and the number of the signal).\n";

#define ANSWER_OPTIONS                                                                            \
	"The answer\n"                                                                            \
	"  --system TEXT        who the model is to be\n"                                         \
	"  --max-tokens N       end the answer after so many tokens (default: 1024, or less\n"    \
	"                       where the context is shorter)\n"                                  \
	"  --temperature T      0 to 2: 0 takes the likeliest token each time (default: 0)\n"     \
	"  --top-p P            only the likeliest tokens that together have probability P\n"     \
	"  --top-k K            only the K likeliest tokens\n"                                    \
	"  --seed N             the same seed gives the same answer (default: random)\n"          \
	"  --raw                continue the text as it stands, without the chat template\n"      \
	"  --no-stream          print the answer when it is whole\n"                              \
	"\n"                                                                                      \
	"The daemon\n"                                                                            \
	"  --socket PATH        one that runs (default: $TARN_SOCKET); without one, a tarnd is\n" \
	"                       started for this call alone, by these options:\n"                 \
	"  --model FILE         a GGUF file (default: $TARN_MODEL, else the one that\n"           \
	"                       fetch-model fetches)\n"                                           \
	"  --ctx N              most tokens of question and answer (default: the model's)\n"      \
	"  --threads N          threads that compute (default: one per core)\n"                   \
	"  --device D           auto, cpu or cuda (default: auto)\n"                              \
	"  --precise            float32 activations and KV: slower, exact\n"

static const char run_help[] =
	"tarn run asks one question and prints the answer as it comes.\n"
	"\n"
	"Usage: tarn run [options] \"PROMPT\"...\n"
	"\n"
	"Several words are joined by spaces; \"-\" stands for the text of standard input, which\n"
	"is also read when no prompt is given. The prompt goes through the model's chat template\n"
	"where it has one. The answer goes to standard output, all else to standard error: at\n"
	"the end, tokens and speed.\n"
	"\n" ANSWER_OPTIONS "\n"
	"  -v, --verbose        show what the daemon that was started says\n"
	"  -h, --help           print this\n"
	"\n"
	"Try it\n"
	"  tarn run \"Why is the sky blue?\"\n"
	"  tarn run --temperature 0.8 --seed 7 \"Write a haiku about rain.\"\n"
	"  tarn run --system \"You correct spelling.\" - < letter.txt > corrected.txt\n"
	"  tarn run --raw --max-tokens 40 \"Once upon a time\"\n"
	"  git diff | tarn run \"Write a commit message for this:\" -\n";

static const char chat_help[] =
	"tarn chat holds a conversation.\n"
	"\n"
	"Usage: tarn chat [options]\n"
	"\n"
	"Each line is a message; one that ends in \\ goes on in the next line. Ctrl-C stops an\n"
	"answer, /clear forgets the conversation, /help lists what else there is, /bye or Ctrl-D\n"
	"ends. Without a terminal every line of standard input is answered in turn.\n"
	"\n" ANSWER_OPTIONS "\n"
	"  -v, --verbose        tokens and speed after each answer; what the daemon says\n"
	"  -h, --help           print this\n"
	"\n"
	"Try it\n"
	"  tarn chat\n"
	"  tarn chat --system \"You are a patient teacher.\" --temperature 0.7\n"
	"  printf 'My name is Ada.\\nWhat is my name?\\n' | tarn chat\n";

static const char ps_help[] =
	"tarn ps shows daemons and the requests they work on.\n"
	"\n"
	"Usage: tarn ps [--socket PATH] [--json]\n"
	"\n"
	"  --socket PATH        the daemon to ask (default: $TARN_SOCKET, else those at\n"
	"                       $XDG_RUNTIME_DIR/tarn.sock and /run/tarn/tarn.sock)\n"
	"  --json               all that /stats tells, as an array with one object per daemon\n"
	"  -h, --help           print this\n"
	"\n"
	"Of each daemon: model, process, status (loading, ok, stopping), uptime, device, requests\n"
	"that run and wait, and KV memory that is in use, that keeps beginnings of earlier\n"
	"prompts, and that it may have. Of each request: who asked (uid and pid), its state,\n"
	"tokens of the prompt and those found in the cache, tokens of the answer so far, its\n"
	"age, and the KV bytes its tokens take (shared ones counted with each request).\n"
	"\n"
	"Try it\n"
	"  tarn ps\n"
	"  tarn ps --socket /tmp/tarn.sock --json | jq '.[].running[].uid'\n"
	"  watch -n1 tarn ps\n";

static const char pool_help[] =
	"tarn pool shows the kernel's pools of KV memory and the buffers in them.\n"
	"\n"
	"Usage: tarn pool [NAME] [--json]\n"
	"\n"
	"  NAME                 only the pool of this name\n"
	"  --json               all there is to know, as an array with one object per pool\n"
	"  -h, --help           print this\n"
	"\n"
	"Pools are those of the kernel module that this user may read. Of each: owner, mode, the\n"
	"limit, what is charged against it, and of that what belongs to buffers, what of those\n"
	"is published and what may be taken away; a pool without a name shows its number only.\n"
	"Of each buffer (one's own, and all in a pool of one's own): owner, state, size in\n"
	"addresses, what of it has pages, what no clone shares, what is sealed, how many hold\n"
	"it and how many of them need it, and the keys that lead to it. States: open, sealed\n"
	"(its beginning cannot change), published, volatile (nobody needs it: it may be taken),\n"
	"purged (it was taken).\n"
	"\n"
	"Try it\n"
	"  tarn pool\n"
	"  tarn pool shared --json | jq '.[].buffers[] | select(.state == \"volatile\")'\n"
	"  watch -n1 tarn pool shared\n";

static const char tokenize_help[] =
	"tarn tokenize turns text into token ids.\n"
	"\n"
	"Usage: tarn tokenize [--model FILE] [--special] [--bos] [--allow-unknown-pre] < TEXT\n"
	"\n"
	"Reads all of standard input, every byte of it, also the last newline, and prints one\n"
	"JSON array. Only the file's metadata is read: one without tensors will do. The ids are\n"
	"those of the text alone: no token is put before or behind it unless --bos asks.\n"
	"\n"
	"  --model FILE         a GGUF file (default: $TARN_MODEL, else the one that\n"
	"                       fetch-model fetches)\n"
	"  --special            control tokens that stand in the text, such as <|im_end|>, are\n"
	"                       those tokens; without it they are ordinary text\n"
	"  --bos                begin and end as the model asks for it (BOS, EOS)\n"
	"  --allow-unknown-pre  take a pre-tokenizer of unknown name as \"default\"\n"
	"  -h, --help           print this\n"
	"\n"
	"Try it\n"
	"  printf 'Hello, world' | tarn tokenize --model smollm2.gguf\n"
	"  tarn tokenize --special < prompt.txt | jq length\n";

static const char inspect_help[] =
	"tarn inspect shows what is in a model file, and what it takes to serve it.\n"
	"\n"
	"Usage: tarn inspect [--metadata] [--tensors] [--json] [FILE]\n"
	"\n"
	"FILE is a GGUF file, of a model in several parts the first (default: $TARN_MODEL, else\n"
	"the one that fetch-model fetches). No daemon is asked, and no weights are read: it takes\n"
	"milliseconds. A file that is not there in full yet is shown as far as it goes. Exit code\n"
	"0: tarnd can serve it; 1: it cannot, and the last line says why.\n"
	"\n"
	"  --metadata           all keys too; of arrays their length\n"
	"  --tensors            all tensors too\n"
	"  --json               everything, for programs\n"
	"  -h, --help           print this\n"
	"\n"
	"Try it\n"
	"  tarn inspect smollm2.gguf\n"
	"  tarn inspect --json smollm2.gguf | jq .memory\n";
static const char template_help[] =
	"tarn template shows the exact prompt that a chat template makes of a request.\n"
	"\n"
	"Usage: tarn template [--model FILE | --template FILE] < REQUEST\n"
	"\n"
	"Reads a request as /v1/chat/completions takes it from standard input and prints the\n"
	"text that the model would read, byte for byte, without a newline behind it. No daemon\n"
	"is asked.\n"
	"\n"
	"  --model FILE         the template of a GGUF file, with its BOS and EOS (default:\n"
	"                       $TARN_MODEL, else the one that fetch-model fetches). Only the\n"
	"                       file's metadata is read: one without tensors will do\n"
	"  --template FILE      a Jinja template by itself; bos_token and eos_token are those of\n"
	"                       the request\n"
	"  -h, --help           print this\n"
	"\n"
	"The request: \"messages\", and as wanted \"tools\", \"documents\",\n"
	"\"add_generation_prompt\" (default: true). Every other member, at top level or in\n"
	"\"chat_template_kwargs\", is a variable of the template, such as \"enable_thinking\".\n"
	"Tool calls are handed over in the shape that the template takes. What it refuses is told\n"
	"with the line of the template.\n"
	"\n"
	"Try it\n"
	"  echo '{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}' |\n"
	"      tarn template\n"
	"  tarn template --template chat_template.jinja < request.json | diff - expected.txt\n"
	"  tarn template --model qwen3.gguf < request.json | tarn tokenize --special\n";

static const char version_help[] =
	"tarn version prints the version and nothing else.\n"
	"\n"
	"Usage: tarn version\n";

const char *cli_help(const char *command)
{
	static const struct {
		const char *name, *text;
	} texts[] = {
		{ "run", run_help },
		{ "chat", chat_help },
		{ "ps", ps_help },
		{ "pool", pool_help },
		{ "tokenize", tokenize_help },
		{ "inspect", inspect_help },
		{ "template", template_help },
		{ "version", version_help },
		{ "help", general },
	};

	if (!command)
		return general;
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		if (strcmp(command, texts[i].name) == 0)
			return texts[i].text;
	}
	return NULL;
}
