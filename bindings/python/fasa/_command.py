"""The command `python -m fasa`. Results go to standard output, everything else to standard error;
exit codes are those of the `fasa` command."""
from __future__ import annotations

import argparse
import json
import pathlib
import sys

from . import BudgetError, DeviceError, Error, InputError, UsageError
from ._core import config_from_flags, option_table
from ._studies import default_calibration_texts, read_prompt

_CODES = {UsageError: 2, InputError: 3, BudgetError: 4, DeviceError: 5}


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        raise UsageError(f"{message}; {self.prog} --help lists all arguments")


def _add_config(parser) -> None:
    parser.add_argument("--config", metavar="FILE.toml",
                        help="config file; docs/configuration.md lists the keys")
    groups = {}
    for flag, name, table, kind, text in option_table():
        title = f"config, [{table}]" if table else "config"
        group = groups.setdefault(title, parser.add_argument_group(title))
        group.add_argument(flag, dest=f"option_{name}", metavar=kind.replace("%", "%%"),
                           help=text.replace("%", "%%"))


def _config(arguments):
    prefix = "option_"
    texts = {name[len(prefix):]: value for name, value in vars(arguments).items()
             if name.startswith(prefix) and value is not None}
    return config_from_flags(arguments.config, texts)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m fasa", description=__doc__, allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True, parser_class=_Parser)
    one = commands.add_parser("calibrate",
                              help="make the FC map of a model from text", allow_abbrev=False)
    _add_model(one)
    one.add_argument("--text", action="append", metavar="FILE",
                     help="text files to run over; default: the project's texts")
    one.add_argument("-o", "--output", required=True, metavar="FILE", help="FC map file to write")
    one.add_argument("--tokens", type=int, metavar="N")
    one.add_argument("--window", type=int, metavar="K")
    one.add_argument("--objective", default="distant_attention",
                     help="distant_attention, ca")
    one.add_argument("--queries", type=int, default=96, metavar="N")
    one.add_argument("--seed", type=int, default=1, metavar="N")
    one.add_argument("--no-probes", action="store_true",
                     help="do not plant strings for later queries to attend to")
    _add_config(one)
    one = commands.add_parser("generate", help="generate text with a model", allow_abbrev=False)
    _add_model(one)
    prompt = one.add_mutually_exclusive_group(required=True)
    prompt.add_argument("--prompt", metavar="TEXT")
    prompt.add_argument("--prompt-file", metavar="FILE")
    prompt.add_argument("--prompt-ids", metavar="FILE", help="file with a JSON array of token ids")
    one.add_argument("--chat", action="store_true",
                     help="treat the prompt as a user's message and apply the chat template")
    one.add_argument("--max-tokens", type=int, default=128, metavar="N")
    one.add_argument("--temperature", type=float, default=0.0, metavar="T", help="0 = greedy")
    one.add_argument("--top-k", type=int, default=0, metavar="N")
    one.add_argument("--top-p", type=float, default=1.0, metavar="P")
    one.add_argument("--seed", type=int, default=1, metavar="N")
    one.add_argument("--prefill-chunk", type=int, default=512, metavar="N")
    one.add_argument("--json", action="store_true", help="print one JSON object")
    _add_config(one)
    _add_eval(commands)
    return parser


def _add_eval(commands) -> None:
    one = commands.add_parser("eval", help="measure the quality of a model's answers with a "
                                           "selection",
                              allow_abbrev=False)
    one.add_argument("task", metavar="TASK", help="ppl, needle, turns, retrieval, extract, ruler, "
                                                  "longbench2")
    _add_model(one)
    one.add_argument("--text", nargs="+", metavar="FILE",
                     help="text files; default: a bundled text")
    one.add_argument("--context", nargs="+", type=int, metavar="N",
                     help="tokens of a window, or of a text with facts; one or more values; "
                          "default: 4096")
    one.add_argument("--examples", type=int, metavar="N",
                     help="number of examples; default: depends on the task")
    one.add_argument("--stride", type=int, metavar="N",
                     help="ppl: number of tokens of a window to decode and score; default: a "
                          "quarter")
    one.add_argument("--facts", type=int, metavar="N",
                     help="needle, turns: number of facts per example; default: 4, turns 5")
    one.add_argument("--depths", nargs="+", type=float, metavar="SHARE",
                     help="needle, turns: positions of facts, as shares of the text")
    one.add_argument("--records", nargs="+", type=int, metavar="N",
                     help="extract: number of records of a text, one or more values")
    one.add_argument("--question", choices=("decode", "prefill"),
                     help="how questions are read: with the selection (default), or as the end of "
                          "a prompt")
    one.add_argument("--server", metavar="URL",
                     help="ask a server with OpenAI's API; --model gives the tokenizer alone, and "
                          "OPENAI_API_KEY a key")
    one.add_argument("--served-model", metavar="NAME",
                     help="the server's name of the model; default: its first")
    one.add_argument("--chat", choices=("auto", "always", "never"), default="auto",
                     help="--server: texts and questions are a user's messages, or a text to "
                          "complete; auto: messages where the tokenizer has a chat template")
    one.add_argument("--data", metavar="DIR", help="ruler, longbench2: folder of the data sets")
    one.add_argument("--tasks", nargs="+", metavar="NAME",
                     help="retrieval, ruler: tasks to run; default: all")
    one.add_argument("--seed", type=int, default=1, metavar="N")
    one.add_argument("--json", action="store_true", help="print one JSON object")
    _add_config(one)


def _add_model(parser) -> None:
    parser.add_argument("--model", required=True, metavar="DIR",
                        help="folder of a model that transformers can load")
    parser.add_argument("--dtype", default="auto",
                        help="type of the weights: float32, bfloat16, auto")


def _require_folder(arguments) -> None:
    if not pathlib.Path(arguments.model, "config.json").is_file():
        raise InputError(f"{arguments.model}/config.json: the file cannot be read; give the "
                         "folder of a Hugging Face model")


def _load(arguments):
    """The model, and its tokenizer or None."""
    import transformers

    _require_folder(arguments)
    if arguments.dtype not in ("auto", "float32", "bfloat16"):
        raise UsageError(f'--dtype = "{arguments.dtype}": allowed: float32, bfloat16, auto')
    try:
        # Refuses pickle files: loading one executes code in it.
        model = transformers.AutoModelForCausalLM.from_pretrained(
            arguments.model, dtype=arguments.dtype, local_files_only=True,
            use_safetensors=True).eval()
    except (OSError, ValueError, KeyError, RecursionError) as error:
        raise InputError(f"{arguments.model}: {error}") from error
    return model, _tokenizer(arguments)


def _tokenizer(arguments):
    import transformers

    try:
        return transformers.AutoTokenizer.from_pretrained(arguments.model, local_files_only=True)
    except (OSError, ValueError, KeyError, RecursionError):
        return None


def _read(path) -> str:
    return read_prompt(str(path)).decode("utf-8", "surrogateescape")


def _encode(tokenizer, text, what):
    if tokenizer is None:
        raise UsageError(f"the model's folder has no tokenizer; {what}")
    return tokenizer(text.encode("utf-8", "surrogateescape").decode("utf-8", "replace"),
                     add_special_tokens=False)["input_ids"]


def _calibrate(arguments) -> int:
    import tqdm

    from .transformers import calibrate

    config = _config(arguments)
    if not pathlib.Path(arguments.output).absolute().parent.is_dir():
        raise UsageError(f"{arguments.output}: its folder does not exist")
    paths = arguments.text or default_calibration_texts(arguments.model)
    texts = [_read(path) for path in paths]
    model, tokenizer = _load(arguments)
    most = min(arguments.tokens or 4096, model.config.get_text_config().max_position_embeddings)
    share = -(-most // len(texts))
    ids = [i for text in texts
           for i in _encode(tokenizer, text[:share * 16], "calibration needs one")[:share]]
    bars = {}

    def progress(phase, done, total):
        bar = bars.setdefault(
            phase, tqdm.tqdm(total=total, desc=phase, file=sys.stderr, leave=False))
        bar.update(done - bar.n)

    made = calibrate(model, ids, config=config, objective=arguments.objective, tokens=most,
                     window=arguments.window, queries=arguments.queries, seed=arguments.seed,
                     probes=not arguments.no_probes, progress=progress)
    for bar in bars.values():
        bar.close()
    made.save(arguments.output)
    print(f"{made.queries} queries over {made.tokens} tokens, {made.window} selected, objective "
          f"{made.objective}; written to {arguments.output}")
    return 0


def _prompt(arguments, tokenizer) -> list[int]:
    if arguments.prompt_ids is not None:
        try:
            ids = json.loads(_read(arguments.prompt_ids))
            return [int(i) for i in ids]
        except (ValueError, TypeError, RecursionError) as error:
            raise InputError(
                f"{arguments.prompt_ids}: not a JSON array of token ids: {error}") from error
    text = arguments.prompt if arguments.prompt is not None else _read(arguments.prompt_file)
    if not arguments.chat:
        return _encode(tokenizer, text, "give --prompt-ids")
    if tokenizer is None or tokenizer.chat_template is None:
        raise UsageError("--chat: the model's folder has no chat template")
    return tokenizer.apply_chat_template([{"role": "user", "content": text}],
                                         add_generation_prompt=True, return_dict=True)["input_ids"]


def _generate(arguments) -> int:
    from ._generation import generate, report

    config = _config(arguments)
    model, tokenizer = _load(arguments)
    ids = _prompt(arguments, tokenizer)
    if not ids:
        raise UsageError("the prompt is empty; give at least one token")
    run = generate(model, tokenizer, ids, config, arguments)
    if arguments.json:
        print(json.dumps(report(run, arguments.model, config), indent=2))
    elif tokenizer is None:
        print(*run.tokens)
    else:
        print(run.text)
    return 0


def _evaluated_by_server(arguments) -> dict:
    import transformers

    from ._eval_server import evaluate

    given = [name for name, value in vars(arguments).items()
             if name.startswith("option_") and value is not None]
    if given or arguments.config:
        name = given[0].removeprefix("option_").replace("_", "-") if given else "config"
        raise UsageError(f"--{name}: not with --server, whose own settings hold")
    _require_folder(arguments)
    try:
        config = transformers.AutoConfig.from_pretrained(arguments.model, local_files_only=True)
    except (OSError, ValueError, KeyError, RecursionError) as error:
        raise InputError(f"{arguments.model}: {error}") from error
    return evaluate(config, _tokenizer(arguments), arguments)


def _eval(arguments) -> int:
    from ._eval_tasks import table

    if arguments.server is not None:
        found = _evaluated_by_server(arguments)
    else:
        from ._evaluation import evaluate

        config = _config(arguments)
        found = evaluate(*_load(arguments), config, arguments)
    print(json.dumps(found, indent=2) if arguments.json else table(found))
    return 0


def main(arguments=None) -> None:
    try:
        parsed = _parser().parse_args(arguments)
        run = {"calibrate": _calibrate, "generate": _generate, "eval": _eval}[parsed.command]
        code = run(parsed)
    except Error as error:
        print(f"fasa: error: {error}", file=sys.stderr)
        code = next((_CODES[kind] for kind in _CODES if isinstance(error, kind)), 1)
    except ImportError as error:
        print(f"fasa: error: {error}; pip install fasa[transformers]", file=sys.stderr)
        code = 2
    sys.exit(code)
